"""Ray Data: batches are made by processes of a cluster that the job starts."""

import logging
import os
import time

import job
import numpy as np
import ray

ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, object_store_memory=200 << 20)


def leave(code):
    ray.shutdown()
    os._exit(code)


job.leave = leave


LIGHT = job.without("cpu")  # passed to the cluster's processes, which have other options


def featurise(batch):
    if not LIGHT:
        job.spin(0.05)
    return {"x": np.random.rand(len(batch["id"]), 64)}


def train_step(x):
    time.sleep(0.01)


data = ray.data.range(200_000, override_num_blocks=400).map_batches(featurise, batch_size=16)
for x in data.iter_batches(batch_size=16, prefetch_batches=2):
    train_step(x)
    job.tick()
