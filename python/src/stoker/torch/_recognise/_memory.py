"""Files in memory, without a name, from which the engine reads what Python holds."""

from __future__ import annotations

import concurrent.futures
import ctypes
import itertools
import os
import re
import resource
import time
import weakref
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from ..._process import anonymous_file
from ._library import Unknown

# As internal/source/pathsource has them.
_MAGIC = b"stkpath1"
_PARTS_MAGIC = b"stkpart1"
_PATHS = (type(Path()), type(PurePath()))
_PLACE = np.dtype([("file", "<u4"), ("offset", "<u8"), ("size", "<u8")])
# So many bytes a thread compares at a time, and so many threads compare.
_TOGETHER = 1 << 22
_THREADS = 4
_MEMCMP = ctypes.CDLL(None).memcmp
_MEMCMP.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
# The largest array that is handed over: it is then in memory twice.
_MAX_ARRAY = 2 << 30


# Files of this machine take a few microseconds. Others are asked for at the same time.
_SLOW, _AT_ONCE = 200e-6, 32
# One in so many lists then begins with so many files that are asked for one after the other, and timed.
_OFTEN, _TIMED = 32, 4
_POOL: concurrent.futures.ThreadPoolExecutor | None = None
_LISTS = 0  # that the pool was given


def _alone() -> None:
    global _POOL
    _POOL = None  # whose threads are not in a child


os.register_at_fork(after_in_child=_alone)


def stats(paths: list[Any]) -> list[os.stat_result | None]:
    """Return the status of files, None for each that is not there."""
    global _POOL, _LISTS
    if _POOL is None:
        found, slow = _timed(paths)
        if slow and len(paths) >= _AT_ONCE:
            _POOL = concurrent.futures.ThreadPoolExecutor(_AT_ONCE, "stoker-stat")
        return found
    _LISTS += 1
    first, slow = ([], True) if _LISTS % _OFTEN else _timed(paths[:_TIMED])
    if slow:
        return [*first, *_POOL.map(_stat, paths[len(first) :])]
    _POOL.shutdown(wait=False)
    _POOL = None
    return [*first, *map(_stat, paths[len(first) :])]


def _timed(paths: list[Any]) -> tuple[list[os.stat_result | None], bool]:
    """Return the status of files, and whether this thread has waited for them, other than for a processor."""
    waits, before = _waits(), time.perf_counter()
    found = list(map(_stat, paths))
    slow = time.perf_counter() - before > _SLOW * len(paths)
    return found, slow and 2 * (_waits() - waits) > len(paths)


def _waits() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _stat(path: Any) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - for each record
    except OSError:
        return None


