"""Pool.imap over a list of work."""

import itertools
import multiprocessing
import time

import job
import numpy as np


def featurise(i):
    if not job.without("cpu"):
        job.spin(0.03)
    return np.full((64, 64), i, dtype=np.float32)


def train_step(x):
    time.sleep(0.01)


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        for x in pool.imap(featurise, itertools.count()):
            train_step(x)
            job.tick()
