"""The results of functions, as arrays of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .._ragged import Ragged, Strings

Array = npt.NDArray[Any]
# Returns memory of a given size: an array of bytes, and the offset in it.
Room = Callable[[int], tuple[Array, int]]


class BadReturn(TypeError):
    """A function has returned a value that a batch cannot hold."""


def new(room: Room, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array in the batch's memory."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    root, at = room(size)
    return np.ndarray(shape, dtype, root, at)


def mapping(value: Any, function: str) -> Mapping[str, Any]:
    """Check the result of a function."""
    if not isinstance(value, Mapping):
        got = "None: it may lack a return" if value is None else f"a {type(value).__name__}"
        example = '{"image": image, "label": 3}'
        raise BadReturn(f"{function} must return a mapping of names to values, such as {example}, and returned {got}")
    for name in value:
        if not isinstance(name, str) or not name:
            raise BadReturn(f"{function} returned a mapping with the key {name!r}; keys are names of arrays")
    return value


def array(name: str, value: Any) -> Array:
    """Return a value as an array of numbers."""
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.view(_int16_of(value)).numpy().view(_bfloat16())
        else:
            value = value.numpy()
    found: Array = np.asarray(value)
    if found.dtype.kind not in "biufc" and found.dtype.name != "bfloat16":
        what = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        raise BadReturn(f"{name!r} is {value!r:.60}, a {what}: give numbers, arrays of numbers, text or bytes")
    return found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))


def _int16_of(value: Any) -> Any:
    import torch

    return torch.int16


def _bfloat16() -> Any:
    try:
        import ml_dtypes  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise BadReturn("a tensor of bfloat16 needs ml_dtypes, which is not installed") from None
    return ml_dtypes.bfloat16


class Column:
    """The values of one name, record after record."""

    def __init__(self, name: str, rows: int, room: Room, given: Any) -> None:
        """Begin with the batch's value of this name, None if it has none."""
        self.name, self._rows, self._room, self._given = name, rows, room, given
        self._out: Array | None = None  # rows of one shape
        self._many: list[Any] | None = None  # rows of different lengths, or texts
        self._texts = isinstance(given, Strings)
        if isinstance(given, Ragged | Strings):
            self._many = []
        self._unchanged = 0  # so many rows are the batch's own so far

    def add(self, i: int, value: Any, given: Any) -> None:
        """Take the value of row i. ``given`` is the function's input of this name."""
        if i == 0 and self._many is None and isinstance(value, str | bytes | list):
            self._many, self._texts = [], isinstance(value, str)
        if self._many is not None:
            self._many.append(self._one(value))
            return
        if self._unchanged == i and value is given and isinstance(value, np.ndarray):
            self._unchanged += 1
            return
        if i and isinstance(value, str | bytes | list | type(None)):
            raise BadReturn(f"{self.name!r} is {value!r:.60}, a {type(value).__name__}, and was an array or a number "
                            "in the records before")  # fmt: skip
        self._put(i, array(self.name, value))

    def _one(self, value: Any) -> Array:
        if self._texts != isinstance(value, str):
            what = "a text" if self._texts else "an array, bytes or a list"
            kind = type(value).__name__
            raise BadReturn(f"{self.name!r} is {value!r:.60}, a {kind}, where other records have {what}")
        if isinstance(value, str | bytes):
            return np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8)
        found = array(self.name, value)
        if found.ndim == 0:
            raise BadReturn(f"{self.name!r} is {value!r:.60}, a number, where other records have arrays or lists")
        return found

    def _put(self, i: int, value: Array) -> None:
        if self._out is None:
            before = self._given[: self._unchanged] if self._unchanged else None
            like = value if before is None else before[0]
            self._out = new(self._room, (self._rows, *like.shape), like.dtype)
            if before is not None:
                self._out[: self._unchanged] = before
        if value.shape != self._out.shape[1:] or value.dtype != self._out.dtype:
            raise BadReturn(
                f"{self.name!r} is {_about(value)}, and {_about(self._out[0])} in the records before. Return arrays of "
                "one shape and type, or a list for rows of different lengths"
            )
        self._out[i] = value

    def done(self) -> Any:
        """Return the array."""
        if self._many is not None:
            found = ragged(self.name, self._many, self._room)
            return Strings(found) if self._texts else found
        return self._given if self._out is None else self._out


def _about(a: Array) -> str:
    return f"{a.dtype}{list(a.shape)}"


def ragged(name: str, rows: list[Array], room: Room) -> Ragged:
    """Concatenate rows of different lengths."""
    full = [r for r in rows if len(r)]  # an empty list has no type
    like = full[0] if full else rows[0]
    for r in full:
        if r.shape[1:] != like.shape[1:] or r.dtype != like.dtype:
            raise BadReturn(f"rows of {name!r} are {_about(like)} and {_about(r)}: only their first axes may differ")
    offsets = new(room, (len(rows) + 1,), np.dtype(np.int64))
    offsets[0] = 0
    np.cumsum([len(r) for r in rows], out=offsets[1:])
    values = new(room, (int(offsets[-1]), *like.shape[1:]), like.dtype)
    for r, a in zip(rows, offsets[:-1].tolist(), strict=True):
        if len(r):
            values[a : a + len(r)] = r
    return Ragged(values, offsets)
