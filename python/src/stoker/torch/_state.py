"""The position of a DataLoader: saving it, and continuing there without loading the batches before."""

from __future__ import annotations

import base64
import collections
import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from .._errors import ConfigError, StateMismatch

_VERSION = 1


@dataclass
class Place:
    """The position of the loop in an epoch. It outlives the iterator, which is gone after a ``break``."""

    begun: dict[str, Any] | None  # random numbers when the epoch began
    done: int  # batches that the loop was given, or that were skipped
    failed: int = 0  # those that were errors since then
    ended: bool = False


class _Counted:
    """An iterator of a loader that records the position of the loop."""

    _stoker_place: Place

    def __next__(self) -> Any:
        place = self._stoker_place
        try:
            batch = super().__next__()  # type: ignore[misc]
        except StopIteration:
            place.ended = True
            raise
        except Exception:
            place.failed += 1
            raise
        # The position is after errors that the loop has survived.
        place.done += 1 + place.failed
        place.failed = 0
        return batch


@functools.cache
def _counted(kind: type) -> Any:
    return type(kind.__name__, (_Counted, kind), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})


class Standing:
    """The position in the current epoch for ``state_dict``, and the start of the next one for ``load_state_dict``."""

    def __init__(self) -> None:
        self.place: Place | None = None  # of the iterator that was made last
        self.skipped = 0  # batches that were not made since they had been before
        self.order: Resumed | None = None  # for the iterator that is being made

    def begin(self, loader: Any, make: Callable[[], Any]) -> Any:
        """Make the iterator of an epoch, the loaded one if there is one."""
        state, loader._stoker_load = loader._stoker_load, None
        if state is None or not state["batches"]:
            begun, self.skipped = _random_state(loader), 0
            made = make()
            begun["seed"] = getattr(made, "_stoker_seed", None)
        else:
            begun = state["begun"]
            made = self._resume(loader, make, state)
        if not isinstance(made, _Counted):
            made.__class__ = _counted(type(made))  # type: ignore[arg-type]
        made._stoker_place = self.place = Place(begun, self.skipped)
        return made

    def _resume(self, loader: Any, make: Callable[[], Any], state: dict[str, Any]) -> Any:
        begun, self.skipped = state["begun"], _steps(state, _global_rows(loader))
        if begun is not None:
            _check_generators(loader, begun)
        with _as_begun(loader, begun):  # for the seed that torch draws for each iterator
            if isinstance(loader.dataset, IterableDataset):
                return self._iterable(make)
            return self._ordered(loader, make, begun)

    def _ordered(self, loader: Any, make: Callable[[], Any], begun: dict[str, Any] | None) -> Any:
        persistent = loader._iterator  # which knows its order already
        base = loader._index_sampler
        self.order = Resumed(loader, base, self.skipped, begun)
        try:
            if persistent is not None:
                persistent._index_sampler = self.order
            return make()
        finally:
            if persistent is not None:
                persistent._index_sampler = base
            self.order = None

    def _iterable(self, make: Callable[[], Any]) -> Any:
        made = make()
        left = sum(1 for _ in itertools.islice(made, self.skipped))
        if left < self.skipped:
            raise _too_far(self.skipped, f"the dataset gives {left}")
        return made

    def state(self, loader: Any) -> dict[str, Any]:
        """Return the state of a loader; see ``DataLoader.state_dict``."""
        if loader._stoker_load is not None:
            return dict(loader._stoker_load)
        place = self.place
        done = 0 if place is None or place.ended or place.done == _length(loader) else place.done
        state = {"version": _VERSION, "batches": done, "begun": place.begun if place is not None and done else None}
        rows = _global_rows(loader)
        return state | {"rows": rows} if rows else state