class Memory:
    """A file in memory, which lives as long as this object."""

    def __init__(self, name: str) -> None:
        """Make an empty one."""
        self.fd = anonymous_file(name)
        self.beside: Memory | None = None  # another one, which what is in this one names
        self.array: npt.NDArray[np.uint8] | None = None  # what is in it, if ``array_of`` wrote it and it was compared
        self.names: list[Any] | None = None  # of a list of paths: as they were given, and ...
        self.here: tuple[Any, ...] | None = None  # ... what they are relative to, None where they are not
        weakref.finalize(self, _close, self.fd, os.getpid())

    @property
    def path(self) -> str:
        """The path by which the engine opens it."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"


def _close(fd: int, pid: int) -> None:
    if os.getpid() == pid:
        os.close(fd)


def list_of(paths: Iterable[Any]) -> Memory:
    """Return a list of paths as the engine reads it."""
    given = list(paths)
    if not {type(p) for p in given} <= {str, *_PATHS}:
        raise Unknown("its files are not named by paths of text")
    try:
        names = [os.fspath(p) for p in given]
        text = "\0".join(names)
    except TypeError:
        raise Unknown("its files are not named by paths of text") from None
    if not names or text.count("\0") != len(names) - 1 or "" in names:
        raise Unknown("a path is empty or has a zero byte in it")
    if not text.startswith("/") or text.count("\0/") != len(names) - 1 or "/../" in text:
        text = "\0".join(absolute(names))
    while "//" in text or "/./" in text:
        text = re.sub(r"/(\./|/+)", "/", text)
    memory = Memory("stoker-paths")
    memory.names = given
    if not all(name.startswith("/") for name in names):
        memory.here = here()
    with open(memory.fd, "wb", closefd=False) as f:
        f.write(_MAGIC + os.fsencode(text) + b"\0")
    return memory


def names_of(memory: Memory) -> list[Any] | None:
    """Return the paths of a list that ``list_of`` has written. They lead to the same files in any folder."""
    if memory.names is None or memory.here is None:
        return memory.names
    return list(absolute([os.fspath(name) for name in memory.names], memory.here[0]))


def parts_of(files: list[str], file: npt.NDArray[Any], offset: npt.NDArray[Any], size: npt.NDArray[Any]) -> Memory:
    """Return a list of parts of files, as the engine reads it: of each record its file and its place there."""
    places = np.empty(len(file), _PLACE)
    places["file"], places["offset"], places["size"] = file, offset, size
    memory = Memory("stoker-parts")
    with open(memory.fd, "wb", closefd=False) as f:
        f.write(_PARTS_MAGIC + b"".join(os.fsencode(name) + b"\0" for name in files) + b"\0")
        f.write(places.tobytes())
    return memory


def here() -> tuple[Any, ...]:
    """Return what relative paths depend on: the folder that the process is in, and its name."""
    found = os.stat(".")  # noqa: PTH116 - the folder itself, whatever its name is by now
    return str(Path.cwd()), found.st_dev, found.st_ino


def absolute(names: list[str], here: str = "") -> Iterable[str]:
    """Make paths absolute. If a path leads up, the links on its way are resolved."""
    here = here or str(Path.cwd())
    folders: dict[str, str] = {}
    for name in names:
        folder, _, base = (name if name.startswith("/") else f"{here}/{name}").rpartition("/")
        if folder not in folders:
            folders[folder] = str(Path(folder).resolve()) if ".." in folder.split("/") else folder
        yield f"{folders[folder]}/{base}"


def array_of(parts: list[npt.NDArray[np.uint8]]) -> Memory:
    """Return concatenated arrays as an .npy file."""
    if sum(p.nbytes for p in parts) > _MAX_ARRAY:
        raise Unknown(f"its data has more than {_MAX_ARRAY >> 30} GiB, which would be in memory twice")
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    memory = Memory("stoker-array")
    with open(memory.fd, "wb", closefd=False) as f:
        head = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(f, head)
        for part in parts:
            for at in range(0, len(part), 4096):
                f.write(np.ascontiguousarray(part[at : at + 4096]).tobytes())
    return memory


def pixels_of(memory: Memory) -> npt.NDArray[np.uint8]:
    """Return the array that ``array_of`` has written, without a copy. Writes to it do not change the file."""
    found: npt.NDArray[np.uint8] = np.load(memory.path, mmap_mode="c")
    return found


def are_rows(
    now: npt.NDArray[Any], rows: list[int], held: npt.NDArray[np.uint8], records: npt.NDArray[np.int64]
) -> bool:
    """Whether rows of an array still have the bytes of records that ``array_of`` has written."""
    if now.dtype != held.dtype or now.shape[1:] != held.shape[1:] or not now.flags.c_contiguous:
        return np.array_equal(now[rows], held[records])
    at, n, size = np.array(rows, np.int64), len(now), held.nbytes // len(held)
    if not len(at) or at.min() < -n or at.max() >= n:
        return False
    at[at < 0] += n
    # Not copied together first: that takes longer than to compare them.
    mine, theirs = (now.ctypes.data + at * size).tolist(), (held.ctypes.data + records * size).tolist()
    return not any(map(_MEMCMP, mine, theirs, itertools.repeat(size)))


def is_array_of(memory: Memory, parts: list[npt.NDArray[np.uint8]]) -> bool:
    """Whether arrays still have all the bytes that ``array_of`` has written, in the same order."""
    if memory.array is None:  # mapped once: to map it again costs more than to compare it
        memory.array = pixels_of(memory)
    held = memory.array
    if len(held) != sum(map(len, parts)) or any(p.shape[1:] != held.shape[1:] for p in parts):
        return False
    some = max(1, _TOGETHER // max(1, held[0].nbytes))
    at, pairs = 0, []
    for part in parts:
        for low in range(0, len(part), some):
            now = part[low : low + some]
            pairs.append((now, held[at : at + len(now)]))
            at += len(now)
    with concurrent.futures.ThreadPoolExecutor(min(_THREADS, len(os.sched_getaffinity(0)))) as pool:
        return all(pool.map(lambda pair: _equal(*pair), pairs))


def _equal(a: npt.NDArray[np.uint8], b: npt.NDArray[np.uint8]) -> bool:
    """Whether two arrays have the same bytes. Other threads run meanwhile."""
    a = np.ascontiguousarray(a)
    return bool(_MEMCMP(a.ctypes.data, b.ctypes.data, b.nbytes) == 0)
