"""States of torch's CPU generators in a few bytes.

A generator is a Mersenne Twister: 5,056 bytes of state, which follow from its seed and the number of draws since.
"""

from __future__ import annotations

import base64
import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

_WORDS = 624  # of a block: that many draws need no new words
_BLOCKS = 1 << 11  # that are made at a time
_NEAR = 1 << 25  # draws after a known state among which a state is searched, 0.1 s
_FAR = 1 << 28  # draws since the seed that a restore repeats at most, 0.8 s

# torch's CPUGeneratorImplState. Its end has normal numbers, which are drawn in pairs.
_LAYOUT = np.dtype([
    ("seed", "<u8"), ("left", "<i4"), ("seeded", "<i4"), ("next", "<u8"), ("words", "<u8", (_WORDS,)), ("pair", "V40"),
])  # fmt: skip


class Known:
    """The blocks that were found last, after which the search for the next one begins."""

    def __init__(self) -> None:
        # Seed, blocks since the seed, and words. None blocks: a search has failed.
        self._found: collections.deque[tuple[int, int | None, Any]] = collections.deque(maxlen=8)

    def brief(self, state: torch.Tensor) -> str:
        """Return a state as "seed+draws" if a search finds it, or else all of it."""
        whole = base64.urlsafe_b64encode(state.numpy().tobytes()).decode()
        if state.numel() != _LAYOUT.itemsize:
            return whole
        at = _fields(state)
        seed = int(at["seed"])
        block = self._block(seed, at["words"].astype(np.uint32))
        if block is None or block * _WORDS > _FAR:
            return whole
        text = f"{seed}+{(block - 1) * _WORDS + int(at['next']) if block else 0}"
        if (pair := at["pair"].tobytes()) != bytes(len(pair)):
            text += "+" + base64.urlsafe_b64encode(pair).decode()
        return text if torch.equal(whole_of(text), state) else whole

    def _block(self, seed: int, words: Any) -> int | None:
        """Return the number of blocks from a seed to these words; None if that is too far."""
        near = [(block, key) for s, block, key in self._found if s == seed]
        found = next((block for block, key in near if np.array_equal(key, words)), -1)
        if found == -1:
            found = None
            begins = [*[n for n in near if n[0] is not None][-1:], (0, _seeded(seed))]
            for block, key in begins:
                since = 0 if np.array_equal(key, words) else _blocks_until(key, words)
                if since is not None:
                    found = (block or 0) + since
                    break
            self._found.append((seed, found, words))
        return found


def whole_of(text: str) -> torch.Tensor:
    """Return the state that ``brief`` has described."""
    seed, *rest = text.split("+", 2)
    if not rest:
        return torch.from_numpy(np.frombuffer(base64.urlsafe_b64decode(text), np.uint8).copy())
    draws, *pair = rest
    state = torch.Generator().manual_seed(int(seed)).get_state()
    at = _fields(state)
    block, place = divmod(int(draws) + _WORDS - 1, _WORDS)
    if block:
        twister = _twister(at["words"].astype(np.uint32))
        for left in range(block, 0, -_BLOCKS):
            twister.random_raw(min(left, _BLOCKS) * _WORDS, output=False)
        at["words"] = twister.state["state"]["key"]
        at["next"], at["left"] = place + 1, _WORDS - place
    if pair:
        at["pair"] = np.void(base64.urlsafe_b64decode(pair[0]))
    return state


def about_to_draw(numbers: list[int]) -> torch.Tensor:
    """Return a state whose next whole numbers of 63 bits are these."""
    state = torch.Generator().manual_seed(0).get_state()
    at = _fields(state)
    at["next"], at["left"] = 1, _WORDS
    for i, word in enumerate(half for n in numbers for half in (n >> 32, n & 0xFFFFFFFF)):
        at["words"][1 + i] = _untempered(word)
    return state


def drawn(state: torch.Tensor, count: int) -> list[int] | None:
    """Return the numbers of 63 bits that a generator draws next; None if ``about_to_draw`` cannot repeat them."""
    generator = torch.Generator()

    def draw(state: torch.Tensor) -> list[int]:
        generator.set_state(state)
        return [int(draw_number(generator)) for _ in range(count)]

    numbers = draw(state)
    try:
        return numbers if draw(about_to_draw(numbers)) == numbers else None
    except (RuntimeError, ValueError):  # a torch with another layout
        return None


def draw_number(generator: torch.Generator | None) -> torch.Tensor:
    """Draw a seed as torch's loaders and samplers do."""
    return torch.empty((), dtype=torch.int64).random_(generator=generator)


def _fields(state: torch.Tensor) -> Any:
    return state.numpy().view(_LAYOUT)[0]


def _seeded(seed: int) -> Any:
    return _fields(torch.Generator().manual_seed(seed).get_state())["words"].astype(np.uint32)


def _twister(words: Any) -> Any:
    """Return NumPy's generator at the end of a block."""
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": _WORDS}}
    return twister


def _blocks_until(key: Any, words: Any) -> int | None:
    """Return the number of blocks from one block to another; None if that is too far."""
    twister, target = _twister(key), _tempered(int(words[0]))
    before, more = 0, 16
    while before < _NEAR // _WORDS:
        for found in np.flatnonzero(twister.random_raw(more * _WORDS)[::_WORDS] == target):
            since = before + int(found) + 1
            # Another block may begin with the same word.
            if np.array_equal(_after(key, since), words):
                return since
        before, more = before + more, min(2 * more, _BLOCKS)
    return None


def _after(key: Any, blocks: int) -> Any:
    twister = _twister(key)
    twister.random_raw(blocks * _WORDS, output=False)
    return twister.state["state"]["key"]


def _tempered(y: int) -> int:
    y ^= y >> 11
    y ^= y << 7 & 0x9D2C5680
    y ^= y << 15 & 0xEFC60000
    return y ^ y >> 18


def _untempered(y: int) -> int:
    y ^= y >> 18
    y ^= y << 15 & 0xEFC60000
    x = y
    for _ in range(4):  # seven more bits are right each time
        x = y ^ (x << 7 & 0x9D2C5680)
    y = x & 0xFFFFFFFF
    return y ^ y >> 11 ^ y >> 22


# The seed of the program's random numbers while a resumed epoch is made with those of the epoch that it goes on with.
_PROGRAM: list[int] = []


@contextlib.contextmanager
def other_seed() -> Iterator[None]:
    """Remember the program's seed, while other random numbers than the program's are set."""
    _PROGRAM.append(torch.default_generator.initial_seed())
    try:
        yield
    finally:
        _PROGRAM.pop()


def program_seed() -> int:
    """Return the seed of the program's random numbers."""
    return _PROGRAM[0] if _PROGRAM else int(torch.default_generator.initial_seed())