class Resumed:
    """The order of an epoch whose first batches are skipped."""

    def __init__(self, loader: Any, order: Any, skip: int, begun: dict[str, Any] | None) -> None:
        self._loader, self._order, self._skip, self._begun = loader, order, skip, begun
        # The engine's seed of the epoch.
        self._stoker_seed = None if begun is None else begun.get("seed")

    def __len__(self) -> int:
        return len(self._order)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._order, name)

    def __iter__(self) -> Iterator[Any]:
        return _Rest(self._loader, self._order, self._skip, self._begun)


class _Rest:
    """Iterates over the rest of an epoch.

    While it reads what torch had read, the random numbers are those of the epoch's beginning. Then they are the loop's.
    """

    def __init__(self, loader: Any, order: Any, skip: int, begun: dict[str, Any] | None) -> None:
        self._loader, self._order, self._skip, self._begun = loader, order, skip, begun
        self._ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self._kept: collections.deque[Any] = collections.deque()
        self._items: Iterator[Any] | None = None
        self._stoker_skipped = 0  # records that were left out

    @property
    def _stoker_rest(self) -> Iterator[Any] | None:
        """The rest of the order, None while the iterator is not at the rest's beginning."""
        return None if self._kept else self._items

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._items is None:
            self._items = self._begin()
        return self._kept.popleft() if self._kept else next(self._items)

    def _begin(self) -> Iterator[Any]:
        with _as_begun(self._loader, self._begun):
            items = self._drawn()
            for count in range(self._skip):
                batch = next(items, self)
                if batch is self:
                    raise _too_far(self._skip, f"the sampler gives {count}")
                self._stoker_skipped += len(batch) if isinstance(batch, Sized) else 1
            self._kept.extend(itertools.islice(items, self._ahead))
        return items

    def _drawn(self) -> Iterator[Any]:
        """Begin the order as torch's iterator did: around the seed that it draws, and twice with workers."""
        begun = self._begun
        items: Iterator[Any] = iter(self._order)
        if begun is not None and begun["seeded"]:
            torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)
            if begun.get("workers"):
                items = iter(self._order)
        return items


def _too_far(batches: int, what: str) -> StateMismatch:
    return StateMismatch(
        f"the state is after {batches} batches, and {what} in an epoch: it is that of another dataset, batch size "
        "or number of ranks"
    )


def check(state: Any) -> dict[str, Any]:
    """Return a checked copy of a state that a user loads."""
    keys = {"version", "batches", "begun"}
    if not isinstance(state, dict) or not keys <= state.keys():
        raise StateMismatch("this is not a state of a stoker.torch.DataLoader; it comes from its state_dict()")
    if state["version"] != _VERSION:
        raise StateMismatch(f"the state has version {state['version']}, this package knows {_VERSION}")
    if not isinstance(state["batches"], int) or state["batches"] < 0:
        raise ConfigError(f"the state says {state['batches']!r} batches")
    rows = state.get("rows")
    if rows is not None and (not isinstance(rows, int) or rows < 1):
        raise ConfigError(f"the state says {rows!r} records in a step")
    return {key: state[key] for key in (*keys, "rows") if key in state}


def _global_rows(loader: Any) -> int | None:
    """Return the number of records of all ranks together in a step, if torch's own sampler distributes them.

    The sampler deals out an order that does not depend on the ranks. After a step, all ranks together have had the
    beginning of that order, for any number of ranks.
    """
    own = type(loader.batch_sampler) is BatchSampler and type(loader.sampler) is DistributedSampler
    return int(loader.batch_size) * int(loader.sampler.num_replicas) if own else None


def _steps(state: dict[str, Any], rows: int | None) -> int:
    """Return the number of batches before a state, which may come from another number of ranks."""
    batches, before = int(state["batches"]), int(state.get("rows") or 0)
    if not before or rows is None or before == rows or not batches:
        return batches
    steps, over = divmod(batches * before, rows)
    if over:
        raise StateMismatch(
            f"the state is after {batches * before} records of all ranks, which is not a whole number of steps of "
            f"{rows}: choose a batch size and a number of ranks whose product divides it, such as those of the "
            f"state, {before}"
        )
    return steps


