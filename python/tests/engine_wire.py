"""The messages between trainer and engine, from the engine's side: what ``stoker._wire`` has no use for."""

from __future__ import annotations

import importlib.util
import struct
import sys
from pathlib import Path
from typing import Any, NamedTuple

_PATH = Path(__file__).parent.parent / "src" / "stoker" / "_wire.py"


def _load() -> Any:
    """Return the module of the client, also in an interpreter that has no packages."""
    if (found := sys.modules.get("stoker._wire")) is not None:
        return found
    spec = importlib.util.spec_from_file_location("wire", _PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


wire = _load()


class Release(NamedTuple):
    """A slot goes back."""

    slot: int
    lease: int


class Order(NamedTuple):
    """The next records, if the client gives the order; ``whole``: the last one ends a batch."""

    gen: int
    whole: bool
    records: list[int]


def pack(m: Any) -> bytes:
    """Encode any message."""
    head = wire.VERSION, 0
    if isinstance(m, Release):
        return bytes(wire.pack_release(m.slot, m.lease))
    if isinstance(m, Order):
        return bytes(wire.pack_order(m.gen, m.whole, struct.pack(f"<{len(m.records)}q", *m.records)))
    if isinstance(m, wire.Ready):
        fixed = wire._READY
        return bytes(fixed.pack(wire.READY, *head, fixed.size, m.info_size, m.slots, m.slot_stride, m.ring_size))
    if isinstance(m, wire.Ring):
        fixed = wire._RING
        return bytes(fixed.pack(wire.RING, *head, fixed.size, m.slots, 0, m.slot_stride, m.ring_size))
    if isinstance(m, wire.BatchReady):
        fixed, where = wire._BATCH, (m.epoch, m.step, m.next_epoch, m.next_row)
        return bytes(fixed.pack(wire.BATCH, *head, fixed.size, m.gen, m.slot, m.lease, m.rows, m.repeated, *where))
    if isinstance(m, wire.EpochEnd):
        fixed, text = wire._EPOCH_END, m.report.encode()
        size = fixed.size + len(text)
        return bytes(fixed.pack(wire.EPOCH_END, *head, size, m.gen, len(text), m.epoch, m.skipped) + text)
    if isinstance(m, wire.Failure):
        fixed, (name, reason, hint) = wire._ERROR, (t.encode() for t in (m.name, m.reason, m.hint))
        size = fixed.size + len(name) + len(reason) + len(hint)
        numbers = m.gen, m.code, len(name), m.record, len(reason), len(hint)
        return bytes(fixed.pack(wire.ERROR, *head, size, *numbers) + name + reason + hint)
    return bytes(wire.pack(m))


def unpack(raw: bytes | memoryview) -> Any:
    """Decode any message, or raise WireError."""
    try:
        return wire.unpack(raw)
    except wire.WireError as error:
        if "is a message to the engine" not in str(error):
            raise
    try:
        return _to_engine(raw[0], bytes(raw))
    except struct.error as error:
        raise wire.WireError(f"{wire.NAMES[raw[0]]} of {len(raw)} bytes: {error}") from None


def _to_engine(kind: int, b: bytes) -> Any:
    if kind == wire.OPEN:
        *_, flags, size = wire._OPEN.unpack_from(b)
        if flags == 1:
            wire.rest(b, wire._OPEN, 0)
            return wire.Open(b"", True, size)
        return wire.Open(wire.rest(b, wire._OPEN, size))
    if kind == wire.START:
        *_, gen, _, epoch, row = wire._START.unpack(b)
        return wire.Start(gen, epoch, row)
    if kind == wire.RELEASE:
        *_, slot, _, lease = wire._RELEASE.unpack(b)
        return Release(slot, lease)
    if kind == wire.ORDER:
        *_, gen, flags = wire._ORDER.unpack_from(b)
        if flags & ~1:
            raise wire.WireError(f"ORDER with flags {flags:#x}")
        count = (len(b) - wire._ORDER.size) // 8
        return Order(gen, bool(flags), list(struct.unpack(f"<{count}q", wire.rest(b, wire._ORDER, 8 * count))))
    wire._HEADER.unpack(b)
    return wire.Close()
