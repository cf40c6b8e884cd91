"""Futures of processes that are finished before they are requested."""

import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor

import job
import numpy as np


def assemble(seed):
    return np.random.default_rng(seed).random((64, 128), dtype=np.float32)


def optimise(x):
    time.sleep(0.05)


def main():
    with ProcessPoolExecutor(2) as pool:
        ahead = deque(pool.submit(assemble, i) for i in range(4))
        while True:
            x = ahead.popleft().result()
            ahead.append(pool.submit(assemble, 0))
            optimise(x)
            job.tick()


if __name__ == "__main__":
    main()
