"""Calls the user's functions on the views of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._batch import INDEX, Batch
from .._ragged import Ragged, Strings
from ._failure import Failure
from ._result import BadReturn, Column, Room, array, mapping, new
from ._seeds import Seeds, mixed

_RECORD, _BATCH = 1, 2  # what makes random numbers of the two functions differ


class Functions(NamedTuple):
    """The two functions, at least one of which is set."""

    map: Callable[[dict[str, Any]], Any] | None
    batch_map: Callable[[Batch], Any] | None


class About(NamedTuple):
    """The properties of a batch, without its arrays."""

    epoch: int
    step: int
    rows: int
    repeated: int


class Maker:
    """Makes batches of batches."""

    def __init__(self, functions: Functions, seed: int, who: str) -> None:
        """Begin; ``who`` is the process, for errors."""
        self._functions, self._seed, self._who = functions, seed, who
        self.seeds = Seeds([f for f in functions if f is not None])
        # Called with each row before the row is made, and with the number of rows before the batch is made.
        self.at: Callable[[int], None] = lambda row: None

    def make(self, views: dict[str, Any], about: About, beside: frozenset[str], room: Room) -> dict[str, Any]:
        """Return the arrays of a batch; raises Failed."""
        arrays, function = dict(views), self._functions
        index = new(room, (about.rows,), np.dtype(np.int64))
        index[:] = arrays.pop(INDEX)
        if about.rows:  # of an empty batch there is nothing to call them with
            if function.map is not None:
                arrays = self._map(function.map, arrays, index, about, room)
            if function.batch_map is not None:
                arrays = self._map_batch(function.batch_map, arrays, index, about, beside)
        return {**arrays, INDEX: index}

    def _map(self, function: Any, arrays: dict[str, Any], index: Any, about: About, room: Room) -> dict[str, Any]:
        rows = {name: _rows(a) for name, a in arrays.items()}
        columns: dict[str, Column] = {}
        for i, number in enumerate(index.tolist()):
            self.at(i)
            try:
                self.seeds.set(mixed(self._seed, about.epoch, number, _RECORD))
                given = {name: row(i) for name, row in rows.items()}
                got = mapping(function(dict(given)), "map=")
                if i == 0:
                    columns = {n: Column(n, about.rows, room, arrays.get(n)) for n in got if n != INDEX}
                elif got.keys() - {INDEX} != columns.keys():
                    raise BadReturn(f"map= returned {_list(got)}, and {_list(columns)} of the records before")
                if INDEX in got and not np.array_equal(got[INDEX], number):
                    raise BadReturn(f"{INDEX!r} is the number of the record; give it another name")
                for name, column in columns.items():
                    column.add(i, got[name], given.get(name))
            except Exception as error:
                where = f"map= of record {number} (batch {about.step} of epoch {about.epoch}, {self._who})"
                raise Failed(Failure(error, where, number)) from None
        return {name: column.done() for name, column in columns.items()}

    def _map_batch(
        self, function: Any, arrays: dict[str, Any], index: Any, about: About, beside: frozenset[str]
    ) -> dict[str, Any]:
        first = int(index[0])
        self.at(about.rows)
        try:
            self.seeds.set(mixed(self._seed, about.epoch, first, _BATCH))
            batch = Batch({**arrays, INDEX: index}, about.epoch, about.step, about.rows, beside, about.repeated)
            got = function(batch)
            got = dict(got.items()) if isinstance(got, Batch) else mapping(got, "batch_map=")
            if INDEX in got and not np.array_equal(got[INDEX], index):
                raise BadReturn(f"{INDEX!r} has the numbers of the records; give it another name")
            return {name: _whole(name, value) for name, value in got.items() if name != INDEX}
        except Exception as error:
            where = f"batch_map= of batch {about.step} of epoch {about.epoch} (records {first}, ..., {self._who})"
            raise Failed(Failure(error, where, first)) from None


class Failed(Exception):
    """A function has raised."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def _rows(a: Any) -> Callable[[int], Any]:
    """Return a function that gives a row: numbers as Python's, arrays as views, texts as str."""
    if isinstance(a, np.ndarray) and a.ndim == 1:
        return lambda i: a[i].item()
    if isinstance(a, Ragged | Strings | np.ndarray):
        return lambda i: a[i]
    raise TypeError(f"a {type(a).__name__} has no rows")


def _whole(name: str, value: Any) -> Any:
    if isinstance(value, Ragged):
        return Ragged(array(name, value.values), array(name, value.offsets))
    if isinstance(value, Strings):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(v, str) for v in value):
        raw = [v.encode() for v in value]
        offsets = np.cumsum([0, *map(len, raw)])
        return Strings(Ragged(np.frombuffer(b"".join(raw), np.uint8), offsets))
    return array(name, value)


def _list(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"
