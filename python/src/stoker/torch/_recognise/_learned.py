"""Datasets of the program's own: the first epoch shows the parts that the engine can do from the second one on.

``Watched`` runs the program's ``__getitem__``. It notes the JPEG files that each index opens, and the transform that
they go to. ``State`` stores that for a dataset, for all of its loaders. ``LearnedPlan`` lets the engine make those rows
ahead. In each epoch some of them are compared with the results of Pillow and the transform. The plan is given up at the
first difference, or if most images go to other code.
"""

from __future__ import annotations

import array
import collections
import operator
import os
import time
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from ... import transforms as st
from ..._errors import StokerError, warn
from .._path import Row
from .._split import rows_of
from . import (
    _datasets,
    _functions,
    _library,
    _memory,
    _moment,
    _pending,
    _plan,
    _samples,
    _transforms,
    _watched,
)
from ._common import DEEP, Refusal
from ._library import Unknown
from ._stream import Stream
from ._tally import Tally

# Types of objects that are never known transforms, and need no check.
_NO_TRANSFORMS = type | types.FunctionType | types.MethodType | types.BuiltinFunctionType | types.ModuleType
# The number of records that show whether a dataset's behaviour can be learned.
_TRIED = 64
# Lists with more are data.
_FEW = 64
# Torch's generator under its name.
_GENERATOR = "default_generator"
# The number of nanoseconds that the times of files may lag the clock.
_CLOCK = 50_000_000
# The number of records compared with Pillow in each epoch, and the size of the compared middle if crops are random.
_COMPARED, _MIDDLE = 4, 64
_NO_COLLATE = "stoker.Loader makes batches without it"
# The largest difference of the engine's pixels: a level after a resize, else the rounding of floats.
_LEVEL, _ROUNDED = 1.01 / 255, 2e-6


class _Names:
    """Paths, which take no more memory than their text."""

    def __init__(self) -> None:
        self._text, self._ends = bytearray(), array.array("q")

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, name: str) -> None:
        self._text += os.fsencode(name)
        self._ends.append(len(self._text))

    def __getitem__(self, i: int) -> str:
        return os.fsdecode(bytes(self._text[self._ends[i - 1] if i else 0 : self._ends[i]]))


class State:
    """The knowledge about a dataset."""

    def __init__(self, dataset: Any, transforms: list[Any]) -> None:
        """Begin with nothing."""
        self.transforms = transforms
        self.notes, self.tally = _watched.Notes(), Tally()
        self.names = _Names()
        # For each index: the position of its first file in names, -1 if unknown, and the number of its files.
        self.first = np.full(len(dataset), -1, np.int64)
        self.count = np.zeros(len(dataset), np.int32)
        self.which: tuple[int, str] | None = None  # the transform that the engine does, and the mode of its images
        self.why = ""  # why it is given up
        self._kept: list[_watched.Note] = []  # what is too little to choose by

    def learn(self) -> None:
        """Learn from the notes, or raise Unknown."""
        noted = [*self._kept, *self.notes.read()]
        if not noted:
            return
        touched = any(touched for *_, touched in noted)
        if self.which is None:
            self._choose(noted)
        if self.which is None:
            return
        program = _watched.program_of(self.transforms[self.which[0]], self.which[1])
        if touched and program.random:
            raise Unknown(
                f"it reads or sets the state of torch's random numbers, and "
                f"{_plan.name_of(self.transforms[self.which[0]])} draws some"
            )
        for index, files, _ in noted:
            if 0 <= index < len(self.first) and self.first[index] < 0:
                self._add(index, [name for name, *which in files if tuple(which) == self.which])

    def _add(self, index: int, names: list[str]) -> None:
        self.first[index], self.count[index] = len(self.names), len(names)
        for name in names:
            self.names.append(name)

    def _choose(self, noted: list[_watched.Note]) -> None:
        """Choose the transform that most records give an image to."""
        calls = collections.Counter(call for _, files, _ in noted for call in {(which, m) for _, which, m in files})
        # Of an image and its mask, the image is chosen: its transform takes longer.
        which, n = max(calls.items(), key=lambda item: (item[1], item[0][1] == "RGB"), default=(None, 0))
        if (which is None or 2 * n < len(noted)) and len(noted) < min(_TRIED, len(self.first)):
            self._kept = noted
            return
        self._kept = []
        if which is None or 2 * n < len(noted):
            raise Unknown(
                f"{n:,} of {len(noted):,} records gave a JPEG file to one transform that the engine knows, as Pillow "
                "opens it or converted to RGB or L"
            )
        self.which = which

    def files(self, indices: Iterable[int]) -> list[range | None]:
        """Return which of the names each index opens, None if that is not known."""
        found: list[range | None] = []
        for i in indices:
            first = int(self.first[i]) if 0 <= i < len(self.first) else -1
            found.append(range(first, first + int(self.count[i])) if first >= 0 else None)
        return found


