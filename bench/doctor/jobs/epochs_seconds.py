"""Epochs of two seconds. Their workers first open a large index."""

import time

import job
import torch
from torch.utils.data import DataLoader, Dataset


class Indexed(Dataset):
    index = None

    def __len__(self):
        return 400

    def __getitem__(self, i):
        if self.index is None:
            job.spin(0.4)
            self.index = list(range(400))
        return torch.full((64,), float(self.index[i]))


def train_step(x):
    time.sleep(0.04)


loader = DataLoader(Indexed(), batch_size=10, num_workers=2, persistent_workers=job.without("handoff"))
while True:
    for x in loader:
        train_step(x)
        job.tick()
