"""Grain with threads that compute in Python."""

import time

import grain
import job
import numpy as np


def augment(i):
    if not job.without("cpu"):
        job.spin(0.006)
    return np.full((32, 32), i, dtype=np.float32)


def train_step(x):
    time.sleep(0.015)


data = grain.MapDataset.range(1 << 20).map(augment).batch(8).to_iter_dataset(grain.ReadOptions(num_threads=2))
for x in data:
    train_step(x)
    job.tick()
