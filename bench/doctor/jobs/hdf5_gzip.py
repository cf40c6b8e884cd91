"""HDF5 with gzip, read by workers."""

import time

import h5py
import job
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PATH = job.folder() / "images-256.h5"
if not PATH.exists():
    with h5py.File(PATH, "w") as f:
        images = np.random.default_rng(0).integers(0, 40, (256, 256, 256, 3), dtype=np.uint8)
        f.create_dataset("x", data=images, chunks=(1, 256, 256, 3), compression="gzip")


class Images(Dataset):
    file = None

    def __len__(self):
        return 256

    def __getitem__(self, i):
        if job.without("cpu"):
            return torch.zeros(256, 256, 3, dtype=torch.uint8)
        if self.file is None:
            self.file = h5py.File(PATH)
        return torch.from_numpy(self.file["x"][i])


def train_step(x):
    time.sleep(0.01)


loader = DataLoader(Images(), batch_size=32, num_workers=2, persistent_workers=True, shuffle=True)
while True:
    for x in loader:
        train_step(x)
        job.tick()
