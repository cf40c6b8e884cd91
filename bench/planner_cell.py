"""One cell of the planner's accuracy: a real loader with a step that sleeps or spins, in a separate process.

    python -m bench.planner_cell '{"data": PACK, "batch": 64, "step": 0.02, "spin": false, "seconds": 4, ...}'

Prints one line of JSON. The first steps, until each slot of the ring has been used once, do not count, because the
steady flow is measured. If part of the data is cached, the cell ends with the epoch, because the second one would
find everything in memory.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import Any

import stoker
from stoker import transforms as T

from . import procs


def work(seconds: float, spin: bool) -> None:
    if not spin:
        time.sleep(seconds)
        return
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def disk_bytes() -> int:
    return procs.bytes_read(os.getpid())[1]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    opened = time.perf_counter()
    loader = stoker.Loader(
        job["data"],
        batch_size=job["batch"],
        shuffle=True,
        seed=job["seed"],
        drop_last=True,
        transforms={"image": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]},
    )
    slots = loader.info["slots"]
    ready = time.perf_counter()
    once = job["cached"] < 1
    marks: list[float] = []  # when each step began: the batch is in hand
    first = 0.0
    before = (0.0, 0, 0.0, 0.0)
    skip = slots + 2
    done = False
    while not done:
        for batch in loader:
            now = time.perf_counter()
            if not first:
                first = now - ready
            marks.append(now)
            _ = batch["image"][0, 0, 0, 0]
            if len(marks) == skip:
                before = (procs.cpu_seconds(os.getpid()), disk_bytes(), *procs.machine_busy())
            if len(marks) > skip + 8 and now - marks[skip - 1] > job["seconds"]:
                done = True
                break
            work(job["step"], job["spin"])
        done = done or once
    cpu, read = procs.cpu_seconds(os.getpid()) - before[0], disk_bytes() - before[1]
    busy, stolen = (a - b for a, b in zip(procs.machine_busy(), before[2:], strict=True))
    window = marks[skip - 1 :]
    total = window[-1] - window[0]
    steps = sorted(b - a for a, b in itertools.pairwise(window))
    n = len(steps)
    engine = loader.stats()["engine"]
    loader.close()
    return {
        "throughput": n * job["batch"] / total,
        "au": min(job["step"] * n / total, 1.0),
        "step_p50": steps[n // 2],
        "step_p99": steps[min(int(0.99 * n), n - 1)],
        "steps": n,
        "seconds": total,
        "open_s": ready - opened,
        "first_batch_s": first,
        "cpu_s": cpu,
        "disk_bytes_per_example": read / (n * job["batch"]),
        # Other work on the machine while this was measured, in cores.
        "cores_foreign": max(busy - cpu, 0.0) / total,
        "cores_stolen": stolen / total,
        "slots": slots,
        "slot_bytes": loader.info["slot_bytes"],
        "stages": {s["name"]: s["busy_ns"] / max(s["records"], 1) for s in engine.get("stages", [])},
    }


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
