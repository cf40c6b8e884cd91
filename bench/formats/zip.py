"""A folder of JPEGs in one zip file."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, pictures
from .torch_side import batches


def make(folder: Path) -> None:
    photos = folder / "photos"
    with zipfile.ZipFile(folder / "photos.zip", "w") as out:
        for file in pictures.photographs(photos):
            out.write(file, file.relative_to(photos))
    shutil.rmtree(photos)


class Zip:
    def __init__(self, path: Path) -> None:
        self.path, self.zip = path, zipfile.ZipFile(path)
        self.names = [n for n in self.zip.namelist() if n.endswith(".jpg")]
        self.zip.close()
        self.opened = False

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> Any:
        if not self.opened:  # once in each worker
            self.zip, self.opened = zipfile.ZipFile(self.path), True
        return pictures.decoded(self.zip.read(self.names[i])), 0


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Zip(folder / "photos.zip"), batch)


FORMAT = Format(
    name="zip",
    library="zipfile in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "photos.zip"),
    reference=reference,
    loader={"shuffle": True, "transforms": pictures.fields},
    what="1,500 JPEGs of 470 x 400, RandomResizedCrop(224), flip",
    batch=64,
)
