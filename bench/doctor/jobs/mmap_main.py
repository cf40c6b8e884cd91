"""A mapped array that is not in memory, read by the loop itself, a page here and a page there."""

import mmap
import time

import job
import numpy as np
import torch

PATH = job.folder() / "rows.bin"
PAGES = 1 << 18  # more than are read in the time that a job runs: each is read but once
if not PATH.exists() or PATH.stat().st_size < PAGES << 12:
    with PATH.open("wb") as f:
        for _ in range(64):
            f.write(np.random.default_rng(0).bytes(PAGES << 6))
job.evict(PATH)
rows = np.memmap(PATH, np.uint8, "r").reshape(PAGES, -1)
rows._mmap.madvise(mmap.MADV_RANDOM)
order = np.random.default_rng(1).permutation(PAGES)


def train_step(x):
    time.sleep(0.005)


def main():
    n = 0
    while True:
        at = order[:64] if job.without("storage") else order[n : n + 64]
        x = torch.from_numpy(rows[at, :64].copy())
        train_step(x)
        job.tick()
        n = (n + 64) % PAGES


main()
