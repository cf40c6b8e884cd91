"""A CSV file of numbers and text, in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format

COUNT = 1_000_000


def make(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(0)
    data = {f"x{i}": rng.normal(size=COUNT).astype(np.float32) for i in range(6)}
    data |= {"n": rng.integers(0, 1000, COUNT), "name": [f"name {i % 5000}" for i in range(COUNT)]}
    csv.write_csv(pa.table(data), folder / "train.csv")


def reference(folder: Path, batch: int) -> Iterator[int]:
    """pandas, in chunks: the whole file as arrays would not be batches."""
    import pandas

    for rows in pandas.read_csv(folder / "train.csv", chunksize=batch):
        for name in rows.columns:
            rows[name].to_numpy()
        yield len(rows)


FORMAT = Format(
    name="csv",
    library="pandas.read_csv, chunksize",
    make=make,
    url=lambda folder: str(folder / "train.csv"),
    reference=reference,
    batch=4096,
    what=f"{COUNT:,} rows of seven numbers and a text, in order",
)
