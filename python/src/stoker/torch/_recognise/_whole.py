"""Functions of the program that need none of their images, and so no worker processes.

As in _pending a function runs unmodified. Some functions only convert their images to RGB, give them to the transform
that the engine has run, and stack the results. These need no open file and no copied row. Such a function runs in the
loader's process, on stand-ins for images that support only these steps, and its ``torch.stack`` returns the engine's
batch. If it does anything else, its result is discarded, and it runs again on images. It has provably no side effects
(_functions.leaves_nothing).
"""

from __future__ import annotations

import contextlib
import struct
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.JpegImagePlugin
import torch

from . import _pending

# The size of a file's head that is enough most of the time, and the size if a preview or a colour profile comes first.
_HEAD, _LONG_HEAD = 4096, 1 << 19
_SOF = (0xC0, 0xC1, 0xC2)
# Other segments before the picture: JFIF, profiles, Photoshop's and Adobe's, tables, restarts, comments.
_NOTHING_SAID = (0xE0, 0xE2, 0xED, 0xEE, 0xDB, 0xC4, 0xDD, 0xFE)
# Bytes of a value of each kind.
_TIFF_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
_SOS = 0xDA
_SIMPLE, _HAS_EXIF = "simple", "with EXIF data"


class Strange(BaseException):
    """A function has done something else with its images; no ``except Exception`` is to keep it."""


class Batch:
    """One batch of a function.

    Args:
        rows: the number of its images.
        images: the engine's results for them.
        plain: reports for a row and its image (a path, or the file itself) whether only the engine need see it.
    """

    def __init__(self, rows: int, images: torch.Tensor, plain: Callable[[int, Any], bool]) -> None:
        self.rows, self._images, self._plain = rows, images, plain
        self._next = 0
        self._transformed: set[int] = set()
        self.stacked = False  # the function has the engine's batch, and may have written into it
        self._strange = False

    def strange(self) -> Strange:
        """Return the exception to raise, and remember it."""
        self._strange = True
        return Strange()

    def image(self, feature: Any, value: Any) -> Any:
        """Return the stand-in for the next image."""
        row = self._next
        self._next += 1
        if row >= self.rows or type(value) is not dict or feature.mode not in (None, "RGB"):
            raise self.strange()
        if not self._plain(row, value["path"] if value["bytes"] is None else value["bytes"]):
            raise self.strange()
        return _Image(self, row, feature.mode == "RGB")

    def transformed(self, row: int) -> Any:
        """Return the stand-in for the transform's result, only once: another call would draw other numbers."""
        if row in self._transformed:
            raise self.strange()
        self._transformed.add(row)
        return _Made(self, row)

    def stack(self, rows: list[int]) -> torch.Tensor:
        """Return all rows as a batch: once, as another one would be other memory."""
        if self.stacked or rows != list(range(self.rows)):
            raise self.strange()
        self.stacked = True
        return self._images

    def run(self, function: Callable[[], Any], transform: Any, feature: Any) -> Any:
        """Run a function, and return its result if it needs no image, or raise Strange."""
        try:
            with _standing(self, transform, feature):
                result = function()
            _look(self, result)
        except (Strange, Exception):
            # Errors as well: the run on real images raises them again.
            raise self.strange() from None
        if self._strange or not self.stacked:
            raise self.strange()
        return result


class _Stand:
    """A stand-in that refuses everything else."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: Batch, row: int) -> None:
        _SET_BATCH(self, batch)
        _SET_ROW(self, row)

    def __getattribute__(self, name: str) -> Any:
        raise _BATCH(self).strange()


_SET_BATCH, _SET_ROW = vars(_Stand)["_batch"].__set__, vars(_Stand)["_row"].__set__
_BATCH, _ROW = vars(_Stand)["_batch"].__get__, vars(_Stand)["_row"].__get__


def _refuse(self: Any, *_: Any, **__: Any) -> Any:
    raise _BATCH(self).strange()


# Methods that Python calls although the code does not name them.
_ASKED = """
    add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or radd rsub rmul rmatmul rtruediv
    rfloordiv rmod rdivmod rpow rlshift rrshift rand rxor ror iadd isub imul imatmul itruediv ifloordiv imod ipow
    ilshift irshift iand ixor ior eq ne lt le gt ge hash bool len iter next getitem setitem delitem contains call repr
    str format bytes int float index complex neg pos abs invert round trunc floor ceil enter exit setattr delattr dir
    sizeof reduce reduce_ex copy deepcopy reversed length_hint fspath buffer array
