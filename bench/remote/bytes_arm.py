"""Two epochs of a pack whose images are not decoded: what reading them takes, the first one with all that comes before
it, the second one (`steady`) while nothing has to begin.

    python -m bench.remote.bytes_arm URL ORDER
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import stoker


def main() -> None:
    url, order = sys.argv[1:]
    shuffle: bool | str = True if order == "full" else order
    opened = time.perf_counter()
    what: dict[str, Any] = {"select": ["image"], "kinds": {"image": "bytes"}}
    with stoker.Loader(url, batch_size=256, shuffle=shuffle, seed=1, **what) as loader:
        first, seen, size, ends = 0.0, 0, 0, []
        for _ in range(2):
            for batch in loader:
                first = first or time.perf_counter() - opened
                if not ends:
                    seen += len(batch["index"])
                    size += sum(len(record) for record in batch["image"])
            ends.append(time.perf_counter())
        read = loader.stats()["engine"]["bytes"]
    result = {"epoch_s": ends[0] - opened, "steady_s": ends[1] - ends[0], "first_batch_s": first}
    print(json.dumps(result | {"examples": seen, "bytes": size, "read_bytes": read}))


if __name__ == "__main__":
    main()
