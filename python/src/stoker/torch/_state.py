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
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    IterDataPipe,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from .._errors import ConfigError, StateMismatch
from . import _generator

_VERSION = 2


@dataclass
class Place:
    """The position of the loop in an epoch. It outlives the iterator, which is gone after a ``break``."""

    begun: Begun | None  # random numbers when the epoch began
    identity: dict[str, Any]  # of the data and of the order
    done: int  # batches that the loop was given, or that were skipped
    failed: int = 0  # those that were errors since then
    ended: bool = False
    unread: bool = False  # whether the order is read with the first batch, and was not


class _Counted:
    """An iterator of a loader that records the position of the loop."""

    _stoker_place: Place

    def __next__(self) -> Any:
        place = self._stoker_place
        if place.unread and place.begun is not None:
            place.unread = False
            place.begun.reads()
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
        self.order: Resumed | Whole | None = None  # for the iterator that is being made
        self._known = _generator.Known()

    def begin(self, loader: Any, make: Callable[[], Any]) -> Any:
        """Make the iterator of an epoch, the loaded one if there is one."""
        state, loader._stoker_load = loader._stoker_load, None
        seed = None
        if state is not None and not state["batches"]:
            seed = _end_epoch(loader, state, self._known)
        identity = _identity(loader)
        if state is None or not state["batches"]:
            fresh = Begun(loader, self._known)
            self.skipped = 0
            if seed is None:
                made = make()
            else:
                fresh.seeded = False
                made = self._made(loader, make, Whole(loader, loader._index_sampler, seed))
            fresh.made(made)
            place = Place(fresh, identity, 0, unread=loader.num_workers == 0)
        else:
            _check_identity(state, identity)
            begun = None if state["begun"] is None else Begun(loader, self._known, state["begun"])
            made = self._resume(loader, make, state, begun)
            place = Place(begun, identity, self.skipped)
        if not isinstance(made, _Counted):
            made.__class__ = _counted(type(made))  # type: ignore[arg-type]
        made._stoker_place = self.place = place
        return made

    def _resume(self, loader: Any, make: Callable[[], Any], state: dict[str, Any], begun: Begun | None) -> Any:
        self.skipped = _steps(state, _global_rows(loader))
        if isinstance(loader.dataset, IterableDataset):
            return self._iterable(make, begun)
        with _as_begun(begun):  # for the seed that torch draws for each iterator
            return self._made(loader, make, Resumed(loader, loader._index_sampler, self.skipped, begun))

    def _made(self, loader: Any, make: Callable[[], Any], order: Any) -> Any:
        """Make the iterator of an epoch with an order of ours."""
        persistent = loader._iterator  # which knows its order already
        base = loader._index_sampler
        self.order = order
        try:
            if persistent is not None:
                persistent._index_sampler = order
            return make()
        finally:
            for made in (persistent, loader._iterator):
                if made is not None:
                    made._index_sampler = base
            self.order = None

    def _iterable(self, make: Callable[[], Any], begun: Begun | None) -> Any:
        with _as_begun(begun):
            made = make()
            if begun is not None:
                begun.set_read()
            left = sum(1 for _ in itertools.islice(made, self.skipped))
        if left < self.skipped:
            raise _too_far(self.skipped, f"the dataset gives {left}")
        return made

    def state(self, loader: Any) -> dict[str, Any]:
        """Return the state of a loader; see ``DataLoader.state_dict``."""
        if loader._stoker_load is not None:
            return dict(loader._stoker_load)
        place = self.place
        if place is None or place.ended or not place.done:
            return {"version": _VERSION, "batches": 0, "begun": _between(loader, place, self._known)}
        over = place.done == _length(loader)
        begun = None if place.begun is None else place.begun.saved()
        state = {"version": _VERSION, "batches": place.done, **place.identity, "begun": begun}
        if over:
            # The order is not read to its end, after which generators and samplers are those of the next epoch.
            moves = begun is not None and (_keeps_seed(loader) or {"generators", "sampler"} & begun.keys())
            return {**state, "batches": 0} if moves else {"version": _VERSION, "batches": 0, "begun": None}
        rows = _global_rows(loader)
        return state | {"rows": rows} if rows else state


