"""Processes of the user's own that feed a queue of multiprocessing."""

import multiprocessing
import time

import job
import numpy as np


def augment(rng):
    if not job.without("cpu"):
        job.spin(0.006)
    return rng.random((32, 32), dtype=np.float32)


def feed(out, seed):
    rng = np.random.default_rng(seed)
    while True:
        out.put(np.stack([augment(rng) for _ in range(8)]))


def train_step(x):
    time.sleep(0.015)


if __name__ == "__main__":
    q = multiprocessing.Queue(8)
    for seed in range(2):
        multiprocessing.Process(target=feed, args=(q, seed), daemon=True).start()
    while True:
        batch = q.get()
        train_step(batch)
        job.tick()
