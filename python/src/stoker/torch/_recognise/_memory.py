"""Files in memory, without a name, from which the engine reads what Python holds."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..._process import anonymous_file
from ._library import Unknown

# As internal/source/pathsource has them.
_MAGIC = b"stkpath1"
_PARTS_MAGIC = b"stkpart1"
_PLACE = np.dtype([("file", "<u4"), ("offset", "<u8"), ("size", "<u8")])
# The largest array that is handed over: it is then in memory twice.
_MAX_ARRAY = 2 << 30


class Memory:
    """A file in memory, which lives as long as this object."""

    def __init__(self, name: str) -> None:
        """Make an empty one."""
        self.fd = anonymous_file(name)
        self.beside: Memory | None = None  # another one, which what is in this one names
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
    try:
        names = [os.fspath(p) for p in paths]
        text = "\0".join(names)
    except TypeError:
        raise Unknown("its files are not named by paths of text") from None
    if not names or text.count("\0") != len(names) - 1 or "" in names:
        raise Unknown("a path is empty or has a zero byte in it")
    if not text.startswith("/") or text.count("\0/") != len(names) - 1 or "/../" in text:
        text = "\0".join(_absolute(names))
    while "//" in text or "/./" in text:
        text = re.sub(r"/(\./|/+)", "/", text)
    memory = Memory("stoker-paths")
    with open(memory.fd, "wb", closefd=False) as f:
        f.write(_MAGIC + os.fsencode(text) + b"\0")
    return memory


def parts_of(
    files: list[str], file: npt.NDArray[Any], offset: npt.NDArray[Any], size: npt.NDArray[Any]
) -> Memory:
    """Return a list of parts of files, as the engine reads it: of each record its file and its place there."""
    places = np.empty(len(file), _PLACE)
    places["file"], places["offset"], places["size"] = file, offset, size
    memory = Memory("stoker-parts")
    with open(memory.fd, "wb", closefd=False) as f:
        f.write(_PARTS_MAGIC + b"".join(os.fsencode(name) + b"\0" for name in files) + b"\0")
        f.write(places.tobytes())
    return memory


def _absolute(names: list[str]) -> Iterable[str]:
    """Make paths absolute. Where they lead up, links on the way decide where to."""
    here = str(Path.cwd())
    folders: dict[str, str] = {}
    for name in names:
        folder, _, base = (name if name.startswith("/") else f"{here}/{name}").rpartition("/")
        if folder not in folders:
            folders[folder] = str(Path(folder).resolve()) if ".." in folder.split("/") else folder
        yield f"{folders[folder]}/{base}"


def array_of(parts: list[npt.NDArray[np.uint8]]) -> Memory:
    """Return arrays, one behind the other, as an .npy file."""
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


def fingerprint(array: npt.NDArray[np.uint8]) -> bytes:
    """Return what tells whether pixels were changed: the sum of each row."""
    rows = array.reshape(len(array), -1) if array.flags.c_contiguous else None
    if rows is None:
        return array[:: max(1, len(array) // 64)].tobytes()
    for wide in (np.uint64, np.uint32):
        if rows.shape[1] % np.dtype(wide).itemsize == 0:
            rows = rows.view(wide)
            break
    return bytes(rows.sum(axis=1, dtype=np.uint64))