class _Order:
    """An order of ours in place of the loader's."""

    def __init__(self, loader: Any, order: Any, seed: Any) -> None:
        self._loader, self._order = loader, order
        self._stoker_seed = seed  # the engine's seed of the epoch

    def __len__(self) -> int:
        return len(self._order)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._order, name)


class Whole(_Order):
    """The order of a whole epoch, for workers that had their seed in an epoch before.

    If their iterator is new, torch begins the order, draws a seed, and begins the order again. Nothing is drawn then.
    """

    _before: torch.Tensor | None = None

    def __iter__(self) -> Iterator[Any]:
        generator = self._loader.generator or torch.default_generator
        if self._before is None and self._loader._iterator is None:
            self._before = generator.get_state()
            generator.set_state(_generator.about_to_draw([self._stoker_seed[0]]))
            return iter(())
        if self._before is not None:
            generator.set_state(self._before)
        return iter(self._order)


class Resumed(_Order):
    """The order of an epoch whose first batches are skipped."""

    def __init__(self, loader: Any, order: Any, skip: int, begun: Begun | None) -> None:
        super().__init__(loader, order, None if begun is None else begun.seed)
        self._skip, self._begun = skip, begun

    def __iter__(self) -> Iterator[Any]:
        return _Rest(self._loader, self._order, self._skip, self._begun)


class _Rest:
    """Iterates over the rest of an epoch.

    While it reads what torch had read, the random numbers are those of the epoch's beginning. Then they are the loop's.
    """

    def __init__(self, loader: Any, order: Any, skip: int, begun: Begun | None) -> None:
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
        with _as_begun(self._begun):
            items = self._drawn()
            for count in range(self._skip):
                batch = next(items, self)
                if batch is self:
                    raise _too_far(self._skip, f"the sampler gives {count}")
                self._stoker_skipped += len(batch) if isinstance(batch, Sized) else 1
            self._kept.extend(itertools.islice(items, self._ahead))
        return items

    def _drawn(self) -> Iterator[Any]:
        return iter(self._order) if self._begun is None else _reads(self._loader, self._order, self._begun)


def _reads(loader: Any, order: Any, begun: Begun) -> Iterator[Any]:
    """Begin an order as torch's iterator did: around the seed that it draws, and twice with workers."""
    items: Iterator[Any] = iter(order)
    if begun.seeded:
        _generator.draw_number(loader.generator)
        if begun.workers:
            items = iter(order)
    begun.set_read()
    return items


def _keeps_seed(loader: Any) -> bool:
    """Report whether torch draws a seed for the first epoch only."""
    return bool(loader.persistent_workers and loader.num_workers > 0)


def _between(loader: Any, place: Place | None, known: _generator.Known) -> dict[str, Any] | None:
    """Return what the next epoch begins with, as far as it is the loader's own."""
    generators, sampler = _generators(loader), _stateful(loader)
    begun: dict[str, Any] = {"generators": [known.brief(g.get_state()) for g in generators]} if generators else {}
    if sampler is not None:
        begun["sampler"] = sampler.state_dict()
    if _keeps_seed(loader) and place is not None and place.ended and place.begun is not None and place.begun.seed:
        begun["next"] = _after(place.begun.seed)
    return begun or None


def _after(seed: Any) -> list[int]:
    """Return the seed of the next epoch of the same workers."""
    return [seed[0], seed[1] + 1]


