"""HDF5 with gzip and shuffle, a chunk a row, as scientific data is published."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import Format
from .hdf5 import shuffled

COUNT, SHAPE = 4_000, (96, 96)


def make(folder: Path) -> None:
    import h5py

    rng = np.random.default_rng(0)
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]] / 96
    with h5py.File(folder / "x.h5", "w") as f:
        data = f.create_dataset("x", (COUNT, *SHAPE), "f4", chunks=(1, *SHAPE), compression="gzip", shuffle=True)
        for i in range(COUNT):  # a smooth field as a sensor of 12 bits has it
            a, b, c = rng.normal(size=3) * 6
            data[i] = np.round((np.sin(a * x + b * y + c) + rng.normal(size=SHAPE) * 0.01) * 2048) / 2048
        f["y"] = rng.integers(0, 10, COUNT)


FORMAT = Format(
    name="hdf5 gzip",
    library="h5py, row by row",
    make=make,
    url=lambda folder: f"{folder / 'x.h5'}",
    reference=lambda folder, batch: shuffled(folder / "x.h5", batch),
    loader={"shuffle": True},
    bar=5.0,
    what=f"{COUNT:,} float32 {SHAPE[0]} x {SHAPE[1]}, gzip and shuffle, a chunk a row",
)
