"""Two ranks with little to load."""

import time

import job
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
dist.init_process_group("gloo")


class Shard(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        return torch.rand(64)


model = DistributedDataParallel(torch.nn.Linear(64, 64))
for x in DataLoader(Shard(), batch_size=8, num_workers=1):
    model(x).pow(2).mean().backward()
    time.sleep(0.1)
    job.tick()
