"""A job that other programs do not slow down, although they take the cores."""

import time

import job
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        return torch.rand(64)


def train_step(x):
    time.sleep(0.1)


for x in DataLoader(Rows(), batch_size=8, num_workers=2, prefetch_factor=8):
    train_step(x)
    job.tick()
