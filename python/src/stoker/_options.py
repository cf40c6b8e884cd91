"""The option objects of Loader, and the checks of its arguments."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Literal, TypeVar

from ._errors import ConfigError, nearest, public
from ._surface import FORMATS, VIEW_KEYS
from ._units import parse_bytes

LAYOUTS = ("NHWC", "NCHW", "channels_last")
_Group = TypeVar("_Group")
_Path = str | os.PathLike[str]


class _Options:
    """A group of options, checked when it is made; its repr lists what was set."""

    def to_config(self) -> dict[str, Any]:
        """Return the options as the engine reads them."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        self.to_config()

    def __repr__(self) -> str:
        of: Any = self
        set_ = ((f, getattr(self, f.name)) for f in fields(of))
        return f"{type(self).__name__}({', '.join(f'{f.name}={v!r}' for f, v in set_ if v != f.default)})"


@dataclass(frozen=True, repr=False)
class Cache(_Options):
    """The cache of a loader: ``cache=stoker.Cache(limit="50GB")``.

    Args:
        disk: ``True`` caches files on a disk, ``False`` does not. ``"auto"``: folders of JPEGs are cached, and all
            data if ``dir``, ``limit`` or ``peers`` is set.
        dir: the folder of the cache, on a fast disk of this machine. Default: ``STOKER_CACHE_DIR``, else ``stoker``
            in ``XDG_CACHE_HOME``.
        limit: the most that the whole folder may take, in bytes or as ``"50GB"``. Default: the value of ``stoker cache
            limit``, else a tenth of the free space, at most 20 GiB.
        memory: the part of ``Limits(memory=)`` that caches remote data (buckets, web servers) in memory, in bytes or
            as ``"20GB"``. ``stats()["engine"]["cache_memory"]`` shows what it saves.
        stage: a folder on a disk of this machine. Remote data is copied there while it is read: the first epoch runs
            at the pace of the bucket, later epochs and other jobs read the copy. It excludes a cache on disk.
            ``stats()["engine"]["stage"]`` shows how much is copied.
        peers: the addresses of all nodes, ``host:port``. Each node caches a part of remote data on its disk and
            serves that part to the others. The nodes share a secret in ``STOKER_PEERS_TOKEN``.
        peers_self: the address of this node. Default: ``STOKER_PEERS_SELF``, else the address in ``peers`` that
            belongs to this machine.

    Raises:
        ConfigError: a value is refused.
    """

    disk: bool | Literal["auto"] = "auto"
    _: KW_ONLY
    dir: _Path | None = None
    limit: int | str | None = None
    memory: int | str | None = None
    stage: _Path | None = None
    peers: Sequence[str] = ()
    peers_self: str | None = None

    def to_config(self) -> dict[str, Any]:
        """Return the options as the engine reads them."""
        if isinstance(self.peers, str):
            raise ConfigError(f'peers={self.peers!r} must be a list of addresses, such as ["node0:7000", "node1:7000"]')
        asked = self.dir is not None or self.limit is not None or bool(self.peers)
        return {
            "cache": _disk(self.disk, asked),
            "cache_dir": _folder(self.dir),
            "cache_limit": size("limit", self.limit),
            "cache_memory": size("memory", self.memory),
            "stage": _folder(self.stage),
            "peers": list(self.peers),
            "peers_self": self.peers_self or "",
        }