"""
for _name in _ASKED.split():
    setattr(_Stand, f"__{_name}__", _refuse)


class _Image(_Stand):
    """An image: it can be converted to RGB."""

    __slots__ = ("_rgb",)

    def __init__(self, batch: Batch, row: int, rgb: bool) -> None:
        super().__init__(batch, row)
        _SET_RGB(self, rgb)

    def __getattribute__(self, name: str) -> Any:
        if name != "convert":
            raise _BATCH(self).strange()
        return lambda *args, **more: _converted(self, args, more)


_SET_RGB, _RGB = vars(_Image)["_rgb"].__set__, vars(_Image)["_rgb"].__get__


def _converted(image: _Image, args: tuple[Any, ...], more: dict[str, Any]) -> _Image:
    if not ((args == ("RGB",) and not more) or (not args and more == {"mode": "RGB"})):
        raise _BATCH(image).strange()
    return _Image(_BATCH(image), _ROW(image), True)


class _Made(_Stand):
    """The transform's result for an image: it can be stacked."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name != "__torch_function__":  # by which torch finds it
            raise _BATCH(self).strange()
        return object.__getattribute__(self, name)

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: Any, args: tuple[Any, ...] = (), more: dict[str, Any] | None = None
    ) -> Any:
        """Replace torch's functions."""
        parts: Any = args[0] if args and type(args[0]) in (list, tuple) else ()
        found = [p for p in parts if type(p) is _Made]
        if not found:
            raise Strange
        batch: Batch = _BATCH(found[0])
        dim = (*args[1:], *(more or {}).values())
        known = function == torch.stack and type(torch.stack) is types.BuiltinFunctionType
        if not known or not set(more or ()) <= {"dim"}:
            raise batch.strange()
        if len(found) != len(parts) or any(_BATCH(p) is not batch for p in found):
            raise batch.strange()
        if len(dim) > 1 or not all(type(d) is int and d == 0 for d in dim):
            raise batch.strange()
        return batch.stack([_ROW(p) for p in found])


@contextlib.contextmanager
def _standing(batch: Batch, transform: Any, feature: Any) -> Iterator[None]:
    """Replace the images of a column and the results of a transform by stand-ins."""
    from datasets import Image as Feature  # type: ignore[import-not-found,import-untyped,unused-ignore]

    kind = type(transform)
    called, decoded = kind.__call__, Feature.decode_example

    def transformed(of: Any, *args: Any, **more: Any) -> Any:
        if len(args) != 1 or more or type(args[0]) is not _Image or _BATCH(args[0]) is not batch:
            return called(of, *args, **more)
        if of is not transform or not _RGB(args[0]):
            raise batch.strange()
        return batch.transformed(_ROW(args[0]))

    def example(of: Any, value: Any, *args: Any, **more: Any) -> Any:
        return batch.image(of, value) if of is feature else decoded(of, value, *args, **more)

    with _pending.replaced(((kind, "__call__", transformed), (Feature, "decode_example", example))):
        yield


def _look(batch: Batch, value: Any, depth: int = 0) -> None:
    """Raise Strange if something in a result is more than values."""
    if depth > 8:
        raise batch.strange()
    if type(value) is dict:
        for key, inner in value.items():
            _look(batch, key, depth + 1)
            _look(batch, inner, depth + 1)
    elif type(value) in (list, tuple):
        for inner in value:
            _look(batch, inner, depth + 1)
    elif type(value) is np.ndarray:
        if value.dtype.hasobject:
            raise batch.strange()
    elif value is not None and type(value) not in (torch.Tensor, str, bytes, int, float, bool, torch.Size):
        raise batch.strange()


