"""Batches, and how the bytes of a slot become arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import ConfigError, StokerError, nearest
from ._ragged import Ragged, Strings
from ._surface import DTYPES

# Kinds of fields that come as Strings.
_TEXTS = ("text", "json")

INDEX = "index"
# The suffix of the array of soft labels.
SOFT = "_soft"


class Batch:
    """One batch: a mapping of field names to arrays with one row per record.

    ``batch["image"]`` and ``batch.image`` are an array. ``len(batch)`` is the number of rows: ``batch_size``, or less
    in the last batch of an epoch without ``drop_last``. ``keys()``, ``values()`` and ``items()`` list the arrays of
    ``transforms=`` first, in its order, then the other fields in the order of the source, and ``index``, the record
    numbers, last. Iterating and unpacking give the arrays in that order without ``index``: ``images, labels = batch``.
    With soft labels from MixUp or CutMix, these take the place of the labels there; by name both exist:
    ``batch["label"]`` and ``batch["label_soft"]``.
    Fields whose rows differ in length come as ``Ragged``, texts as ``Strings``; with ``stoker.Padded`` as one array,
    with their lengths in ``batch["NAME_length"]``.
    The arrays are in memory shared with the engine. They may be changed in place and stay valid as long as they, or
    views of them, are alive. Then the engine uses the memory for another batch. Hold few batches, or copies.

    Attributes:
        epoch: the epoch that the batch belongs to.
        step: its number in the epoch, from 0.
        num_repeated: the number of rows, at the end, that have come before in the epoch, so that each rank has as many
            rows (``Ranks(uneven="pad")``).
    """

    __module__ = "stoker"
    __slots__ = ("_arrays", "_beside", "_rows", "epoch", "num_repeated", "step")

    epoch: int
    step: int
    num_repeated: int

    def __init__(
        self,
        arrays: dict[str, Any],
        epoch: int,
        step: int,
        rows: int,
        beside: frozenset[str] = frozenset(),
        num_repeated: int = 0,
    ) -> None:
        self._arrays = arrays
        # Arrays that describe others are not unpacked.
        self._beside = beside
        self._rows = rows
        self.epoch = epoch
        self.step = step
        self.num_repeated = num_repeated

    @property
    def repeated(self) -> Any:
        """The rows that have come before in the epoch: bool [rows], to exclude them from a metric."""
        index = self._arrays[INDEX]
        mask = index < 0  # all False, an array of the same library
        mask[self._rows - self.num_repeated :] = True
        return mask

    def __getitem__(self, key: str | int) -> Any:
        """Return an array by name, or by its place in ``images, labels = batch``."""
        try:
            return self._arrays[key]  # type: ignore[index]
        except KeyError:
            pass
        if isinstance(key, int):
            return tuple(self)[key]
        raise KeyError(f"the batch has no array {key!r}; {nearest(str(key), self._arrays)}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._arrays[name]
        except KeyError:
            raise AttributeError(f"the batch has no array {name!r}; {nearest(name, self._arrays)}") from None

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the arrays in order, without the record numbers."""
        return (self._arrays[name] for name in self._places())

    def _places(self) -> list[str]:
        places = []
        for name in self._arrays:
            if (
                name == INDEX
                or name in self._beside
                or (name.endswith(SOFT) and name.removesuffix(SOFT) in self._arrays)
            ):
                continue
            places.append(name + SOFT if name + SOFT in self._arrays else name)
        return places

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._arrays]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an array by name, or ``default`` if there is none of that name."""
        return self._arrays.get(name, default)

    def keys(self) -> list[str]:
        """Return the names of all arrays, ``index`` last."""
        return list(self._arrays)

    def values(self) -> list[Any]:
        """Return all arrays in the order of ``keys()``."""
        return list(self._arrays.values())

    def items(self) -> list[tuple[str, Any]]:
        """Return pairs of name and array."""
        return list(self._arrays.items())

    def copy(self) -> Batch:
        """Return the batch with memory of its own, to be kept for as long as one likes."""
        arrays = {
            n: a.copy() if isinstance(a, np.ndarray | Ragged | Strings) else a.clone() for n, a in self._arrays.items()
        }
        return Batch(arrays, self.epoch, self.step, self._rows, self._beside, self.num_repeated)

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (self._arrays, self.epoch, self.step, self._rows, self._beside, self.num_repeated)

    def __repr__(self) -> str:
        parts = [f"{n}: {_described(a)}" for n, a in self._arrays.items()]
        return f"Batch(epoch={self.epoch}, step={self.step}, {', '.join(parts)})"


def _described(array: Any) -> str:
    if isinstance(array, Ragged | Strings):
        return repr(array)
    return f"{str(array.dtype).removeprefix('torch.')}{list(array.shape)}"


def main_classes(kinds: Mapping[str, str], classes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the classes of the label, by the kinds and the classes of fields.

    With several fields of labels, the one called label or target is the label, also if it has no names.
    """
    labels = [name for name, kind in kinds.items() if kind == "label"]
    if len(labels) > 1 and (main := next((n for n in ("label", "target") if n in labels), "")):
        return list(classes.get(main, ()))
    return list(next((classes[name] for name in [*labels, *classes] if name in classes), ()))


