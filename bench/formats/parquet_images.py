"""Parquet files with encoded images, as push_to_hub of datasets writes them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, pictures
from .parquet import opened
from .torch_side import batches


def make(folder: Path) -> None:
    import shutil

    import datasets

    datasets.disable_progress_bars()
    photos = folder / "photos"
    rows = []
    for file in pictures.photographs(photos):
        label = int(file.parent.name.rpartition("-")[2])
        rows.append({"image": {"bytes": file.read_bytes(), "path": file.name}, "label": label})
    names = [str(i) for i in range(10)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    datasets.Dataset.from_list(rows, features=features).to_parquet(folder / "train-00000-of-00001.parquet")
    shutil.rmtree(photos)


class Rows:
    def __init__(self, folder: Path) -> None:
        import datasets

        self.rows = opened(folder).cast_column("image", datasets.Image(decode=False))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        from PIL import Image

        row = self.rows[i]
        return pictures.augment(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")), row["label"]


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Rows(folder), batch)


FORMAT = Format(
    name="parquet images",
    library="datasets in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "train-00000-of-00001.parquet"),
    reference=reference,
    loader={"shuffle": True, "transforms": pictures.fields},
    bar=3.0,
    batch=64,
    what="1,500 JPEGs of 470 x 400 in structs of bytes and path, RandomResizedCrop(224), flip",
)
