"""Batches of a DataLoader on an accelerator, one ahead of the loop."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from .._device import Device, Feeder, Pending, Work, wanted, work_on
from .._errors import ConfigError
from .._fused import OnDevice
from .._process import when_forgotten

# Batches that are on their way to the device before they are asked for.
_AHEAD = 1


class Target:
    """The device of a DataLoader's batches, and the operations on it."""

    def __init__(self, device: Device, on_device: OnDevice | None) -> None:
        if on_device is not None and on_device.mixup and on_device.num_classes is None:
            raise ConfigError("OnDevice(mixup=...): a DataLoader does not know its classes; set num_classes=")
        self.feeder = Feeder(device)
        self.on_device = on_device
        # How often each iterator was begun: persistent workers keep theirs, with its seed.
        self.passes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        when_forgotten(self, self.feeder.close)

    @classmethod
    def of(cls, device: Any) -> Target | None:
        """Return the target of a loader, None if its batches are not copied."""
        found = wanted(device)
        return None if found is None else cls(found, work_on(device))

    def begin(self, batch: Any, seed: int, epoch: int, step: int) -> Pending:
        """Begin to copy a batch with tensors in any structure."""
        tensors: list[torch.Tensor] = []
        _collect(batch, tensors)
        of = self.on_device
        work = None if of is None else self._work(of, batch, tensors, (seed, epoch, step))
        return self.feeder.begin(batch, tensors, lambda copies: _rebuild(batch, iter(copies)), work)

    def _work(self, of: OnDevice, batch: Any, tensors: list[torch.Tensor], place: tuple[int, int, int]) -> Work:
        images = [_place(batch, tensors, name) for name in of.images or ()] or [_first(tensors, 4)]
        label = -1
        if of.mixup:
            label = _first(tensors, 1) if of.labels is None else _place(batch, tensors, of.labels)
        # There are no numbers of records here: a row is known by its place in the epoch.
        draw = of.draw(*place, (place[2] << 32) + np.arange(len(tensors[images[0]])))

        def work(copies: list[Any]) -> list[Any]:
            out = list(copies)
            for at in images:
                out[at] = of.apply(copies[at], draw)
            if label >= 0:
                out[label] = of.soft(copies[label], draw.share, of.num_classes or 0)
            return out

        return work


class DeviceIterator:
    """torch's iterator over an epoch, with batches on a device."""

    def __init__(self, target: Target, inner: Any, begun: int) -> None:
        """Begin an epoch, of which ``begun`` batches were skipped."""
        self._target, self._inner = target, inner
        self._seed = int(getattr(inner, "_base_seed", 0) or 0)
        self._epoch = target.passes[inner] = target.passes.get(inner, -1) + 1
        self._ahead: collections.deque[Pending] = collections.deque()
        self._begun = begun
        # In this process datasets draw from the loop's random numbers, so that batches are built only when requested.
        self._most = 0 if isinstance(inner, _SingleProcessDataLoaderIter) else _AHEAD
        self._end: BaseException | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._inner, name)

    def _fetch(self) -> None:
        try:
            batch = next(self._inner)
        except BaseException as end:  # behind what was made before it
            self._end = end
            return
        # An engine's ring is registered when it is seen first; it may be another one than before.
        connection = getattr(getattr(self._inner, "_batches", None), "connection", None)
        if connection is not None:
            self._target.feeder.adopt(connection)
        self._ahead.append(self._target.begin(batch, self._seed, self._epoch, self._begun))
        self._begun += 1

    def __next__(self) -> Any:
        feeder = self._target.feeder
        feeder.sweep()
        while self._end is None and len(self._ahead) <= self._most:
            self._fetch()
        if self._ahead:
            return feeder.finish(self._ahead.popleft())
        end, self._end = self._end, StopIteration()
        assert end is not None
        raise end


def _is_list(data: Any) -> bool:
    return isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray)


def _moves(data: Any) -> bool:
    return isinstance(data, torch.Tensor) and data.device.type == "cpu" and not data.is_sparse


def _collect(data: Any, out: list[torch.Tensor]) -> None:
    """Find the tensors of a batch, in the order in which ``_rebuild`` takes them."""
    if _moves(data):
        out.append(data)
    elif isinstance(data, Mapping):
        for value in data.values():
            _collect(value, out)
    elif _is_list(data):
        for value in data:
            _collect(value, out)


def _rebuild(data: Any, copies: Iterator[Any]) -> Any:
    """Return a batch with other tensors in lists, mappings and named tuples of the same types."""
    if _moves(data):
        return next(copies)
    if isinstance(data, Mapping):
        return _made(data, {key: _rebuild(value, copies) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_rebuild(value, copies) for value in data))
    if _is_list(data):
        return _made(data, [_rebuild(value, copies) for value in data])
    return data


def _made(like: Any, of: Any) -> Any:
    try:
        return type(like)(of)
    except Exception:  # a class whose constructor takes something else
        return of


def _place(batch: Any, tensors: list[torch.Tensor], name: str | int) -> int:
    """Return which of the tensors a batch has by that name, or at that place."""
    try:
        found = batch[name]
    except (KeyError, IndexError, TypeError):
        found = None
    for at, tensor in enumerate(tensors):
        if tensor is found:
            return at
    raise ConfigError(f"on_device=: the batch, a {type(batch).__name__}, has no tensor {name!r}")


def _first(tensors: list[torch.Tensor], axes: int) -> int:
    """Return the first tensor with this number of axes. Labels must be whole numbers."""
    for at, tensor in enumerate(tensors):
        if tensor.dim() == axes and not (axes == 1 and tensor.is_floating_point()):
            return at
    what = "images, with four axes" if axes == 4 else "labels, whole numbers with one axis"
    raise ConfigError(f"on_device=: no tensor of the batch looks like {what}; images= and labels= name them")
