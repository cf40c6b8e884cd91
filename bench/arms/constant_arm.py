"""A torch DataLoader whose dataset always returns the same 3 KB tensor. It measures only the hand-off."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from .harness import Job, Stream, main


class Constant(Dataset[Any]):
    image = torch.zeros(32, 32, 3, dtype=torch.uint8)

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, index: int) -> Any:
        return self.image, index


def open_stream(job: Job) -> Stream:
    for image, index in DataLoader(Constant(), batch_size=job.batch, num_workers=job.workers):
        yield image.numpy(), index.numpy()


def facts() -> dict[str, object]:
    return {"versions": {"torch": torch.__version__}}


if __name__ == "__main__":
    main("constant", open_stream, facts)