@dataclass(frozen=True, repr=False)
class Limits(_Options):
    """The resources of a loader: ``limits=stoker.Limits(memory="2GB")``.

    Args:
        memory: the most memory for batches, readahead, buffers and scratch, in bytes or as ``"2GB"``. Default: a
            quarter of the free memory, shared by the ranks on this machine.
        prefetch: batches built ahead of the training loop. Default: as many as fit ``memory``, 4 to 8, up to 30 of
            small ones. A number that does not fit is refused.
        lookahead: the part of ``memory`` for data that is read before its batch is built, in bytes or as
            ``"256MiB"``. Default: up to a quarter of ``memory``.
        timeout: seconds to wait for a batch before ``StokerTimeout`` is raised. The engine retries failures of the
            store or the network within this time, and refused access or missing memory for 15 seconds.
        cores: the most CPU time that the engine uses for this loader, as a number of cores such as ``2.5``.
        cpu_limit: the same as a fraction of the cores that the engine may use, such as ``0.4``.
        shared: ``True`` uses one engine for all loaders of this user on this machine that also set it: of all ranks
            and jobs. The first one starts the engine, and it exits ten seconds after the last one. Loaders get memory,
            cores and connections by their ``weight``. Loaders with the same arguments get the same batches, each of
            which is built once (without ``map``, ``batch_map`` and ``device``). Default: an engine for this loader.
        weight: the share of this loader in a shared engine, compared with the others. A loader with 3 gets three
            times the CPU time of one with 1.

    Raises:
        ConfigError: a value is refused.
    """

    memory: int | str | None = None
    _: KW_ONLY
    prefetch: int | None = None
    lookahead: int | str | None = None
    timeout: float = 300.0
    cores: float | None = None
    cpu_limit: float | None = None
    shared: bool = False
    weight: float = 1.0

    def to_config(self) -> dict[str, Any]:
        """Return the options as the engine reads them."""
        return {
            "memory": size("memory", self.memory),
            "prefetch": 0 if self.prefetch is None else whole("prefetch", self.prefetch, 1, 1024),
            "lookahead": size("lookahead", self.lookahead),
            "timeout": seconds("timeout", self.timeout),
            "cores": 0 if self.cores is None else number("cores", self.cores, 0.01, 1024),
            "cpu_limit": 0 if self.cpu_limit is None else number("cpu_limit", self.cpu_limit, 0.01, 1),
            "weight": number("weight", self.weight, 0.01, 100),
        }


@dataclass(frozen=True, repr=False)
class Ranks(_Options):
    """The part of each global batch that this process gets: ``ranks=stoker.Ranks(rank, world_size)``.

    Args:
        rank: number of this process, from 0. Default: the rank of torch.distributed, torchrun (``RANK``), MPI
            (``OMPI_COMM_WORLD_RANK``, ``PMI_RANK``) or Slurm (``SLURM_PROCID``), else 0. ``info["rank_from"]`` names
            the variables. A launcher that sets a rank without the number of ranks causes a warning.
        world_size: number of processes that share each global batch. Give both or neither.
        uneven: how the last records of an epoch are shared if they do not fill a batch on every rank. ``"exact"``:
            each record comes once, and a rank may have fewer rows in the last batch, or none. ``"pad"``: each rank
            has as many rows, and records from the beginning of the epoch come again (``batch.repeated`` marks them).
            ``"drop"``: each rank has as many rows, and the rest is skipped.
        audit: a file that lists the records that this process has received, 8 bytes each. ``{rank}`` in its name is the
            rank. A resumed run continues the file. ``stoker audit`` says which records were seen, twice or never.

    Raises:
        ConfigError: a value is refused.
    """

    rank: int | None = None
    world_size: int | None = None
    _: KW_ONLY
    uneven: Literal["exact", "pad", "drop"] = "exact"
    audit: _Path | None = None

    def to_config(self) -> dict[str, Any]:
        """Return the options in the engine's form. The loader itself asks for the values of a launcher."""
        _folder(self.audit)
        return {"uneven": choice("uneven", self.uneven, ("exact", "pad", "drop"))}


@dataclass(frozen=True, repr=False)
class OnError(_Options):
    """The treatment of records that cannot be read: ``on_error=stoker.OnError("skip", max_bad=0.01)``.

    Failures of the store, the network or the machine are retried and then raised as ``StokerError``; no record is
    replaced for them.

    Args:
        action: ``"raise"`` raises ``RecordError``. ``"skip"`` replaces a bad record by the next good one of the
            source, on all ranks and after every restart the same; a ``SkippedRecords`` warning counts them at the
            end of the epoch. ``"repair"`` reads damaged records from ``repair_from`` and raises for all others.
        max_bad: with ``"skip"``, how many records may be bad: a number, or a share of the records that this rank
            reads, such as ``0.05`` or ``"5%"``. More raise a ``StokerError`` that counts them by reason. Default:
            5%, but at least 10 records.
        quarantine: with ``"skip"``, a text file of bad records, one JSON object per line. Records in it are not read
            again; new ones are added.
        repair_from: with ``"repair"``, the path or URL of another copy of the pack. ``stats()["repaired"]`` counts
            the records that came from it.

    Raises:
        ConfigError: a value is refused.
    """

    action: Literal["raise", "skip", "repair"] = "raise"
    _: KW_ONLY
    max_bad: float | str | None = None
    quarantine: _Path | None = None
    repair_from: _Path | None = None

    def to_config(self) -> dict[str, Any]:
        """Return the options as the engine reads them."""
        action = choice("on_error", self.action, ("raise", "skip", "repair"))
        if action != "skip" and (self.max_bad is not None or self.quarantine is not None):
            raise ConfigError(f'max_bad= and quarantine= are for OnError("skip"), not OnError({action!r})')
        if (action == "repair") != (self.repair_from is not None):
            raise ConfigError(
                'repair_from= and "repair" go together: OnError("repair", repair_from=URL of another copy of the pack)'
            )
        skips = action == "skip"
        return {
            "on_error": action,
            "max_bad": ("default" if self.max_bad is None else bad_limit(self.max_bad)) if skips else "",
            "quarantine": _folder(self.quarantine),
            "repair_from": "" if self.repair_from is None else source_url(self.repair_from),
        }


