"""Consecutive epochs over a folder or a pack: the time of each.

python -m bench.learn_arm PATH [--cache FOLDER] [--epochs N] [--step SECONDS]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

import stoker
from stoker import transforms as T

from . import procs

BATCH = 64


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("path")
    p.add_argument("--cache", help="folder of the cache, by the rule of those who have not asked for one")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--step", type=float, default=0.0, help="what a step takes, on another device")
    a = p.parse_args()
    os.environ["STOKER_CACHE"] = "auto" if a.cache else "off"
    if a.cache:
        os.environ["STOKER_CACHE_DIR"] = a.cache
    image = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]
    epochs: list[dict[str, Any]] = []
    with stoker.Loader(a.path, batch_size=BATCH, shuffle=True, seed=1, transforms={"image": image}) as loader:
        for _ in range(a.epochs):
            start, cpu, rows = time.perf_counter(), procs.cpu_seconds(os.getpid()), 0
            for batch in loader:
                rows += len(batch["image"])
                if a.step:
                    time.sleep(a.step)
            epochs.append({
                "seconds": time.perf_counter() - start, "cpu_s": procs.cpu_seconds(os.getpid()) - cpu, "rows": rows,
            })  # fmt: skip
        kept = loader.stats()["engine"].get("cache", {})
    print(json.dumps({"epochs": epochs, "cache": {k: kept[k] for k in ("hits", "misses", "kept") if k in kept}}))


if __name__ == "__main__":
    main()
