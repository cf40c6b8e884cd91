"""Epochs of half a second, with workers that are restarted for each."""

import time

import job
import torch
from torch.utils.data import DataLoader, Dataset


class Small(Dataset):
    ready = False

    def __len__(self):
        return 96

    def __getitem__(self, i):
        if not self.ready:
            job.spin(0.25)
            self.ready = True
        return torch.full((64,), float(i))


def train_step(x):
    time.sleep(0.03)


loader = DataLoader(Small(), batch_size=8, num_workers=2, shuffle=True, persistent_workers=job.without("handoff"))
while True:
    for x in loader:
        train_step(x)
        job.tick()
