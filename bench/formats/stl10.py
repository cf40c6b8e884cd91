"""STL-10 in its published form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format
from .cifar import tensor
from .torch_side import batches

CLASSES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    out = folder / "stl10_binary"
    out.mkdir()
    for split, count in (("train", 5000), ("test", 1000)):
        rng.integers(0, 256, (count, 3, 96, 96), dtype=np.uint8).tofile(out / f"{split}_X.bin")
        rng.integers(1, 11, count, dtype=np.uint8).tofile(out / f"{split}_y.bin")
    (out / "class_names.txt").write_text("\n".join(CLASSES) + "\n")


def reference(folder: Path, batch: int) -> Iterator[int]:
    from torchvision.datasets import STL10

    dataset = type("STL10", (STL10,), {"_check_integrity": lambda _: True})
    return batches(dataset(str(folder), split="train", transform=tensor), batch)


FORMAT = Format(
    name="stl10",
    library="torchvision's STL10 in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "stl10_binary") + "?split=train",
    reference=reference,
    loader={"shuffle": True},
    what="5,000 pictures of 96 x 96",
)
