"""The plan of a loader that the engine runs."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils.data

from ..._distributed import local_world_size
from ..._errors import StokerError, warn
from ..._groups import Cache
from .._path import Row, start_method
from .._split import rows_of
from . import _datasets, _functions, _library, _memory, _moment, _order, _proof, _transforms, _trial
from ._library import Unknown
from ._samples import Samples
from ._stream import Records, Stream

# The assumed batch size of the user's batch samplers. They give the size only with each batch, and the engine needs it
# before.
_GUESS = 64
# The number of records requested ahead, beyond those that fit the engine.
_AHEAD = 8192
# Loaders without workers in whose epochs the program has set the random numbers that the transforms draw.
_SEEDED: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass(frozen=True)
class Found:
    """The recognised parts of a loader, to compare with the loader's later state."""

    data: _datasets.Data
    program: _transforms.Program
    target_transform: Any
    collate: str  # "default", "timm", or "program": a function of the program's
    # With workers: the results of target_transform for all targets, None if there is none, or it has to be called.
    labels: dict[Any, Any] | None = None
    calls: bool = False  # it has to be called, in workers

    @property
    def split(self) -> bool:
        """Whether Python has something to do with each record."""
        return bool(self.program.rest) or self.collate == "program" or self.calls

    @property
    def transforms(self) -> list[Any]:
        """The transforms that the engine runs, or whose beginning it runs."""
        return list({id(leaf.dataset.transform): leaf.dataset.transform for leaf in self.data.leaves}.values())


def find(loader: Any) -> Found:
    """Recognise the parts of a loader, or raise Unknown."""
    if isinstance(loader.dataset, torch.utils.data.IterableDataset) or loader.batch_sampler is None:
        raise Unknown("it has no batch sampler")
    collate = _collate(loader)
    _library.check_init(loader)
    data = _datasets.recognise(loader.dataset)
    programs = []
    for leaf in data.leaves:
        if leaf.dataset.transform is None:
            raise Unknown(
                "there is no transform: it gives pictures and no tensors",
                "transform=v2.Compose([v2.Resize((height, width)), v2.PILToTensor()])",
            )
        # Of pixels in memory the beginning takes no time that would pay for handing them on.
        files, own = leaf.paths is not None, collate == "program"
        programs.append(
            _transforms.recognise(leaf.dataset.transform, leaf.channels, split=files, pictures=files and own)
        )
    program = programs[0]
    targets = {id(leaf.dataset.target_transform) for leaf in data.leaves}
    rests = {tuple(map(id, p.rest)) for p in programs}
    if len({p.key() for p in programs}) > 1 or len(targets) > 1 or len(rests) > 1:
        raise Unknown("the datasets of a ConcatDataset have different transforms")
    if not len(data):
        raise Unknown("it has no records")
    if collate == "timm" and not program.rest and program.state not in (_transforms.BYTES, _transforms.ARRAY):
        raise Unknown(f"timm's fast_collate of a {program.state}, which it makes bytes of")
    if collate == "program" and program.wrapped is None:
        raise Unknown("collate_fn may get tensors of another class than torch's")
    change = data.leaves[0].dataset.target_transform
    check_seeds(loader, program, (*program.rest, change, loader.collate_fn))
    if change is None or loader.num_workers == 0:
        return Found(data, program, change, collate)
    # Workers that are not forked import the program's modules again. The values in them may differ from those here.
    labels = _labels(data, change) if start_method(loader) == "fork" else None
    return Found(data, program, change, collate, labels, labels is None)


def check_seeds(loader: Any, program: _transforms.Program, functions: Sequence[Any] = ()) -> None:
    """Raise Unknown when the program may set the random numbers that the engine's transforms would draw.

    Functions that set torch's without naming it are detected when they run.
    """
    if not program.random:
        return
    _library.check_seeds(loader, python=program.python)
    for function in functions:
        if _library.is_own(function) and _functions.may_seed(function):
            raise Unknown(f"{name_of(function)} may set the random numbers that the transforms draw")
    if loader.num_workers == 0 and loader in _SEEDED:
        raise Unknown("torch's random numbers were set during an epoch, and the transforms draw them")


