"""Files that are read repeatedly, in a control group with too little memory for them."""

import time

import job
import torch
from torch.utils.data import DataLoader, Dataset

PATH = job.folder() / "rows-1g.raw"
ROW, N = 1 << 20, 1024  # more than the group may have
if not PATH.exists() or PATH.stat().st_size < ROW * N:
    with PATH.open("wb") as f:
        for _ in range(N):
            f.write(bytes(ROW))
if not job.without("memory"):
    job.evict(PATH)  # data that another group has read counts for that group, not for this one


class Rows(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        with PATH.open("rb") as f:
            f.seek(i * ROW)
            return torch.tensor(len(f.read(ROW)))


def train_step(x):
    time.sleep(0.005)


loader = DataLoader(Rows(), batch_size=16, num_workers=2, shuffle=True, persistent_workers=True)
while True:
    for x in loader:
        train_step(x)
        job.tick()
