"""The output of save_to_disk of datasets: arrays of u8."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format
from .torch_side import batches

COUNT = 8000
SIDE = (96, 96, 3)


def make(folder: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    rng = np.random.default_rng(0)
    features = datasets.Features({"image": datasets.Array3D(SIDE, "uint8"), "label": datasets.Value("int64")})
    rows = {
        "image": list(rng.integers(0, 256, (COUNT, *SIDE), dtype=np.uint8)),
        "label": [i % 10 for i in range(COUNT)],
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder / "train"))


def reference(folder: Path, batch: int) -> Iterator[int]:
    import datasets

    return batches(datasets.load_from_disk(str(folder / "train")).with_format("torch"), batch)


FORMAT = Format(
    name="arrow",
    library="datasets in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "train"),
    reference=reference,
    loader={"shuffle": True},
    what=f"{COUNT:,} rows with u8 {SIDE[0]} x {SIDE[1]} x {SIDE[2]} and a label",
)
