"""Grain: MapDataset with read threads (--workers). --decode cv2 | pillow; --geometry none: records of a .npy file."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import grain
import numpy as np

from .augment import Lazy
from .harness import Job, Stream, main


class Uniform:
    """Grain passes a NumPy generator to each record. The crop needs the method names of the random module."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.uniform, self.random = rng.uniform, rng.random


class Load:
    """Reads and decodes a file."""

    def __init__(self, job: Job, files: list[str]) -> None:
        self.decode, self.files = Lazy(job), files

    def __call__(self, number: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        with open(self.files[number], "rb") as f:
            return self.decode(f.read(), Uniform(rng)), number


def open_stream(job: Job) -> Stream:
    data: Any
    if job.geometry == "none":
        records = np.load(job.data, mmap_mode="r")
        data = grain.MapDataset.range(len(records)).seed(job.seed).shuffle()
        data = data.repeat(job.epochs or None).map(lambda number: (np.array(records[number]), number))
    else:
        files = job.files()
        data = grain.MapDataset.range(len(files)).seed(job.seed).shuffle()
        data = data.repeat(job.epochs or None).random_map(Load(job, files))
    # The reads are per record; batches are put together by the consumer's thread, as Grain does by default.
    options = grain.ReadOptions(num_threads=job.workers, prefetch_buffer_size=2 * job.batch)
    for images, numbers in data.to_iter_dataset(options).batch(job.batch, drop_remainder=job.epochs == 0):
        yield images, np.asarray(numbers)


def facts() -> dict[str, object]:
    return {"versions": {"grain": importlib.metadata.version("grain")}}


if __name__ == "__main__":
    main("grain", open_stream, facts)
