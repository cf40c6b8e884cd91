"""The work of a worker, and the way to send it to one."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

import numpy as np
from torch.utils.data.dataloader import _DatasetKind

from .._process import anonymous_file
from .._work._memory import align
from ._codec import Found, dumps, in_a_row, loads, place, total


@dataclass
class Job:
    """The parts of a DataLoader that its workers need."""

    iterable: bool
    dataset: Any
    auto_collation: bool
    collate_fn: Any
    drop_last: bool
    init_fn: Any
    num_workers: int
    # Makes samples from the engine's batches; None if workers ask the dataset for them.
    samples: Any = None

    @classmethod
    def of(cls, loader: Any, samples: Any = None) -> Job:
        """Return the parts of a loader."""
        return cls(
            iterable=loader._dataset_kind == _DatasetKind.Iterable,
            dataset=loader.dataset,
            auto_collation=loader._auto_collation,
            collate_fn=loader.collate_fn,
            drop_last=loader.drop_last,
            init_fn=loader.worker_init_fn,
            num_workers=loader.num_workers,
            samples=samples,
        )


class Sent:
    """A job in memory that all workers map: one copy of its pickle, tensors and arrays, however many they are."""

    def __init__(self, job: Job) -> None:
        """Pickle a job; raises pickle's errors."""
        self._fd = -1
        body, parts = dumps(job, by_value=True)
        if any(part.storage is not None and part.storage.is_shared() for part in parts):
            # A copy would no longer be shared with other processes.
            raise TypeError("it has tensors in shared memory")
        self._size = align(len(body)) + total(parts)
        self._fd = anonymous_file("stoker-job")
        os.ftruncate(self._fd, self._size)
        with mmap.mmap(self._fd, self._size) as mapping:
            mapping[: len(body)] = body
            root = np.frombuffer(mapping, np.uint8)
            places = place(parts, in_a_row(parts, root, align(len(body))))
            del root  # the mapping is closed
        buffers = [i for i, part in enumerate(parts) if part.buffer is not None]
        self._index = len(body), places, buffers

    def close(self) -> None:
        """Free it here; workers that run have it mapped."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"fd": reduction.DupFd(self._fd), "size": self._size, "index": self._index}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd, self._size, self._index = state["fd"].detach(), state["size"], state["index"]

    def open(self) -> Job:
        """Return the job, in a worker."""
        # Private: a worker's changes to its dataset stay its own, as after a fork.
        mapping = mmap.mmap(self._fd, self._size, mmap.MAP_PRIVATE)
        self.close()
        size, places, buffers = self._index
        root: Any = np.frombuffer(mapping, np.uint8)
        job: Job = loads(memoryview(root)[:size], Found([root], places), buffers)
        return job
