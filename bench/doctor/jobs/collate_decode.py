"""A dataset of file names: the collate function opens, decodes and resizes the pictures of a batch, in two workers."""

import io
import time

import job
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def encoded(seed):
    noise = np.random.default_rng(seed).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).resize((320, 320), Image.BILINEAR).save(out, "JPEG", quality=90)
    return out.getvalue()


class Names(Dataset):
    def __init__(self):
        folder = job.folder() / "collate_decode"
        self.paths = [folder / f"{i:03}.jpg" for i in range(200)]
        if not self.paths[-1].exists():
            folder.mkdir(exist_ok=True)
            for i, path in enumerate(self.paths):
                path.write_bytes(encoded(i))

    def __len__(self):
        return 50000

    def __getitem__(self, i):
        return self.paths[i % len(self.paths)], i % 10


class Batch:
    def __call__(self, chosen):
        if job.without("cpu"):
            return torch.zeros(len(chosen), 3, 160, 160), torch.zeros(len(chosen), dtype=torch.long)
        pictures = []
        for path, _ in chosen:
            with Image.open(path) as picture:
                pictures.append(np.asarray(picture.convert("RGB").resize((160, 160), Image.BICUBIC)))
        pixels = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float().div_(255)
        return pixels, torch.tensor([label for _, label in chosen])


def train_step(pixels, labels):
    time.sleep(0.012)


def main():
    loader = DataLoader(Names(), batch_size=16, collate_fn=Batch(), num_workers=2, shuffle=True)
    while True:
        for pixels, labels in loader:
            train_step(pixels, labels)
            job.tick()


main()