@dataclass(frozen=True, repr=False)
class Feeders(_Options):
    """Servers that build batches for a loader: ``feeders=stoker.Feeders("dns:feeders:7443", ca="ca.pem")``.

    Args:
        servers: where the servers (``stoker serve --flight``) are: ``"host:port,host:port"``, ``"dns:host:port"`` for
            all addresses of a name, ``"file:PATH"`` for a file with an address per line, ``"slurm:port"`` for the
            nodes of the Slurm job (``"slurm:1:port"``: of its second component), or ``"ray:NAME"`` for those of
            ``stoker.ray.feeders``. Files, names and Ray's actors are read again every 4 s.
        ca: the certificate of the authority that signed those of the servers, a PEM file. Connections are then TLS.
        cert: the certificate of this client, a PEM file, for servers that ask for one (``--tls-ca``).
        key: the key of the certificate, a PEM file.
        token: a file with a token (``stoker token``), for servers with a secret (``--flight-secret``).
        insecure: connect to other machines without TLS, in a network that you trust.

    Raises:
        ConfigError: a value is refused.
    """

    servers: str
    _: KW_ONLY
    ca: _Path | None = None
    cert: _Path | None = None
    key: _Path | None = None
    token: _Path | None = None
    insecure: bool = False

    def to_config(self) -> dict[str, Any]:
        """Return the options as the engine reads them."""
        if not isinstance(self.servers, str) or not self.servers:
            raise ConfigError(f'feeders={self.servers!r} must be a text such as "dns:feeders:7443" or "host:7443"')
        return {
            "servers": self.servers,
            "ca": _folder(self.ca),
            "cert": _folder(self.cert),
            "key": _folder(self.key),
            "token": _folder(self.token),
            "insecure": bool(self.insecure),
        }


# By the argument of a loader.
GROUPS: dict[str, type[Any]] = {"cache": Cache, "limits": Limits, "ranks": Ranks, "on_error": OnError}
_GROUPS: tuple[type[Any], ...] = (*GROUPS.values(), Feeders)
for _of in _GROUPS:
    _of.__module__ = "stoker"  # where it is imported from
    _of.__init__ = public(_of.__init__)


def whole(name: str, value: Any, low: int, high: int = 2**63 - 1) -> int:
    """Check a whole number."""
    try:
        n = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name}={value!r} must be a whole number") from None
    if isinstance(value, bool) or not low <= n <= high:
        limit = f"at least {low}" if high >= 2**63 - 1 else f"from {low} to {high}"
        raise ConfigError(f"{name}={value!r} must be a whole number, {limit}")
    return n


