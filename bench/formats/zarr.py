"""Zarr in the library's default form: zstd, one chunk per row, in shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format

COUNT, SHAPE = 4_000, (96, 96)


def make(folder: Path) -> None:
    import zarr

    rng = np.random.default_rng(0)
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]] / 96
    group = zarr.open_group(folder / "x.zarr", mode="w")
    data = group.create_array("x", shape=(COUNT, *SHAPE), dtype="f4", chunks=(1, *SHAPE), shards=(500, *SHAPE))
    for lo in range(0, COUNT, 500):  # smooth fields as a sensor of 12 bits has them
        rows = [np.sin(a * x + b * y + c) for a, b, c in rng.normal(size=(500, 3)) * 6]
        data[lo : lo + 500] = np.round((np.stack(rows) + rng.normal(size=(500, *SHAPE)) * 0.01) * 2048) / 2048
    group.create_array("y", shape=(COUNT,), dtype="i8", chunks=(COUNT,))[:] = rng.integers(0, 10, COUNT)


def reference(folder: Path, batch: int) -> Iterator[int]:
    """Yield random batches: the library reads and decodes the chunks of a batch in threads."""
    import zarr

    group = zarr.open_group(folder / "x.zarr", mode="r")
    x, y = group["x"], group["y"][:]
    order = np.random.default_rng().permutation(COUNT)
    for lo in range(0, COUNT, batch):
        index = np.sort(order[lo : lo + batch])
        rows = x.oindex[index]
        yield len(rows[: len(y[index])])


FORMAT = Format(
    name="zarr",
    library="zarr",
    make=make,
    url=lambda folder: f"{folder / 'x.zarr'}",
    reference=reference,
    loader={"shuffle": True},
    what=f"{COUNT:,} float32 {SHAPE[0]} x {SHAPE[1]}, zstd, a chunk a row, shards of 500",
)
