"""HDF5 in one piece: rows of float32, as feature extractors and simulations leave them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format

COUNT, SHAPE = 60_000, (20, 32)


def make(folder: Path) -> None:
    import h5py

    rng = np.random.default_rng(0)
    with h5py.File(folder / "x.h5", "w") as f:
        f["x"] = rng.normal(size=(COUNT, *SHAPE)).astype(np.float32)
        f["y"] = rng.integers(0, 10, COUNT)


def shuffled(path: Path, batch: int) -> Iterator[int]:
    """Yield random batches, read row by row.

    This is faster than a list of rows, from which h5py makes one selection. The library has one lock: a second thread
    would wait, and a DataLoader's processes would copy all rows again.
    """
    import h5py

    rng = np.random.default_rng()
    with h5py.File(path) as f:
        x, y = f["x"], f["y"][:]
        order = rng.permutation(len(x))
        for lo in range(0, len(order), batch):
            index = np.sort(order[lo : lo + batch])
            out = np.empty((len(index), *x.shape[1:]), x.dtype)
            for k, i in enumerate(index):
                x.read_direct(out, np.s_[i], np.s_[k])
            yield len(out[: len(y[index])])


FORMAT = Format(
    name="hdf5",
    library="h5py, row by row",
    make=make,
    url=lambda folder: f"{folder / 'x.h5'}",
    reference=lambda folder, batch: shuffled(folder / "x.h5", batch),
    loader={"shuffle": True},
    bar=5.0,
    what=f"{COUNT:,} float32 {SHAPE[0]} x {SHAPE[1]} and labels, in one piece",
)
