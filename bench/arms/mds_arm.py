"""MosaicML Streaming over local MDS shards that hold the JPEG bytes."""

from __future__ import annotations

import importlib.metadata
import tempfile
from typing import Any

import numpy as np
import torch
from streaming import StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

from .augment import Lazy
from .harness import Job, Stream, main


class Records(StreamingDataset):
    """Decodes one sample; raw samples are arrays already."""

    job: Job
    decode: Lazy

    def __getitem__(self, index: Any) -> tuple[Any, int]:
        sample = super().__getitem__(index)
        image = sample["image"]
        return (image if self.job.geometry == "none" else self.decode(image)), sample["number"]


def open_stream(job: Job) -> Stream:
    torch.manual_seed(job.seed)
    clean_stale_shared_memory()
    # epoch_size: many passes to an "epoch", so that no epoch boundary is inside a window.
    size = None if job.epochs else 400_000
    where: dict[str, Any] = {"local": job.data, "remote": None}
    if job.data.startswith("s3://"):
        where = {"local": tempfile.mkdtemp(dir=job.options["scratch"]), "remote": job.data}
    data = Records(**where, shuffle=True, shuffle_seed=job.seed, batch_size=job.batch, epoch_size=size)
    data.job, data.decode = job, Lazy(job)
    more: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 2} if job.workers else {}
    while True:
        for images, numbers in DataLoader(
            data, batch_size=job.batch, num_workers=job.workers, drop_last=job.epochs == 0, **more
        ):
            yield np.asarray(images), np.asarray(numbers)
        if job.epochs:
            return


def facts() -> dict[str, object]:
    return {"versions": {"mosaicml-streaming": importlib.metadata.version("mosaicml-streaming")}}


if __name__ == "__main__":
    main("mds", open_stream, facts)