Views = Callable[[npt.NDArray[np.uint8], int], dict[str, Any]]


class ArraySpec:
    """One array of a batch as the engine describes it."""

    __slots__ = ("capacity", "channels_last", "dtype", "kind", "length_at", "name", "of", "offset", "offsets", "shape")

    def __init__(self, described: dict[str, Any], channels_last: bool = False) -> None:
        self.name: str = described["name"]
        # The kind of its field, "" for arrays that the engine adds.
        self.kind: str = described.get("kind", "")
        self.dtype: str = described["dtype"]
        self.shape = tuple(int(n) for n in described["shape"])
        self.offset = int(described["offset"])
        # The position of the offsets of a ragged array, None for others.
        self.offsets: int | None = int(described["offsets"]) if described.get("ragged") else None
        # The position of the row length of a padded array, None for others.
        self.length_at: int | None = int(described["length_at"]) if described.get("padded") else None
        # The most bytes that the rows of a ragged or padded array may have together.
        self.capacity = int(described["capacity"]) if self.varies else 0
        # The padded array that this one describes, "" for none.
        self.of: str = described.get("of", "")
        self.channels_last = channels_last and self.kind == "image" and len(self.shape) == 3
        if self.dtype not in DTYPES:
            raise ConfigError(f"field {self.name!r} has the element type {self.dtype}, unknown to this package")

    def check(self, batch_size: int, slot_bytes: int) -> None:
        """Refuse an array that does not fit a slot: its views would show other memory."""
        row = math.prod(self.shape) * np.dtype(DTYPES[self.dtype]).itemsize
        ends = [(self.offset, self.capacity)] if self.varies else [(self.offset, batch_size * row)]
        if self.offsets is not None:
            ends.append((self.offsets, (batch_size + 1) * 8))
        if self.length_at is not None:
            ends.append((self.length_at, 8))
        if min(self.shape, default=0) < 0 or any(at < 0 or n < 0 or at + n > slot_bytes for at, n in ends):
            raise StokerError(
                f"the engine describes {self.name!r} with {batch_size} rows of {list(self.shape)} {self.dtype}, for "
                f"which a slot of {slot_bytes} bytes has no room; package and engine must be of the same version"
            )

    @property
    def user_shape(self) -> tuple[int, ...]:
        """The shape of one row as the user sees it."""
        if self.channels_last:
            h, w, c = self.shape
            return c, h, w
        return self.shape

    @property
    def varies(self) -> bool:
        """Whether batches have more or fewer elements."""
        return self.offsets is not None or self.length_at is not None

    @property
    def is_text(self) -> bool:
        """Whether rows are texts."""
        return self.kind in _TEXTS and self.length_at is None

    def __str__(self) -> str:
        if self.is_text:
            return f"{self.name}: {self.kind}"
        shape = list(self.user_shape)
        if self.length_at is not None:
            return f"{self.name}: {self.dtype}[{', '.join(['padded', *map(str, shape)])}]"
        if self.offsets is None:
            return f"{self.name}: {self.dtype}{shape}"
        return f"{self.name}: {self.dtype}[{', '.join(['ragged', *map(str, shape)])}]"


