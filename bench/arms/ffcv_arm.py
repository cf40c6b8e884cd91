"""FFCV over a .beton in jpg mode at the original size, or of raw images (--geometry none), from the page cache."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
from ffcv.fields.basics import IntDecoder
from ffcv.fields.ndarray import NDArrayDecoder
from ffcv.fields.rgb_image import (
    CenterCropRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.reader import Reader
from ffcv.transforms import RandomHorizontalFlip

from .harness import Job, Stream, main

# One long epoch of many shuffled passes, so that no epoch boundary (and its restart of all threads) is inside a window.
PASSES = {"random": 20, "centre": 1, "none": 60}


def open_stream(job: Job) -> Stream:
    size = (job.size, job.size)
    image = {
        "random": [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip()],
        "centre": [CenterCropRGBImageDecoder(size, 1.0)],
        "none": [SimpleRGBImageDecoder()],
    }[job.geometry]
    if "array" in Path(job.data).name:
        image = [NDArrayDecoder()]
    indices = np.arange(int(Reader(job.data).num_samples), dtype="uint64")
    loader = Loader(
        job.data,
        batch_size=job.batch,
        threads=job.workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=job.epochs == 0,
        seed=job.seed,
        batches_ahead=int(job.options.get("ahead", 3)),
        indices=indices if job.epochs else np.tile(indices, PASSES[job.geometry]),
        pipelines={"image": image, "label": [IntDecoder()]},
    )
    while True:
        for images, numbers in loader:
            yield np.asarray(images), np.asarray(numbers).reshape(-1)
        if job.epochs:
            return


def facts() -> dict[str, object]:
    return {"versions": {"ffcv": importlib.metadata.version("ffcv"), "numba": importlib.metadata.version("numba")}}


if __name__ == "__main__":
    main("ffcv", open_stream, facts)
