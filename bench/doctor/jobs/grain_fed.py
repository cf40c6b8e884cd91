"""Grain that keeps up."""

import time

import grain
import job
import numpy as np


def train_step(x):
    time.sleep(0.05)


data = grain.MapDataset.range(1 << 20).shuffle(seed=1).map(lambda i: np.full((32,), i)).batch(8).to_iter_dataset()
for x in data:
    train_step(x)
    job.tick()