class Heads:
    """The results of reading file heads: whether the files are JPEGs that the engine reads as Pillow does."""

    def __init__(self, records: int) -> None:
        # For each file a value that changes with the file, 0 if the file has not been read.
        self._plain = np.zeros(records, np.int64)

    def plain(self, record: int, source: Any) -> bool:
        """Report whether ``datasets`` and ``convert("RGB")`` give the engine's decoded and turned image."""
        try:
            stamp = 1 if isinstance(source, bytes) else _stamp(source)
            if self._plain[record] == stamp:
                return True
            found = _plain(source)
        except Exception:  # whatever it is, those who open it say
            return False
        if found:
            self._plain[record] = stamp
        return found


def _stamp(path: str) -> int:
    found = Path(path).stat()
    return hash((found.st_mtime_ns, found.st_size, found.st_ino)) | 2


def _plain(source: Any) -> bool:
    if isinstance(source, bytes):
        found = _simple(source[:_HEAD]) or _simple(source[:_LONG_HEAD])
    else:
        with Path(source).open("rb", buffering=0) as file:
            head = file.read(_HEAD)
            found = _simple(head)
            if not found and len(head) == _HEAD:
                found = _simple(head + file.read(_LONG_HEAD - _HEAD))
    return found == _SIMPLE or (found == _HAS_EXIF and _is_turned_by_pillow(source))


def _is_turned_by_pillow(source: Any) -> bool:
    """Whether Pillow, which rewrites EXIF data when it turns a picture, can do that. It raises if not."""
    with _pending.open_image(source) as image:
        exif = image.getexif()
        if exif.get(0x0112) is not None:
            del exif[0x0112]
            exif.tobytes()
        return type(image) is PIL.JpegImagePlugin.JpegImageFile and image.mode in ("RGB", "L")


def _simple(head: bytes) -> str:
    """Report whether a file begins like a JPEG that Pillow and the engine certainly read alike.

    It has one frame, of 8 bits and one colour or three, and no damage in its EXIF data, if any. Returns _SIMPLE,
    _HAS_EXIF or "".
    """
    if head[:2] != b"\xff\xd8":
        return ""
    at, pictures, exif = 2, 0, 0
    while at + 4 <= len(head) and head[at] == 0xFF:
        marker, size = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if marker == _SOS:
            return (_HAS_EXIF if exif else _SIMPLE) if pictures == 1 else ""
        body = head[at + 4 : at + 2 + size]
        if size < 2 or len(body) != size - 2:
            return ""
        if marker in _SOF:
            pictures += 1
            if size < 8 or body[0] != 8 or body[5] not in (1, 3):
                return ""
        elif marker == 0xE1:
            is_exif = body[:6] == b"Exif\0\0"
            exif += is_exif
            if exif > 1 or not (_whole_exif(body[6:]) if is_exif else _says_nothing(body)):
                return ""
        elif marker not in _NOTHING_SAID or (marker == 0xE2 and body[:4] == b"MPF\0"):
            return ""
        at += 2 + size
    return ""


def _says_nothing(body: bytes) -> bool:
    """Whether an XMP packet has no orientation."""
    return body.startswith(b"http://ns.adobe.com/xap/1.0/\0") and b"tiff:Orientation" not in body


def _whole_exif(data: bytes) -> bool:
    """Whether all of a TIFF directory is there, and how to turn the picture is said in it once or not at all."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None or len(data) < 8:
        return False
    (at,) = struct.unpack_from(f"{order}L", data, 4)
    if at < 8 or at + 2 > len(data):
        return False
    (count,) = struct.unpack_from(f"{order}H", data, at)
    if at + 2 + 12 * count + 4 > len(data):
        return False
    turns = 0
    for entry in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind, values, where = struct.unpack_from(f"{order}HHLL", data, entry)
        bytes_ = values * _TIFF_SIZES.get(kind, 0)
        if bytes_ == 0 or (bytes_ > 4 and where + bytes_ > len(data)):
            return False
        if tag == 0x0112:
            turns += 1
            (how,) = struct.unpack_from(f"{order}H", data, entry + 8)
            if turns > 1 or kind != 3 or values != 1 or how not in range(1, 9):
                return False
    return True
