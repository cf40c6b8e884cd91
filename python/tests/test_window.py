"""The order by windows of chunks, compared with a second implementation, written from the documentation."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker

Make = Callable[..., stoker.Loader]
GOLDEN = Path(__file__).parents[2] / "internal" / "sampler" / "testdata" / "windows.json"
ALL = 2**64 - 1
RATIO = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & ALL
    z = (z ^ z >> 27) * 0x94D049BB133111EB & ALL
    return z ^ z >> 31


class Permutation:
    """A keyed permutation of n numbers: a Feistel network, walked until the result is one of them."""

    def __init__(self, n: int, seed: int, epoch: int) -> None:
        self.n = n
        width = max((n - 1).bit_length(), 2)
        self.a = width // 2
        self.low, self.high = 2**self.a - 1, 2 ** (width - self.a) - 1
        key = mix((mix(seed + RATIO & ALL) ^ (epoch * RATIO & ALL)) + RATIO & ALL)
        self.keys = []
        for _ in range(32 if width <= 8 else 8):
            key = key + RATIO & ALL
            self.keys.append(mix(key))

    def at(self, x: int) -> int:
        if self.n < 2:
            return x
        while True:
            a, b = x & self.low, x >> self.a
            for first, second in zip(self.keys[::2], self.keys[1::2], strict=True):
                a ^= scramble(b, first) & self.low
                b ^= scramble(a, second) & self.high
            x = b << self.a | a
            if x < self.n:
                return x


def scramble(x: int, key: int) -> int:
    product = (x ^ key) * (RATIO ^ (key << 1 & ALL) | 1)
    high, low = product >> 64, product & ALL
    return high ^ low ^ low >> 29


def factors(n: int) -> Iterator[int]:
    f = 2
    while n > 1:
        if n % f:
            f += 1
            continue
        n //= f
        yield f


def place(lane: int, lanes: int) -> int:
    """Return the position of a lane: its digits, by the prime factors of the number of lanes, backward."""
    out, left = 0, lanes
    for f in factors(lanes):
        left //= f
        out += lane % f * left
        lane //= f
    return out


def windows(starts: list[int], window: int, seed: int, epoch: int) -> list[int]:
    chunks, n = len(starts) - 1, starts[-1]
    if window >= chunks:
        whole = Permutation(n, seed, epoch)
        return [whole.at(i) for i in range(n)]
    permuted = Permutation(chunks, mix(seed ^ RATIO), epoch)
    order = [permuted.at(i) for i in range(chunks)]
    behind = [0]
    for c in order:
        behind.append(behind[-1] + starts[c + 1] - starts[c])
    lanes: list[list[int]] = [[] for _ in range(window)]
    at = 0
    for lane in sorted(range(window), key=lambda lane: place(lane, window)):
        end = at + (n - lane + window - 1) // window
        pieces = []
        while at < end:
            slot = bisect.bisect_right(behind, at) - 1
            to = min(end, behind[slot + 1])
            within = Permutation(to - at, mix(seed + (at + 1) * RATIO & ALL), epoch)
            first = starts[order[slot]] + at - behind[slot]
            pieces.append([first + within.at(i) for i in range(to - at)])
            at = to
        if place(lane, window) % 2:
            pieces.reverse()
        lanes[lane] = [record for piece in pieces for record in piece]
    return [lanes[pos % window][pos // window] for pos in range(n)]


def test_golden() -> None:
    # The engine's own tests read the same file.
    for case in json.loads(GOLDEN.read_text()):
        assert windows(case["starts"], case["window"], case["seed"], case["epoch"]) == case["order"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Rows of 128 KiB, 64 of which make a chunk."""
    path = tmp_path_factory.mktemp("window") / "rows.npy"
    count = 333
    data = np.zeros((count, 1 << 17), np.uint8)
    data[:, 0] = np.arange(count) % 256
    np.save(path, data)
    return path, [*range(0, count, 64), count]


def indices(loader: Any) -> list[int]:
    return [int(i) for batch in loader for i in batch.index]


def test_order(make: Make, rows: tuple[Path, list[int]]) -> None:
    path, starts = rows
    loader = make(path, batch_size=10, shuffle="window:3", seed=5)
    assert loader.shuffle == "window:3" and "shuffle='window:3'" in repr(loader)
    assert loader.info["order"]["mode"] == "window" and loader.info["order"]["chunks"] == len(starts) - 1
    for epoch in range(2):
        batches = [b.copy() for b in loader]
        assert [int(i) for b in batches for i in b.index] == windows(starts, 3, 5, epoch)
        assert all((b[0][:, 0] == b.index % 256).all() for b in batches)


def test_ranks_and_resume(make: Make, rows: tuple[Path, list[int]]) -> None:
    path, starts = rows
    want = windows(starts, 4, 1, 0)
    ranks = [make(path, batch_size=8, shuffle="window:4", seed=1, ranks=stoker.Ranks(r, 2)) for r in range(2)]
    seen = []
    for loader in ranks:
        for step, batch in enumerate(loader):
            seen += [int(i) for i in batch.index]
            if step == 9:
                break
        state = loader.state_dict()
    assert sorted(seen) == sorted(want[:160])
    assert state["order"] == "1:window:4"
    for rank in range(4):
        loader = make(path, batch_size=4, shuffle="window:4", seed=1, ranks=stoker.Ranks(rank, 4))
        loader.load_state_dict(json.loads(json.dumps(state)))
        mine = indices(loader)
        assert mine[:4] == want[160 + rank : 176 : 4]
        seen += mine
    assert sorted(seen) == list(range(len(want)))


@pytest.mark.parametrize("other", [True, False, "window:2"])
def test_states_are_of_an_order(make: Make, rows: tuple[Path, list[int]], other: bool | str) -> None:
    path, _ = rows
    state = make(path, batch_size=8, shuffle="window:3").state_dict()
    with pytest.raises(stoker.StateMismatch, match="saved with shuffle='window:3', this loader has shuffle="):
        make(path, batch_size=8, shuffle=other).load_state_dict(state)


def test_auto(make: Make, rows: tuple[Path, list[int]]) -> None:
    path, _ = rows
    loader = make(path, batch_size=8, shuffle="auto")
    chosen = loader.info["order"]
    assert chosen["why"] and (loader.shuffle is True) == (chosen["mode"] == "full")
    # Its states are those of the order that it has reached.
    again = make(path, batch_size=8, shuffle=loader.shuffle)
    again.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("wrong", ["window", "window:0", "window:-1", "window:1e3", "windows:4", "full", "", "True"])
def test_refused(make: Make, rows: tuple[Path, list[int]], wrong: str) -> None:
    with pytest.raises(stoker.ConfigError, match='shuffle must be True, False, "auto", or "window:N"'):
        make(rows[0], batch_size=8, shuffle=wrong)


def test_too_little_memory(make: Make, rows: tuple[Path, list[int]]) -> None:
    with pytest.raises(stoker.ConfigError, match=r"window:\d+ fits"):
        make(rows[0], batch_size=1, shuffle="window:5", limits=stoker.Limits(memory="60MiB"), threads=1)


def test_cache_memory_is_not_for_local_files(make: Make, rows: tuple[Path, list[int]]) -> None:
    with pytest.warns(RuntimeWarning, match="a cache in memory is for remote data"):
        loader = make(rows[0], batch_size=8, cache=stoker.Cache(memory="1MiB"))
    assert "cache_memory" not in loader.stats()["engine"]
