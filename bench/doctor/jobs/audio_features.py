"""Spectrograms that SciPy computes of sound files in workers."""

import time

import job
import numpy as np
import soundfile
import torch
from scipy.signal import resample_poly, stft
from torch.utils.data import DataLoader, Dataset

FOLDER = job.folder() / "sounds"
if not FOLDER.exists():
    FOLDER.mkdir()
    for i in range(32):
        sound = np.sin(np.arange(16000 * 4) * (0.01 + 0.002 * i)).astype(np.float32) * 0.5
        soundfile.write(FOLDER / f"{i}.flac", sound, 16000)


class Sounds(Dataset):
    def __init__(self):
        self.files = sorted(FOLDER.glob("*.flac"))

    def __len__(self):
        return 2000

    def __getitem__(self, i):
        if job.without("cpu"):
            return torch.zeros(129, 100)
        sound, rate = soundfile.read(self.files[i % len(self.files)], dtype="float32")
        sound = resample_poly(sound, 3, 4)
        _, _, spectrum = stft(sound, fs=rate * 3 / 4, nperseg=256)
        return torch.from_numpy(np.log1p(np.abs(spectrum[:, :100])).astype(np.float32))


def training_step(model, x):
    time.sleep(0.015)
    return model(x.mean(2))


def main():
    model = torch.nn.Linear(129, 10)
    while True:
        for x in DataLoader(Sounds(), batch_size=16, num_workers=2, shuffle=True):
            training_step(model, x)
            job.tick()


main()
