"""A mapped array that is not in memory, read by the loop itself."""

import time

import job
import numpy as np
import torch

PATH = job.folder() / "rows.bin"
if not PATH.exists() or PATH.stat().st_size < 1 << 30:
    with PATH.open("wb") as f:
        for _ in range(64):
            f.write(np.random.default_rng(0).bytes(1 << 24))
job.evict(PATH)
rows = np.memmap(PATH, np.uint8, "r").reshape(-1, 1 << 16)
rng = np.random.default_rng(1)


def train_step(x):
    time.sleep(0.005)


def main():
    n = 0
    while True:
        at = rng.integers(0, 8 if job.without("storage") else len(rows), 16)
        x = torch.from_numpy(rows[at, ::4096].copy())
        train_step(x)
        job.tick()
        n += 1
        if n % 100 == 0:
            job.evict(PATH)


main()
