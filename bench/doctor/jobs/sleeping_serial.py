"""The same without workers."""

import time

import job
import torch
from torch.utils.data import DataLoader, Dataset


class Lookup(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if not job.without("latency"):
            time.sleep(0.01)
        return torch.full((64,), float(i))


model = torch.nn.Linear(64, 64)


def optimise(x):
    model(x).sum().backward()
    time.sleep(0.03)


for batch in DataLoader(Lookup(), batch_size=8):
    optimise(batch)
    job.tick()