def _end_epoch(loader: Any, state: dict[str, Any], known: _generator.Known) -> list[int] | None:
    """Have generators and samplers be as they were after the epoch before; return the seed that workers keep."""
    if state["begun"] is None:
        return None
    begun = Begun(loader, known, state["begun"])
    seed = state["begun"].get("next")
    if "order" in state:  # the epoch before was not read to its end
        _check_identity(state, _identity(loader))
        with _as_begun(begun):
            collections.deque(_reads(loader, loader._index_sampler, begun), 0)
        seed = begun.seed and _after(begun.seed)
    else:
        begun.set_between()
    return seed if _keeps_seed(loader) else None


def _too_far(batches: int, what: str) -> StateMismatch:
    return StateMismatch(
        f"the state is after {batches} batches, and {what} in an epoch: it is that of another dataset, batch size "
        "or number of ranks"
    )


def check(state: Any) -> dict[str, Any]:
    """Return a checked copy of a state that a user loads."""
    if not isinstance(state, dict) or not {"version", "batches", "begun"} <= state.keys():
        raise StateMismatch("this is not a state of a stoker.torch.DataLoader; it comes from its state_dict()")
    if state["version"] != _VERSION:
        raise StateMismatch(
            f"the state has version {state['version']}, this package knows version {_VERSION}; "
            "use the version of stoker that saved it"
        )
    if not isinstance(state["batches"], int) or state["batches"] < 0:
        raise ConfigError(f"the state says {state['batches']!r} batches")
    rows = state.get("rows")
    if rows is not None and (not isinstance(rows, int) or rows < 1):
        raise ConfigError(f"the state says {rows!r} records in a step")
    keys = ("version", "batches", "records", "order", "begun", "rows")
    return {key: state[key] for key in keys if key in state}


def _identity(loader: Any) -> dict[str, Any]:
    """Return what must be the same when an epoch goes on: the number of records, and the order."""
    if isinstance(loader.dataset, IterableDataset):
        size, workers = loader.batch_size, loader.num_workers
        return {"order": f"{type(loader.dataset).__name__}, batch_size={size}, num_workers={workers}"}
    rows = _global_rows(loader)
    samplers = _samplers(loader)
    order = type(samplers[0] if type(samplers[0]) is not BatchSampler else loader.sampler).__name__
    names = ["num_replicas", "num_processes", "batch_size"] if rows is None else []
    if _stateful(loader) is None:
        names += ["shuffle", "seed", "epoch"]
    for name in names:
        values = [vars(s)[name] for s in samplers if name in getattr(s, "__dict__", ())]
        if values and isinstance(values[0], int):
            order += f", {name}={values[0]}"
    try:
        return {"records": len(loader.dataset), "order": order}
    except (TypeError, NotImplementedError):
        return {"order": order}


