"""Rows of different lengths in one batch."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np

from ._errors import ConfigError


class Ragged:
    """Concatenated rows of different lengths: bytes, tokens, boxes, labels.

    ``x[i]`` is row i, a view without a copy (``bytes(x[i])`` makes bytes of one). ``x[a:b]`` are several of them. For
    code that wants all rows together, row i is ``values[offsets[i]:offsets[i + 1]]``, which is the layout of torch's
    nested tensors and of Arrow. ``padded()`` and ``nested()`` make one array of them.

    Attributes:
        values: all rows concatenated, NumPy array or torch tensor; only its first axis is of any length.
        offsets: int64, one more than rows; the first one is the beginning of row 0 in ``values``.
    """

    __module__ = "stoker"
    __slots__ = ("offsets", "values")

    def __init__(self, values: Any, offsets: Any) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.offsets) - 1

    def __getitem__(self, key: int | slice) -> Any:
        """Return one row, or some of them as a Ragged."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise IndexError(f"rows of different lengths can only be sliced with step 1, not {step}")
            return Ragged(self.values, self.offsets[start : max(stop, start) + 1])
        i = operator.index(key)
        if i < 0:
            i += len(self)
        if not 0 <= i < len(self):
            raise IndexError(f"row {key} of {len(self)}")
        return self.values[int(self.offsets[i]) : int(self.offsets[i + 1])]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""
        ends = self.offsets.tolist()
        return (self.values[a:b] for a, b in pairwise(ends))

    @property
    def lengths(self) -> Any:
        """The lengths of the rows, int64."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self.values.dtype

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row without its first axis: ``(4,)`` for rows of boxes, ``()`` for bytes and tokens."""
        return tuple(self.values.shape[1:])

    def padded(self, value: float = 0, *, length: int | None = None, multiple: int = 1, truncate: bool = False) -> Any:
        """Return one array of shape ``(rows, longest, ...)``, padded after the end of each row.

        Args:
            value: the value of the padding.
            length: the length of each row. Default: that of the longest one.
            multiple: without ``length``, round the longest up to a multiple of this.
            truncate: cut rows that are longer than ``length``, which is an error otherwise.
        """
        torch = _torch_of(self.values)
        values, fill = self.values, value
        dtype = self.dtype
        if torch is not None:
            # NumPy pads arrays of any type, and bfloat16 as its bits.
            fill = torch.tensor(value, dtype=dtype)
            if dtype is torch.bfloat16:
                values, fill = values.view(torch.int16), fill.view(torch.int16)
            values, fill = values.numpy(), fill.numpy()
        out = _padded(values, np.asarray(self.offsets), fill, self._length(length, multiple, truncate))
        return out if torch is None else torch.from_numpy(out).view(dtype)

    def _length(self, length: int | None, multiple: int, truncate: bool) -> int:
        longest = int(self.lengths.max()) if len(self) else 0
        if length is None:
            if operator.index(multiple) < 1:
                raise ConfigError(f"multiple={multiple!r} must be a whole number, at least 1")
            return -(-longest // multiple) * multiple
        if operator.index(length) < 0:
            raise ConfigError(f"length={length!r} must be a whole number, at least 0")
        if longest > length and not truncate:
            raise ConfigError(f"a row has {longest} elements, more than length={length}; truncate=True cuts such rows")
        return length

    def nested(self) -> Any:
        """Return a torch nested tensor of layout ``torch.jagged`` over the same memory."""
        try:
            import torch
        except ImportError:
            raise ConfigError("nested() needs PyTorch, which is not installed") from None
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        values, offsets = self.values[first:last], self.offsets - first
        if _torch_of(values) is None:
            values, offsets = torch.from_numpy(values), torch.from_numpy(offsets)
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    def copy(self) -> Ragged:
        """Return the same with memory of its own."""
        if _torch_of(self.values) is not None:
            return Ragged(self.values.clone(), self.offsets.clone())
        return Ragged(self.values.copy(), self.offsets.copy())

    def __reduce__(self) -> tuple[Any, ...]:
        return Ragged, (self.values, self.offsets)

    def __repr__(self) -> str:
        total = int(self.offsets[-1]) - int(self.offsets[0])
        of = str(self.dtype).removeprefix("torch.")
        if self.row_shape:
            of += f"{list(self.row_shape)}"
        return f"Ragged({len(self)} rows, {total:,} elements of {of})"


class Strings(Sequence[str]):
    """The texts of a batch. A ``str`` is made when one is asked for; ``tolist()`` makes all.

    Attributes:
        raw: the texts as UTF-8, a Ragged of bytes.
    """

    __module__ = "stoker"
    __slots__ = ("raw",)

    def __init__(self, raw: Ragged) -> None:
        self.raw = raw

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.raw)

    @overload
    def __getitem__(self, key: int) -> str: ...

    @overload
    def __getitem__(self, key: slice) -> Strings: ...

    def __getitem__(self, key: int | slice) -> str | Strings:
        """Return one text, or some of them as Strings."""
        if isinstance(key, slice):
            return Strings(self.raw[key])
        return str(self.raw[key].data, "utf-8")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the texts."""
        return (str(v.data, "utf-8") for v in self.raw)

    def tolist(self) -> list[str]:
        """Return all texts as a list."""
        offsets = self.raw.offsets
        data = self.raw.values[int(offsets[0]) : int(offsets[-1])].tobytes()
        ends = (offsets - offsets[0]).tolist()
        if data.isascii():  # a character is a byte
            text = data.decode()
            return [text[a:b] for a, b in pairwise(ends)]
        return [data[a:b].decode() for a, b in pairwise(ends)]

    def copy(self) -> Strings:
        """Return the same with memory of its own."""
        return Strings(self.raw.copy())

    def __reduce__(self) -> tuple[Any, ...]:
        return Strings, (self.raw,)

    def __repr__(self) -> str:
        total = int(self.raw.offsets[-1]) - int(self.raw.offsets[0])
        return f"Strings({len(self)} texts, {total:,} bytes)"


def uneven(name: str) -> ConfigError:
    """Return the error for an array that a framework takes only with rows of one length."""
    return ConfigError(f"the rows of {name!r} are of different lengths; stoker.Padded in transforms= makes one array")


def _torch_of(array: Any) -> Any:
    """Return the torch module when an array is a tensor, without importing it for those that are not."""
    if isinstance(array, np.ndarray):
        return None
    import torch

    return torch


def _padded(values: Any, offsets: Any, fill: Any, length: int) -> Any:
    begin, sizes = offsets[:-1, None], np.diff(offsets)[:, None]
    out = np.full((len(sizes), length, *values.shape[1:]), fill, values.dtype)
    column = np.arange(length)
    used = column < sizes
    if len(sizes) and length < sizes.max():
        out[used] = values[(begin + column)[used]]
    else:
        out[used] = values[int(offsets[0]) : int(offsets[-1])]
    return out
