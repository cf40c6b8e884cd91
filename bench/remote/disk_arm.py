"""An epoch of undecoded bytes from a disk. It measures the rate between the first batch and most of the epoch,
without the effects of opening and readahead. It also measures the times for opening and for the first batch.

    python -m bench.remote.disk_arm PATH ORDER
"""

from __future__ import annotations

import json
import sys
import time

import stoker

BATCH, SHARE = 256, 0.9


def main() -> None:
    path, order = sys.argv[1:]
    shuffle: bool | str = True if order == "full" else order
    field = "data" if path.startswith("files:") else "image"
    data = stoker.open(path).kinds({field: "bytes"}).select(field)
    began = time.perf_counter()
    with stoker.Loader(data, batch_size=BATCH, shuffle=shuffle, seed=1) as loader:
        opened = time.perf_counter()
        last = int(SHARE * len(loader))
        first = end = 0.0
        seen = size = 0
        for n, batch in enumerate(loader):
            if n > 0:
                seen += len(batch["index"])
                size += sum(len(record) for record in batch[field])
            else:
                first = time.perf_counter()
            if n == last:
                end = time.perf_counter()
                break
        stats = loader.stats()["engine"]
    took = end - first
    result = {"gb_s": size / took / 1e9, "examples_s": seen / took, "first_batch_s": first - opened}
    print(json.dumps(result | {"open_s": opened - began, "examples": seen, "bytes": size, "depth": stats.get("depth")}))


if __name__ == "__main__":
    main()