def _length(loader: Any) -> int | None:
    if isinstance(loader.dataset, IterableDataset):
        return None  # torch would warn where it has said something else than it gives
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _generators(loader: Any) -> list[torch.Generator]:
    """Return the generators that the order of an epoch may come from, each once, in a fixed order."""
    found: list[torch.Generator] = []
    todo: list[Any] = [loader]
    seen: list[Any] = []
    while todo:
        at = todo.pop()
        if at is None or any(at is s for s in seen) or len(seen) > 32:
            continue
        seen.append(at)
        generator = getattr(at, "generator", None)
        if isinstance(generator, torch.Generator) and not any(generator is g for g in found):
            found.append(generator)
        todo += [vars(at).get(name) if hasattr(at, "__dict__") else None for name in ("batch_sampler", "sampler")]
    return found


def _stateful(loader: Any) -> Any:
    """Return the sampler that keeps a state of its own, if there is one."""
    for sampler in (loader.batch_sampler, loader.sampler):
        if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict"):
            return sampler
    return None


def _random_state(loader: Any) -> dict[str, Any]:
    sampler = _stateful(loader)
    samplers = [s for s in (loader.batch_sampler, loader.sampler) if s is not None]
    own = any(not type(s).__module__.startswith("torch.") for s in samplers)
    return {
        # Persistent workers draw a seed only for their first epoch.
        "seeded": loader._iterator is None,
        "workers": loader.num_workers > 0,
        "global": _text(torch.get_rng_state()),
        # A sampler of the program may also draw from these.
        "others": _others() if own else None,
        "generators": [_text(g.get_state()) for g in _generators(loader)],
        "sampler": None if sampler is None else sampler.state_dict(),
    }


def _check_generators(loader: Any, begun: dict[str, Any]) -> None:
    had, have = len(begun["generators"]), len(_generators(loader))
    if had != have:
        raise StateMismatch(
            f"the state has random numbers of {had} generators, this loader draws from {have}: it was made with "
            "another sampler or generator"
        )


def _set_random_state(loader: Any, begun: dict[str, Any]) -> None:
    torch.set_rng_state(_tensor(begun["global"]))
    if begun.get("others"):
        _set_others(begun["others"])
    for generator, state in zip(_generators(loader), begun["generators"], strict=True):
        generator.set_state(_tensor(state))
    sampler = _stateful(loader)
    if sampler is not None and begun["sampler"] is not None:
        sampler.load_state_dict(begun["sampler"])


def _others() -> list[Any]:
    """Return the states of Python's and of NumPy's random numbers."""
    _, words, gauss = random.getstate()
    numpy = np.random.get_state(legacy=False)
    known = numpy["bit_generator"] == "MT19937"  # which it is unless the program has set another one
    more = [_base64(numpy["state"]["key"]), numpy["state"]["pos"], numpy["has_gauss"], numpy["gauss"]] if known else []
    return [_base64(np.array(words, np.uint32)), gauss, *more]


def _set_others(state: list[Any]) -> None:
    words, gauss, *numpy = state
    random.setstate((3, tuple(_array(words, np.uint32).tolist()), gauss))
    if numpy:
        np.random.set_state(("MT19937", _array(numpy[0], np.uint32), *numpy[1:]))


@contextlib.contextmanager
def _as_begun(loader: Any, begun: dict[str, Any] | None) -> Iterator[None]:
    """Have random numbers be those that an epoch began with, and give the loop back its own then."""
    if begun is None:
        yield
        return
    now, others = torch.get_rng_state(), begun.get("others") and _others()
    try:
        _set_random_state(loader, begun)
        yield
    finally:
        torch.set_rng_state(now)
        if others:
            _set_others(others)


def _text(state: torch.Tensor) -> str:
    return _base64(state.numpy())


def _tensor(text: str) -> torch.Tensor:
    return torch.from_numpy(_array(text, np.uint8))


def _base64(array: Any) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _array(text: str, kind: type) -> Any:
    return np.frombuffer(base64.b64decode(text), kind).copy()
