"""Two ranks, one of which loads slowly; started by torchrun."""

import time

import job
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
RANK = dist.get_rank()


class Shard(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if RANK == 1 and not job.without("latency"):
            time.sleep(0.012)
        return torch.rand(64)


model = DistributedDataParallel(torch.nn.Linear(64, 64))
for x in DataLoader(Shard(), batch_size=8, num_workers=1):
    loss = model(x).pow(2).mean()
    loss.backward()
    time.sleep(0.03)
    job.tick()