_STATES: weakref.WeakKeyDictionary[Any, State] = weakref.WeakKeyDictionary()


def _state_of(dataset: Any) -> State:
    """Return the knowledge about a dataset, or raise Unknown."""
    transforms = _candidates(dataset)
    try:
        found = _STATES.get(dataset)
    except TypeError:  # it has no hash, or no references that are weak
        return State(dataset, transforms)
    if found is None or not _fits(found, dataset, transforms):
        found = State(dataset, transforms)
        _STATES[dataset] = found
    return found


def _fits(state: State, dataset: Any, transforms: list[Any]) -> bool:
    same = len(transforms) == len(state.transforms) and all(map(_is, transforms, state.transforms))
    return same and len(dataset) == len(state.first)


def _is(a: Any, b: Any) -> bool:
    return a is b


def _candidates(dataset: Any) -> list[Any]:
    """Return the transforms that a dataset can use and the engine knows, or raise Unknown."""
    found: dict[int, Any] = {}
    why = ""
    all_at_hand = list(_at_hand(dataset, 0))
    # Its state may be set without the functions that are watched.
    generator = any(
        v is torch.default_generator or (isinstance(v, types.FunctionType) and _functions.names(v, _GENERATOR))
        for v in all_at_hand
    )
    for value in all_at_hand:
        if id(value) in found or not callable(value) or isinstance(value, _NO_TRANSFORMS):
            continue
        for mode in ("RGB", "L"):
            try:
                program = _watched.program_of(value, mode)
            except Unknown as reason:
                why = why or (str(reason) if _transforms.is_list(value) else "")
                continue
            if not program.random or not (why := _not_watched(program, generator)):
                found[id(value)] = value
    if not found:
        name = type(dataset).__qualname__
        raise Unknown(f"{name} has no transform at hand that the engine knows{': ' + why if why else ''}")
    return list(found.values())


def _not_watched(program: _transforms.Program, generator: bool) -> str:
    """Return why changes of a transform's random numbers cannot be detected, "" if they can."""
    if program.python:
        return "its transform draws Python's random numbers, which it may set"
    return f"it has {_GENERATOR}, whose random numbers its transform draws" if generator else ""


def _at_hand(value: Any, depth: int) -> Iterator[Any]:
    """Yield the objects that the code of a dataset, and of the datasets in it, can use."""
    if depth > DEEP:
        return
    values = [*getattr(value, "__dict__", {}).values()]
    for kind in type(value).__mro__:
        if kind.__module__.partition(".")[0] not in ("torch", "builtins", "typing"):
            values += [getattr(v, "__func__", v) for v in vars(kind).values()]
    for inner in values:
        if isinstance(inner, torch.utils.data.Dataset):
            yield from _at_hand(inner, depth + 1)
        elif isinstance(inner, list | tuple | dict):
            if len(inner) <= _FEW:
                for each in inner.values() if isinstance(inner, dict) else inner:
                    if isinstance(each, torch.utils.data.Dataset):
                        yield from _at_hand(each, depth + 1)
                    else:
                        yield each
        else:
            yield inner
            yield from _functions.named(inner)