def _labels(data: _datasets.Data, change: Any) -> dict[Any, Any] | None:
    """Return the results of target_transform for all targets, None if it must be called in each worker.

    It may be called here, and once for equal targets, if it provably has no side effects.
    """
    if not _functions.leaves_nothing(change, lambda _: False):
        return None
    try:
        targets = {leaf.target(i) for leaf in data.leaves for i in range(len(leaf))}
        if len({type(t) for t in targets}) != 1 or type(next(iter(targets))) not in (int, str):
            return None
        return {target: change(target) for target in targets}
    except Exception:  # which comes again where the target does
        return None


def _collate(loader: Any) -> str:
    """Return which kind of collate a loader has, or raise Unknown."""
    default, timm = _proof.COLLATES
    if _proof.is_known(loader.collate_fn, timm):
        return "timm"
    # With an own default_collate_fn_map it is a function like any other.
    return "default" if _proof.is_known(loader.collate_fn, default) else "program"


class EnginePlan:
    """A loader whose batches the engine makes. stoker.torch._path.Plan documents its methods."""

    # Whether Python still makes all batches, from which the plan learns.
    learns = False
    # The mode of the images that the transforms get.
    _mode = "RGB"

    def __init__(self, loader: Any) -> None:
        """Recognise the loader and start the engine, or raise Unknown."""
        self._prepare(loader)
        self.found = self._find(loader)
        self.memory, self._source, self._field = self._hold()
        # Worker processes read the ring, and each may hold a batch.
        self.workers = int(loader.num_workers) if self.found.split else 0
        self._begin()
        self._begun = self._moment(loader)

    def _prepare(self, loader: Any) -> None:
        """Take the parts of the loader that do not depend on the way in which it is recognised."""
        self._pid = os.getpid()
        self._dataset, self._alone = loader.dataset, loader.num_workers == 0
        # Under `stoker run` it is a loader of torch's class, which has no such argument.
        self._caching = getattr(loader, "_stoker_cache", None) or Cache().to_config()
        rows = getattr(loader.batch_sampler, "batch_size", None)
        self._rows = rows if isinstance(rows, int) and not isinstance(rows, bool) and rows > 0 else _GUESS
        self._too_many = sys.maxsize  # rows that an engine has no memory for
        self._idle: list[Stream] = []
        self._cache_note = ""
        self.images = 0
        self.by_python = 0
        self.foresees = True  # until a batch was another one than the sampler's list said

    def _begin(self) -> None:
        """Start the first engine, or raise Unknown."""
        try:
            stream = self._new_stream()
        except StokerError as error:
            raise Unknown(f"the engine refuses it: {str(error).splitlines()[0]}") from None
        self._idle.append(stream)
        self._try(stream)
        self._cache_note = str(stream.info.get("cache_note", ""))
        if self._cache_note:
            warn(self._cache_note, RuntimeWarning)

    def _find(self, loader: Any) -> Found:
        return find(loader)

    def _try(self, stream: Stream) -> None:
        """Raise Unknown unless Python and the engine give the same result for one picture."""
        leaves, program = self.found.data.leaves, self.found.program
        held = leaves[0].held if leaves and leaves[0].paths is None else None
        shape = next(spec.shape for spec in stream.specs if spec.name == "image")
        try:
            with random_numbers(0):
                _trial.check(self._transform(), program, held, shape, self._mode)
        except Unknown:
            self.close()
            raise

    def _transform(self) -> Any:
        return self.found.data.leaves[0].dataset.transform

    def _hold(self) -> tuple[_memory.Memory, str, str]:
        """Return the engine's input, its source URL, and the field in it."""
        leaves = self.found.data.leaves
        paths = _datasets.paths_of(self.found.data)
        if paths is not None:
            memory = _memory.list_of(paths)
            return memory, memory.path, "image"
        memory = _memory.array_of([leaf.held for leaf in leaves])
        return memory, f"npy:{memory.path}", str(memory.fd)

    def _new_stream(self) -> Stream:
        self._opened, self._stale = time.time_ns(), False
        stream = self._stream_of(self._config(), shared=self.workers > 0)
        if stream.slots <= self.workers:
            with contextlib.suppress(StokerError):  # there is no memory for so many: workers wait for each other
                more = self._stream_of(self._config() | {"prefetch": self.workers}, shared=True)
                stream.close()
                stream = more
        return stream

    def _stream_of(self, config: dict[str, Any], *, shared: bool) -> Stream:
        return Stream(config, shared=shared)

    def _config(self, program: _transforms.Program | None = None) -> dict[str, Any]:
        program = program or self.found.program
        ops = [op.to_config() for op in program.ops]
        layout = "NHWC" if program.state == _transforms.PICTURE else "NCHW"
        output = {"name": "image", "field": self._field, "ops": ops, "layout": layout}
        if program.mode != "RGB":
            output["mode"] = program.mode
        return {
            "source": self._source,
            "order": "client",
            "on_error": "mark",
            "batch_size": self._rows,
            "seed": 0,
            "local_world_size": local_world_size(),
            "layout": layout,
            "outputs": [output],
            **self._caching,
        }

    def stream(self) -> Stream:
        """Return an idle engine. It is a new one if files were written again since the engines read them."""
        stale, self._stale = self._stale, False
        while self._idle:
            stream = self._idle.pop()
            same = stream.config["source"] == self._source and not stale
            if same and stream.config["batch_size"] >= self._rows:
                return stream
            stream.close()
        return self._new_stream()

    def next_stream(self, stream: Stream | None) -> Stream | None:
        """Return the engine of the next epoch, after one that had this engine; None: Python makes the epoch."""
        return stream or self.stream()

    def beside(self, indices: list[Any]) -> dict[str, Any]:
        """Return the other data, without the engine's arrays, for the makers of a batch's samples."""
        return {}

    def _cache_row(self) -> Row:
        kept = self._caching
        if kept["cache"] == "off":
            return Row("cache", "-", "it is off", "cache=True: later epochs decode several times as fast")
        if self._cache_note:
            return Row("cache", "-", self._cache_note)
        where = kept["cache_dir"] or "the user's cache folder"
        return Row("cache", "engine", f"JPEG files are cached for later epochs in {where}")

    def refused(self, record: int) -> None:
        """Note that the engine has refused a record, which may mean that the file has changed."""
        if self.memory.names is not None:
            with contextlib.suppress(OSError):
                changed = os.stat(self.memory.names[record]).st_ctime_ns  # noqa: PTH116 - as _moment does
                self._stale = self._stale or changed > self._opened

    def give_back(self, stream: Stream) -> None:
        """Take an engine back."""
        self._idle.append(stream)

    def roomy(self, stream: Stream, rows: int) -> Stream | None:
        """Return an engine for batches of so many rows that continues this one's work; None if it has no memory."""
        if rows <= stream.config["batch_size"]:
            return stream
        if rows >= self._too_many:
            return None
        before, self._rows = self._rows, rows + rows // 4  # the next one may be larger again
        try:
            larger = self._new_stream()
        except StokerError:
            self._too_many, self._rows = rows, before
            return None
        larger.follow(stream)
        return larger

    # --- stoker.torch._path.Plan -------------------------------------------

    def fits(self, loader: Any) -> bool:
        """Report whether the loader still matches the plan."""
        if os.getpid() != self._pid:
            return False
        try:
            now = self.like(loader)
            if now is None or not self._holds(now):
                return False
            self.found, self._alone = now, loader.num_workers == 0
            self._begun = self._moment(loader)
        except Exception:  # plan() says why
            return False
        return True

    def like(self, loader: Any) -> Found | None:
        """Return the loader's current parts, None if the engine would make other batches, or raise Unknown."""
        now, before = self._find(loader), self.found
        same = now.program.key() == before.program.key() and now.collate == before.collate and now.split == before.split
        return now if same and len(now.data.leaves) == len(before.data.leaves) else None

    def _holds(self, now: Found) -> bool:
        """Whether the engine was given all files or pixels of a loader, in their order."""
        memory, leaves = self.memory, now.data.leaves
        if not _equal(now.data.records, self.found.data.records):
            return False
        paths = _datasets.paths_of(now.data)
        if paths is None:
            return _memory.is_array_of(memory, [leaf.held for leaf in leaves])
        return paths == memory.names and (memory.here is None or memory.here == _memory.here())

    def _moment(self, loader: Any) -> _moment.Moment | None:
        """Return the data that an epoch beginning now reads of the dataset, or raise Unknown."""
        if loader.num_workers == 0:
            return _moment.Live(self, loader)
        return None if self.found.split else _moment.Frozen(self, loader)  # worker processes have a copy

    def moment(self, _loader: Any) -> Any:
        """Return the data that an epoch beginning now reads of the dataset."""
        moment, self._begun = self._begun, None
        return moment

    def iterate(self, loader: Any, seed: int, order: Iterator[Any], moment: Any = None) -> Iterator[Any]:
        """Return an iterator over the batches of an epoch."""
        return Epoch(self, loader, seed, order, moment or self._moment(loader))

    def close(self) -> None:
        """End the engines."""
        while self._idle:
            self._idle.pop().close()

    def numbers(self) -> Callable[[Any], Records | None]:
        """Return a function that lists a batch's records, now and while it is held."""
        return self.found.data.numbers

    @property
    def samples(self) -> Any:
        """The maker of samples from the engine's batches, if Python handles each record, such as Samples."""
        found = self.found
        if not found.split:
            return None
        program = found.program
        wrapped, names = bool(program.wrapped), self.memory.names
        return Samples(self._dataset, program.rest, program.state, wrapped, program.random, found.data, names)

    @property
    def here(self) -> Any:
        """The maker of samples for this process."""
        return self.samples

    def explain(self) -> Sequence[Row]:
        """Return the place where each part runs."""
        found, program = self.found, self.found.program
        python = f"{self.workers} workers" if self.workers else "this process"
        rows = [
            Row("dataset", "engine", f"{' of '.join(found.data.names)}: {len(found.data):,} records"),
            Row("order", "this process", "the sampler decides, as with torch"),
            *self._transform_rows(python),
        ]
        if found.target_transform is not None:
            often, change = "once for each label", ""
            if found.labels is None:
                often = "for each record"
                change = "target_transform=None, and targets = table[targets] in the loop: one call for each batch"
            rows.append(Row("target_transform", python, f"your function, called {often}", change))
        if found.collate == "program":
            rows.append(Row("collate", python, "your function", "collate_fn=None: the engine stacks batches"))
        elif found.split:
            gain = "" if found.calls and not program.rest else "the engine stacks batches if it runs all transforms"
            rows.append(Row("collate", python, _COLLATES[found.collate][1].partition(":")[0], gain))
        else:
            rows.append(Row("collate", *_COLLATES[found.collate]))
        if found.data.leaves[0].paths is not None:
            rows.append(self._cache_row())
        return rows + self._bad()

    def _transform_rows(self, python: str) -> list[Row]:
        """Return the place where each transform runs."""
        program = self.found.program
        names, gain = ", ".join(program.names) or "as they are stored", ""
        if program.random and self._alone:
            names += "; random numbers are the engine's, your generators do not advance"
            gain = "generator=torch.Generator(): the order stays torch's"
        rows = [Row("transform", "engine", names, gain)]
        if program.rest:
            first = name_of(program.rest[0])
            why = f"split before {first}: {program.why}"
            if len(program.rest) > 1:
                why += f"; {', '.join(map(name_of, program.rest))}"
            step = program.step or f"put crops and flips before {first}; without {first} the engine runs more"
            rows.append(Row("transform", python, why, step))
        return rows

    def _bad(self) -> list[Row]:
        if not self.by_python:
            return []
        why = f"{self.by_python:,} of {self.images:,} images, which the engine did not make"
        step = 'image.convert("RGB").save(path) of files that only Pillow reads'
        return [Row("other images", "this process", why, step)]


