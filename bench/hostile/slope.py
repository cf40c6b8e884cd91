"""The memory of trainer and engine over many small batches: how much it grows in an hour."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from .ground import engines, environment, wait_for
from .kills import Job

CODE = """
import sys, select, stoker
loader = stoker.Loader(sys.argv[1], 4, shuffle=True, seed=1, transforms={"image": [stoker.transforms.CenterCrop(16)]},
                       limits=stoker.Limits(memory="64MB"), threads=1)
n = 0
while True:
    for batch in loader:
        n += 1
        if n % 100 == 0:
            print('{"batches": %d}' % n, flush=True)
            select.select([], [], [], 0.02)  # other processes get their turn
"""


@dataclass
class Slope:
    """Growth in MiB per hour, measured over some minutes and batches."""

    engine: float
    trainer: float
    minutes: float
    batches: int

    def text(self) -> str:
        ok = self.engine < 1 and self.trainer < 1
        figures = f"engine {self.engine:+.2f}, trainer {self.trainer:+.2f} MiB per hour, over {self.batches:,} batches in {self.minutes:.1f} minutes"
        return ("passes: " if ok else "fails: ") + figures


def private(pid: int) -> float:
    """Return the anonymous memory of a process in MiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("Anonymous:", "Swap:"))) / 1024


def slope(points: list[tuple[float, float]]) -> float:
    """Return the median of the slopes between all pairs of points that are far apart (Theil and Sen).

    The points are the least of each twentieth of the time: above them is what the garbage collector has yet to free.
    """
    size = max(1, len(points) // 20)
    points = [min(points[k : k + size], key=lambda p: p[1]) for k in range(0, len(points), size)]
    span = points[-1][0] - points[0][0]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] - a[0] > span / 3]
    return statistics.median(slopes)


def measure(source: Path, seconds: float, warm: float) -> Slope:
    """Run small batches, first without measuring: caches, heaps and the interpreter fill."""
    job = Job([sys.executable, "-c", CODE, str(source)], environment())
    try:
        wait_for(job.read)
        (engine,) = engines(job.pid)
        time.sleep(warm)
        begun, first = time.monotonic(), job.read()[-1]["batches"]
        points: dict[int, list[tuple[float, float]]] = {engine: [], job.pid: []}
        while (now := time.monotonic() - begun) < seconds:
            for pid, found in points.items():
                with contextlib.suppress(OSError):
                    found.append((now, private(pid)))
            time.sleep(max(0.2, seconds / 200))
        batches = job.read()[-1]["batches"] - first
        return Slope(slope(points[engine]) * 3600, slope(points[job.pid]) * 3600, seconds / 60, batches)
    finally:
        job.close()