class _Rows(Stream):
    """An engine whose places are rows. An item may have several rows, or none."""

    def __init__(self, config: dict[str, Any], *, shared: bool, each: int) -> None:
        super().__init__(config, shared=shared)
        self._each, self._end = each, -1

    def start(self, epoch: int) -> None:
        self._end = -1
        super().start(epoch)

    def add(self, records: Any, place: int) -> None:
        before = self._end if self._end >= 0 else place * self._each
        self._end = before + len(records)
        super().add(records, before)

    def forget(self, batches: int) -> None:
        self._end -= sum(len(records) for _, records in list(self._asked)[-batches:])
        super().forget(batches)

    def follow(self, other: Stream) -> None:
        super().follow(other)
        self._end = vars(other)["_end"]


class LearnedPlan(_plan.EnginePlan):
    """A loader of a dataset of the program's own."""

    def __init__(self, loader: Any) -> None:
        """See whether something may be learned of the dataset, or raise Unknown."""
        if loader.batch_sampler is None:
            raise Unknown("it has no batch sampler")
        _check(loader.dataset)
        self._prepare(loader)
        self.workers = int(loader.num_workers)
        self._batch = self._rows
        self._collate = _plan.name_of(loader.collate_fn)
        self._state = _state_of(loader.dataset)
        self._each = 1  # how many files a record has
        self._since = 0  # files that were changed later are Pillow's
        self._made_of = -1  # how many names the engine was told
        self._epochs = 0
        # Its own code reads each record, so the positions of the records are not known.
        data = _datasets.Data([], None, [type(loader.dataset).__name__], _nothing, [loader.dataset])
        self.found = _plan.Found(data, _transforms.Program(), None, "program")
        self._renew()
        if self._state.why:
            raise Unknown(self._state.why)

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """Whether the engine has nothing to make: the rows are not known yet, or the plan is given up."""
        return self._made_of <= 0 or bool(self._state.why)

    def fits(self, loader: Any) -> bool:
        """Report whether the dataset is unchanged since learning, and still behaves as learned."""
        if os.getpid() != self._pid:
            return False
        self._renew()
        if self._state.why:
            return False
        try:
            _check(loader.dataset)
            same = loader.dataset is self._dataset and _fits(self._state, loader.dataset, _candidates(loader.dataset))
            if same and not self.learns:
                same = self._program().key() == self.found.program.key()
        except Exception:  # plan() says why
            return False
        return same and self.workers == int(loader.num_workers)

    def _program(self) -> _transforms.Program:
        assert self._state.which is not None
        which, mode = self._state.which
        return _watched.program_of(self._state.transforms[which], mode)

    def _renew(self) -> None:
        """Learn from the notes and start engines for the learned files. Give up if that is not possible."""
        state = self._state
        if state.why:
            return
        try:
            if state.tally.wrong():
                given, answered = state.tally.sums()
                raise Unknown(
                    f"{given - answered:,} of {given:,} images came from other files than before, or went to something "
                    f"else than {_plan.name_of(self._transform())}"
                )
            state.learn()
            if len(state.names) > max(self._made_of, 0):
                self._tell()
        except Unknown as reason:
            state.why = str(reason)
        except Exception as error:  # a script that runs with torch must run on
            text = str(error).splitlines()
            state.why = f"it was not learned: {type(error).__name__}{': ' + text[0] if text else ''}"

    def _stream_of(self, config: dict[str, Any], *, shared: bool) -> Stream:
        return _Rows(config, shared=shared, each=self._each)

    @property
    def _mode(self) -> str:  # type: ignore[override]
        return "RGB" if self._state.which is None else self._state.which[1]

    def _transform(self) -> Any:
        assert self._state.which is not None
        return self._state.transforms[self._state.which[0]]

    def _tell(self) -> None:
        """Start an engine that reads the files known by now."""
        state = self._state
        self.close()
        self.found = _plan.Found(self.found.data, self._program(), None, "program")
        self.memory = _memory.list_of(state.names[i] for i in range(len(state.names)))
        self._source, self._field = self.memory.path, "image"
        self._each = int(state.count.max())
        self._rows = max(self._rows, self._batch * self._each)
        self._begin()
        self._made_of = len(state.names)
        # The device and the number of each file when the engine was asked for it.
        self._identities = np.zeros((self._made_of, 2), np.uint64)

    # --- stoker.torch._path.Plan -------------------------------------------

    def next_stream(self, stream: Any) -> Any:
        """Return the engine of the epoch that begins, None while Python makes it."""
        self._renew()
        self._since = time.time_ns() - _CLOCK
        if not self.learns:
            self._compare()
        if self.learns:
            if stream is not None:
                stream.close()
            return None
        if stream is not None and stream.config["source"] == self._source:
            return stream
        if stream is not None:
            stream.close()
        return self.stream()

    def moment(self, loader: Any) -> Any:
        """Return the current dataset: its own code makes each record, and worker processes have a copy."""
        return _moment.Moment(loader.dataset, loader)

    def iterate(self, loader: Any, seed: int, order: Iterator[Any], moment: Any = None) -> Iterator[Any]:
        """Return an iterator over the batches of an epoch in this process."""
        stream = self.next_stream(None)
        if stream is None:
            return _Watching(self, loader, order)
        self.give_back(stream)
        return _Epoch(self, loader, seed, order, moment or self.moment(loader))

    def numbers(self) -> Callable[[Any], Any]:
        """Return a function that lists a batch's records: None while the dataset is watched and once it is given up."""
        tally = self._state.tally

        def numbers(indices: Any) -> Any:
            if self.learns or tally.wrong():
                return None
            files = self._files(indices)
            records = [i for found in files for i in found or ()]
            if not records:
                return None
            stats = _memory.stats([self._state.names[i] for i in records])
            self._identities[records] = [(0, 0) if s is None else (s.st_dev, s.st_ino) for s in stats]
            return np.array(records, np.int64)

        return numbers

    def _files(self, indices: Any) -> list[range | None]:
        try:
            return self._state.files(map(operator.index, indices))
        except TypeError:
            return [None] * rows_of(indices)

    def beside(self, indices: list[Any]) -> dict[str, Any]:
        """Return the engine's results, and the names of the files of each item."""
        names, of = self._state.names, self._identities
        files = [
            None if found is None else [(names[i], int(of[i, 0]), int(of[i, 1])) for i in found]
            for found in self._files(indices)
        ]
        assert self._state.which is not None
        return {"foreseen": ((*self._state.which, self.found.program.key()), files, self._since)}

    @property
    def samples(self) -> _watched.Watched:
        """The maker of items, in any process."""
        state = self._state
        return _watched.Watched(self._dataset, state.transforms, state.notes, state.tally)

    def explain(self) -> Sequence[Row]:
        """Return the place where each part runs."""
        python = f"{self.workers} workers" if self.workers else "this process"
        name, state = self.found.data.names[0], self._state
        if self.learns:
            why = f"your code; Stoker learns which JPEG files each record of {name} opens"
            gain = "nothing to type: from the next epoch on the engine reads, decodes and transforms them"
            if state.why:
                why, gain = f"{name} is not known to the engine: {state.why}", Refusal.step
            return [Row("dataset", python, why, gain), Row("collate", python, self._collate, _NO_COLLATE)]
        known = int((state.first >= 0).sum())
        called = _plan.name_of(self._transform())
        rows = [
            Row("dataset", "engine", f"{name}: {known:,} of {len(state.first):,} records learned"),
            Row("order", "this process", "the sampler decides, as with torch"),
            *self._transform_rows(python),
            Row("__getitem__", python, f"your code; {called} returns what the engine has made", Refusal.step),
            Row("collate", python, self._collate, _NO_COLLATE),
            self._cache_row(),
            Row("check", "this process", f"{_COMPARED} records of each epoch are compared with Pillow"),
        ]
        given, answered = state.tally.sums()
        if answered < given:
            why = f"{given - answered:,} of {given:,} images were not given to {called}"
            rows.append(Row("other images", python, why, f"open JPEG files, and give each image to {called}"))
        return rows

    # --- the comparison ----------------------------------------------------

    def _compare(self) -> None:
        """Compare some records with the results of Pillow and the transform, and give up if they differ."""
        state, self._epochs = self._state, self._epochs + 1
        chosen = np.random.default_rng(self._epochs).choice(len(state.names), min(_COMPARED, len(state.names)), False)
        try:
            with _plan.random_numbers(0):  # some transforms draw, and use nothing of it
                why = self._difference([int(i) for i in chosen])
        except (Unknown, StokerError) as reason:
            why = str(reason).splitlines()[0]
        if why:
            state.why = f"the engine's images are not Pillow's: {why}"
            warn(f"{type(self._dataset).__name__}: {state.why}; it runs in Python from now on", RuntimeWarning)

    def _difference(self, chosen: list[int]) -> str:
        """Return the difference, if any. For random transforms only the parts without random numbers are compared."""
        from torchvision.transforms import CenterCrop, Compose

        mode = self._mode
        parts = _transforms.settled(self._transform(), 1 if mode == "L" else 3, self.found.program)
        if self.found.program.random:
            parts = [CenterCrop(_MIDDLE), *parts]
        transform = Compose(parts)
        program = _watched.program_of(transform, mode)
        stream = Stream(self._config(program) | {"batch_size": len(chosen)})
        try:
            stream.start(0)
            stream.ask(np.array(chosen, np.int64), 0)
            arrays, index, _ = stream.take()
            for row, number in enumerate(index.tolist()):
                if number < 0:
                    continue
                name = self._state.names[chosen[row]]
                try:
                    expected = self._expected(name, mode, transform)
                except Exception as error:
                    return f"{name}: {type(error).__name__}: {error}"
                got = _samples.value_of(arrays["image"][row].numpy(), program.state, False, None, True)
                if (why := _unlike(got, expected, program)) is not None:
                    return f"{name}: {why}"
        finally:
            stream.close()
        return ""

    def _expected(self, name: str, mode: str, transform: Any) -> Any:
        with _pending.open_image(name) as image:
            return transform(image.convert(mode))


