"""The messages between trainer and engine, from the trainer's side; docs/reference/protocol.md specifies them."""

from __future__ import annotations

import struct
from typing import NamedTuple

VERSION = 3
MAX_MESSAGE = 64 << 10
MAX_CONFIG = 16 << 20
MAX_INLINE_CONFIG = 32 << 10
MAX_SLOTS = 4096

OPEN, READY, START, BATCH, EPOCH_END, RELEASE, ERROR, STATS, CLOSE = range(1, 10)
ORDER, RING = 13, 14
NAMES = {
    OPEN: "OPEN", READY: "READY", START: "START", BATCH: "BATCH", EPOCH_END: "EPOCH_END", RELEASE: "RELEASE",
    ERROR: "ERROR", STATS: "STATS", CLOSE: "CLOSE", ORDER: "ORDER", RING: "RING",
}  # fmt: skip
# The flag of an ORDER that ends a batch, and the most records in one.
_WHOLE = 1
MAX_ORDER = (MAX_MESSAGE - 16) // 8

CODE_PROTOCOL, CODE_CONFIG, CODE_RECORD, CODE_STREAM, CODE_INTERNAL, CODE_FUNCTION = range(1, 7)

_HEADER = struct.Struct("<BBHI")
_OPEN = struct.Struct("<BBHIII")
_READY = struct.Struct("<BBHIIIQQ")
_START = struct.Struct("<BBHIIIqq")
_BATCH = struct.Struct("<BBHIIIQIIqqqq")
_EPOCH_END = struct.Struct("<BBHIIIqq")
_RELEASE = struct.Struct("<BBHIIIQ")
_ERROR = struct.Struct("<BBHIIHHqII")
_STATS = struct.Struct("<BBHIII")
_ORDER = struct.Struct("<BBHIII")
_RING = struct.Struct("<BBHIIIQQ")


class WireError(Exception):
    """The other side sent a message that docs/reference/protocol.md does not allow."""


class OtherVersion(WireError):
    """The other side speaks another version of the protocol."""

    def __init__(self, version: int) -> None:
        side = (
            "this package" if version > VERSION else "the engine, or end it so that the next loader starts a newer one"
        )
        super().__init__(
            f"the engine speaks version {version} of the protocol, this package version {VERSION}: upgrade {side}"
        )


class Open(NamedTuple):
    """The data to load; the configuration is inline or in a descriptor."""

    config: bytes = b""
    in_file: bool = False
    file_size: int = 0


class Ready(NamedTuple):
    """The ring; two descriptors come with it."""

    info_size: int
    slots: int
    slot_stride: int
    ring_size: int


class Start(NamedTuple):
    """Begin the stream again at a position."""

    gen: int
    epoch: int
    row: int


class BatchReady(NamedTuple):
    """A filled slot, and the position after it."""

    gen: int
    slot: int
    rows: int
    lease: int
    epoch: int
    step: int
    next_epoch: int
    next_row: int
    repeated: int = 0


class EpochEnd(NamedTuple):
    """The last batch of an epoch has been sent."""

    gen: int
    epoch: int
    skipped: int
    report: str


class Failure(NamedTuple):
    """The engine reports an error."""

    gen: int
    code: int
    record: int
    name: str
    reason: str
    hint: str


class Stats(NamedTuple):
    """A request for statistics, or the answer."""

    request: int
    json: bytes = b""


class Ring(NamedTuple):
    """A second ring, with its descriptor. Its slots begin at MAX_SLOTS."""

    slots: int
    slot_stride: int
    ring_size: int


class Close(NamedTuple):
    """The session ends."""


Request = Open | Start | Stats | Close
Message = Ready | BatchReady | EpochEnd | Failure | Stats | Ring


def pack_release(slot: int, lease: int) -> bytes:
    """Encode RELEASE; kept apart because it is sent once per batch."""
    return _RELEASE.pack(RELEASE, VERSION, 0, _RELEASE.size, slot, 0, lease)


def pack_order(gen: int, whole: bool, records: bytes) -> bytes:
    """Encode ORDER; ``records`` are little-endian int64."""
    size = _ORDER.size + len(records)
    return _ORDER.pack(ORDER, VERSION, 0, size, gen, _WHOLE if whole else 0) + records


