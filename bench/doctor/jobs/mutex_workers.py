"""Workers that share a tokenizer protected by a lock of multiprocessing."""

import multiprocessing
import time

import job
import torch
from torch.utils.data import DataLoader, Dataset

lock = multiprocessing.Lock()


class Guarded(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if not job.without("latency"):
            with lock:
                time.sleep(0.004)
        return torch.full((64,), float(i))


def train_step(x):
    time.sleep(0.03)


for batch in DataLoader(Guarded(), batch_size=16, num_workers=4):
    train_step(batch)
    job.tick()
