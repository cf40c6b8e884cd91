"""An IterableDataset that keeps up."""

import job
import torch
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


class Stream(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.rand(512)


for x in DataLoader(Stream(), batch_size=32, num_workers=1):
    for _ in range(30):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
    job.tick()
