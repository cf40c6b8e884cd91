"""Workers with a client of a feature store that allows a few requests per second."""

import time

import job
import torch
from torch.utils.data import DataLoader, Dataset


class Client:
    def __init__(self, per_second):
        self.pause, self.next = 1 / per_second, 0.0

    def lookup(self, i):
        now = time.monotonic()
        if self.next > now and not job.without("latency"):
            time.sleep(self.next - now)
        self.next = max(now, self.next) + self.pause
        return [float(i)] * 32


class Features(Dataset):
    client = None

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if self.client is None:
            self.client = Client(100)
        return torch.tensor(self.client.lookup(i))


def update(model, x):
    time.sleep(0.02)
    return model(x)


def main():
    model = torch.nn.Linear(32, 1)
    for x in DataLoader(Features(), batch_size=8, num_workers=2):
        update(model, x)
        job.tick()


main()
