"""The cache of this user on this machine: its contents, its limit, and the current caching.

::

    from stoker import cache

    cache.warm("photos/")
    for entry in cache.ls().data:
        print(entry.origin, entry.records, entry.bytes)
    cache.limit("200GB")
    cache.rm("photos/")

All functions take ``folder``, the folder of the cache. Default: ``STOKER_CACHE_DIR``, else ``stoker`` in
``XDG_CACHE_HOME``, else ``~/.cache/stoker``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from . import _options
from ._ask import built, run
from ._commands import Source, url_of
from ._errors import ConfigError, public

__all__ = ["Cached", "Contents", "Copy", "Damage", "Limit", "Verified", "Warmed", "limit", "ls", "rm", "verify", "warm"]


@dataclasses.dataclass(frozen=True)
class Cached:
    """The cached part of some data.

    Attributes:
        origin: the path or URL of the data.
        records, chunks, bytes: the cached amount.
        id: a name for ``rm``.
        used: the time of the last use, as ISO 8601.
        in_use: a job uses it now.
    """

    origin: str
    records: int
    chunks: int
    bytes: int
    id: str = ""
    used: str = ""
    in_use: bool = False


@dataclasses.dataclass(frozen=True)
class Copy:
    """A copy of remote data on a disk of this machine (``Cache(stage=)``).

    Attributes:
        origin: the path or URL of the data.
        folder: the folder of the copy.
        bytes: its size.
        whole: whether it has all of the data.
        id: a name for ``rm``.
    """

    origin: str
    folder: str
    bytes: int
    whole: bool
    id: str = ""


@dataclasses.dataclass(frozen=True)
class Contents:
    """The contents of the cache, or those that were removed: ``data`` and ``copies``.

    Attributes:
        data: cached parts of data.
        copies: copies of remote data.
        folder: the folder of the cache.
        limit: its size limit in bytes.
    """

    data: tuple[Cached, ...]
    copies: tuple[Copy, ...]
    folder: str = ""
    limit: int = 0


@dataclasses.dataclass(frozen=True)
class Limit:
    """The size limit of the cache in bytes, and whether it is ``"set"`` or ``"automatic..."``."""

    bytes: int
    origin: str
    folder: str


@dataclasses.dataclass(frozen=True)
class Warmed:
    """The result of ``warm``.

    Attributes:
        total: records of the data, or chunks of remote data.
        cached: the number of them that are cached.
        new, new_bytes: the number of them that this call cached, and their bytes.
        folder: the folder of the cache.
    """

    total: int
    cached: int
    new: int
    new_bytes: int
    folder: str


@dataclasses.dataclass(frozen=True)
class Damage:
    """A cached record that was damaged; it is read again when it is needed."""

    origin: str
    record: str
    segment: str
    offset: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Verified:
    """The result of ``verify``: ``data`` that was read, and ``damaged`` records. It is true if nothing was damaged."""

    data: tuple[Cached, ...]
    damaged: tuple[Damage, ...]

    def __bool__(self) -> bool:
        return not self.damaged


Folder = str | os.PathLike[str] | None


def _command(name: str, folder: Folder) -> list[str]:
    at = [] if folder is None else [f"--cache-dir={os.path.abspath(os.path.expanduser(os.fspath(folder)))}"]
    return ["cache", name, "--json", *at]


def _contents(raw: Mapping[str, Any]) -> Contents:
    data, copies = (built(Cached, e) for e in raw["data"]), (built(Copy, c) for c in raw["copies"])
    return built(Contents, raw, data=tuple(data), copies=tuple(copies))


@public
def ls(*, folder: Folder = None) -> Contents:
    """Return the contents of the cache."""
    return _contents(run(_command("ls", folder)))


@public
def rm(*data: str | os.PathLike[str], all: bool = False, folder: Folder = None) -> Contents:  # noqa: A002
    """Remove the cached parts of some data, and return the removed entries.

    Args:
        data: paths or URLs of data, ids of ``ls()``, or folders of copies.
        all: remove everything cached, and unfinished copies. Finished copies are removed by name only.
        folder: the folder of the cache.

    Raises:
        ConfigError: there is nothing to remove.
        StokerError: nothing is cached of the data, or a job uses it.
    """
    if bool(data) == all:
        raise ConfigError('rm needs the data, such as cache.rm("photos/"), or all=True')
    return _contents(run([*_command("rm", folder), *(["--all"] if all else []), "--", *(os.fspath(d) for d in data)]))


@public
def warm(source: Source, *, folder: Folder = None) -> Warmed:
    """Cache a folder of images or remote data now, as far as there is space.

    Args:
        source: a path or URL, or a dataset.
        folder: the folder of the cache.

    Raises:
        StokerError: such data is not cached, or it cannot be read.
    """
    raw = run([*_command("warm", folder), "--", url_of(source)])
    total = raw["records"] if "records" in raw else raw["chunks"]
    return built(Warmed, raw, total=total)


@public
def limit(size: int | str | None = None, *, folder: Folder = None) -> Limit:
    """Return the size limit of the cache, or set it.

    Args:
        size: the new limit of all data together, in bytes or as ``"200GB"``; ``"auto"``: a tenth of the free space,
            at most 20 GiB. None only returns the limit.
        folder: the folder of the cache.
    """
    arguments = _command("limit", folder)
    if size is not None:
        arguments += ["--", "auto" if size == "auto" else f"{_options.size('size', size)}B"]
    raw = run(arguments)
    return Limit(raw["limit"], raw["from"], raw["folder"])


@public
def verify(*data: str | os.PathLike[str], folder: Folder = None) -> Verified:
    """Read all that is cached, of some data or of all, and compare every checksum.

    Damaged records are no longer used. They are read again when they are needed.
    """
    raw = run([*_command("verify", folder), "--", *(os.fspath(d) for d in data)], also=(4,))
    return Verified(tuple(built(Cached, e) for e in raw["data"]), tuple(built(Damage, d) for d in raw["damaged"]))
