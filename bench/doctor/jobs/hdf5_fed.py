"""Rows of HDF5 without compression, read by workers: nothing is lacking."""

import time

import h5py
import job
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PATH = job.folder() / "rows.h5"
if not PATH.exists():
    with h5py.File(PATH, "w") as f:
        f.create_dataset("x", data=np.random.default_rng(0).random((20000, 64), dtype=np.float32))


class Rows(Dataset):
    file = None

    def __len__(self):
        return 20000

    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(PATH)
        return torch.from_numpy(self.file["x"][i])


def train_step(x):
    time.sleep(0.05)


loader = DataLoader(Rows(), batch_size=32, num_workers=2, shuffle=True, persistent_workers=True)
while True:
    for x in loader:
        train_step(x)
        job.tick()
