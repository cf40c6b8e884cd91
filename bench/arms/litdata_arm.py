"""LitData: StreamingDataset over optimize()d chunks that hold the JPEG bytes."""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
from typing import Any

import litdata
import numpy as np
import torch
from litdata.streaming import downloader

from .augment import Lazy
from .harness import Job, Stream, main


class Record:
    """Decodes one sample; raw samples are arrays already."""

    def __init__(self, job: Job) -> None:
        self.raw, self.decode = job.geometry == "none", Lazy(job)

    def __call__(self, sample: Any, *_: Any) -> tuple[Any, int]:
        if isinstance(sample, tuple):
            sample = sample[0]
        image = sample["image"]
        return (image if self.raw else self.decode(image)), sample["number"]


class Finite(litdata.StreamingDataset):
    """One epoch, for the checks."""

    record: Record

    def __getitem__(self, index: Any) -> Any:
        return self.record(super().__getitem__(index))


def open_stream(job: Job) -> Stream:
    torch.manual_seed(job.seed)
    if job.epochs:
        more: dict[str, Any] = {}
        if job.data.startswith("s3://"):
            more["storage_options"] = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
            # Its reader, obstore, refuses servers without TLS, and LitData has no option to change that.
            downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"
            more["cache_dir"] = tempfile.mkdtemp(dir=job.options["scratch"])
        data: Any = Finite(job.data, shuffle=True, drop_last=False, seed=job.seed, **more)
        data.record = Record(job)
    else:
        # The endless stream that its documentation recommends; a plain dataset would restart its workers each epoch.
        source = litdata.StreamingDataset(job.data, shuffle=True, drop_last=True, seed=job.seed)
        data = litdata.ParallelStreamingDataset([source], length=float("inf"), transform=Record(job))
    many: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 2} if job.workers else {}
    loader = litdata.StreamingDataLoader(
        data, batch_size=job.batch, num_workers=job.workers, drop_last=job.epochs == 0, **many
    )
    for images, numbers in loader:
        yield np.asarray(images), np.asarray(numbers)


def facts() -> dict[str, object]:
    return {"versions": {"litdata": importlib.metadata.version("litdata")}}


if __name__ == "__main__":
    main("litdata", open_stream, facts)
