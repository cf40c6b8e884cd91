"""FFCV's .beton with JPEGs and labels, decoded and cropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, pictures

COUNT = 1500
SIDE = 224


def make(folder: Path) -> None:
    import shutil

    import numpy as np
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    photos = folder / "photos"
    files = pictures.photographs(photos, COUNT)

    class Photos:
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
            label = int(files[i].parent.name.rpartition("-")[2])
            return np.asarray(Image.open(files[i]).convert("RGB")), label

    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    DatasetWriter(str(folder / "train.beton"), fields, num_workers=2).from_indexed_dataset(Photos())
    shutil.rmtree(photos)


def reference(folder: Path, batch: int) -> Iterator[int]:
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import ToTensor

    decoder = RandomResizedCropRGBImageDecoder((SIDE, SIDE))
    loader = Loader(
        str(folder / "train.beton"),
        batch_size=batch,
        threads=2,
        order=OrderOption.RANDOM,
        pipelines={"image": [decoder, ToTensor()], "label": [IntDecoder(), ToTensor()]},
        os_cache=True,
        drop_last=True,
    )
    while True:
        for images, _ in loader:
            yield len(images)


def fields() -> dict[str, Any]:

    from stoker import transforms as T

    return {"image": [T.RandomResizedCrop(SIDE)]}


FORMAT = Format(
    name="beton",
    library="ffcv",
    make=make,
    url=lambda folder: f"{folder}/train.beton",
    reference=reference,
    loader={"shuffle": True, "transforms": fields},
    bar=1.0,
    batch=64,
    env="ffcv",
    what="1,500 JPEGs of 470 x 400, decoded and cropped at random to 224",
)
