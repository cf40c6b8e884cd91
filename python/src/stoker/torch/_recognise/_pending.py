"""Images of Pillow's whose pixels nobody has asked for yet, and a transform that is answered instead of being run.

A function of the program's is run as it is. The images that it gets are Pillow's own objects, of the same class, mode,
size and info, but in the place of their pixels stands a ``Pending``: as soon as anything looks at pixels, they are
decoded by Pillow. Only where such an image, or its ``convert("RGB")``, is given as it is to the transform that the
engine has done already, the answer is what the engine has made of it. Nothing has to be known of the function.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import PIL.Image
import PIL.JpegImagePlugin

from ._library import Unknown

# What the engine can be given and what it makes of it: of a gray one three equal colours, as convert("RGB") does.
_MODES = ("RGB", "L")
_NOTHING = object()
# What is replaced while functions run is replaced for the whole process: one at a time.
_LOCK = threading.RLock()


def _renew() -> None:
    global _LOCK
    _LOCK = threading.RLock()  # which a thread that is not here may have had


os.register_at_fork(after_in_child=_renew)


def check() -> None:
    """Raise Unknown where Pillow does not ask one property for the pixels of all images."""
    if not isinstance(vars(PIL.Image.Image).get("im"), property) or not hasattr(PIL.Image.Image(), "_im"):
        raise Unknown("Pillow older than 11")


class Row:
    """What the engine has made of one record."""

    __slots__ = ("answered", "make", "source")

    def __init__(self, source: str | bytes, make: Callable[[Any], Any]) -> None:
        self.source = source  # a path, or the file itself
        self.make = make  # the transform's result, of the image that it was given
        self.answered = False


class Pending:
    """Stands in an image's place of its pixels, with what Pillow asks them without wanting one."""

    __slots__ = ("mode", "row", "size")
    readonly = 0

    def __init__(self, row: Row, mode: str, size: tuple[int, int]) -> None:
        self.row, self.mode, self.size = row, mode, size

    def settle(self, image: Any) -> None:
        """Decode the image."""
        source = self.row.source
        opened = open_image(source)
        opened.load()
        if opened.mode != self.mode:
            opened = opened.convert(self.mode)
        image._im = opened._im


def open_image(source: str | bytes) -> Any:
    """Open an image where it lies, or in a file that is there."""
    return PIL.Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)


def _pending(image: Any) -> Pending | None:
    """Return what stands in the place of an image's pixels, None where they are there."""
    found = getattr(image, "__dict__", {}).get("_im")
    return found if type(found) is Pending else None


class Scope:
    """The images of one batch, and what of them is answered.

    Args:
        transform: the transform that the engine has done.
        same: says whether it still is what the engine has done.
        random: whether it draws random numbers: then it is answered once for each image.
    """

    def __init__(self, transform: Any, same: Callable[[], bool], random: bool) -> None:
        self._transform, self._same, self._random = transform, same, random
        self._images: list[weakref.ref[Any]] = []
        self.answers = 0

    def image(self, row: Row) -> Any:
        """Return the image of a record as ``datasets`` decodes it, None where only Pillow can do that."""
        image = open_image(row.source)
        known = type(image) is PIL.JpegImagePlugin.JpegImageFile and image.mode in _MODES and len(image.tile) == 1
        turned = image.getexif().get(0x0112) if known else None
        if not known or "transparency" in image.info or (turned is not None and turned in range(2, 9)):
            image.close()
            return None
        # As it is when Pillow has loaded it.
        if image._exclusive_fp:
            image.fp.close()
        image.fp, image.tile, image.map, image.readonly = None, [], None, 0
        image._im = Pending(row, image.mode, image.size)
        self._images.append(weakref.ref(image))
        return image if turned is None else self._again(image, row, image.mode)

    def _again(self, image: Any, row: Row, mode: str) -> Any:
        """Return an image's copy or conversion."""
        new: Any = PIL.Image.Image()
        new._im, new._mode, new._size, new.info = Pending(row, mode, image.size), mode, image.size, image._copy_info()
        self._images.append(weakref.ref(new))
        return new

    def _answer(self, transform: Any, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        """Return the transform's result where the engine has made it, else _NOTHING."""
        if transform is not self._transform or len(args) != 1 or more:
            return _NOTHING
        found = _pending(args[0])
        if found is None or found.mode != "RGB" or args[0].mode != "RGB" or (found.row.answered and self._random):
            return _NOTHING
        if not self._same():
            return _NOTHING
        self.answers += not found.row.answered
        found.row.answered = True
        return found.row.make(args[0])

    @contextlib.contextmanager
    def open(self, decode: Callable[..., Any]) -> Iterator[None]:
        """Have it done for as long as the program's functions run.

        Args:
            decode: stands in the place of ``datasets.Image.decode_example``; it gets that as its first argument.
        """
        from datasets import Image as Feature  # type: ignore[import-not-found,import-untyped,unused-ignore]

        kind: Any = PIL.Image.Image
        im, convert, copy = vars(kind)["im"], kind.convert, kind.copy
        called, decoded = type(self._transform).__call__, Feature.decode_example

        def pixels(image: Any) -> Any:
            found = _pending(image)
            if found is not None:
                found.settle(image)
            return im.fget(image)

        def converted(image: Any, *args: Any, **more: Any) -> Any:
            found = _pending(image)
            asked = (args == ("RGB",) and not more) or (not args and more == {"mode": "RGB"})
            if found is None or not asked or "transparency" in image.info or image.mode != found.mode:
                return convert(image, *args, **more)
            return self._again(image, found.row, "RGB")

        def copied(image: Any) -> Any:
            found = _pending(image)
            if found is None or image.mode != found.mode:
                return copy(image)
            return self._again(image, found.row, found.mode)

        def transformed(transform: Any, *args: Any, **more: Any) -> Any:
            answer = self._answer(transform, args, more)
            return called(transform, *args, **more) if answer is _NOTHING else answer

        def example(feature: Any, *args: Any, **more: Any) -> Any:
            return decode(decoded, feature, *args, **more)

        changes = (
            (kind, "im", property(pixels, im.fset)), (kind, "convert", converted), (kind, "copy", copied),
            (type(self._transform), "__call__", transformed), (Feature, "decode_example", example),
        )  # fmt: skip
        with replaced(changes):
            try:
                yield
            finally:
                self._settle()

    def _settle(self) -> None:
        """Decode what somebody keeps: from now on nobody sees to it."""
        for found in self._images:
            image = found()
            pending = _pending(image)
            if pending is not None:
                pending.settle(image)
        self._images.clear()


@contextlib.contextmanager
def replaced(changes: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Have attributes, each given as the object, the name and the value, be others for a while."""
    with _LOCK, contextlib.ExitStack() as undo:
        for where, name, value in changes:
            undo.callback(_put_back, where, name, vars(where).get(name, _NOTHING))
            setattr(where, name, value)
        yield


def _put_back(where: Any, name: str, value: Any) -> None:
    if value is _NOTHING:
        delattr(where, name)
    else:
        setattr(where, name, value)
