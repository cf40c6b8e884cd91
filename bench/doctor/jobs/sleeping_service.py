"""A DataLoader with two workers that get each example from a slow service."""

import time

import job
import torch
from torch.utils.data import DataLoader, Dataset


class Embeddings(Dataset):
    def __len__(self):
        return 1 << 20

    def ask_service(self, i):
        if not job.without("latency"):
            time.sleep(0.015)
        return torch.full((64,), float(i))

    def __getitem__(self, i):
        return self.ask_service(i)


def train_step(x):
    time.sleep(0.02)


for batch in DataLoader(Embeddings(), batch_size=8, num_workers=2):
    train_step(batch)
    job.tick()