def _check_identity(state: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise an error that names the difference."""
    anew = "or begin the epoch again without a state"
    records, order = state.get("records"), state.get("order")
    if records != here.get("records"):
        raise StateMismatch(
            f"the state has another dataset: it was saved over {records} records, this loader has "
            f"{here.get('records')}; make the loader with that dataset, {anew}"
        )
    if order != here["order"]:
        start, _, epoch = str(order).partition(", epoch=")
        known = epoch and here["order"].startswith(f"{start}, epoch=")
        what = f"call sampler.set_epoch({epoch})" if known else "make the loader with the same"
        raise StateMismatch(
            f"the state has another order: it was saved with {order}, this loader has {here['order']}; {what}, {anew}"
        )


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


def _samplers(loader: Any) -> list[Any]:
    """Return the sampler that a loader reads, and the samplers that it reads from."""
    found: list[Any] = []
    todo = [loader.sampler if loader.batch_sampler is None else loader.batch_sampler]
    while todo:
        at = todo.pop()
        if at is not None and len(found) < 32 and not any(at is s for s in found):
            found.append(at)
            todo += [getattr(at, "__dict__", {}).get(name) for name in ("batch_sampler", "sampler")]
    return found


def _generators(loader: Any) -> list[torch.Generator]:
    """Return the generators that the order of an epoch may come from, each once, in a fixed order."""
    found: list[torch.Generator] = []
    for at in (loader, *_samplers(loader)):
        generator = getattr(at, "generator", None)
        if isinstance(generator, torch.Generator) and not any(generator is g for g in found):
            found.append(generator)
    return found


def _stateful(loader: Any) -> Any:
    """Return the sampler that keeps a state of its own, if there is one."""
    for sampler in (loader.batch_sampler, loader.sampler):
        if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict"):
            return sampler
    return None


# Libraries whose samplers draw from torch's generators only.
_TORCH_ONLY = ("torch", "accelerate", "transformers", "timm")
# Samplers that draw from the generator that they have, and otherwise nothing.
_QUIET = (SequentialSampler, DistributedSampler, BatchSampler, list, tuple, range)


def _seeds(loader: Any) -> int | None:
    """Return how many seeds the order draws from the global random numbers, None if it may draw anything."""
    if isinstance(loader.dataset, IterableDataset):
        # Its code runs in the workers, whose random numbers come from the seed of the iterator.
        return 0 if loader.num_workers > 0 and not isinstance(loader.dataset, IterDataPipe) else None
    count = 0
    for sampler in _samplers(loader):
        if type(sampler) is RandomSampler:
            count += sampler.generator is None
        elif type(sampler) in (WeightedRandomSampler, SubsetRandomSampler):
            if sampler.generator is None:
                return None
        elif type(sampler) not in _QUIET:
            return None
    return count


def _draws_elsewhere(loader: Any) -> bool:
    """Report whether the order may draw from Python's and from NumPy's random numbers."""
    if isinstance(loader.dataset, IterableDataset):
        return bool(loader.num_workers == 0)
    kinds = [type(s) for s in _samplers(loader)]
    return any(k not in _QUIET and k.__module__.partition(".")[0] not in _TORCH_ONLY for k in kinds)


@dataclass
class _Moment:
    """All random numbers at a moment."""

    torch: torch.Tensor
    generators: list[torch.Tensor]
    others: list[Any] | None


class Begun:
    """The random numbers with which an epoch began.

    They are few bytes in a state: the seeds that were drawn, or a generator's seed and the number of draws since.
    """

    def __init__(self, loader: Any, known: _generator.Known, saved: dict[str, Any] | None = None) -> None:
        """Take them now, or from a state."""
        self._loader, self._known, self._saved = loader, known, saved
        self.seed: Any = None  # the iterator's seed, and the number of epochs that it has had since
        if saved is None:
            # Persistent workers draw a seed only for their first epoch.
            self.seeded, self.workers = loader._iterator is None, loader.num_workers > 0
            self._count, self._elsewhere = _seeds(loader), _draws_elsewhere(loader)
            sampler = _stateful(loader)
            self._sampler = None if sampler is None else sampler.state_dict()
            self._began = self._made = self._read = self._now()
            return
        self.seed, self.workers, self.seeded = saved.get("seed"), saved.get("workers"), saved.get("seeded", True)
        self._sampler = saved.get("sampler")
        had, have = len(saved.get("generators", ())), len(_generators(loader))
        if had != have:
            raise StateMismatch(
                f"the state has random numbers of {had} generators, this loader draws from {have}: it was made with "
                "another sampler or generator"
            )

    def _now(self) -> _Moment:
        others = _others() if self._elsewhere else None
        return _Moment(torch.get_rng_state(), [g.get_state() for g in _generators(self._loader)], others)

    def made(self, made: Any) -> None:
        """Learn the iterator's seed."""
        base = getattr(made, "_base_seed", None)
        self.seed = getattr(made, "_stoker_seed", None) or (None if base is None else (base, 0))
        self._made = self._read = self._now()

    def reads(self) -> None:
        """Note that the order is read now: the program may have drawn numbers since the iterator was made."""
        self._read = self._now()

    def saved(self) -> dict[str, Any]:
        """Return them for a state."""
        if self._saved is not None:
            return self._saved
        state = {"seed": None if self.seed is None else [*self.seed], "workers": self.workers}
        if not self.seeded:
            state["seeded"] = False
        began, made, read = self._began, self._made, self._read
        text, final = self._global()
        if text:
            state["global"] = text
        if began.generators:
            state["generators"] = [self._known.brief(g) for g in began.generators]
        if began.others is not None and began.others != _others():
            state["others"] = began.others
        elif began.others is not None:
            final = False
        if self._sampler is not None:
            state["sampler"] = self._sampler
        # The program may have drawn numbers before it took the first batch.
        if text and not text.startswith("=") and not torch.equal(made.torch, read.torch):
            state["global then"] = self._known.brief(read.torch)
        if any(not torch.equal(a, b) for a, b in zip(made.generators, read.generators, strict=True)):
            state["generators then"] = [self._known.brief(g) for g in read.generators]
        if "others" in state and made.others != read.others:
            state["others then"] = read.others
        if final:
            self._saved = state
        return state

    def _global(self) -> tuple[str, bool]:
        """Return the global random numbers, as far as the order needs them, and whether it may need more later."""
        began = self._began.torch
        own = self._loader.generator is not None
        drawn = self.seeded and not own  # the iterator's seed was the first number
        if self.seed is None or (drawn and _generator.drawn(began, 1) != [self.seed[0]]):
            return self._known.brief(began), True
        if self._count is not None:
            if not self._count:
                return "", True
            before = int(drawn and self.workers)
            numbers = _generator.drawn(began if self.workers else self._read.torch, before + self._count)
            if numbers is not None:
                return "=" + ",".join(str(n) for n in numbers[before:]), True
        generator = torch.Generator()
        generator.set_state(began)
        if drawn:
            _generator.draw_number(generator)
        # Until now, neither the order nor the program has drawn a number.
        if torch.equal(generator.get_state(), torch.get_rng_state()):
            return "", False
        return self._known.brief(began), True

    def set_began(self) -> None:
        """Set the random numbers to those before the iterator was made."""
        saved = self.saved()
        text = saved.get("global", "")
        if text and not text.startswith("="):
            torch.set_rng_state(_generator.whole_of(text))
        elif self.seed is not None and self._loader.generator is None:
            torch.set_rng_state(_generator.about_to_draw([self.seed[0]]))
        self._set(None, saved.get("others"))
        self.set_between()

    def set_between(self) -> None:
        """Set what is the loader's own."""
        self._set(self.saved().get("generators"), None)
        sampler = _stateful(self._loader)
        if sampler is not None and self._sampler is not None:
            sampler.load_state_dict(self._sampler)

    def set_read(self) -> None:
        """Set the random numbers to those before the order was read, after what an iterator draws."""
        saved = self.saved()
        text = saved.get("global", "")
        if text.startswith("="):
            torch.set_rng_state(_generator.about_to_draw([int(n) for n in text[1:].split(",")]))
        elif "global then" in saved:
            torch.set_rng_state(_generator.whole_of(saved["global then"]))
        self._set(saved.get("generators then"), saved.get("others then"))

    def _set(self, generators: list[str] | None, others: list[Any] | None) -> None:
        for generator, text in zip(_generators(self._loader), generators or (), strict=False):
            generator.set_state(_generator.whole_of(text))
        if others:
            _set_others(others)

    @property
    def draws_elsewhere(self) -> bool:
        """Whether the order has drawn from Python's and from NumPy's random numbers."""
        return bool(self.saved().get("others"))


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
def _as_begun(begun: Begun | None) -> Iterator[None]:
    """Have random numbers be those that an epoch began with, and give the loop back its own then."""
    if begun is None:
        yield
        return
    now, others = torch.get_rng_state(), begun.draws_elsewhere and _others()
    try:
        with _generator.other_seed():
            begun.set_began()
            yield
    finally:
        torch.set_rng_state(now)
        if others:
            _set_others(others)


def _base64(array: Any) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _array(text: str, kind: type) -> Any:
    return np.frombuffer(base64.b64decode(text), kind).copy()