def _unlike(got: Any, expected: Any, program: _transforms.Program) -> str | None:
    """Return the difference of two results if it is larger than allowed."""
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} {a.shape} and not {b.dtype} {b.shape}"
    resized = any(isinstance(op, st.Resize | st.RandomResizedCrop) for op in program.ops)
    allowed = (255 if a.dtype == np.uint8 else 1) * (_LEVEL if resized else _ROUNDED)
    for op in program.ops:
        if isinstance(op, st.Normalize):
            allowed /= float(np.abs(op.std).min())
    most = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())
    return f"values differ by up to {most:.3g}" if most > allowed else None


def _check(dataset: Any) -> None:
    """Raise Unknown unless a dataset makes items one by one, from images of the unmodified Pillow."""
    strange = torch.utils.data.IterableDataset | torch.utils.data.MapDataPipe
    if isinstance(dataset, strange) or not hasattr(type(dataset), "__len__"):
        raise Unknown(f"{type(dataset).__qualname__} is a DataPipe or has no length")
    inner = dataset
    while type(inner) is torch.utils.data.Subset:
        _library.check_class(torch.utils.data.Subset)
        inner = inner.dataset
    if getattr(inner, "__getitems__", None) is not None:
        raise Unknown(f"{type(inner).__qualname__} makes batches by a __getitems__ of its own")
    _pending.check()
    _datasets.check_pillow()
    _datasets.check_pixel_limit()


class _Watching:
    """The batches of an epoch that is watched, made in this process. An error ends one batch, as with torch."""

    def __init__(self, plan: LearnedPlan, loader: Any, order: Iterator[Any]) -> None:
        self._samples, self._loader, self._collate, self._order = plan.samples, loader, loader.collate_fn, order

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return _python(self._samples, self._loader, self._collate, list(next(self._order)))


def _python(samples: _watched.Watched, loader: Any, collate: Any, indices: list[Any]) -> Any:
    with samples.scope(None):
        batch = collate(samples.make(None, indices, _nothing, _nothing, copy=False))
    if loader.pin_memory and torch.accelerator.is_available() and getattr(loader, "_stoker_target", None) is None:
        return torch.utils.data._utils.pin_memory.pin_memory(batch)
    return batch


def _nothing(*_: Any) -> Any:
    return None


class _Epoch(_plan.Epoch):
    """The batches of an epoch that the engine has a part in, made in this process."""

    def _by_python(self, indices: list[Any], _place: int) -> Any:
        return _python(self._samples, self._loader, self._collate, indices)
