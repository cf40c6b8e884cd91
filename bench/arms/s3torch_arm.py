"""s3torchconnector: images as objects of a bucket, in torch's DataLoader. --data is s3://bucket/prefix/."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

import numpy as np
import torch
from s3torchconnector import S3ClientConfig, S3MapDataset
from torch.utils.data import DataLoader

from .augment import Lazy
from .harness import Job, Stream, main


class Record:
    """Decodes one object."""

    def __init__(self, job: Job) -> None:
        self.decode = Lazy(job)

    def __call__(self, reader: Any) -> tuple[Any, int]:
        number = int(reader.key.rsplit("/", 1)[-1].partition(".")[0].rsplit("-", 1)[-1])
        return self.decode(reader.read()), number


def open_stream(job: Job) -> Stream:
    torch.manual_seed(job.seed)
    data = S3MapDataset.from_prefix(
        job.data,
        region="us-east-1",
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        transform=Record(job),
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    more: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4} if job.workers else {}
    while True:
        for images, numbers in DataLoader(data, batch_size=job.batch, shuffle=True, num_workers=job.workers, **more):
            yield np.asarray(images), np.asarray(numbers)
        if job.epochs:
            return


def facts() -> dict[str, object]:
    return {"versions": {"s3torchconnector": importlib.metadata.version("s3torchconnector")}}


if __name__ == "__main__":
    main("s3torch", open_stream, facts)
