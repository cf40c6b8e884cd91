"""MNIST in its published form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format
from .cifar import tensor
from .torch_side import batches


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    raw = folder / "MNIST/raw"
    raw.mkdir(parents=True)
    for split, count in (("train", 60000), ("t10k", 10000)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        head = np.array([0x803, count, 28, 28], ">u4").tobytes()
        (raw / f"{split}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        (raw / f"{split}-labels-idx1-ubyte").write_bytes(np.array([0x801, count], ">u4").tobytes() + labels.tobytes())


def reference(folder: Path, batch: int) -> Iterator[int]:
    from torchvision.datasets import MNIST

    return batches(MNIST(str(folder), transform=tensor), batch)


FORMAT = Format(
    name="idx",
    library="torchvision's MNIST in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "MNIST/raw") + "?split=train",
    reference=reference,
    loader={"shuffle": True},
    what="60,000 pictures of 28 x 28",
)
