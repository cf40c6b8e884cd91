"""The step log: the times at which this process waited for data and finished a step.

A ring of records in anonymous memory that other processes may read while it is written: ``stoker doctor``, ``stoker
bench``, ``stoker profile``. They find it through ``/proc/PID/fd``. docs/reference/protocol.md specifies it;
``internal/doctor/steplog`` reads it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import NamedTuple, TypeVar

from ._errors import ConfigError
from ._process import anonymous_file

_T = TypeVar("_T")

NAME = "stoker-steps"
MAGIC = b"STKSTEP1"
VERSION = 1
CAPACITY = 16384
HEADER = struct.Struct("<8sIIQIIQI20x")
RECORD = struct.Struct("<QII")
_HEAD = struct.Struct("<Q")
_HEAD_AT = 16
_NAMES_AT = 40
_NAME_SIZE = 32
_MAX_NAMES = 64

WAIT_BEGIN = 1
WAIT_END = 2
STEP = 3
STAGE_BEGIN = 4
STAGE_END = 5

# The number of examples of a wait in which no batch came: at the end of an epoch, or after an exception.
NONE = 0xFFFFFFFF

# The stages with a number of their own; a program's other names get numbers from FIRST_NAME on.
STAGES = {
    "forward": 1, "backward": 2, "optimiser": 3, "copy": 4, "copy back": 5,
    "read": 6, "decode": 7, "transform": 8, "collate": 9, "hand-off": 10,
}  # fmt: skip
_ALIASES = {"optimizer": "optimiser", "handoff": "hand-off", "copy_back": "copy back"}
FIRST_NAME = 32


class Record(NamedTuple):
    """One entry of the log: CLOCK_MONOTONIC nanoseconds, the event, and its number."""

    ns: int
    kind: int
    arg: int


class StepLog:
    """The log of this process. Writing is for all threads, and never fails."""

    def __init__(self, capacity: int = CAPACITY, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Allocate the memory; raises OSError if the system has none.

        Args:
            capacity: the number of records that the ring holds, a power of two.
            clock: gives nanoseconds of CLOCK_MONOTONIC.
        """
        self._capacity = capacity
        self._names_at = HEADER.size + capacity * RECORD.size
        size = self._names_at + _MAX_NAMES * _NAME_SIZE
        self._lock = threading.RLock()  # reentrant: a signal handler may write while its own thread does
        fd = anonymous_file(NAME)
        try:
            os.ftruncate(fd, size)
            self._memory = mmap.mmap(fd, size)  # which keeps a descriptor of its own
        finally:
            os.close(fd)
        self._head = 0
        self._numbers: dict[str, int] = dict(STAGES)
        HEADER.pack_into(self._memory, 0, MAGIC, VERSION, capacity, 0, os.getpid(), 0, clock(), 0)
        self.write = self._writer(clock)

    def _writer(self, now: Callable[[], int]) -> Callable[[int, int], None]:
        # A closure: its names are found twice as fast as attributes are.
        lock, memory, mask = self._lock, self._memory, self._capacity - 1
        put, put_head, start, size = RECORD.pack_into, _HEAD.pack_into, HEADER.size, RECORD.size

        def write(kind: int, arg: int = 0) -> None:
            with lock:
                head = self._head
                put(memory, start + (head & mask) * size, now(), kind, arg)
                self._head = head = head + 1
                put_head(memory, _HEAD_AT, head)

        return write

    def number(self, name: str) -> int:
        """Return the number of a stage, a new number for a new name, 0 if there are too many."""
        number = self._numbers.get(name)
        if number is not None:
            return number
        name = _ALIASES.get(name, name)
        with self._lock:
            if name not in self._numbers:
                count = len(self._numbers) - len(STAGES)
                if count >= _MAX_NAMES:
                    return 0
                at = self._names_at + count * _NAME_SIZE
                raw = name.encode()[:_NAME_SIZE].decode(errors="ignore").encode()
                self._memory[at : at + len(raw)] = raw
                struct.pack_into("<I", self._memory, _NAMES_AT, count + 1)
                self._numbers[name] = FIRST_NAME + count
            return self._numbers[name]

    @property
    def memory(self) -> bytes:
        """A copy of the whole log."""
        return bytes(self._memory)

    @property
    def head(self) -> int:
        """The number of records ever written."""
        return self._head

    def read(self, since: int = 0) -> list[Record]:
        """Return the records from number ``since`` on that are still in the ring."""
        with self._lock:
            first = max(since, self._head - self._capacity)
            at = HEADER.size
            return [
                Record(*RECORD.unpack_from(self._memory, at + (i & (self._capacity - 1)) * RECORD.size))
                for i in range(first, self._head)
            ]

    def names(self) -> dict[int, str]:
        """Return the name of each stage number."""
        return {number: name for name, number in self._numbers.items()}

    def close(self) -> None:
        """Give the memory back; nothing may be written afterwards."""
        with contextlib.suppress(BufferError):
            self._memory.close()


_log: StepLog | None = None
_off = False
_making = threading.Lock()


