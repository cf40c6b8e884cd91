"""Workers and a trainer that rename their processes."""

import ctypes
import time

import job
import torch
from torch.utils.data import DataLoader, Dataset

libc = ctypes.CDLL(None)


def rename(name):
    libc.prctl(15, name.encode(), 0, 0, 0)


class Rows(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        rename(f"example {i}")
        if not job.without("cpu"):
            job.spin(0.004)
        return torch.rand(64)


def train_step(x):
    time.sleep(0.01)


for n, x in enumerate(DataLoader(Rows(), batch_size=8, num_workers=2)):
    rename(f"step {n}")
    train_step(x)
    job.tick()
