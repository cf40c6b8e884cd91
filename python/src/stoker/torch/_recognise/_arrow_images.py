"""The storage of the images in an Arrow column: in files of their own, in mapped files, or in memory."""

from __future__ import annotations

import bisect
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _memory
from ._library import Unknown

# Images that exist only in memory are written into a file in memory, so that memory holds them twice.
_MAX_BYTES = 2 << 30
_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ (\d+) +(/.*)")


def located(column: Any, rows: npt.NDArray[np.int64] | None) -> _memory.Memory:
    """Return a list of the images of an Arrow column as the engine reads it, or raise Unknown.

    Args:
        column: of structs of ``bytes`` and ``path``, as ``datasets`` keeps images.
        rows: which of its rows, and in which order; None for all.
    """
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if any(chunk.null_count for chunk in chunks):
        raise Unknown("some images are empty values")
    inside, paths = ([chunk.field(name) for chunk in chunks] for name in ("bytes", "path"))
    without = sum(part.null_count for part in inside)
    if without == len(column):
        return _files(paths, rows)
    if without:
        raise Unknown("some images are files, and some lie in the table")
    return _parts(inside, rows)


def _files(parts: list[Any], rows: npt.NDArray[np.int64] | None) -> _memory.Memory:
    names = [name for part in parts for name in part.to_pylist()]
    if rows is not None:
        names = [names[row] for row in rows.tolist()]
    if any(name is not None and ("://" in name or "::" in name) for name in names):
        raise Unknown("its images are not files of this machine")
    return _memory.list_of(names)


class _Mapped(NamedTuple):
    """A part of this process's memory that is a part of a file."""

    start: int
    end: int
    offset: int
    path: str


def _mapped() -> list[_Mapped]:
    """Return the mapped files and their addresses."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            match = _LINE.match(line)
            if match is None or match[5].endswith(" (deleted)"):
                continue
            start, end, offset = (int(match[i], 16) for i in (1, 2, 3))
            found.append((_Mapped(start, end, offset, match[5]), int(match[4])))
    known: dict[tuple[str, int], bool] = {}
    for part, inode in found:
        key = part.path, inode
        if key not in known:
            known[key] = _is(*key)
    return [part for part, inode in found if known[part.path, inode]]


def _is(path: str, inode: int) -> bool:
    """Whether a path leads to the file of that number, and to no device."""
    try:
        return Path(path).is_file() and Path(path).stat().st_ino == inode
    except OSError:
        return False


def _parts(parts: list[Any], rows: npt.NDArray[np.int64] | None) -> _memory.Memory:
    mapped = _mapped()
    starts = [part.start for part in mapped]
    files: dict[str, int] = {}
    columns: list[list[npt.NDArray[Any]]] = []
    held: _memory.Memory | None = None
    written = 0
    for part in parts:
        offsets, data = _offsets(part)
        size = np.diff(offsets)
        low, high = int(offsets[0]), int(offsets[-1])
        where = _file_of(mapped, starts, data.address + low, data.address + high)
        if where is not None and _same(where, data, low, high):
            path, at = where[0], where[1] - low
        else:
            written += high - low
            if written > _MAX_BYTES:
                raise Unknown(f"images of more than {_MAX_BYTES >> 30} GiB in memory, where they would be twice")
            held = held or _memory.Memory("stoker-images")
            path, at = held.path, os.lseek(held.fd, 0, os.SEEK_END) - low
            with open(held.fd, "ab", closefd=False) as f:
                f.write(memoryview(data)[low:high])
        number = files.setdefault(path, len(files))
        columns.append([np.full(len(size), number, np.uint32), (offsets[:-1] + at).astype(np.uint64), size])
    file, offset, size = (np.concatenate(column) for column in zip(*columns, strict=True))
    if rows is not None:
        file, offset, size = file[rows], offset[rows], size[rows]
    memory = _memory.parts_of(list(files), file, offset, size)
    memory.beside = held  # as long as the list
    return memory


def _offsets(part: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """Return the bounds of a binary array's values in a buffer, and the buffer."""
    wide = np.dtype(np.int64 if str(part.type) == "large_binary" else np.int32)
    if str(part.type) not in ("binary", "large_binary"):
        raise Unknown(f"images are values of {part.type}")
    _, offsets, data = part.buffers()
    if data is None:
        raise Unknown("its images are empty")
    found = np.frombuffer(offsets, wide, len(part) + 1, part.offset * wide.itemsize)
    return found.astype(np.int64), data


def _file_of(mapped: list[_Mapped], starts: list[int], low: int, high: int) -> tuple[str, int] | None:
    """Return the file that contains a range of memory, and the offset of the range in it."""
    i = bisect.bisect_right(starts, low) - 1
    if i < 0 or high > mapped[i].end:
        return None
    return mapped[i].path, mapped[i].offset + low - mapped[i].start


def _same(where: tuple[str, int], data: Any, low: int, high: int) -> bool:
    """Report whether the file and the memory have the same contents."""
    some = min(high - low, 64)
    try:
        with open(where[0], "rb") as f:
            for at in (0, high - low - some):
                f.seek(where[1] + at)
                if f.read(some) != bytes(memoryview(data)[low + at : low + at + some]):
                    return False
    except OSError:
        return False
    return True
