"""Crops of a compressed Zarr array, read by workers."""

import time

import job
import numpy as np
import torch
import zarr
from torch.utils.data import DataLoader, Dataset

PATH = job.folder() / "volumes.zarr"
if not PATH.exists():
    volumes = zarr.create_array(str(PATH), shape=(64, 64, 64, 64), chunks=(1, 32, 32, 32), dtype="uint16")
    volumes[:] = np.random.default_rng(0).integers(0, 500, volumes.shape, dtype=np.uint16)


class Crops(Dataset):
    volumes = None

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if job.without("cpu"):
            return torch.zeros(48, 48, 48)
        if self.volumes is None:
            self.volumes = zarr.open_array(str(PATH), mode="r")
        z, y, x = np.random.default_rng(i).integers(0, 16, 3)
        crop = self.volumes[i % 64, z : z + 48, y : y + 48, x : x + 48].astype(np.float32)
        return torch.from_numpy((crop - crop.mean()) / crop.std())


def train_step(x):
    time.sleep(0.01)


for x in DataLoader(Crops(), batch_size=8, num_workers=1, shuffle=True):
    train_step(x)
    job.tick()