def numpy_views(specs: list[ArraySpec]) -> Views:
    """Return a function that makes NumPy arrays of a slot."""
    plan = [(s.name, s.shape, _numpy_type(s), s.offset) for s in specs if not s.varies]
    ragged = [s for s in specs if s.varies]
    types = {s.name: _numpy_type(s) for s in ragged}

    def views(root: npt.NDArray[np.uint8], rows: int) -> dict[str, Any]:
        # The arrays hold root and with it the slot.
        return {name: np.ndarray((rows, *shape), dtype, root, offset) for name, shape, dtype, offset in plan}

    def views_with_ragged(root: npt.NDArray[np.uint8], rows: int) -> dict[str, Any]:
        out = views(root, rows)
        for s in ragged:
            if s.length_at is not None:
                out[s.name] = _padded(root, rows, s, types[s.name])
                continue
            r = _ragged(root, rows, s, types[s.name])
            out[s.name] = Strings(r) if s.is_text else r
        return {s.name: out[s.name] for s in specs}

    return views_with_ragged if ragged else views


def _ragged(root: npt.NDArray[np.uint8], rows: int, s: ArraySpec, dtype: np.dtype[Any]) -> Ragged:
    offsets: npt.NDArray[np.int64] = np.ndarray((rows + 1,), "<i8", root, s.offsets or 0)
    n = int(offsets[rows])
    if not 0 <= n * dtype.itemsize * math.prod(s.shape) <= s.capacity:
        raise StokerError(f"the engine says that {rows} rows of {s.name!r} have {n} elements, which has no room")
    return Ragged(np.ndarray((n, *s.shape), dtype, root, s.offset), offsets)


def _padded(root: npt.NDArray[np.uint8], rows: int, s: ArraySpec, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    length = int(np.ndarray((), "<i8", root, s.length_at or 0))
    if not 0 <= rows * length * dtype.itemsize * math.prod(s.shape) <= s.capacity:
        raise StokerError(
            f"the engine says that {rows} rows of {s.name!r} have a length of {length}, which has no room"
        )
    return np.ndarray((rows, length, *s.shape), dtype, root, s.offset)


def _numpy_type(s: ArraySpec) -> np.dtype[Any]:
    return _bfloat16(s.name) if s.dtype == "bfloat16" else np.dtype(DTYPES[s.dtype])


def _bfloat16(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ConfigError(
            f'field {name!r} is bfloat16, which NumPy does not have; use output="torch" or install ml_dtypes'
        ) from None
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def torch_views(specs: list[ArraySpec]) -> Views:
    """Return a function that makes torch tensors of a slot, without a copy."""
    try:
        import torch
    except ImportError:
        raise ConfigError('output="torch" needs PyTorch, which is not installed') from None
    from_numpy, bfloat16 = torch.from_numpy, torch.bfloat16
    ragged = [s for s in specs if s.varies]
    plan = [
        (s.name, s.shape, np.dtype(DTYPES[s.dtype]), s.offset, s.dtype == "bfloat16", s.channels_last)
        for s in specs
        if not s.varies
    ]

    def views(root: npt.NDArray[np.uint8], rows: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, shape, dtype, offset, is_bf16, channels_last in plan:
            t = from_numpy(np.ndarray((rows, *shape), dtype, root, offset))
            if is_bf16:
                t = t.view(bfloat16)
            if channels_last:
                t = t.permute(0, 3, 1, 2)
            out[name] = t
        for s in ragged:
            if s.length_at is not None:
                t = from_numpy(_padded(root, rows, s, np.dtype(DTYPES[s.dtype])))
                out[s.name] = t.view(bfloat16) if s.dtype == "bfloat16" else t
                continue
            r = _ragged(root, rows, s, np.dtype(DTYPES[s.dtype]))
            if s.is_text:
                out[s.name] = Strings(r)
                continue
            values = from_numpy(r.values)
            out[s.name] = Ragged(values.view(bfloat16) if s.dtype == "bfloat16" else values, from_numpy(r.offsets))
        return {s.name: out[s.name] for s in specs} if ragged else out

    return views