_COLLATES = {
    "default": ("engine", "default_collate: batches are made in shared memory"),
    "timm": ("engine", "fast_collate: batches are made in shared memory"),
}


def name_of(part: Any) -> str:
    """Return the name of a transform or a function in ``explain()``."""
    return str(getattr(part, "__qualname__", type(part).__name__)).rpartition("<locals>.")[2]


def _equal(a: Records | None, b: Records | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b)


class Epoch(_order.Epoch):
    """The batches of one epoch that the engine makes."""

    def __init__(self, plan: EnginePlan, loader: Any, seed: int, order: Iterator[Any], moment: Any) -> None:
        """Begin an epoch. With workers, torch reads the sampler from here on; without, at the first batch."""
        super().__init__(loader, order)
        self._plan, self._loader, self._moment = plan, loader, moment
        self._collate = moment.collate
        self._replaces = any(leaf.replaces for leaf in plan.found.data.leaves)
        self._numbers, self._samples = plan.numbers(), plan.here
        self._apart = loader.num_workers > 0
        self._seed = seed
        # Batches that the engine was asked for before they were read.
        self._foreseen: collections.deque[tuple[list[Any], Records, Any]] = collections.deque()
        self._next = self._behind = 0  # the places of the next batch that is read, and of the next one to foresee
        self._stream: Stream | None = plan.stream()
        self._stream.start(seed)
        ahead = -(-_AHEAD // int(self._stream.config["batch_size"]))
        # The engine is asked for several batches in one message.
        self._window, self._together = self._stream.slots + ahead, max(1, ahead // 8)
        # Batches for a device are copied out of the ring, which is registered.
        moves = getattr(loader, "_stoker_target", None) is not None
        self._pins = bool(loader.pin_memory) and torch.accelerator.is_available() and not moves
        self._begin()

    @property
    def connection(self) -> Any:
        """The connection of the engine whose ring holds the batches."""
        return None if self._stream is None else self._stream.connection

    def _ask(self, batch: Any) -> tuple[list[Any], Records | None, Any, int]:
        """Ask for a batch, which may be foreseen, and for those that are known before the sampler returns them."""
        try:
            indices = list(batch)
        except TypeError:  # a slice, for example, which is for the dataset to take or to refuse
            return batch, None, None, self._next
        place = self._next or _order.skipped(self._order)
        self._next = place + len(indices)
        if self._moment.off:
            return indices, None, None, place
        if self._foreseen and self._foreseen[0][0] == indices:
            records: Records | None
            _, records, asked = self._foreseen.popleft()
            asked = self._moment.again(records, asked)
        else:
            if self._foreseen and self._stream is not None:
                self._stream.forget(len(self._foreseen))
                self._foreseen.clear()
                self._plan.foresees = False
            records, asked = self._records(indices), None
            if records is not None and self._stream is not None:
                asked = self._add(records, place, ahead=False)
                self._stream.send()
        if self._plan.foresees:
            self._foresee(indices)
        return indices, records, asked, place

    def _foresee(self, indices: list[Any]) -> None:
        """Ask for batches after the last one read, as far as they are drawn."""
        if not self._foreseen:
            self._drawn = _order.drawn(self._loader, self._order, len(indices), self._next)
            self._behind = self._next
        missing = self._window - len(self._waiting) - len(self._foreseen)
        if missing < self._together or self._stream is None:
            return
        for _ in range(missing):
            batch = next(self._drawn, None)
            records = None if batch is None else self._records(batch)
            if batch is None or records is None:
                self._drawn = iter(())
                break
            self._foreseen.append((batch, records, self._add(records, self._behind, ahead=True)))
            self._behind += len(batch)
        self._stream.send()

    def _add(self, records: Records, place: int, *, ahead: bool) -> Any:
        """Add a batch to those that the engine is asked for next, and return the data on it that the moment needs."""
        asked = self._moment.asked(records, ahead)
        if self._stream is not None:
            self._stream.add(records, place)
        return asked

    def _records(self, indices: list[Any]) -> Records | None:
        """Return which records of the engine's a batch has, None if the engine cannot make the batch."""
        records = self._numbers(indices)
        if records is None or self._stream is None:
            return None
        stream = self._plan.roomy(self._stream, len(records))
        if stream is None:
            return None
        self._stream = stream
        return records

    def __next__(self) -> Any:
        if self._stream is None:
            raise StopIteration
        if os.getpid() != self._plan._pid:
            self._moment.off = True  # the engine answers the process that has forked this one
        return super().__next__()

    def _make(self, asked: tuple[list[Any], Records | None, Any, int]) -> Any:
        indices, records, known, place = asked
        self._plan.images += rows_of(indices)
        if records is None or self._stream is None or self._moment.off:
            return self._by_python(indices, place)
        arrays, index, _ = self._stream.take()
        where = self._moment.where(indices, records, known)
        if where is None:
            return self._by_python(indices, place)
        images = arrays["image"]
        if self._samples is not None:
            return self._pinned(self._of_samples(self._samples, images, index, indices, place))
        if images.dim() == 3:
            images = images.unsqueeze(1)
        bad = np.flatnonzero(index < 0)
        if len(bad):
            self._plan.refused(int(records[bad[0]]))
        if len(bad) and (self._replaces or not self._moment.pure or not self._repair(images, indices, bad, place)):
            return self._by_python(indices, place)
        targets, rows = self._moment.targets(where)
        if len(targets) < rows:
            return self._divided(images, targets, indices, place)
        return self._pinned(self._collated(images, targets))

    def _divided(self, images: torch.Tensor, targets: list[Any], indices: list[Any], place: int) -> Any:
        """Return a batch whose first records were made before the program changed the dataset."""
        with self._as_torch(place):
            rest = [self._moment.dataset[i] for i in indices[len(targets) :]]
        self._plan.by_python += len(rest)
        rows = [row.numpy() if self._plan.found.collate == "timm" else row for row in images]
        return self._pinned(self._collate([*zip(rows, targets, strict=False), *rest]))

    def _collated(self, images: torch.Tensor, targets: Any) -> Any:
        if self._apart and _proof.modes():  # that torch's workers do not have
            with _proof.without_modes():
                return self._collated_here(images, targets)
        return self._collated_here(images, targets)

    def _collated_here(self, images: torch.Tensor, targets: Any) -> Any:
        kind = self._plan.found.collate
        if isinstance(targets, np.ndarray):
            return [images, torch.from_numpy(targets)]
        if kind == "default":
            return [images, self._collate(tuple(targets))]  # texts are returned as the tuple that they come in
        # timm's collate decides the form of the targets.
        stub = torch.zeros(1, dtype=torch.uint8)
        return images, self._collate([(stub, target) for target in targets])[1]

    def _of_samples(self, samples: Any, images: torch.Tensor, index: Records, indices: list[Any], place: int) -> Any:
        """Return a batch that Python makes from the engine's, in this process."""
        made = {"image": images.numpy(), "index": index, **self._plan.beside(indices)}
        with samples.scope(made):
            return self._collate(self._made(samples, made, indices, place))

    def _made(self, samples: Samples, made: dict[str, Any], indices: list[Any], place: int) -> Any:
        """Return the input of the collate, made in this process."""
        row = 0

        def at(now: int, _: Any) -> None:
            nonlocal row
            row = now

        def anew(record: Any) -> Any:
            self._plan.by_python += 1
            with self._as_torch(place + row):
                return self._moment.dataset[record]

        return samples.make(made, indices, at, anew, copy=False)

    def _repair(self, images: torch.Tensor, indices: list[Any], rows: Any, place: int) -> bool:
        """Fill the rows that the engine could not make as the dataset does; False when they do not fit the others."""
        for row in rows.tolist():
            self._plan.by_python += 1
            with self._as_torch(place + row):
                image = self._moment.dataset[indices[row]][0]
            if image.shape != images.shape[1:] or image.dtype != images.dtype:
                return False
            images[row].copy_(image)
        return True

    def _by_python(self, indices: list[Any], place: int) -> Any:
        """Make a batch as torch does, in this process."""
        self._plan.by_python += rows_of(indices)
        dataset = self._moment.dataset
        with self._as_torch(place):
            together = getattr(dataset, "__getitems__", None)
            return self._pinned(self._collate(together(indices) if together else [dataset[i] for i in indices]))

    @contextlib.contextmanager
    def _as_torch(self, place: int) -> Iterator[None]:
        """Let Python make records with the settings and random numbers that they have with torch."""
        with self._moment.then(), self._numbers_for(place):
            yield

    def _numbers_for(self, place: int) -> Any:
        """Return the context for the random numbers with which Python makes records.

        They draw from the program's random numbers if torch's records would, and if the engine's take none of them.
        """
        if self._moment.seeded():
            _SEEDED.add(self._loader)
        elif self._apart or self._plan.found.program.random:
            return random_numbers(self._seed + place)
        return contextlib.nullcontext()

    def _pinned(self, batch: Any) -> Any:
        return torch.utils.data._utils.pin_memory.pin_memory(batch) if self._pins else batch

    def close(self) -> None:
        """End the epoch; its engine can make the next one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._waiting.clear()
            self._plan.give_back(stream)


@contextlib.contextmanager
def random_numbers(seed: int) -> Iterator[None]:
    """Let transforms draw random numbers of their own, as in a worker, and leave the program's alone."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        torch.manual_seed(seed)
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


def everything() -> list[str]:
    """Return all names that the recogniser starts a proof at."""
    return [
        *_proof.PILLOW, *_proof.LOADERS, *_proof.COLLATES, *_proof.FETCHERS, *_proof.SEQUENCES, *_proof.DATASETS,
        *_proof.TABLES, *_proof.FORMATTERS.values(), *_proof.EXAMPLES, *_transforms._KNOWN, *_transforms._CONTAINERS,
        *_datasets._KNOWN, *_datasets.READERS,
    ]  # fmt: skip
