"""A process that keeps up."""

import multiprocessing
import time

import job
import numpy as np


def feed(out):
    rng = np.random.default_rng(0)
    while True:
        out.put(rng.random((32, 32)))


def train_step(x):
    time.sleep(0.06)


if __name__ == "__main__":
    q = multiprocessing.Queue(4)
    multiprocessing.Process(target=feed, args=(q,), daemon=True).start()
    while True:
        x = q.get()
        train_step(x)
        job.tick()
