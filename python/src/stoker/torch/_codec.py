"""Batches as bytes: tensors and arrays are copied unmodified, and the small rest is pickled around them."""

from __future__ import annotations

import ctypes
import functools
import io
import itertools
import operator
import pickle
import sys
import threading
import types
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

from .._work._memory import align

_UNTYPED, _TYPED = torch.UntypedStorage, torch.TypedStorage
# Alignment of the sent part of a storage, so that it can hold tensors of any type.
_WHOLE = 16
_FEW = 4096


def tensor_of(root: Any, at: int, size: int) -> torch.Tensor:
    """Return bytes of a buffer as a tensor that holds it."""
    return torch.frombuffer(root, dtype=torch.uint8, count=size, offset=at)


class Part:
    """Bytes of a batch that are not pickled: the part of a storage that tensors use, or a buffer."""

    __slots__ = ("begin", "buffer", "end", "storage")

    def __init__(self, storage: Any = None, buffer: memoryview | None = None) -> None:
        self.storage, self.buffer = storage, buffer
        self.begin, self.end = (1 << 62, 0) if buffer is None else (0, buffer.nbytes)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return max(0, self.end - self.begin)

    @property
    def address(self) -> int:
        """The address of the bytes; 0 for buffers, which are always copied."""
        return 0 if self.storage is None else self.storage.data_ptr() + self.begin

    def grow(self, begin: int, end: int) -> None:
        """Include the part of the storage that another tensor uses."""
        self.begin = min(self.begin, begin // _WHOLE * _WHOLE)
        self.end = max(self.end, end)

    def copy(self, root: Any, at: int) -> None:
        """Write the bytes to a place."""
        if self.buffer is not None:
            memoryview(root)[at : at + self.size] = self.buffer
            return
        if self.size <= _FEW:  # torch's functions take longer than the copy
            memoryview(root)[at : at + self.size] = ctypes.string_at(self.address, self.size)
            return
        source = torch.empty(0, dtype=torch.uint8).set_(self.storage, self.begin, (self.size,))
        tensor_of(root, at, self.size).copy_(source)


class _Parts:
    """The parts of a batch that are not pickled."""

    def __init__(self) -> None:
        self.all: list[Part] = []
        self._of: dict[int, int] = {}

    def storage(self, storage: Any, begin: int, end: int) -> int:
        key = storage._cdata
        number = self._of.get(key)
        if number is None:
            number = self._of[key] = len(self.all)
            self.all.append(Part(storage))
        self.all[number].grow(begin, end)
        return number

    def buffer(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:
            return True  # not contiguous: pickled
        if raw.nbytes == 0:
            return True
        self.all.append(Part(buffer=raw))
        return False

    def reduce(self, obj: Any) -> Any:
        """Return how an object is rebuilt, or NotImplemented for pickle's own way."""
        kind = type(obj)
        if kind is torch.Tensor:
            return self._tensor(obj)
        if kind is _UNTYPED and obj.device.type == "cpu":
            return _storage, (self.storage(obj, 0, obj.nbytes()), obj.nbytes())
        if kind is _TYPED and obj._untyped_storage.device.type == "cpu":  # obj.device warns
            untyped = obj._untyped_storage
            return _typed_storage, (self.storage(untyped, 0, untyped.nbytes()), untyped.nbytes(), obj.dtype)
        return NotImplemented

    def _tensor(self, t: torch.Tensor) -> Any:
        if t.requires_grad and not t.is_leaf:
            return reduce_tensor(t)  # torch's error
        if t.device.type != "cpu":
            return NotImplemented if t.device.type == "meta" else reduce_tensor(t)
        if t.layout is not torch.strided or t.is_quantized or t.is_nested:
            return NotImplemented
        if t.is_conj() or t.is_neg():
            t = t.resolve_conj().resolve_neg()
        size, stride = tuple(t.size()), t.stride()
        if t.numel() == 0:
            return _empty, (t.dtype, size, stride, t.requires_grad)
        item, offset = t.element_size(), t.storage_offset()
        last = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        number = self.storage(t.untyped_storage(), offset * item, (offset + last + 1) * item)
        return _tensor, (number, t.dtype, size, stride, offset * item, t.requires_grad)


class _Pickler(pickle.Pickler):
    # The objects that multiprocessing can send, as torch's queues do.
    dispatch_table = ForkingPickler(io.BytesIO()).dispatch_table

    def __init__(self, file: io.BytesIO, parts: _Parts) -> None:
        super().__init__(file, 5, buffer_callback=parts.buffer)
        self._parts = parts

    def reducer_override(self, obj: Any) -> Any:
        """Leave tensors out."""
        return self._parts.reduce(obj)


# torch's own ways to send the parts excluded here would be found first.
_Pickler.dispatch_table = {
    kind: reducer
    for kind, reducer in dict(_Pickler.dispatch_table).items()
    if not (isinstance(kind, type) and issubclass(kind, (torch.Tensor, _UNTYPED, _TYPED)))
}


def dumps(obj: Any, by_value: bool = False) -> tuple[bytes, list[Part]]:
    """Return an object's pickle and the parts excluded from it.

    With ``by_value``, and if cloudpickle is installed, functions and classes that a new process cannot import are
    included.
    """
    parts, file = _Parts(), io.BytesIO()
    (_by_value(file, parts) if by_value else _Pickler(file, parts)).dump(obj)
    return file.getvalue(), parts.all


def _by_value(file: io.BytesIO, parts: _Parts) -> Any:
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return _Pickler(file, parts)
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None) is not None or getattr(main, "__spec__", None) is not None

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc,name-defined,unused-ignore]
        def reducer_override(self, obj: Any) -> Any:
            found = parts.reduce(obj)
            # A new process imports the script, and what the script has set since then is not set there, as with torch.
            if found is NotImplemented and not (script and _is_of_script(obj)):
                found = super().reducer_override(obj)
            return found

    return Pickler(file, 5, buffer_callback=parts.buffer)


