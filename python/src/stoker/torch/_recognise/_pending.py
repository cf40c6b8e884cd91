"""Images of Pillow whose pixels are not decoded yet, and a transform that is answered instead of being run.

A function of the program runs unmodified. It gets Pillow's own objects, of the same class, mode, size and info, but
with a ``Pending`` in place of their pixels. On any access to pixels, Pillow decodes them. Only if such an image, or its
conversion, goes unchanged to the transform that the engine has run, the answer is the engine's result. Nothing has to
be known about the function.

Images come from ``datasets``, which decodes them, or from ``PIL.Image.open``, which only reads their head. The latter
carry a ``_Mark`` until the program converts them or gives them to a transform, which is when Pillow decodes them.
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

from ._library import INSTEAD_OF, Unknown

# Modes for the engine. From a gray image it makes three equal colours, as convert("RGB") does.
_MODES = ("RGB", "L")
_NOTHING = object()
_MARK = "_stoker_mark"  # the attribute
# Replacements while functions run affect the whole process, so that only one thread may replace at a time.
_LOCK = threading.RLock()


def _renew() -> None:
    global _LOCK
    _LOCK = threading.RLock()  # which a thread that is not here may have had


os.register_at_fork(after_in_child=_renew)


def check() -> None:
    """Raise Unknown unless Pillow has one property for the pixels of all images."""
    if not isinstance(vars(PIL.Image.Image).get("im"), property) or not hasattr(PIL.Image.Image(), "_im"):
        raise Unknown("Pillow older than 11")


class Done:
    """A transform that the engine has done, of images in one mode.

    Args:
        transform: of the program's.
        mode: the mode of the image that it is called with.
        same: reports whether the transform still matches the engine's.
        random: whether it draws random numbers: then it is answered once for each image.
    """

    __slots__ = ("mode", "random", "same", "transform")

    def __init__(self, transform: Any, mode: str, same: Callable[[], bool], random: bool) -> None:
        self.transform, self.mode, self.same, self.random = transform, mode, same, random


class Row:
    """One image, and the engine's result for it. If ``done`` is None there is none, and the image is only watched."""

    __slots__ = ("answered", "called", "done", "make", "source")

    def __init__(self, source: Any, done: Done | None = None, make: Callable[[Any], Any] | None = None) -> None:
        self.source = source  # a path, the file itself, or a File
        self.done = done
        self.make = make  # the transform's result, of the image that it was given
        self.answered = False
        self.called: tuple[Any, str] | None = None  # the first transform that it was given to, and in which mode


class File:
    """A file that stays open, whatever becomes of its name."""

    def __init__(self, fd: int) -> None:
        self._fd = os.dup(fd)

    def read(self) -> bytes:
        """Return all of it, without changing the file position for other readers."""
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0)

    def __del__(self) -> None:
        os.close(self._fd)


class _Mark:
    """The mark on an image that ``PIL.Image.open`` has made, or that Pillow has converted while it is watched."""

    __slots__ = ("mode", "row", "tile")

    def __init__(self, row: Row, image: Any) -> None:
        # draft() makes a new list of tiles, and so does load().
        self.row, self.mode, self.tile = row, image.mode, getattr(image, "tile", None)

    def holds(self, image: Any) -> bool:
        """Whether the image is unchanged."""
        return image.mode == self.mode and getattr(image, "tile", None) is self.tile


class Pending:
    """Replaces an image's pixels, with the answers that Pillow needs without pixels."""

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


def open_image(source: Any) -> Any:
    """Open an image from its path, its bytes, or an open file."""
    if isinstance(source, File):
        source = source.read()
    return PIL.Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)


def _plain(image: Any) -> bool:
    """Whether an image is a JPEG that the engine and Pillow detect alike."""
    known = type(image) is PIL.JpegImagePlugin.JpegImageFile and image.mode in _MODES and len(image.tile) == 1
    return known and "transparency" not in image.info


def _mark(image: Any) -> _Mark | None:
    """Return the mark of an image that has not changed since it was marked."""
    found = getattr(image, "__dict__", {}).get(_MARK)
    return found if found is not None and found.holds(image) else None


def _pending(image: Any) -> Pending | None:
    """Return the replacement of an image's pixels, None if the pixels are decoded."""
    found = getattr(image, "__dict__", {}).get("_im")
    return found if type(found) is Pending else None