def pack(m: Request) -> bytes:
    """Encode a message."""
    if isinstance(m, Start):
        return _START.pack(START, VERSION, 0, _START.size, m.gen, 0, m.epoch, m.row)
    if isinstance(m, Open):
        size = _OPEN.size + len(m.config)
        flags, length = (1, m.file_size) if m.in_file else (0, len(m.config))
        return _OPEN.pack(OPEN, VERSION, 0, size, flags, length) + m.config
    if isinstance(m, Stats):
        return _STATS.pack(STATS, VERSION, 0, _STATS.size + len(m.json), m.request, len(m.json)) + m.json
    return _HEADER.pack(CLOSE, VERSION, 0, _HEADER.size)


def split(packet: memoryview) -> list[memoryview]:
    """Cut a packet, which holds one message or more, into messages that are still to be unpacked."""
    messages = []
    while len(packet) > _HEADER.size:
        size = _HEADER.unpack_from(packet)[3]
        if not _HEADER.size <= size < len(packet):
            break  # the last one; unpack says what is wrong, if anything is
        messages.append(packet[:size])
        packet = packet[size:]
    messages.append(packet)
    return messages


def unpack(b: bytes | memoryview) -> Message:
    """Decode a message, or raise WireError."""
    if len(b) == _BATCH.size and b[0] == BATCH:  # the one that counts comes first
        _, version, reserved, size, gen, slot, lease, rows, again, epoch, step, next_epoch, next_row = _BATCH.unpack(b)
        if version == VERSION and size == _BATCH.size and not reserved:
            return BatchReady(gen, slot, rows, lease, epoch, step, next_epoch, next_row, again)
    if len(b) < _HEADER.size:
        raise WireError(f"message of {len(b)} bytes")
    kind, version, reserved, size = _HEADER.unpack_from(b)
    if version != VERSION:
        raise OtherVersion(version)
    if size != len(b) or reserved:
        raise WireError(f"message of {len(b)} bytes says it has {size}")
    try:
        return _unpack_rare(kind, bytes(b))
    except (struct.error, UnicodeDecodeError) as error:
        name = NAMES.get(kind, f"type {kind}")
        raise WireError(f"{name} of {len(b)} bytes: {error}") from None


def _unpack_rare(kind: int, b: bytes) -> Message:
    if kind == BATCH:
        raise WireError(f"BATCH of {len(b)} bytes")
    if kind == EPOCH_END:
        *_, gen, size, epoch, skipped = _EPOCH_END.unpack_from(b)
        return EpochEnd(gen, epoch, skipped, rest(b, _EPOCH_END, size).decode())
    if kind == ERROR:
        *_, gen, code, n, record, r, h = _ERROR.unpack_from(b)
        text = rest(b, _ERROR, n + r + h)
        # The engine cuts texts at characters, but file names can hold any bytes.
        parts = text[:n], text[n : n + r], text[n + r :]
        return Failure(gen, code, record, *(p.decode(errors="backslashreplace") for p in parts))
    if kind == STATS:
        *_, request, size = _STATS.unpack_from(b)
        return Stats(request, rest(b, _STATS, size))
    if kind in (READY, RING):
        _, _, _, _, first, second, stride, ring = (_READY if kind == READY else _RING).unpack(b)
        slots = second if kind == READY else first
        if not 0 < slots <= MAX_SLOTS or stride == 0 or ring < slots * stride:
            raise WireError(f"{NAMES[kind]} with {slots} slots of {stride} bytes in a ring of {ring}")
        return Ready(first, slots, stride, ring) if kind == READY else Ring(slots, stride, ring)
    if kind in NAMES:
        raise WireError(f"{NAMES[kind]} is a message to the engine")
    raise WireError(f"unknown message type {kind}")


def rest(b: bytes, fixed: struct.Struct, size: int) -> bytes:
    """Return what comes after the fixed part of a message: so many bytes."""
    if len(b) != fixed.size + size:
        raise WireError(f"{NAMES[b[0]]} with {len(b) - fixed.size} of {size} bytes after its fixed part")
    return b[fixed.size :]
