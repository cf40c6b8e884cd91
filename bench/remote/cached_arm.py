"""Later epochs of photographs, decoded and cropped, from a cached remote pack or a local one.

python -m bench.remote.cached_arm PATH [--disk FOLDER | --memory] --seconds N
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import stoker
from stoker import transforms as T


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("path")
    p.add_argument("--disk")
    p.add_argument("--memory", action="store_true")
    p.add_argument("--seconds", type=float, default=6)
    a = p.parse_args()
    what: dict[str, Any] = {"transforms": {"image": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]}}
    if a.disk:
        what["cache"] = stoker.Cache(dir=a.disk, limit="64GiB")
    if a.memory:
        what |= {"limits": stoker.Limits(memory="8GiB"), "cache": stoker.Cache(memory="4GiB")}
    with stoker.Loader(a.path, batch_size=256, shuffle=True, seed=1, **what) as loader:
        for _ in range(2):  # the cache is written after the first epoch
            for _ in loader:
                pass
        seen, start = 0, time.perf_counter()
        while time.perf_counter() - start < a.seconds:
            seen += sum(len(batch["index"]) for batch in loader)
        took = time.perf_counter() - start
        stats = loader.stats()["engine"]
    kept = {k: v for k, v in stats.items() if "cache" in k}
    print(json.dumps({"examples_s": seen / took, "examples": seen, "kept": kept}))


if __name__ == "__main__":
    main()
