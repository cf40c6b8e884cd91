"""Workers that a fork server starts, as Python does by default from 3.14 on."""

import time

import job
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if not job.without("cpu"):
            job.spin(0.004)
        return torch.rand(64)


def train_step(x):
    time.sleep(0.01)


if __name__ == "__main__":
    for x in DataLoader(Rows(), batch_size=8, num_workers=2, multiprocessing_context="forkserver"):
        train_step(x)
        job.tick()
