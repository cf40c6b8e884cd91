"""LMDB that is not in memory, read by workers."""

import time

import job
import lmdb
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PATH = job.folder() / "rows.lmdb"
N = 49152  # more than is read in the time that a job runs
if not PATH.exists():
    env = lmdb.open(str(PATH), map_size=1 << 32)
    with env.begin(write=True) as t:
        for i in range(N):
            t.put(b"%08d" % i, np.random.default_rng(i).bytes(1 << 15))
    env.close()
job.evict(PATH / "data.mdb")


class Rows(Dataset):
    env = None

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if self.env is None:
            self.env = lmdb.open(str(PATH), readonly=True, lock=False, readahead=False)
        with self.env.begin(buffers=True) as t:
            return torch.frombuffer(
                bytearray(t.get(b"%08d" % (0 if job.without("storage") else i * 7919 % N))), dtype=torch.uint8
            )


def train_step(x):
    time.sleep(0.003)


for x in DataLoader(Rows(), batch_size=64, num_workers=2):
    train_step(x)
    job.tick()