class Scope:
    """The images of one batch, and the answers for them.

    Args:
        transforms: the transforms whose calls are answered.
    """

    def __init__(self, transforms: Sequence[Any]) -> None:
        self._transforms = transforms
        self._images: list[weakref.ref[Any]] = []
        self.answers = 0

    def image(self, row: Row) -> Any:
        """Return the image of a record in the form of ``datasets``, None if only Pillow can decode it."""
        image = open_image(row.source)
        known = _plain(image)
        turned = image.getexif().get(0x0112) if known else None
        if not known or (turned is not None and turned in range(2, 9)):
            image.close()
            return None
        self._hold(image, row)
        return image if turned is None else self._again(image, row, image.mode)

    def _hold(self, image: Any, row: Row) -> None:
        """Put an image into the state after Pillow's load, without its pixels."""
        if image._exclusive_fp:
            image.fp.close()
        image.fp, image.tile, image.map, image.readonly = None, [], None, 0
        image._im = Pending(row, image.mode, image.size)
        self._images.append(weakref.ref(image))

    def _again(self, image: Any, row: Row, mode: str) -> Any:
        """Return an image's copy or conversion."""
        new: Any = PIL.Image.Image()
        new._im, new._mode, new._size, new.info = Pending(row, mode, image.size), mode, image.size, image._copy_info()
        self._images.append(weakref.ref(new))
        return new

    def _pending(self, image: Any) -> Pending | None:
        """Return the replacement of an image's pixels. A marked image gets its replacement here."""
        found = _mark(image)
        if found is not None and found.row.done is not None and image.fp is not None and not image.fp.closed:
            found.row.source = File(image.fp.fileno())  # its name may go before somebody wants pixels
            self._hold(image, found.row)
        return _pending(image)

    def _answer(self, transform: Any, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        """Return the transform's result if the engine has made it, else _NOTHING."""
        if len(args) != 1 or more or not any(transform is known for known in self._transforms):
            return _NOTHING
        image = args[0]
        watched = _mark(image)
        if watched is not None and watched.row.called is None:
            watched.row.called = transform, image.mode
        found = self._pending(image)
        if found is None or found.row.done is None or found.row.make is None:
            return _NOTHING
        row, done = found.row, found.row.done
        if transform is not done.transform or not (found.mode == image.mode == done.mode):
            return _NOTHING
        if (row.answered and done.random) or not done.same():
            return _NOTHING
        self.answers += not row.answered
        row.answered = True
        return found.row.make(image)

    @contextlib.contextmanager
    def open(
        self, decode: Callable[..., Any] | None = None, opened: Callable[[Any], Row | None] | None = None
    ) -> Iterator[None]:
        """Install the replacements while the program's functions run.

        Args:
            decode: replaces ``datasets.Image.decode_example``; it gets that as its first argument.
            opened: returns the data known about a JPEG that ``PIL.Image.open`` has made, given it.
        """
        kind: Any = PIL.Image.Image
        im, convert, copy = vars(kind)["im"], kind.convert, kind.copy

        def pixels(image: Any) -> Any:
            found = _pending(image)
            if found is not None:
                found.settle(image)
            return im.fget(image)

        def again(image: Any, make: Callable[[], Any], mode: str) -> Any:
            """Return a copy or a conversion; it is Pillow's, with its image's mark, if the image is only watched."""
            found = self._pending(image)
            if found is not None and image.mode == found.mode:
                return self._again(image, found.row, mode)
            watched = _mark(image)
            new = make()
            if watched is not None and watched.row.done is None and new.mode == mode:
                setattr(new, _MARK, _Mark(watched.row, new))
            return new

        def converted(image: Any, *args: Any, **more: Any) -> Any:
            mode = args[0] if len(args) == 1 and not more else more.get("mode") if not args and len(more) == 1 else None
            if mode not in _MODES or "transparency" in image.info or not _converts(image, mode):
                return convert(image, *args, **more)
            return again(image, lambda: convert(image, *args, **more), mode)

        def copied(image: Any) -> Any:
            return again(image, lambda: copy(image), image.mode)

        changes = [
            (kind, "im", property(pixels, im.fset)), (kind, "convert", converted), (kind, "copy", copied),
            *self._calls(),
        ]  # fmt: skip
        if decode is not None:
            changes.append(_decoding(decode))
        with replaced(changes), _opening(opened):
            try:
                yield
            finally:
                self._settle()

    def _calls(self) -> Iterator[tuple[Any, str, Any]]:
        for kind in {type(transform): None for transform in self._transforms}:

            def transformed(transform: Any, *args: Any, called: Any = kind.__call__, **more: Any) -> Any:
                answer = self._answer(transform, args, more)
                return called(transform, *args, **more) if answer is _NOTHING else answer

            own = vars(kind).get("__call__")
            setattr(transformed, INSTEAD_OF, getattr(own, INSTEAD_OF, own))
            yield kind, "__call__", transformed

    def _settle(self) -> None:
        """Decode images that are still in use: from now on nothing else will."""
        for found in self._images:
            image = found()
            pending = _pending(image)
            if pending is not None:
                pending.settle(image)
        self._images.clear()


def _converts(image: Any, mode: str) -> bool:
    """Whether an image may be converted to a mode without pixels, or is watched."""
    found = _pending(image) or _mark(image)
    return found is not None and (found.row.done is None or found.row.done.mode == mode)


def _decoding(decode: Callable[..., Any]) -> tuple[Any, str, Any]:
    from datasets import Image as Feature  # type: ignore[import-not-found,import-untyped,unused-ignore]

    decoded = Feature.decode_example

    def example(feature: Any, *args: Any, **more: Any) -> Any:
        return decode(decoded, feature, *args, **more)

    return Feature, "decode_example", example


@contextlib.contextmanager
def _opening(opened: Callable[[Any], Row | None] | None) -> Iterator[None]:
    """Have JPEGs that Pillow opens marked, by whatever name its function was called."""
    if opened is None:
        yield
        return
    before = PIL.Image.OPEN["JPEG"]

    def factory(*args: Any) -> Any:
        image: Any = before[0](*args)
        row = opened(image) if _plain(image) else None
        if row is not None:
            setattr(image, _MARK, _Mark(row, image))
        return image

    PIL.Image.OPEN["JPEG"] = factory, before[1]
    try:
        yield
    finally:
        PIL.Image.OPEN["JPEG"] = before


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
