"""A folder of JPEGs, one folder per class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import Format, pictures
from .torch_side import batches


def make(folder: Path) -> None:
    pictures.photographs(folder / "photos")


def reference(folder: Path, batch: int) -> Iterator[int]:
    from torchvision.datasets import ImageFolder

    return batches(ImageFolder(str(folder / "photos"), pictures.augment), batch)


FORMAT = Format(
    name="folder",
    library="torchvision's ImageFolder in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "photos"),
    reference=reference,
    loader={"shuffle": True, "transforms": pictures.fields},
    what="1,500 JPEGs of 470 x 400, RandomResizedCrop(224), flip",
    batch=64,
)
