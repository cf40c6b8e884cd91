"""The log of the records that a loop has received, for ``stoker audit``."""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._batch import INDEX, Batch
from ._connection import Position
from ._errors import ConfigError, StokerError
from ._map._seeds import mixed_array

if TYPE_CHECKING:
    from ._epochs import Epochs

# The format is in docs/reference/audit-format.md; internal/audit reads it.
MAGIC = b"\xff\xff\xff\xff\xffSTK"
_HEADER = struct.Struct("<8sIIQQQQQII16sQ")
_EMPTY, _END = 2**40 - 2, 2**40 - 3  # instead of a record: a batch without rows, the end of an epoch
_FIRST = np.uint64(1 << 51)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Log:
    """An audit log that is open for writing.

    Args:
        path: the file. ``{rank}`` in it is the number of the rank. An existing log is continued.
        info: the engine's description of the data.
    """

    def __init__(self, path: str, info: Mapping[str, Any]) -> None:
        self.path = path.replace("{rank}", str(info["rank"]))
        self._info = info
        self._at: Position | None = None  # where the log ends
        self._words = 0
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(f"audit={path!r}: {error.strerror}") from None
        try:
            self._adopt()
        except BaseException:
            os.close(self._fd)
            raise

    def _adopt(self) -> None:
        """Lock the file, and drop a part of a number at its end."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"audit: another loader writes {self.path}; give each rank its own log, such as "
                'Ranks(audit="run.{rank}.log")'
            ) from None
        size = os.fstat(self._fd).st_size
        if size >= len(MAGIC) and os.pread(self._fd, len(MAGIC), 0) != MAGIC:
            raise ConfigError(f"audit: {self.path} is not an audit log; name a new file")
        os.ftruncate(self._fd, size - size % 8 if size >= len(MAGIC) else 0)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def batch(self, before: Position, after: Position, batch: Batch) -> None:
        """Add the records of a batch, without repeated ones."""
        records = np.asarray(batch[INDEX]).astype(np.uint64)[: len(batch) - batch.num_repeated]
        self._add(before, after, batch.epoch, records if len(records) else np.array([_EMPTY], np.uint64))

    def end(self, before: Position, after: Position) -> None:
        """Add the end of an epoch."""
        self._add(before, after, after.epoch - 1, np.array([_END], np.uint64))

    def _add(self, before: Position, after: Position, epoch: int, words: Any) -> None:
        head = b""
        if self._at != before:
            head = self._header(Position(epoch, 0) if before.epoch != epoch else before)
        words = words | np.uint64((epoch & 0x7FF) << 40)
        words[0] |= _FIRST
        numbers = np.arange(self._words, self._words + len(words), dtype=np.uint64)
        words |= mixed_array(words ^ self._salt ^ numbers * _GOLDEN) >> np.uint64(52) << np.uint64(52)
        data = head + words.astype("<u8").tobytes()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise StokerError(f"the audit log {self.path} cannot be written: {error.strerror}") from None
        self._words += len(words)
        self._at = after

    def _header(self, start: Position) -> bytes:
        """Begin a part of the log that starts at another position than where the log ends."""
        info = self._info
        identity = info["identity"]
        stride = info["world_size"] * (1 if "ranks" in identity else info["batch_size"])
        salt = os.urandom(8)
        self._salt, self._words = np.uint64(int.from_bytes(salt, "little")), 0
        head = _HEADER.pack(
            MAGIC, 1, _HEADER.size + 8, time.time_ns(), info["len"], start.epoch, start.row, stride, info["rank"],
            info["world_size"], bytes.fromhex(identity["manifest"]), int(self._salt),
        )  # fmt: skip
        return head + hashlib.sha256(head).digest()[:8]


class Audited(Iterator[Batch]):
    """One pass over a loader whose batches go to a log."""

    def __init__(self, epochs: Epochs, log: Log, inner: Any) -> None:
        self._epochs, self._log, self._inner = epochs, log, inner
        self._ended = False

    def __next__(self) -> Batch:
        before = self._epochs.position
        try:
            batch: Batch = next(self._inner)
        except StopIteration:
            after = self._epochs.position
            if after.row == 0 and after.epoch > 0 and not self._ended:
                self._ended = True
                self._log.end(before, after)
            raise
        self._log.batch(before, self._epochs.position, batch)
        return batch

    def __len__(self) -> int:
        return len(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)
