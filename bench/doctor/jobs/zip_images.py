"""PNG files in a zip, decoded by workers."""

import io
import time
import zipfile

import job
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

PATH = job.folder() / "images.zip"
if not PATH.exists():
    with zipfile.ZipFile(PATH, "w") as z:
        for i in range(128):
            data = io.BytesIO()
            Image.fromarray(np.random.default_rng(i).integers(0, 255, (160, 160, 3), dtype=np.uint8)).save(data, "png")
            z.writestr(f"{i}.png", data.getvalue())


class Zipped(Dataset):
    zip = None

    def __len__(self):
        return 128

    def __getitem__(self, i):
        if job.without("cpu"):
            return torch.zeros(3, 128, 128)
        if self.zip is None:
            self.zip = zipfile.ZipFile(PATH)
        image = Image.open(self.zip.open(f"{i}.png")).convert("RGB").resize((128, 128))
        return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1) / 255


def train_step(x):
    time.sleep(0.01)


loader = DataLoader(Zipped(), batch_size=16, num_workers=2, shuffle=True, persistent_workers=True)
while True:
    for x in loader:
        train_step(x)
        job.tick()
