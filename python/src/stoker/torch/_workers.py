"""A worker process: it gets indices, makes batches of the user's dataset, and puts them into shared memory."""

from __future__ import annotations

import contextlib
import ctypes
import pickle
import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils import worker as torch_worker

from .._work import _wire
from .._work._inside import Ended, Inbox, users
from .._work._memory import ALIGN, Page, Pieces, align
from .._work._pool import Places
from .._work._ring import Ring
from . import _collate
from ._codec import Part, dumps, in_a_row, place, total
from ._job import Job, Sent

_NOT_USERS = (str(Path(__file__).parent), str(Path(torch.utils.data.__file__).parent / "_utils"))


# From <malloc.h>: the free memory kept at the end of the heap, and the number of allocations with their own mappings.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
# The size of a batch of samples and its stack, with a margin.
_HEAP = 128 << 20


class _NoMore(Exception):
    """An iterable dataset has ended."""


def main(sock: socket.socket, page: Page, job: Job | Sent, number: int, base_seed: int) -> None:
    """Run a worker until the loader ends it."""
    with contextlib.suppress(KeyboardInterrupt, Ended):
        _Worker(sock, page, job, number, base_seed).run()


class _Worker:
    def __init__(self, sock: socket.socket, page: Page, job: Job | Sent, number: int, base_seed: int) -> None:
        self._inbox, self._page, self._number = Inbox(sock, page), page, number
        signal_handling._set_worker_signal_handlers()
        with contextlib.suppress(AttributeError):
            torch.multiprocessing._set_thread_name("pt_data_worker")
        torch.set_num_threads(1)
        self._job = job = job.open() if isinstance(job, Sent) else job
        self._pieces = Pieces(page)
        self._ring: Ring | None = None
        self._task = -1
        _collate.install(self._pieces)
        _seed(base_seed, number)
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=number, num_workers=job.num_workers, seed=base_seed + number, dataset=job.dataset
        )
        # The error that keeps this worker from working: it is the answer to every task.
        self._broken: ExceptionWrapper | None = None
        try:
            if job.init_fn is not None:
                job.init_fn(number)
        except Exception:
            self._broken = self._failure(None, "worker_init_fn")
        self._uninitialised = self._broken
        self._fetch = self._make_fetch()

    def run(self) -> None:
        """Answer tasks."""
        while True:
            message, fds = self._inbox.receive()
            if message[0] == _wire.EPOCH:
                self._broken = self._uninitialised
                self._fetch = self._make_fetch()
                continue
            if message[0] == _wire.RING:
                self._ring = Ring(fds[0], *message[1:], writable=False)
                continue
            if message[0] == _wire.POOL:
                _, generation, size, places = message
                with contextlib.suppress(OSError):  # a limit of this process: its pieces are its own
                    self._pieces.share(Places(generation, size, places, fds))
                continue
            _, epoch, task, index, *slot = message
            if self._page.ended:
                raise Ended
            self._answer(epoch, task, index, slot)
            del message, index

    def _make_fetch(self) -> Any:
        if self._broken is not None:
            return None
        kind: Any = _Iterable if self._job.iterable else _Map if self._job.samples is None else _Split
        try:
            return kind(self._job, self._mark)
        except Exception:
            self._broken = self._failure(None, "iter() of the dataset")
            return None

    def _answer(self, epoch: int, task: int, index: Any, slot: list[Any]) -> None:
        if self._broken is not None:
            return self._send_failure(epoch, task, self._broken)
        try:
            self._task, self._pieces.task = task, (epoch, task)
            self._mark(0)
            data = self._fetch.fetch(index, *self._given(slot))
        except _NoMore:
            return self._inbox.send((_wire.END, epoch, task))
        except Exception:
            self._pieces.abandon()
            return self._send_failure(epoch, task, self._failure(self._fetch.record, self._fetch.doing))
        try:
            body, parts = dumps(data)
        except Exception:
            self._pieces.abandon()
            return self._send_failure(epoch, task, self._failure(None, "sending the batch to the loader"))
        del data
        return self._send_batch(epoch, task, body, parts)

    def _mark(self, row: int) -> None:
        self._page.mark(self._task, row)

    def _given(self, slot: list[Any]) -> list[Any]:
        """Return the engine's part of a batch."""
        if not slot:
            return []
        if self._ring is None:
            raise RuntimeError("a batch came before its ring")
        number, rows, beside = slot
        return [self._ring.views(self._ring.slot(number), rows) | beside]

    def _send_batch(self, epoch: int, task: int, body: bytes, parts: list[Part]) -> None:
        pieces = self._pieces
        there = [pieces.holds(part.address) if part.storage is not None and part.size else None for part in parts]
        need = total([part for part, lies in zip(parts, there, strict=True) if lies is None])
        buffers = [i for i, part in enumerate(parts) if part.buffer is not None]
        if not pieces.open and need + len(body) <= _wire.INLINE:
            beside = bytearray(need)
            places = place(parts, in_a_row(parts, beside))
            self._inbox.send((_wire.SMALL, epoch, task, body, places, buffers, bytes(beside)))
            return
        outside = len(body) > _wire.INLINE
        room = need + (align(len(body)) + ALIGN if outside else 0)
        number = pieces.reserve(room) if room else 0
        piece = pieces.open[number]

        def take(i: int) -> tuple[int, int, Any]:
            lies = there[i]
            return (number, piece.take(parts[i].size) or 0, piece.root) if lies is None else (*lies, None)

        places = place(parts, take)
        sent: bytes | tuple[int, int, int] = body
        if outside:
            at = piece.take(len(body)) or 0
            memoryview(piece.root)[at : at + len(body)] = body  # type: ignore[arg-type]
            sent = number, at, len(body)
        parts.clear()  # they hold the pieces, which are looked at for who else does
        pieces.send(self._inbox.send, (_wire.BATCH, epoch, task, sent, places, buffers))

    # --- failures -------------------------------------------------------------------------------------------------

    def _failure(self, record: Any, doing: str) -> ExceptionWrapper:
        """Describe the exception that is being handled, in torch's form."""
        where = f"in DataLoader worker process {self._number}"
        if record is not None:
            where += f", record {record!r:.100}"
        elif doing:
            where += f", in {doing}"
        kind, value, trace = sys.exc_info()
        if kind is None or value is None:
            raise RuntimeError("no exception is being handled")
        return ExceptionWrapper((kind, value, users(trace, _NOT_USERS)), where)

    def _send_failure(self, epoch: int, task: int, failure: ExceptionWrapper) -> None:
        try:
            body = pickle.dumps(failure)
            pickle.loads(body)
        except Exception:
            # The type is known here alone.
            failure.where += f" (a {failure.exc_type.__qualname__}, a type that cannot be sent)"
            failure.exc_type = RuntimeError
            body = pickle.dumps(failure)
        if len(body) > _wire.INLINE:
            failure.exc_msg = failure.exc_msg[: _wire.INLINE // 8] + "\n[...]"
            body = pickle.dumps(failure)
        self._inbox.send((_wire.FAILED, epoch, task, body))


def _seed(base_seed: int, number: int) -> None:
    """Set the random numbers of this process as torch's workers do."""
    seed = base_seed + number
    random.seed(seed)
    torch.manual_seed(seed)
    state = getattr(torch_worker, "_generate_state", None)
    if state is not None:
        np.random.seed(state(base_seed, number))


class _Map:
    """Makes batches of a dataset with ``__getitem__``."""

    def __init__(self, job: Job, mark: Callable[[int], None]) -> None:
        self._dataset, self._auto, self._collate = job.dataset, job.auto_collation, job.collate_fn
        self._mark = mark
        self.record: Any = None
        self.doing = ""

    def fetch(self, index: Any) -> Any:
        """Make a batch; ``record`` and ``doing`` show the progress."""
        dataset, mark = self._dataset, self._mark
        self.doing = "fetching"
        mark(0)
        if not self._auto:
            self.record = index
            data = dataset[index]
        elif getattr(dataset, "__getitems__", None):
            self.record = None
            self.doing = "__getitems__"
            data = dataset.__getitems__(index)
        else:
            data = []
            for row, record in enumerate(index):
                mark(row)
                self.record = record
                data.append(dataset[record])
            mark(len(data))
        self.record, self.doing = None, "collate_fn"
        return self._collate(data)


class _Split(_Map):
    """Makes batches from the engine's, and from the dataset if the engine has not made one."""

    def __init__(self, job: Job, mark: Callable[[int], None]) -> None:
        super().__init__(job, mark)
        self._samples = job.samples
        _keep_what_is_freed()

    def fetch(self, index: Any, made: Any = None) -> Any:
        """Make a batch."""
        if made is None and not self._samples.watches:
            return super().fetch(index)
        self.doing = "fetching"
        with self._samples.scope(made):
            samples = self._samples.make(made, index, self._at, self._dataset.__getitem__, copy=True)
            self._mark(len(samples))
            self.record, self.doing = None, "collate_fn"
            batch = self._collate(samples)
            del samples  # what lives when the scope ends is kept by somebody
            return batch

    def _at(self, row: int, index: Any) -> None:
        self._mark(row)
        self.record = index


def _keep_what_is_freed() -> None:
    """Let the C library keep freed memory, which it would otherwise allocate and clear again for each batch.

    The samples are copied, stacked and freed. Page faults would double the time of that.
    """
    with contextlib.suppress(AttributeError, OSError):  # of glibc alone
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _HEAP)


class _Iterable:
    """Makes batches of a dataset with ``__iter__``."""

    def __init__(self, job: Job, _mark: Callable[[int], None]) -> None:
        self._auto, self._collate, self._drop_last = job.auto_collation, job.collate_fn, job.drop_last
        self._iterator = iter(job.dataset)
        self._ended = False
        self.record: Any = None
        self.doing = ""

    def fetch(self, index: Any) -> Any:
        """Make a batch of the next records, one for each index."""
        if self._ended:
            raise _NoMore
        self.doing = "the dataset's iterator"
        if not self._auto:
            try:
                data = next(self._iterator)
            except StopIteration:
                self._ended = True
                raise _NoMore from None
        else:
            data = []
            for _ in index:
                try:
                    data.append(next(self._iterator))
                except StopIteration:
                    self._ended = True
                    break
            if not data or (self._drop_last and len(data) < len(index)):
                raise _NoMore
        self.doing = "collate_fn"
        return self._collate(data)
