"""One large array."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format

COUNT = 8000


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.integers(0, 256, (COUNT, 96, 96, 3), dtype=np.uint8))


def reference(folder: Path, batch: int) -> Iterator[int]:
    """Rows of the mapped file in a new order, like a map-style reader, without the cost of workers."""
    x = np.load(folder / "x.npy", mmap_mode="r")
    order = np.random.default_rng(0).permutation(len(x))
    for at in range(0, len(order) - batch, batch):
        yield len(x[order[at : at + batch]])


FORMAT = Format(
    name="npy",
    library="numpy's memory map",
    make=make,
    url=lambda folder: str(folder / "x.npy"),
    reference=reference,
    loader={"shuffle": True},
    what=f"u8 {COUNT:,} x 96 x 96 x 3, rows at random",
)