def _is_of_script(obj: Any) -> bool:
    """Whether an object is a function or class that a process finds by its name after it has imported the script."""
    if not isinstance(obj, type | types.FunctionType) or obj.__module__ != "__main__":
        return False
    try:
        return operator.attrgetter(obj.__qualname__)(sys.modules["__main__"]) is obj
    except AttributeError:
        return False


_now = threading.local()


@functools.cache
def _item(dtype: torch.dtype) -> int:
    size: int = torch.empty(0, dtype=dtype).element_size()  # dtype.itemsize came with PyTorch 2.1
    return size


class Found:
    """The memory of a batch's parts."""

    def __init__(self, roots: Sequence[Any], places: Sequence[tuple[int, int, int, int]]) -> None:
        self._roots = roots
        self._places = places  # root, offset, size, and what of the storage comes before
        self._storages: dict[int, tuple[Any, int]] = {}
        self._first: dict[int, torch.Tensor] = {}

    def tensor(self, number: int, dtype: torch.dtype, size: Any, stride: Any, at: int) -> torch.Tensor | None:
        """Return a tensor in the shortest way, None unless it is the first in its storage and begins with it.

        While a loop waits for a batch, torch's code leaves the processor's caches, so that each call costs time.
        """
        root, place, nbytes, before = self._places[number]
        item = _item(dtype)
        if at != before or nbytes % item or number in self._storages or number in self._first:
            return None
        t = self._first[number] = torch.frombuffer(self._roots[root], dtype=dtype, count=nbytes // item, offset=place)
        return t.as_strided_(size, stride)

    def storage(self, number: int) -> tuple[Any, int]:
        """Return a storage and which byte of the sender's it begins with."""
        found = self._storages.get(number)
        if found is None:
            root, at, size, before = self._places[number]
            of = self._first.get(number)
            if of is None:
                of = tensor_of(self._roots[root], at, size)
            found = self._storages[number] = of.untyped_storage(), before
        return found

    def buffers(self) -> list[memoryview]:
        """Return all parts as buffers: those that are none of pickle's are not asked for."""
        return [memoryview(self._roots[root])[at : at + size] for root, at, size, _ in self._places]


def loads(body: bytes | memoryview, found: Found, buffers: Sequence[int]) -> Any:
    """Rebuild an object. ``buffers`` are the numbers of the parts that are buffers."""
    before = getattr(_now, "found", None)
    _now.found = found
    try:
        if not buffers:
            return pickle.loads(body)
        every = found.buffers()
        return pickle.loads(body, buffers=[every[i] for i in buffers])
    finally:
        _now.found = before


def _tensor(number: int, dtype: torch.dtype, size: Any, stride: Any, at: int, requires_grad: bool) -> torch.Tensor:
    t: torch.Tensor | None = _now.found.tensor(number, dtype, size, stride, at)
    if t is not None:
        return t.requires_grad_() if requires_grad else t
    storage, before = _now.found.storage(number)
    t = torch.empty(0, dtype=dtype)
    t.set_(storage, (at - before) // t.element_size(), size, stride)
    return t.requires_grad_() if requires_grad else t


def _empty(dtype: torch.dtype, size: Any, stride: Any, requires_grad: bool) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype).requires_grad_(requires_grad)


def _storage(number: int, size: int) -> Any:
    return _now.found.storage(number)[0] if size else _UNTYPED(0)


def _typed_storage(number: int, size: int, dtype: torch.dtype) -> Any:
    return _TYPED(wrap_storage=_storage(number, size), dtype=dtype, _internal=True)


def place(parts: Sequence[Part], take: Callable[[int], tuple[int, int, Any]]) -> list[tuple[int, int, int, int]]:
    """Copy parts to the positions that ``take`` returns, and return their places.

    ``take`` gets a part's number, and returns a root's number, the offset in it, and the root. The root is None if the
    part is there already.
    """
    places = []
    for i, part in enumerate(parts):
        root, at, target = take(i)
        if target is not None and part.size:
            part.copy(target, at)
        places.append((root, at, part.size, part.begin if part.storage is not None else 0))
    return places


def in_a_row(parts: Sequence[Part], root: Any, begin: int = 0) -> Callable[[int], tuple[int, int, Any]]:
    """Return a ``take`` that concatenates parts."""
    ends = list(itertools.accumulate((align(part.size) for part in parts), initial=begin))
    return lambda i: (0, ends[i], root)


def total(parts: Sequence[Part]) -> int:
    """Return the size of all parts together."""
    return sum(align(part.size) for part in parts)
