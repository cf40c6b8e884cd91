"""Futures of processes, a few ahead of the loop."""

import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor

import job
import numpy as np


def assemble(seed):
    if not job.without("cpu"):
        job.spin(0.04)
    return np.random.default_rng(seed).random((64, 128), dtype=np.float32)


def optimise(x):
    time.sleep(0.008)


def main():
    with ProcessPoolExecutor(1) as pool:
        ahead = deque(pool.submit(assemble, i) for i in range(4))
        n = 4
        while True:
            x = ahead.popleft().result()
            ahead.append(pool.submit(assemble, n))
            n += 1
            optimise(x)
            job.tick()


if __name__ == "__main__":
    main()
