"""A log that is written at every step, and flushed to the disk."""

import json
import os
import time

import job
import torch
from torch.utils.data import DataLoader, Dataset


class Easy(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        return torch.rand(64)


def train_step(x):
    time.sleep(0.03)
    return float(x.mean())


def main():
    with open(job.folder() / "log.jsonl", "w") as log:
        for n, x in enumerate(DataLoader(Easy(), batch_size=16, num_workers=1)):
            loss = train_step(x)
            log.write(json.dumps({"step": n, "loss": loss, "norms": [float(i) for i in range(2000)]}) + "\n")
            log.flush()
            os.fsync(log.fileno())
            job.tick()


main()
