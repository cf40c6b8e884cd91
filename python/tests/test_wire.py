"""The golden messages, which the engine's tests read as well."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import socket
from contextlib import closing

import pytest
from engine_wire import Order, Release, pack, unpack

import stoker
from stoker import _connection
from stoker import _wire as wire
from support import CHECKOUT

GOLDEN = CHECKOUT / "internal" / "handoff" / "testdata" / "golden"
CLASSES = {
    "OPEN": wire.Open, "READY": wire.Ready, "RING": wire.Ring, "START": wire.Start, "BATCH": wire.BatchReady,
    "EPOCH_END": wire.EpochEnd, "RELEASE": Release, "ERROR": wire.Failure, "STATS": wire.Stats,
    "CLOSE": wire.Close, "ORDER": Order,
}  # fmt: skip
ENTRIES = json.loads((GOLDEN / "messages.json").read_text())


@pytest.mark.parametrize("entry", ENTRIES, ids=[e["file"] for e in ENTRIES])
def test_golden(entry: dict) -> None:
    raw = (GOLDEN / entry["file"]).read_bytes()
    message = unpack(raw)
    assert type(message) is CLASSES[entry["type"]]
    got = {k: v.decode() if isinstance(v, bytes) else v for k, v in message._asdict().items()}
    assert got == entry["fields"]
    assert pack(message) == raw


def test_every_message_has_a_golden_file() -> None:
    assert {e["type"] for e in ENTRIES} == set(wire.NAMES.values()) == set(CLASSES)


def damage(rng: random.Random, raw: bytes) -> bytes:
    """Return a message with bytes that are changed, missing, added or repeated."""
    damaged = bytearray(raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.3 else raw)
    for _ in range(rng.randrange(4)):
        if damaged:
            at = rng.randrange(len(damaged))
            damaged[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, damaged[at] ^ 1 << rng.randrange(8)))
    if rng.random() < 0.2:
        at = rng.randrange(len(damaged) + 1)
        damaged[at:at] = rng.randbytes(rng.randrange(20))
    return bytes(damaged)


def test_damaged_messages_are_refused_or_valid() -> None:
    rng = random.Random(1)
    for entry in ENTRIES:
        raw = (GOLDEN / entry["file"]).read_bytes()
        for _ in range(1000):
            damaged = damage(rng, raw)
            with contextlib.suppress(wire.WireError):
                message = unpack(damaged)
                # Every accepted packet has one meaning.
                assert unpack(pack(message)) == message
    # Also damage whole packets.
    whole = [(GOLDEN / e["file"]).read_bytes() for e in ENTRIES]
    for _ in range(3000):
        packet = damage(rng, b"".join(rng.choices(whole, k=rng.randrange(1, 5))))
        parts = wire.split(memoryview(packet))
        assert b"".join(parts) == packet
        with contextlib.suppress(wire.WireError):
            for part in parts:
                unpack(part)


def test_a_connection_outlives_what_it_is_sent() -> None:
    """After any packets, a connection gives events or fails with an error of this package. It never hangs."""
    rng = random.Random(2)
    whole = [(GOLDEN / e["file"]).read_bytes() for e in ENTRIES]
    batches = [pack(wire.BatchReady(1, slot, 3, 7 + slot, 0, 1, 0, 6)) for slot in (0, 1, 2, 9)]
    end = pack(wire.EpochEnd(1, 0, 0, ""))
    seen: collections.Counter[str] = collections.Counter()
    for _ in range(400):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, closing(_connection.Connection(ours, None, "a test")) as connection:
            ready(theirs)
            connection.open({"source": "x", "batch_size": 3}, 60)
            connection.start(_connection.Position(0, 0))
            for _ in range(rng.randrange(1, 5)):
                packet = b"".join(rng.choices([*batches, end, *whole], k=rng.randrange(1, 4)))
                theirs.send(damage(rng, packet) or b"x")
            theirs.shutdown(socket.SHUT_WR)
            try:
                while True:
                    connection.wait(60)
                    event = connection.take()
                    seen[type(event).__name__] += 1
                    if isinstance(event, wire.BatchReady):
                        del event
            except stoker.StokerError as error:
                assert str(error)
                seen[type(error).__name__] += 1
    assert {"BatchReady", "EpochEnd", "EngineDied", "StokerError"} <= seen.keys(), seen


def test_statistics_that_are_no_json() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, closing(_connection.Connection(ours, None, "a test")) as connection:
        for text in (b"{", b"\xff", b""):
            theirs.send(pack(wire.Stats(connection._requests + 1, text)))
            with pytest.raises(stoker.StokerError, match="does not understand"):
                connection.stats(60)
            connection._dead = None


def ready(theirs: socket.socket) -> None:
    """Send a READY with a ring of three slots."""
    info = json.dumps({"slot_bytes": 64}).encode()
    ring, text = os.memfd_create("ring"), os.memfd_create("info")
    try:
        os.ftruncate(ring, 3 * 4096)
        os.write(text, info)
        socket.send_fds(theirs, [pack(wire.Ready(len(info), 3, 4096, 3 * 4096))], [ring, text])
    finally:
        os.close(ring)
        os.close(text)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", "0 bytes"),
        (b"\x09\x09\0\0\x08\0\0\0", "version 9"),
        (b"\x09\x03\0\0\x09\0\0\0", "says it has 9"),
        (b"\x63\x03\0\0\x08\0\0\0", "unknown message type 99"),
        (b"\x0b\x03\0\0\x08\0\0\0", "unknown message type 11"),
        (b"\x04\x03\0\0\x08\0\0\0", "BATCH"),
    ],
)
def test_refused(raw: bytes, error: str) -> None:
    with pytest.raises(wire.WireError, match=error):
        unpack(raw)


def test_packets_of_several_messages() -> None:
    messages = [(GOLDEN / e["file"]).read_bytes() for e in ENTRIES]
    for count in range(1, len(messages) + 1):
        packet = memoryview(b"".join(messages[:count]))
        assert [bytes(m) for m in wire.split(packet)] == messages[:count]
    # Split passes damage in a packet on to unpack.
    for damaged in (b"", messages[0] + b"\x09", messages[0] + bytes(8), messages[0] + b"\x09\x03\0\0\x10\0\0\0"):
        with pytest.raises(wire.WireError):
            for message in wire.split(memoryview(damaged)):
                unpack(message)
