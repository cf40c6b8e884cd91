"""WebDataset with small arrays: nothing is lacking."""

import io
import tarfile
import time

import job
import numpy as np
import torch
import webdataset as wds

PATH = job.folder() / "arrays-000000.tar"
if not PATH.exists():
    with tarfile.open(PATH, "w") as tar:
        for i in range(500):
            data = io.BytesIO()
            np.save(data, np.full((16, 16), i, dtype=np.float32))
            info = tarfile.TarInfo(f"{i:06d}.npy")
            info.size = len(data.getvalue())
            tar.addfile(info, io.BytesIO(data.getvalue()))


def train_step(x):
    time.sleep(0.08)


dataset = wds.WebDataset([str(PATH)] * 4, shardshuffle=False, nodesplitter=None).decode().to_tuple("npy").batched(8)
while True:
    for (x,) in wds.WebLoader(dataset, batch_size=None, num_workers=1):
        train_step(torch.as_tensor(np.stack(x)) if isinstance(x, list) else x)
        job.tick()
