"""nanoGPT's way: a function that draws a batch, and work on it in numpy."""

import job
import numpy as np
import torch

torch.set_num_threads(1)
data = np.random.default_rng(0).integers(0, 50000, 1 << 22).astype(np.uint16)
model = torch.nn.Sequential(
    torch.nn.Linear(256, 1024),
    torch.nn.ReLU(),
    torch.nn.Linear(1024, 1024),
    torch.nn.ReLU(),
    torch.nn.Linear(1024, 256),
)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)


def draw(split):
    at = np.random.randint(0, len(data) - 256, 64)
    rows = [data[i : i + 256].astype(np.float32) for i in at]
    if not job.without("cpu"):
        rows = [np.sort(np.concatenate([r] * 40))[::40] for r in rows]
    return torch.from_numpy(np.stack(rows)) / 50000


def main():
    while True:
        x = draw("train")
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.tick()


main()
