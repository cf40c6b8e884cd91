"""Parquet files with columns of numbers, read in order: pyarrow's best case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format

COUNT = 1_000_000
COLUMNS = 16


def make(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    data = {f"x{i}": rng.normal(size=COUNT).astype(np.float32) for i in range(COLUMNS - 2)}
    data |= {f"n{i}": rng.integers(0, 10_000, COUNT) for i in range(2)}
    pq.write_table(pa.table(data), folder / "train.parquet", row_group_size=100_000)


def reference(folder: Path, batch: int) -> Iterator[int]:
    """Read by all threads, and handed out as arrays."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / "train.parquet") as file:
        for rows in file.iter_batches(batch, use_threads=True):
            for column in rows.columns:
                column.to_numpy(zero_copy_only=False)
            yield rows.num_rows


FORMAT = Format(
    name="parquet columns",
    library="pyarrow, iter_batches",
    make=make,
    url=lambda folder: str(folder / "train.parquet"),
    reference=reference,
    batch=4096,
    what=f"{COUNT:,} rows of {COLUMNS} numbers, in order",
)
