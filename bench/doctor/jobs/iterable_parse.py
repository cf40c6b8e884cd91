"""An IterableDataset that parses, its batches made by the workers."""

import time

import job
import torch
from torch.utils.data import DataLoader, IterableDataset


class Logs(IterableDataset):
    def parse(self, line):
        if not job.without("cpu"):
            job.spin(0.003)
        return torch.rand(64)

    def __iter__(self):
        while True:
            yield self.parse("line")


def train_step(x):
    time.sleep(0.02)


for x in DataLoader(Logs(), batch_size=16, num_workers=1):
    train_step(x)
    job.tick()
