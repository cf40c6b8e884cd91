"""Random numbers of a user's functions: set for each record, so that it does not matter which process has it."""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

_DEEP = 6  # how far into each other things are looked at that a function refers to
_MOST = 10_000  # and how many of them
_MASK = (1 << 64) - 1


def mixed(*numbers: int) -> int:
    """Return a number of 64 bits that depends on all of these (SplitMix64)."""
    x = 0
    for n in numbers:
        x = (x + n + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        x ^= x >> 31
    return x


def mixed_array(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the same mix of each number of an array."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Seeds:
    """Sets the generators that functions draw from.

    These are the global ones of ``random``, NumPy and torch, and those that the functions hold: in closures, in globals
    that they name, in attributes of objects. The kinds are ``random.Random``, NumPy's and torch's generators, MONAI's,
    and objects with ``set_random_seed`` (albumentations).
    """

    def __init__(self, functions: list[Any]) -> None:
        """Look for the generators of functions."""
        self._own = list(_held(functions))

    def set(self, seed: int) -> None:
        """Set all of them."""
        words = [seed & 0xFFFFFFFF, seed >> 32]
        random.seed(seed)
        np.random.seed(words)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.default_generator.manual_seed(seed)
        for own in self._own:
            own(seed)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Restore the global generators afterwards, for functions that run in the program's own process."""
        torch = sys.modules.get("torch")
        before = random.getstate(), np.random.get_state(), torch and torch.default_generator.get_state()
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            if torch is not None and before[2] is not None:
                torch.default_generator.set_state(before[2])


def _held(functions: list[Any]) -> Iterator[Callable[[int], object]]:
    todo = [(f, 0) for f in functions]
    seen: dict[int, Any] = {}
    while todo and len(seen) < _MOST:
        thing, depth = todo.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | np.ndarray | types.ModuleType | None):
            continue
        seen[id(thing)] = thing
        setter = _setter(thing)
        if setter is not None:
            yield setter
        elif depth < _DEEP:
            todo += [(inner, depth + 1) for inner in _inside(thing)]


def _setter(thing: Any) -> Callable[[int], object] | None:
    """Return the function that sets a generator, None for anything else."""
    if isinstance(thing, random.Random):
        return None if isinstance(thing, random.SystemRandom) else thing.seed
    if isinstance(thing, np.random.Generator):
        return functools.partial(_set_bits, thing.bit_generator)
    if isinstance(thing, np.random.RandomState):
        return lambda seed: thing.seed([seed & 0xFFFFFFFF, seed >> 32])
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.Generator):
        return lambda seed: thing.manual_seed(seed)
    if isinstance(thing, type):
        return None
    own = getattr(type(thing), "set_random_seed", None)
    if callable(own):
        return lambda seed: thing.set_random_seed(seed & 0x7FFFFFFF)
    if callable(getattr(type(thing), "set_random_state", None)) and type(thing).__module__.startswith("monai."):
        return lambda seed: thing.set_random_state(seed=seed & 0x7FFFFFFF)
    return None


def _set_bits(bits: Any, seed: int) -> None:
    bits.state = type(bits)(seed).state


def _inside(thing: Any) -> Iterator[Any]:
    """Yield the objects that a thing refers to."""
    if isinstance(thing, types.FunctionType):
        for cell in thing.__closure__ or ():
            with contextlib.suppress(ValueError):  # not filled yet
                yield cell.cell_contents
        yield from thing.__defaults__ or ()
        yield from (thing.__kwdefaults__ or {}).values()
        yield from (thing.__globals__[name] for name in _names(thing.__code__) if name in thing.__globals__)
    elif isinstance(thing, types.MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, functools.partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, dict):
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing
    elif not isinstance(thing, type):
        yield from vars(thing).values() if hasattr(thing, "__dict__") else ()
        call = next((vars(c)["__call__"] for c in type(thing).__mro__ if "__call__" in vars(c)), None)
        if isinstance(call, types.FunctionType):
            yield call


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