def choice(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Check one of several words."""
    if value not in known:
        raise ConfigError(f"{name}={value!r}; {nearest(str(value), known)}")
    return str(value)


MAX_WINDOW = 1 << 20


def order(shuffle: Any) -> tuple[bool, int]:
    """Return the meaning of ``shuffle``: whether records are shuffled, and the window, 0 for none, -1 for automatic."""
    if not isinstance(shuffle, str):
        return bool(shuffle), 0
    if shuffle == "auto":
        return True, -1
    found = re.fullmatch(r"window:(\d{1,9})", shuffle)
    if found and 1 <= int(found[1]) <= MAX_WINDOW:
        return True, int(found[1])
    raise ConfigError(
        f'shuffle={shuffle!r}; it is True, False, "auto", or "window:N" with a number of chunks from 1 to {MAX_WINDOW}'
    )


def seconds(name: str, value: Any) -> float:
    """Check a time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ConfigError(f"{name}={value!r} must be a number of seconds, more than 0")
    return float(value)


def number(name: str, value: Any, low: float, high: float) -> float:
    """Check a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} must be a number from {low:g} to {high:g}")
    return float(value)


def bad_limit(value: Any) -> str:
    """Check the limit of bad records: a number, a share, or a percentage as text."""
    if isinstance(value, float) and 0 <= value <= 1:
        return f"{100 * value:.12g}%"
    if isinstance(value, str) and re.fullmatch(r"\d+|\d+(\.\d+)?%", value):
        return value
    try:
        return str(whole("max_bad", value, 0))
    except ConfigError:
        raise ConfigError(
            f'max_bad={value!r}; expected a number of records, a share such as 0.05, or text such as "5%"'
        ) from None


def size(name: str, value: Any) -> int:
    """Check a number of bytes: a number, or text such as ``"2GB"`` or ``"512 MiB"``."""
    if value is None:
        return 0
    if isinstance(value, str):
        try:
            value = parse_bytes(value)
        except ValueError as error:
            raise ConfigError(f"{name}={value!r} is not a number of bytes: {error}") from None
    return whole(name, value, 1)


# Switches off a cache that the program has not requested.
CACHE_VARIABLE = "STOKER_CACHE"


def _disk(value: Any, asked: bool) -> str:
    """Return the engine's setting of the disk cache; ``asked``: a folder, a limit or peers were named."""
    if asked and value == "auto":
        return "on"
    if value == "auto":
        switch = os.environ.get(CACHE_VARIABLE, "auto")
        if switch not in ("auto", "off"):
            raise ConfigError(f'{CACHE_VARIABLE}={switch!r} in the environment; it is "auto" or "off"')
        return switch
    if not isinstance(value, bool):
        raise ConfigError(f'cache={value!r}; it is "auto", True, False or stoker.Cache(...)')
    return "on" if value else "off"


def _folder(value: Any) -> str:
    return "" if value is None else os.path.abspath(os.path.expanduser(os.fspath(value)))


def caching(cache: Any) -> dict[str, Any]:
    """Return the engine's settings of ``cache=``."""
    return (cache if isinstance(cache, Cache) else Cache(cache)).to_config()


def feeding(feeders: Any) -> dict[str, Any] | None:
    """Return the engine's settings of ``feeders=``; None for none."""
    if feeders is None:
        return None
    return (feeders if isinstance(feeders, Feeders) else Feeders(feeders)).to_config()


def group(name: str, value: Any, of: type[_Group]) -> _Group:
    """Check a group of options; None is the group with its defaults."""
    if value is None:
        return of()
    if not isinstance(value, of):
        raise ConfigError(f"{name}={value!r} must be a stoker.{of.__name__}(...)")
    return value


def failing(on_error: Any) -> dict[str, Any]:
    """Return the engine's settings of ``on_error=``."""
    return (on_error if isinstance(on_error, OnError) else OnError(on_error)).to_config()


def sequence(
    length: Any, packing: str, fields: Sequence[str], shift: bool, dtype: str | None, pad: int
) -> dict[str, Any]:
    """Return the engine's settings of sequences."""
    if isinstance(fields, str):
        raise ConfigError(f"sequences: fields={fields!r} must be a list of names")
    return {
        "length": whole("length", length, 1),
        "packing": str(packing),
        "fields": list(fields),
        "no_shift": not shift,
        "dtype": dtype or "",
        "pad": whole("pad", pad, -(2**63)),
    }


def source_url(source: Any) -> str:
    """Return the source for the engine, whose working folder may differ."""
    try:
        text: str | bytes = os.fspath(source)
    except TypeError:
        raise ConfigError(f"source={source!r} must be a path or a URL") from None
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if not text:
        raise ConfigError("source is empty; it must be a path or a URL")
    # The part after a # selects records and fields.
    view = re.search(rf"#(?=({'|'.join(VIEW_KEYS)})=)", text)
    if view and view.start() and not os.path.lexists(os.path.expanduser(text)):
        return source_url(text[: view.start()]) + text[view.start() :]
    formats = "|".join((*FORMATS, "paths"))  # lists of paths are written by stoker.torch
    named = re.match(rf"({formats}):(?=[^/])", text)
    if named:
        path, mark, query = text[named.end() :].partition("?")
        if "://" in path:
            return text
        return named[0] + os.path.abspath(os.path.expanduser(path)) + mark + query
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text):
        return text
    return os.path.abspath(os.path.expanduser(text))
