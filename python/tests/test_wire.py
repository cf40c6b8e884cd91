"""The golden messages, which the engine's tests read as well."""

from __future__ import annotations

import contextlib
import json
import random

import pytest

from conftest import CHECKOUT
from stoker import _wire as wire

GOLDEN = CHECKOUT / "internal" / "handoff" / "testdata" / "golden"
CLASSES = {
    "OPEN": wire.Open, "READY": wire.Ready, "START": wire.Start, "BATCH": wire.BatchReady,
    "EPOCH_END": wire.EpochEnd, "RELEASE": wire.Release, "ERROR": wire.Failure, "STATS": wire.Stats,
    "CLOSE": wire.Close,
}  # fmt: skip
ENTRIES = json.loads((GOLDEN / "messages.json").read_text())


@pytest.mark.parametrize("entry", ENTRIES, ids=[e["file"] for e in ENTRIES])
def test_golden(entry: dict) -> None:
    raw = (GOLDEN / entry["file"]).read_bytes()
    message = wire.unpack(raw)
    assert type(message) is CLASSES[entry["type"]]
    got = {k: v.decode() if isinstance(v, bytes) else v for k, v in message._asdict().items()}
    assert got == entry["fields"]
    assert wire.pack(message) == raw


def test_every_message_has_a_golden_file() -> None:
    assert {e["type"] for e in ENTRIES} == set(wire.NAMES[1:]) == set(CLASSES)


def test_damaged_messages_are_refused_or_valid() -> None:
    rng = random.Random(1)
    for entry in ENTRIES:
        raw = (GOLDEN / entry["file"]).read_bytes()
        for _ in range(300):
            damaged = bytearray(raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.3 else raw)
            for _ in range(rng.randrange(4)):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            with contextlib.suppress(wire.WireError):
                wire.unpack(bytes(damaged))


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", "0 bytes"),
        (b"\x09\x09\0\0\x08\0\0\0", "version 9"),
        (b"\x09\x03\0\0\x09\0\0\0", "says it has 9"),
        (b"\x63\x03\0\0\x08\0\0\0", "unknown message type 99"),
        (b"\x0b\x03\0\0\x08\0\0\0", "WORK is for functions of the user"),
        (b"\x04\x03\0\0\x08\0\0\0", "BATCH"),
    ],
)
def test_refused(raw: bytes, error: str) -> None:
    with pytest.raises(wire.WireError, match=error):
        wire.unpack(raw)


def test_packets_of_several_messages() -> None:
    messages = [(GOLDEN / e["file"]).read_bytes() for e in ENTRIES]
    for count in range(1, len(messages) + 1):
        packet = memoryview(b"".join(messages[:count]))
        assert [bytes(m) for m in wire.split(packet)] == messages[:count]
    # What is wrong in a packet is in what unpack is given.
    for damaged in (b"", messages[0] + b"\x09", messages[0] + bytes(8), messages[0] + b"\x09\x03\0\0\x10\0\0\0"):
        with pytest.raises(wire.WireError):
            for message in wire.split(memoryview(damaged)):
                wire.unpack(message)
