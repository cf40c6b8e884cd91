"""Single records, decoded, from an engine that all datasets of this process and of its children share."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import socket
import struct
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._binary import find_binary
from ._errors import ConfigError, EngineDied, RecordError, StokerError
from ._process import anonymous_file, log_end, started, with_log

# The shared memory starts with a table. Each entry has this many numbers: internal/records.
_ENTRY = 12
# Memory that stays allocated between requests.
_KEPT = 64 << 20
_TEXTS = ("text", "json")


class Record(dict[str, Any]):
    """A record: a dict of its fields, decoded.

    Images are uint8 [height, width, 3], masks [height, width], recordings float32 [samples, channels] from -1 to 1.
    Clips of video are uint8 [frames, height, width, 3], boxes float32 [n, 4], volumes and arrays have their stored
    type. Labels and whole numbers are ``int``, others ``float``, texts ``str``, JSON is parsed, other values are
    ``bytes``.

    Attributes:
        index: number of the record in the dataset it was read from.
        name: its file, or its shard and row.
        sample_rates: samples per second of its recordings, by field.
    """

    __module__ = "stoker"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.index = -1
        self.name = ""
        self.sample_rates: dict[str, int] = {}


class FieldInfo(NamedTuple):
    """A field of a dataset, after decoding.

    Attributes:
        name: its name.
        kind: ``"image"``, ``"mask"``, ``"boxes"``, ``"audio"``, ``"label"``, ``"text"``, ``"int"``, ...
        dtype: NumPy's name of the type of the elements; empty for numbers and texts.
        shape: sides of the array; -1 if records differ.
        classes: names of the classes; the label is the index.
        format: of boxes, ``"XYXY"``, ``"XYWH"`` or ``"CXCYWH"``.
        boxes: name of the field of boxes that its rows belong to.
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    format: str = ""
    boxes: str = ""

    def __str__(self) -> str:
        text = self.kind
        if self.dtype:
            text += f" {self.dtype}[{', '.join('?' if n < 0 else str(n) for n in self.shape)}]"
        if self.format:
            text += f" {self.format}"
        if self.classes:
            text += f", {len(self.classes):,} class{'es' if len(self.classes) != 1 else ''}"
        return text


FieldInfo.__module__ = "stoker"


class Info(NamedTuple):
    """The engine's description of data."""

    shown: str
    length: int
    format: str
    fingerprint: str
    in_order: bool
    fields: tuple[FieldInfo, ...]
    rates: dict[str, int]


class _Engine(NamedTuple):
    """A running ``stoker records``: the address of its socket, and its process if this one has started it."""

    address: str
    child: subprocess.Popen[bytes] | None
    log: int


class _Connection:
    """A connection of this process to the engine."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(address)
            head, fds, _, _ = socket.recv_fds(self.socket, 4, 1)
            if len(head) != 4 or len(fds) != 1:
                raise ConnectionError("the engine closed the connection")
        except BaseException:
            self.socket.close()
            raise
        self._file = fds[0]
        self.memory: mmap.mmap | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer."""
        data = json.dumps(request).encode()
        self.socket.sendall(struct.pack("<I", len(data)) + data)
        (size,) = struct.unpack("<I", self._receive(4))
        answer: dict[str, Any] = json.loads(self._receive(size))
        needed = answer.get("size", 0)
        if needed and (self.memory is None or len(self.memory) < needed):
            self.memory = mmap.mmap(self._file, os.fstat(self._file).st_size)
        return answer

    def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            n = self.socket.recv_into(view)
            if n == 0:
                raise ConnectionError("the engine closed the connection")
            view = view[n:]
        return data

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
        os.close(self._file)


_lock = threading.Lock()
_engine: _Engine | None = None
_connection: _Connection | None = None


def _after_fork() -> None:
    """Give a forked child a connection of its own, to the same engine."""
    global _lock, _connection, _engine
    _lock = threading.Lock()
    if _connection is not None:
        _connection.close()
        _connection = None
    if _engine is not None and _engine.child is not None:
        os.close(_engine.log)
        _engine = _Engine(_engine.address, None, -1)


os.register_at_fork(after_in_child=_after_fork)


def address() -> str:
    """Return the address of the engine that is running, for processes that this one starts; empty for none."""
    return _engine.address if _engine is not None else ""


def know(engine: str) -> None:
    """Take over the address of the engine of another process, if this one has none."""
    global _engine
    if engine and _engine is None:
        _engine = _Engine(engine, None, -1)


