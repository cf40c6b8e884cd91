"""When the sampler of an epoch is read, and which of its batches are known before."""

from __future__ import annotations

import collections
import copy
import gc
import itertools
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, SubsetRandomSampler

_LISTS: tuple[type, ...] = type(iter([])), type(iter(range(0)))


class Epoch:
    """The batches of one epoch. The sampler is read exactly when torch's loader reads it.

    The sampler may draw random numbers that the program also draws from. With workers torch reads ``prefetch_factor``
    batches per worker when an iterator begins, and one more for each batch that it returns. Without workers it reads a
    batch when the loop asks for it. Errors of a sampler are raised at the same moments.
    """

    def __init__(self, loader: Any, order: Iterator[Any]) -> None:
        self._order = order
        self._ahead = int(loader.num_workers * loader.prefetch_factor) if loader.num_workers > 0 else 0
        self._waiting: collections.deque[Any] = collections.deque()  # what was read and not returned

    def _begin(self) -> None:
        for _ in range(self._ahead):
            self._read()

    def _read(self) -> None:
        try:
            batch = next(self._order)
        except StopIteration:
            return
        self._waiting.append(self._ask(batch))

    def _ask(self, batch: Any) -> Any:
        """Take a batch that was read, and return the input of ``_make`` for this batch's turn."""
        return batch

    def _make(self, asked: Any) -> Any:
        """Return a batch."""
        raise NotImplementedError

    def close(self) -> None:
        """End the epoch."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._ahead:
            self._read()
        if not self._waiting:
            self.close()
            raise StopIteration
        try:
            return self._make(self._waiting.popleft())
        finally:
            if self._ahead:
                self._read()


def skipped(order: Any) -> int:
    """Return the number of records that an order has skipped, if it continues in the middle of an epoch."""
    return int(getattr(order, "_stoker_skipped", 0))


def drawn(loader: Any, order: Iterator[Any], rows: int, read: int) -> Iterator[list[Any]]:
    """Return the batches that an order has drawn already and not returned yet.

    Samplers draw a list and return it bit by bit. A copy of the iterator over that list draws nothing and changes
    nothing. The batches are a guess: the sampler may skip records, and the program may change the list or the batch
    size. So callers compare each batch with what the sampler returns later.

    Args:
        loader: the DataLoader.
        order: the iterator over its batch sampler, between two batches.
        rows: the number of records in the last batch.
        read: the number of records that the order has returned.
    """
    found: Any = getattr(order, "_stoker_rest", order)
    if type(found) in _LISTS:
        for batch in copy.copy(found):
            if type(batch) not in (list, tuple):
                return
            yield list(batch)
        return
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler:
        return
    source, change = _source(found)
    if source is None:
        return
    whole = not batches.drop_last and read + operator.length_hint(source) == _length(batches.sampler)
    records = source if change is None else map(change, source)
    while len(batch := list(itertools.islice(records, rows))) == rows:
        yield batch
    if batch and whole:
        yield batch


def _source(reader: Any) -> tuple[Iterator[Any] | None, Callable[[Any], Any] | None]:
    """Return a copy of the iterator over a list, or over a range, that a generator reads from.

    With it comes the sequence in which the generator looks up its items, None if it does not.
    """
    change, kinds = None, _LISTS
    while isinstance(reader, types.GeneratorType):
        sampler: Any = reader.gi_frame.f_locals.get("self") if reader.gi_frame is not None else None
        if type(sampler) is SubsetRandomSampler and type(sampler.indices) in (list, tuple, range):
            change = sampler.indices.__getitem__
        reader = reader.gi_yieldfrom or _read_by(reader, kinds)
        kinds = _LISTS[:1]  # a sampler counts by a range, as a rule
    return (copy.copy(reader) if type(reader) in _LISTS else None), change


def _read_by(generator: Any, kinds: tuple[type, ...]) -> Any:
    """Return the one iterator of these kinds, or generator, that a generator refers to; None if there are several."""
    inside = gc.get_referents(generator)
    # Python 3.10 has a generator's variables in its frame.
    inside += [x for frame in inside if isinstance(frame, types.FrameType) for x in gc.get_referents(frame)]
    found = {id(x): x for x in inside if isinstance(x, (types.GeneratorType, *kinds))}
    return found.popitem()[1] if len(found) == 1 else None


def _length(sampler: Any) -> int:
    try:
        return len(sampler)
    except TypeError:
        return -1
