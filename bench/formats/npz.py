"""NumPy's archives: many small ones, as generators of samples write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format
from .torch_side import batches

COUNT = 8000


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        image = rng.integers(0, 256, (96, 96, 3), dtype=np.uint8)
        np.savez(folder / f"{i:06d}.npz", image=image, label=np.int64(i % 10))


class Files:
    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.npz"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        with np.load(self.files[i]) as z:
            return z["image"], z["label"]


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Files(folder), batch)


FORMAT = Format(
    name="npz",
    library="numpy.load in a DataLoader",
    make=make,
    url=lambda folder: str(folder),
    reference=reference,
    loader={"shuffle": True},
    bar=5.0,
    what=f"{COUNT:,} files with u8 96 x 96 x 3 and a label",
)