def _start() -> _Engine:
    binary = find_binary()
    name = f"\0stoker-records-{os.getpid()}-{secrets.token_hex(8)}"
    log = anonymous_file("stoker-records-log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(name)
        listener.listen(128)
        fd = listener.fileno()
        command = ["records", f"--fd={fd}", f"--parent={os.getpid()}"]
        try:
            child = started("the engine", binary, command, stdout=log, stderr=log, pass_fds=[fd])
        except BaseException:
            os.close(log)
            raise
    return _Engine(name, child, log)


def _connected() -> _Connection:
    """Return the connection, to an engine that is started if there is none; the caller holds the lock."""
    global _engine, _connection
    if _connection is not None:
        return _connection
    if _engine is not None:
        with contextlib.suppress(OSError):
            _connection = _Connection(_engine.address)
            return _connection
        _forget()
    _engine = _start()
    try:
        _connection = _Connection(_engine.address)
    except OSError as error:
        raise _died(error) from None
    return _connection


def _forget() -> None:
    global _engine, _connection
    if _connection is not None:
        _connection.close()
        _connection = None
    if _engine is not None and _engine.child is not None:
        _engine.child.kill()
        _engine.child.wait()
        os.close(_engine.log)
    _engine = None


def _died(error: OSError) -> StokerError:
    """Report how the engine exited, and forget it: the next request starts another one."""
    code, log = None, ""
    if _engine is not None and _engine.child is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = _engine.child.wait(3)
        log = log_end(_engine.log).strip()
    _forget()
    return EngineDied(with_log(f"the engine ended while it read records ({error})", log), code, log)


def _ask(request: dict[str, Any]) -> tuple[_Connection, dict[str, Any]]:
    """Ask the engine; the caller holds the lock."""
    global _connection
    connection = _connected()
    try:
        answer = connection.ask(request)
    except OSError as error:
        raise _died(error) from None
    except BaseException:  # an interrupt: the answer is to come, and belongs to no one
        connection.close()
        _connection = None
        raise
    if said := answer.get("error"):
        raise ConfigError(said)
    return connection, answer


class Place(NamedTuple):
    """The data that records are read from: a URL, the call of ``stoker.open``, and the cutting of sequences."""

    url: str
    opened: str
    sequence: dict[str, Any] | None

    def _request(self, **more: Any) -> dict[str, Any]:
        request = {"url": self.url, "opened": self.opened, **more}
        return request | {"sequence": self.sequence} if self.sequence is not None else request


def describe(place: Place, listen: bool = False) -> Info:
    """Open data and return the engine's description of it; ``listen``: also the rates of recordings."""
    with _lock:
        _, answer = _ask(place._request(listen=listen))
    info = answer["info"]
    fields = tuple(map(_field, info["fields"]))
    rates = {f["name"]: f["rate"] for f in info["fields"] if f.get("rate")}
    in_order = info.get("sequential", False)
    return Info(info["shown"], info["len"], info["format"], info["fingerprint"], in_order, fields, rates)


def _field(about: dict[str, Any]) -> FieldInfo:
    known = {name: about[name] for name in FieldInfo._fields if name in about}
    return FieldInfo(**{**known, "shape": tuple(about["shape"]), "classes": tuple(about.get("classes", ()))})


def read(place: Place, rows: Sequence[int], fields: Sequence[FieldInfo]) -> list[Record]:
    """Return records, decoded, in the order of ``rows``."""
    if not rows:
        return []
    with _lock:
        connection, answer = _ask(place._request(records=[int(r) for r in rows]))
        bad = answer.get("bad")
        if bad:
            first = min(bad, key=lambda b: b["k"])
            text = f"record {first['record']} ({first['name']}) cannot be used: {first['reason']}"
            raise RecordError(text, first["record"], first["name"], first["reason"])
        memory = connection.memory
        assert memory is not None
        size = answer["size"]
        table = np.frombuffer(memory, "<i8", len(rows) * len(fields) * _ENTRY).reshape(len(rows), len(fields), _ENTRY)
        records = [Record() for _ in rows]
        for column, field in enumerate(fields):
            for record, value in zip(records, _values(memory, table[:, column], field), strict=True):
                record[field.name] = value
            if field.kind == "audio":
                for record, rate in zip(records, table[:, column, 2].tolist(), strict=True):
                    record.sample_rates[field.name] = rate
        del table
        if size > _KEPT:  # what is beyond is given back to the system
            with contextlib.suppress(OSError, ValueError):
                memory.madvise(mmap.MADV_REMOVE, _KEPT, len(memory) - _KEPT)
    for record, row, name in zip(records, rows, answer["names"], strict=True):
        record.index, record.name = int(row), name
    return records


def _values(memory: mmap.mmap, entries: npt.NDArray[np.int64], field: FieldInfo) -> list[Any]:
    """Return the values of a field, copied out of the shared memory."""
    if not field.dtype:
        if field.kind in ("label", "int"):
            return list(entries[:, 2].tolist())
        if field.kind == "float":
            return list(entries[:, 2].copy().view("<f8").tolist())
        raw = [memory[at : at + n] for at, n in entries[:, :2].tolist()]
        if field.kind not in _TEXTS:
            return raw
        texts = [b.decode(errors="replace") for b in raw]
        return texts if field.kind == "text" else [_parsed(t) for t in texts]
    dtype = np.dtype(field.dtype)
    out = []
    for at, n, _, axes, *sides in entries.tolist():
        shape = tuple(sides[:axes]) if axes or not field.shape else field.shape
        # An empty array may be at the end of the memory.
        out.append(np.ndarray(shape, dtype, memory, at).copy() if n else np.empty(shape, dtype))
    return out


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
