"""An IterableDataset that polls a stream."""

import time

import job
import torch
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def poll(self):
        if not job.without("latency"):
            time.sleep(0.02)
        return torch.rand(4, 64)

    def __iter__(self):
        while True:
            yield from self.poll()


def train_step(x):
    time.sleep(0.02)


for x in DataLoader(Stream(), batch_size=16, num_workers=1):
    train_step(x)
    job.tick()
