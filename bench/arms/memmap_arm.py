"""Raw records in one .npy file: numpy.memmap in a torch DataLoader, the usual hand-written solution.

--option how=records   one __getitem__ per record, default collate
--option how=batches   __getitems__: one fancy index per batch
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from .harness import Job, Stream, main
from .torch_arm import Epochs


class Records(Dataset[Any]):
    def __init__(self, path: str) -> None:
        self.records = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(np.array(self.records[index])), index


class Batches(Records):
    def __getitems__(self, indices: list[int]) -> Any:
        return torch.from_numpy(self.records[np.asarray(indices)]), torch.tensor(indices)


def open_stream(job: Job) -> Stream:
    whole = job.options.get("how") == "batches"
    data = (Batches if whole else Records)(job.data)
    more: dict[str, Any] = {"persistent_workers": True} if job.workers else {}
    if whole:
        more["collate_fn"] = lambda batch: batch
    for images, numbers in DataLoader(
        data,
        batch_size=job.batch,
        sampler=Epochs(len(data), job.seed, job.epochs),
        num_workers=job.workers,
        drop_last=job.epochs == 0,
        **more,
    ):
        yield images.numpy(), numbers.numpy()


def facts() -> dict[str, object]:
    return {"versions": {"torch": torch.__version__, "numpy": np.__version__}}


if __name__ == "__main__":
    main("memmap", open_stream, facts)
