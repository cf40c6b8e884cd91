"""Values of different lengths in one batch."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import pairwise
from typing import Any


class Ragged:
    """Values of different lengths, one behind the other: ``batch["data"]`` of a field of bytes.

    ``x[i]`` is value i, a view without a copy (``bytes(x[i])`` makes bytes of one); ``x[a:b]``
    are several of them. For code that wants all at once, value i is
    ``values[offsets[i]:offsets[i + 1]]``, which is the layout of torch's nested tensors and of Arrow.

    Attributes:
        values: all values, one-dimensional, NumPy array or torch tensor of uint8.
        offsets: int64, one more than values; the first one is where value 0 begins in ``values``.
    """

    __module__ = "stoker"
    __slots__ = ("offsets", "values")

    def __init__(self, values: Any, offsets: Any) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.offsets) - 1

    def __getitem__(self, key: int | slice) -> Any:
        """Return one value, or some of them as a Ragged."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise IndexError(f"values of different lengths can only be sliced with step 1, not {step}")
            return Ragged(self.values, self.offsets[start : max(stop, start) + 1])
        i = operator.index(key)
        if i < 0:
            i += len(self)
        if not 0 <= i < len(self):
            raise IndexError(f"value {key} of {len(self)}")
        return self.values[int(self.offsets[i]) : int(self.offsets[i + 1])]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the values."""
        ends = self.offsets.tolist()
        return (self.values[a:b] for a, b in pairwise(ends))

    @property
    def lengths(self) -> Any:
        """The lengths of the values, int64."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def dtype(self) -> Any:
        """The element type of the values."""
        return self.values.dtype

    def copy(self) -> Ragged:
        """Return the same with memory of its own."""
        if hasattr(self.values, "clone"):
            return Ragged(self.values.clone(), self.offsets.clone())
        return Ragged(self.values.copy(), self.offsets.copy())

    def __reduce__(self) -> tuple[Any, ...]:
        return Ragged, (self.values, self.offsets)

    def __repr__(self) -> str:
        total = int(self.offsets[-1]) - int(self.offsets[0])
        return f"Ragged({len(self)} values, {total:,} elements of {str(self.dtype).removeprefix('torch.')})"
