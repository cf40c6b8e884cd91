"""SVHN's cropped digits in their published form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format
from .cifar import tensor
from .torch_side import batches


def make(folder: Path) -> None:
    from scipy.io import savemat

    rng = np.random.default_rng(0)
    count = 20000
    x = rng.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
    savemat(folder / "test_32x32.mat", {"X": x, "y": rng.integers(1, 11, (count, 1), dtype=np.uint8)})


def reference(folder: Path, batch: int) -> Iterator[int]:
    from torchvision.datasets import SVHN

    dataset = type("SVHN", (SVHN,), {"_check_integrity": lambda _: True})
    return batches(dataset(str(folder), split="test", transform=tensor), batch)


FORMAT = Format(
    name="mat",
    library="torchvision's SVHN in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "test_32x32.mat"),
    reference=reference,
    loader={"shuffle": True},
    what="20,000 pictures of 32 x 32",
)
