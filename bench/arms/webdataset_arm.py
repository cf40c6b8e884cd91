"""WebDataset: tar shards (--data is a folder of *.tar) through its WebLoader."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset as wds

from .augment import Lazy
from .harness import Job, Stream, main


class Record:
    """Decodes one sample of a shard."""

    def __init__(self, job: Job) -> None:
        self.raw = job.geometry == "none"
        self.dtype = job.options.get("dtype", "")
        self.decode = Lazy(job)

    def __call__(self, sample: dict[str, Any]) -> tuple[Any, int]:
        if self.dtype:
            return np.frombuffer(sample["raw"], self.dtype), int(sample["number"])
        if self.raw:
            side = int((len(sample["raw"]) / 3) ** 0.5)
            return np.frombuffer(sample["raw"], np.uint8).reshape(side, side, 3), int(sample["number"])
        return self.decode(sample["jpg"]), int(sample["number"])


def open_stream(job: Job) -> Stream:
    torch.manual_seed(job.seed)
    if job.data.endswith(".urls"):  # a file of URLs, one for each shard
        shards = [f"pipe:curl -s -f '{url}'" for url in Path(job.data).read_text().split()]
    else:
        shards = sorted(str(p) for p in Path(job.data).glob("*.tar"))
    data = wds.WebDataset(
        shards,
        shardshuffle=len(shards),
        nodesplitter=wds.split_by_node,
        workersplitter=wds.split_by_worker,
        seed=job.seed,
        empty_check=False,
    )
    if not job.epochs:
        data = data.repeat()
    data = data.shuffle(1000, seed=job.seed).map(Record(job)).batched(job.batch, partial=job.epochs > 0)
    more = {"persistent_workers": True, "prefetch_factor": 2} if job.workers else {}
    for images, numbers in wds.WebLoader(data, batch_size=None, num_workers=job.workers, **more):
        yield np.asarray(images), np.asarray(numbers)


def facts() -> dict[str, object]:
    return {"versions": {"webdataset": importlib.metadata.version("webdataset")}}


if __name__ == "__main__":
    main("webdataset", open_stream, facts)
