"""A job with a training step: steps per second after the first epoch, with or without a cache.

python -m bench.remote.train_arm URL --seconds N [--cache FOLDER] [--step SECONDS]
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import stoker

BATCH = 64


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("url")
    p.add_argument("--seconds", type=float, required=True)
    p.add_argument("--cache")
    p.add_argument("--step", type=float, default=0.03)
    a = p.parse_args()
    data = stoker.open(a.url).kinds({"image": "bytes"}).select("image")
    what: dict[str, Any] = {}
    if a.cache:
        what["cache"] = stoker.Cache(dir=a.cache, limit="64GiB")
    with stoker.Loader(data, batch_size=BATCH, shuffle=True, seed=1, **what) as loader:
        if a.cache:  # the first epoch fills it
            for _ in loader:
                pass
        steps, start = -1, 0.0  # the first step waits for the start-up
        while time.perf_counter() - start < a.seconds or not start:
            for _ in loader:
                time.sleep(a.step)
                if (steps := steps + 1) == 0:
                    start = time.perf_counter()
                if start and time.perf_counter() - start >= a.seconds:
                    break
        took = time.perf_counter() - start
    print(json.dumps({"steps": steps, "steps_s": steps / took}))


if __name__ == "__main__":
    main()
