"""Workers that compete for their cores with other programs, which run outside of the job."""

import time

import job
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        job.spin(0.002)
        return torch.rand(64)


def train_step(x):
    time.sleep(0.02)


for x in DataLoader(Rows(), batch_size=8, num_workers=1):
    train_step(x)
    job.tick()
