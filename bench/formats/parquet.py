"""Parquet files with columns of u8 pixels, as datasets writes arrays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

COUNT = 8000
SIDE = (96, 96, 3)


def make(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    # As smooth as photographs, because pure noise would not test the codec.
    small = rng.integers(0, 256, (COUNT, 12, 12, 3), dtype=np.uint8)
    pixels = small.repeat(8, axis=1).repeat(8, axis=2) + rng.integers(0, 8, (COUNT, *SIDE), dtype=np.uint8)
    values = pa.array(pixels.reshape(-1))
    size = int(np.prod(SIDE))
    offsets = pa.array(np.arange(COUNT + 1, dtype=np.int32) * size)
    table = pa.table({"image": pa.ListArray.from_arrays(offsets, values), "label": np.arange(COUNT) % 10})
    pq.write_table(table, folder / "train.parquet", row_group_size=1000)


def opened(folder: Path) -> Any:
    """The files as datasets has them: converted to Arrow once, which is not timed."""
    import datasets

    datasets.disable_progress_bars()
    files = sorted(str(p) for p in folder.glob("*.parquet"))
    return datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(folder / "cache"))


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(opened(folder).with_format("torch"), batch)


FORMAT = Format(
    name="parquet",
    library="datasets in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "train.parquet"),
    reference=reference,
    loader={"shuffle": True},
    bar=10.0,
    what=f"{COUNT:,} rows with u8 {SIDE[0]} x {SIDE[1]} x {SIDE[2]} as lists, and a label; Snappy",
)