def _nothing(kind: int, arg: int = 0) -> None:
    """Replace the log if there is no memory for one."""


# The write function of Loader and the functions below. The log's own writer replaces it at the first use.
def _first_write(kind: int, arg: int = 0) -> None:
    current = log()
    if current is not None:
        current.write(kind, arg)


write: Callable[[int, int], None] = _first_write


def log() -> StepLog | None:
    """Return the log of this process, made at the first call; None if the system has no memory for it."""
    global _log, _off, write
    if _log is None and not _off:
        with _making:
            if _log is None and not _off:
                try:
                    _log = StepLog()
                    write = _log.write
                except OSError:
                    _off = True
                    write = _nothing
    return _log


def _after_fork() -> None:
    """Let a forked child begin a log of its own: the one it has a copy of is its parent's."""
    global _log, _off, _making, write
    if _log is not None:
        _log.close()
    _log, _off, _making, write = None, False, threading.Lock(), _first_write
    _waits.outer = 0


class _Waits(threading.local):
    """The wait that a thread is in, as the id of the caller's frame, or 0.

    An interrupt may end a wait before end_wait is called, so the frame counts only while it is on the stack.
    """

    outer = 0


_waits = _Waits()


def _is_within_wait(frame: FrameType) -> bool:
    above = frame.f_back
    while above is not None and id(above) != _waits.outer:
        above = above.f_back
    return above is not None


def is_inside_wait() -> bool:
    """Whether the function that calls this runs inside a wait that begin_wait has written."""
    return bool(_waits.outer) and _is_within_wait(sys._getframe(1))


def begin_wait() -> None:
    """Write that the loop waits for a batch. A wait inside another one of the same thread is not written."""
    frame = sys._getframe(1)
    if _waits.outer and _is_within_wait(frame):
        return
    _waits.outer = id(frame)
    write(WAIT_BEGIN, 0)


def end_wait(rows: int) -> None:
    """Write the end of a wait, and the number of examples in the batch: 0 if unknown, NONE for no batch.

    The function that called begin_wait calls it.
    """
    if _waits.outer == id(sys._getframe(1)):
        _waits.outer = 0
        write(WAIT_END, rows)


os.register_at_fork(after_in_child=_after_fork)


def step() -> None:
    """Mark the end of a training step.

    Call it once per step, at the end of the loop's body::

        for images, labels in loader:
            train_step(images, labels)
            stoker.step()

    It costs about half a microsecond, works with any loader, and lets ``stoker doctor``,
    ``stoker bench -- ...`` and ``stoker profile -- ...`` tell steps from waiting. Nothing else depends on it.
    """
    write(STEP, 0)


class stage:  # noqa: N801 - used as a function
    """Mark a part of the step, so that profiles show its time.

    ::

        with stoker.stage("forward"):
            loss = criterion(model(images), labels)

    The names ``forward``, ``backward``, ``optimiser``, ``copy`` (to the device), ``copy back``, ``read``, ``decode``,
    ``transform``, ``collate`` and ``hand-off`` have a place in every report; up to 64 others may be used.
    Work that is only queued on an accelerator is measured as the time to queue it.

    Args:
        name: the name, at most 32 bytes of UTF-8.
    """

    __module__ = "stoker"
    __slots__ = ("_number",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"stage is {name!r}; it must be a name, such as 'forward'")
        current = log()
        self._number = 0 if current is None else current.number(name)

    def __enter__(self) -> stage:
        """Begin the stage."""
        write(STAGE_BEGIN, self._number)
        return self

    def __exit__(self, *_: object) -> None:
        """End the stage."""
        write(STAGE_END, self._number)


def rows_of(batch: object) -> int:
    """Return the number of examples in a batch of any loader, 0 if unknown."""
    if (rows := getattr(batch, "_rows", None)) is not None:
        return int(rows) if isinstance(rows, int) else 0  # of our own Batch
    for _ in range(4):
        if isinstance(batch, dict):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, (list, tuple)) and batch:
            batch = batch[0]
        else:
            break
    shape = getattr(batch, "shape", None)
    if shape is not None and len(shape) > 0:
        with contextlib.suppress(TypeError, ValueError):
            return max(0, min(int(shape[0]), NONE - 1))
    return 0


def wait_for(take: Callable[[], _T]) -> tuple[_T, int]:
    """Take the next batch and return it with the number of its examples. The wait goes into the log."""
    begin_wait()
    rows = NONE
    try:
        batch = take()
        rows = rows_of(batch)
        return batch, rows
    finally:
        end_wait(rows)


def watch(loader: Iterable[_T]) -> Iterator[_T]:
    """Iterate over any loader and write each wait for a batch into the step log.

    ``stoker.Loader`` does that automatically. With other loaders it shows ``stoker doctor`` the waits of the loop::

        for images, labels in stoker.watch(loader):
            train_step(images, labels)
            stoker.step()
    """
    batches = iter(loader)
    while True:
        try:
            batch, _ = wait_for(batches.__next__)
        except StopIteration:
            return
        yield batch
        del batch
