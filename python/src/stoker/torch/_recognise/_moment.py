"""The moment from which the parts of a record date: its path, its pixels, its target and its transforms.

torch's workers have a copy of the dataset from the time when the iterator was made, with everything that its functions
see. Without workers the dataset is read when a batch is requested. The engine reads files and pixels ahead. So with
workers an epoch has a copy of all records (``Frozen``). Without them each batch is compared with the current dataset
(``Live``). If the dataset has changed, the batch is discarded, and Python makes it.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import operator
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.utils.data

from ..._errors import warn
from .._path import start_method
from . import _datasets, _functions, _library, _memory, _proof, _samples, _settings, _transforms
from ._library import Unknown

if TYPE_CHECKING:
    from ._plan import EnginePlan, Found

# Types whose values cannot change.
_CONSTANT = (str, bytes, int, float, bool, type(None), *_memory._PATHS)
# Objects with memory that only one process has.
_PRIVATE = bytes | bytearray | None
# Says that files of a batch have changed since the engine was asked for them.
_CHANGED = object()
# After so many batches made for nothing, the engine builds no more ahead in this epoch.
_IN_VAIN = 4


def copied(value: Any) -> Any:
    """Return a copy that nothing that the program does later can change, or raise Unknown."""
    kind = type(value)
    if kind in _CONSTANT or isinstance(value, np.generic):
        return value
    if kind in (list, tuple):
        if _are_constant(value):
            return kind(value)
        return kind(map(copied, value))
    if kind is dict:
        return {copied(k): copied(v) for k, v in value.items()}
    if kind is torch.Tensor or (kind is np.ndarray and not value.dtype.hasobject):
        check_own(value)
        return value.detach().clone() if kind is torch.Tensor else value.copy()
    raise Unknown(f"its records have values of {kind.__name__}, of which workers have a copy")


def check_own(value: Any) -> None:
    """Raise Unknown if an array or a tensor is in memory that processes may share: workers have no copy of that."""
    inside = value
    while isinstance(inside, np.ndarray | memoryview) and not isinstance(inside, np.memmap):
        inside = inside.obj if isinstance(inside, memoryview) else inside.base  # None for memory of its own
    shared = inside.is_shared() if isinstance(inside, torch.Tensor) else not isinstance(inside, _PRIVATE)
    if shared and isinstance(value, np.ndarray | torch.Tensor):
        raise Unknown("it has an array or a tensor in memory that processes may share")


def _are_constant(values: Any) -> bool:
    """Whether all values are constants, or all are tuples of constants: quickly, as there may be millions."""
    kinds = set(map(type, values))
    if kinds == {tuple}:
        kinds = set(map(type, itertools.chain.from_iterable(values)))
    return kinds <= set(_CONSTANT)


def frozen(dataset: Any, data: _datasets.Data, memory: _memory.Memory) -> Any:
    """Return a copy of a dataset and of all its records; pixels are those that the engine has."""
    leaves = {id(leaf.dataset): leaf for leaf in data.leaves}
    pixels: dict[int, Any] = {}
    if data.leaves[0].paths is None:
        held = _memory.pixels_of(memory)
        for leaf, start in zip(data.leaves, data.starts.tolist(), strict=True):
            pixels[id(leaf.dataset)] = held[start : start + len(leaf)]
    return _frozen(dataset, leaves, pixels)


def _frozen(dataset: Any, leaves: dict[int, _datasets.Leaf], pixels: dict[int, Any]) -> Any:
    new = copy.copy(dataset)
    if type(dataset) is torch.utils.data.Subset:
        check_own(dataset.indices)
        new.dataset, new.indices = _frozen(dataset.dataset, leaves, pixels), [int(i) for i in dataset.indices]
        return new
    if type(dataset) is torch.utils.data.ConcatDataset:
        new.cumulative_sizes = list(dataset.cumulative_sizes)
        new.datasets = [_frozen(d, leaves, pixels) for d in dataset.datasets[: len(new.cumulative_sizes)]]
        return new
    leaf = leaves[id(dataset)]
    owner = new
    if leaf.owner is not dataset:
        owner = new.reader = copy.copy(leaf.owner)
    for name in leaf.attributes:
        now = getattr(leaf.owner, name)
        if id(dataset) in pixels and name == "data":
            check_own(now)
            setattr(owner, name, _like(now, pixels[id(dataset)]))
        else:
            setattr(owner, name, copied(now))
    for part in _transforms.parts_of(dataset.transform):
        for value in vars(part).values():
            check_own(value)
    try:
        new.transform = copy.deepcopy(dataset.transform)
    except Exception as error:
        raise Unknown(f"its transform cannot be copied: {error}") from None
    return new


def _like(data: Any, pixels: Any) -> Any:
    """Return pixels as a dataset holds them."""
    if isinstance(data, torch.Tensor):
        return torch.from_numpy(pixels)
    return pixels if data.shape == pixels.shape else pixels.transpose(0, 3, 1, 2)


class Moment:
    """The dataset of an epoch if Python makes its records from the engine's in another way."""

    off = False  # nothing is made ahead any more

    # Whether target_transform provably has no effects, so that it may be called again for the same record.
    pure = True

    def __init__(self, dataset: Any, loader: Any, names: list[Any] | None = None) -> None:
        """Take a dataset, the parts of a loader that make batches, and the files that the engine reads."""
        self._dataset, self._names = dataset, names
        self.collate = _library.collate_of(loader)

    @property
    def dataset(self) -> Any:
        """The maker of the records that the engine cannot make."""
        return self._dataset

    def asked(self, records: Any, ahead: bool) -> Any:
        """Return the data that ``where`` needs for a batch, at the time when the engine is asked for it.

        With ``ahead``, torch would not have read the sampler that far yet. It calls ``again`` at that time.
        """
        return self._stamps(records) if ahead and self._names is not None else None

    def again(self, records: Any, asked: Any) -> Any:
        """Return that data when torch gives a batch to a worker, which opens the files from then on."""
        return None if asked is None or self._stamps(records) == asked else _CHANGED

    def _stamps(self, records: Any) -> list[Any]:
        """Return values that change when a file of a batch is written again, or when its path leads to another one."""
        assert self._names is not None
        return [
            s and (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
            for s in _memory.stats([self._names[record] for record in records.tolist()])
        ]

    def then(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which Python makes records. It has the settings of libraries that torch would use."""
        return contextlib.nullcontext()

    def where(self, _indices: list[Any], _records: Any, asked: Any) -> Any:
        """Return the sources of a batch's records, None if the engine has used other ones."""
        return None if asked is _CHANGED else ()

    def seeded(self) -> bool:
        """Whether the program has set the random numbers that the transforms draw."""
        return False

    def targets(self, _where: Any) -> tuple[Any, int]:
        """Return the targets of a batch, up to the first record of another moment, and the number of all records.

        A target_transform may change the dataset in the middle of a batch. Whole numbers may be in an array.
        """
        return [], 0


class Frozen(Moment):
    """The records of an epoch with workers: those of its beginning."""

    def __init__(self, plan: EnginePlan, loader: Any) -> None:
        """Copy all records."""
        found: Found = plan.found
        self._memory, self.labels = plan.memory, found.labels
        check_device()
        _settings.check(start_method(loader))
        self._settings, self._proven, self._told = _settings.now(), _proof.proven(), False
        super().__init__(frozen(loader.dataset, found.data, plan.memory), loader, _memory.names_of(plan.memory))
        self._data = _datasets.recognise(self._dataset)
        self._moved = False
        # All targets, if torch's collate makes a tensor of them.
        self._numbers: Any = None
        if found.collate == "default" and self.labels is None:
            parts: list[Any] = [leaf.numbers() for leaf in self._data.leaves]
            self._numbers = None if any(part is None for part in parts) else np.concatenate(parts)

    @property
    def dataset(self) -> Any:
        """The frozen dataset. Its relative paths still lead to the files of that time."""
        was = self._memory.here
        if was is not None and not self._moved and _memory.here() != was:
            self._moved = True
            for leaf in self._data.leaves:
                _make_absolute(leaf, was[0])
        return self._dataset

    def then(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context with the settings of worker processes, which have started with the epoch."""
        if not self._told and not _proof.are_known(self._proven):
            self._told = True
            warn(
                "functions of torch, torchvision or Pillow were replaced during an epoch. Records that the engine "
                "cannot read are made with the new ones. Worker processes would use the old ones until the epoch ends. "
                "Replace them between two epochs",
                RuntimeWarning,
            )
        return self._settings.in_use()

    def where(self, _indices: list[Any], records: Any, asked: Any) -> Any:
        """Return the batch's records, None if the engine may have used files of another time."""
        return None if asked is _CHANGED else records

    def targets(self, where: Any) -> tuple[Any, int]:
        """Return the targets of a batch, from ``labels`` if that has the results of target_transform."""
        if self._numbers is not None:
            return self._numbers[where], len(where)
        starts, leaves = self._data.starts, self._data.leaves
        of = np.searchsorted(starts, where, "right") - 1
        found = [leaves[k].target(i) for k, i in zip(of.tolist(), (where - starts[of]).tolist(), strict=True)]
        return (found if self.labels is None else [self.labels[target] for target in found]), len(found)


def _make_absolute(leaf: _datasets.Leaf, here: str) -> None:
    name = leaf.attributes[0]
    held = getattr(leaf.owner, name)
    paths = [os.fspath(leaf.paths(item)) for item in held] if leaf.paths is not None else []
    new = _memory.absolute(paths, here)
    if name == "_image_files":
        setattr(leaf.owner, name, [Path(p) for p in new])
    else:
        setattr(leaf.owner, name, [(p, *item[1:]) for p, item in zip(new, held, strict=True)])


class Live(Moment):
    """The records of an epoch without workers: those that the dataset has when a batch is asked for."""

    def __init__(self, plan: EnginePlan, loader: Any) -> None:
        """Remember the settings of the engine."""
        super().__init__(loader.dataset, loader, plan.memory.names)
        self._plan, self._loader = plan, loader
        self._here = plan.memory.here
        self._pixels = None
        if plan.found.data.leaves[0].paths is None and self._names is None:
            self._pixels = _memory.pixels_of(plan.memory)
        self._vain = 0
        self._seed = _samples.Seed() if plan.found.program.random else None
        self._remember(plan.found)

    def _remember(self, found: Found) -> None:
        self._found = found
        self._libraries = _proof.watch()
        self._reading = self._settings_of_reading()
        self._still = _samples.Still(found.data.parts, found.transforms, len(found.program.rest))
        change = found.target_transform
        self.pure = change is None or _functions.leaves_nothing(change, lambda _: False)

    def asked(self, records: Any, _ahead: bool) -> Any:
        """Read the state of a batch's files; ``where`` reads it again."""
        return None if self._names is None else self._stamps(records)

    def again(self, _records: Any, asked: Any) -> Any:
        """Do nothing: torch reads the files when the loop asks for the batch."""
        return asked

    def seeded(self) -> bool:
        """Compare the seed with that of the epoch's beginning."""
        return self._seed is not None and self._seed.is_set()

    def where(self, indices: list[Any], records: Any, asked: Any) -> Any:
        """Return the sources of a batch's records, None if the engine has used other ones."""
        if self.seeded() or not self._is_like_before():
            self.off = True
            return None
        found = self._located(indices, records, asked)
        if found is None:
            self._vain += 1
            self.off = self._vain >= _IN_VAIN
        return found

    def _is_like_before(self) -> bool:
        """Whether the dataset, its transforms and all around are those that the engine knows."""
        try:
            if self._here is not None and _memory.here() != self._here:
                return False
            if not self._still.transforms():
                return False
            _proof.check_settings()
            if self._still.parts() and self._reading == self._settings_of_reading() and self._libraries():
                return True
            now = self._plan.like(self._loader)
        except Exception:  # whatever it is now, only Python can make it
            return False
        if now is not None:
            self._remember(now)
        return now is not None

    def _settings_of_reading(self) -> Any:
        """Return the libraries' settings for opening files, None if the engine reads none."""
        return None if self._names is None else _settings.now()

    def _located(self, indices: list[Any], records: Any, asked: Any) -> Any:
        """Return the batch's leaves and the rows in them: one of each, or lists if the dataset has several leaves."""
        names, data = self._names, self._found.data
        try:
            if data.records is None:
                leaf, rows = data.leaves[0], list(map(operator.index, indices))
                where: Any = leaf, rows
                groups = [(leaf, rows, records)]
            else:
                where = [data.at(index) for index in indices]
                leaves = {id(leaf): leaf for leaf, _ in where}.values()
                groups = [
                    (leaf, [i for of, i in where if of is leaf], records[[of is leaf for of, _ in where]])
                    for leaf in leaves
                ]
            if names is not None:
                for leaf, rows, of in groups:
                    if leaf.attributes and leaf.paths_at(rows) != [names[record] for record in of.tolist()]:
                        return None
                if self._stamps(records) != asked:
                    return None
            elif self._pixels is not None and not all(
                _memory.are_rows(leaf.pixels, rows, self._pixels, of) for leaf, rows, of in groups
            ):
                return None
        except Exception:  # torch's own error comes when Python makes the batch
            return None
        return where

    def targets(self, where: Any) -> tuple[list[Any], int]:
        """Return the targets of a batch, up to the first record of another moment, and the number of all records."""
        out: list[Any] = []
        if isinstance(where, tuple):
            leaf, rows = where
            if leaf.dataset.target_transform is None:
                return leaf.targets_at(rows), len(rows)
            where = [(leaf, i) for i in rows]
        for leaf, i in where:
            if out and not self.pure and (self.seeded() or not self._still()):
                self.off = True
                break
            target, change = leaf.target(i), leaf.dataset.target_transform
            out.append(target if change is None else change(target))
        return out, len(where)


def check_device() -> None:
    """Raise Unknown if labels would be on another device: torch's workers would make them there."""
    if any(getattr(mode, "device", None) != torch.device("cpu") for mode in _proof.modes()):
        raise Unknown("a default device is set")
