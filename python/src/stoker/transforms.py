"""Transforms: what the engine does to each image.

The names, parameters and distributions are those of ``torchvision.transforms.v2``.
A transform is a description; the engine draws its random numbers from (seed,
epoch, record, array, place in the list) alone, so that an example is augmented the
same way whatever the number of threads, workers or ranks.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ._errors import ConfigError, StokerError, UnknownArgument, nearest

__all__ = [
    "CenterCrop",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "Transform",
]

Size = int | Sequence[int]

_T = TypeVar("_T")


class _Checked(type):
    """Refuses unknown arguments with the nearest known one."""

    def __call__(cls: type[_T], *args: Any, **kwargs: Any) -> _T:
        known = [p for p in inspect.signature(cls.__init__).parameters if p != "self"]
        for name in kwargs:
            if name not in known:
                raise UnknownArgument(f"{cls.__name__} has no argument {name!r}; {nearest(name, known)}")
        try:
            made: _T = type.__call__(cls, *args, **kwargs)
        except StokerError as error:
            raise error.with_traceback(None) from None
        return made


class Transform(metaclass=_Checked):
    """A transform; the base of all others.

    A subclass is a frozen dataclass whose fields are the engine's parameters of
    the same names. ``__post_init__`` checks them.
    """

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads: ``op`` and the parameters."""
        config: dict[str, Any] = {"op": type(self).__name__}
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            config[f.name] = _plain(getattr(self, f.name))
        return config

    def __repr__(self) -> str:
        shown = []
        named = False
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
            if required and not named:
                shown.append(repr(value))
            elif required or value != f.default:
                named = True
                shown.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _set(self, **values: object) -> None:
        """Set checked values on the frozen instance."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _fail(self, text: str) -> ConfigError:
        return ConfigError(f"{type(self).__name__}: {text}")


def _plain(value: object) -> object:
    if isinstance(value, Transform):
        return value.to_config()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def check_size(t: Transform, value: Any, *, square: bool) -> int | tuple[int, int]:
    """Check a size in pixels: ``n`` or ``(height, width)``. With ``square``, n means (n, n)."""
    numbers = (value,) if isinstance(value, int) else value
    try:
        sides = [int(v) for v in numbers]
        whole = all(s == v and not isinstance(v, bool) for s, v in zip(sides, numbers, strict=True))
    except (TypeError, ValueError):
        raise t._fail(f"size={value!r} must be a number of pixels or (height, width)") from None
    if not whole or len(sides) not in (1, 2) or any(s < 1 or s > 65500 for s in sides):
        raise t._fail(f"size={value!r} must be a number of pixels or (height, width), each from 1 to 65500")
    if len(sides) == 2:
        return sides[0], sides[1]
    return (sides[0], sides[0]) if square else sides[0]


def check_range(
    t: Transform, name: str, value: Any, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float]:
    """Check a range ``(smallest, largest)`` within bounds."""
    try:
        a, b = (float(v) for v in value)
    except (TypeError, ValueError):
        raise t._fail(f"{name}={value!r} must be two numbers") from None
    if not (low <= a <= b <= high) or math.isinf(a) or math.isinf(b):
        bounds = "" if math.isinf(low) and math.isinf(high) else f" from {low:g} to {high:g}"
        raise t._fail(f"{name}={value!r} must be two numbers{bounds}, the smaller one first")
    return a, b


def check_probability(t: Transform, name: str, value: Any) -> float:
    """Check a probability."""
    try:
        p = float(value)
    except (TypeError, ValueError):
        p = math.nan
    if not 0 <= p <= 1:
        raise t._fail(f"{name}={value!r} must be a number from 0 to 1")
    return p


def check_interpolation(t: Transform, value: Any) -> str:
    """Check an interpolation: a name, or torchvision's ``InterpolationMode``."""
    name = str(getattr(value, "value", value)).lower()
    if name == "nearest-exact":
        name = "nearest"
    if name not in ("bilinear", "bicubic", "nearest"):
        raise t._fail(f"interpolation={value!r}; there are: bilinear, bicubic, nearest")
    return name


MAX_CHANNELS = 4


def check_fill(t: Transform, value: Any) -> int | float | tuple[float, ...]:
    """Check a colour: one number for all channels, or one for each.

    How large they may be depends on the pixels, which the engine knows.
    """
    numbers = (value,) if isinstance(value, int | float) else value
    try:
        colours = tuple(float(v) for v in numbers)
    except (TypeError, ValueError):
        colours = ()
    if not 1 <= len(colours) <= MAX_CHANNELS or not all(map(math.isfinite, colours)):
        raise t._fail(f"fill={value!r} must be one number, or one for each channel")
    return colours[0] if len(colours) == 1 else colours


@dataclass(frozen=True, repr=False)
class Resize(Transform):
    """Scale the image.

    Args:
        size: the new length of the shorter side in pixels, or ``(height, width)``.
            A batch needs images of one size: follow a single number by a crop.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"nearest"``, as Pillow defines them.
        max_size: upper limit for the longer side; only with a single number.
        antialias: always on, as it is with Pillow.
    """

    size: Size
    interpolation: str = "bilinear"
    max_size: int | None = None
    antialias: bool = True

    def __post_init__(self) -> None:
        """Check the arguments."""
        size = check_size(self, self.size, square=False)
        if self.max_size is not None and (not isinstance(size, int) or int(self.max_size) <= size):
            raise self._fail(f"max_size={self.max_size!r} goes with a single, smaller number as size")
        if not self.antialias:
            raise self._fail("antialias=False is not supported: resizing is antialiased, as Pillow does it")
        self._set(size=size, interpolation=check_interpolation(self, self.interpolation))


@dataclass(frozen=True, repr=False)
class CenterCrop(Transform):
    """Cut the centre out; what lies outside a smaller image is black.

    Args:
        size: pixels, or ``(height, width)``.
    """

    size: Size

    def __post_init__(self) -> None:
        """Check the arguments."""
        self._set(size=check_size(self, self.size, square=True))


@dataclass(frozen=True, repr=False)
class RandomCrop(Transform):
    """Cut a box of fixed size out at a random place.

    Args:
        size: pixels, or ``(height, width)``.
        padding: pixels to add around the image first: one number for all sides,
            ``(left and right, top and bottom)`` or ``(left, top, right, bottom)``.
        pad_if_needed: also pad images that are smaller than ``size``; without it
            such an image is an error.
        fill: colour of the padding, one number or one for each channel, 0 to 255 where pixels are ``uint8``.
        padding_mode: what the padding shows: ``"constant"`` the fill, ``"edge"`` the outermost
            pixel, ``"reflect"`` and ``"symmetric"`` the image mirrored, without and with that pixel.
    """

    size: Size
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: float | Sequence[float] = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        """Check the arguments."""
        padding = self.padding
        if padding is not None:
            try:
                sides = (int(padding),) if isinstance(padding, int) else tuple(int(p) for p in padding)
            except (TypeError, ValueError):
                sides = ()
            if len(sides) not in (1, 2, 4) or any(s < 0 for s in sides):
                raise self._fail(f"padding={padding!r} must be 1, 2 or 4 numbers of pixels")
            padding = sides[0] if len(sides) == 1 else sides
        modes = ("constant", "edge", "reflect", "symmetric")
        if self.padding_mode not in modes:
            raise self._fail(f"padding_mode={self.padding_mode!r}; there are: {', '.join(modes)}")
        self._set(
            size=check_size(self, self.size, square=True),
            padding=padding,
            pad_if_needed=bool(self.pad_if_needed),
            fill=check_fill(self, self.fill),
        )


@dataclass(frozen=True, repr=False)
class RandomResizedCrop(Transform):
    """Cut a box of random size and aspect ratio out and scale it to one size.

    Args:
        size: pixels, or ``(height, width)``.
        scale: smallest and largest area of the box, as a share of the image's.
        ratio: smallest and largest aspect ratio (width / height) of the box.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"nearest"``, as Pillow defines them.
        antialias: always on, as it is with Pillow.
    """

    size: Size
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0)
    interpolation: str = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not self.antialias:
            raise self._fail("antialias=False is not supported: resizing is antialiased, as Pillow does it")
        ratio = check_range(self, "ratio", self.ratio, 0, 1e6)
        if ratio[0] <= 0:
            raise self._fail(f"ratio={self.ratio!r} must be larger than 0")
        self._set(
            size=check_size(self, self.size, square=True),
            scale=check_range(self, "scale", self.scale, 0, 1e6),
            ratio=ratio,
            interpolation=check_interpolation(self, self.interpolation),
        )


@dataclass(frozen=True, repr=False)
class RandomHorizontalFlip(Transform):
    """Swap left and right with probability ``p``."""

    p: float = 0.5

    def __post_init__(self) -> None:
        """Check the arguments."""
        self._set(p=check_probability(self, "p", self.p))


@dataclass(frozen=True, repr=False)
class RandomVerticalFlip(Transform):
    """Swap top and bottom with probability ``p``."""

    p: float = 0.5

    def __post_init__(self) -> None:
        """Check the arguments."""
        self._set(p=check_probability(self, "p", self.p))


@dataclass(frozen=True, repr=False)
class Normalize(Transform):
    """Subtract ``mean`` and divide by ``std``, per channel; of audio by one number for all.

    Follows ``ToDtype("float32", scale=True)``, whose values go from 0 to 1, or works on arrays of floats.

    Args:
        mean: one number per channel, or one for all.
        std: the same, not 0.
        inplace: without meaning here; taken so that lists can be carried over.
    """

    mean: Sequence[float]
    std: Sequence[float]
    inplace: bool = False

    def __post_init__(self) -> None:
        """Check the arguments."""
        try:
            mean, std = (tuple(float(x) for x in v) for v in (self.mean, self.std))
        except (TypeError, ValueError):
            raise self._fail("mean and std must be lists of numbers, one per channel") from None
        if len(mean) != len(std) or not 1 <= len(mean) <= MAX_CHANNELS:
            raise self._fail(
                f"mean has {len(mean)} numbers and std {len(std)}; both need one per channel, 1 to {MAX_CHANNELS}"
            )
        if any(s == 0 or not math.isfinite(s) for s in std) or not all(map(math.isfinite, mean)):
            raise self._fail("std must not be 0, and all numbers must be finite")
        self._set(mean=mean, std=std, inplace=bool(self.inplace))


@dataclass(frozen=True, repr=False)
class ToDtype(Transform):
    """Convert to another element type.

    Args:
        dtype: ``"uint8"``, ``"uint16"``, ``"float16"``, ``"bfloat16"`` or ``"float32"``, or the NumPy or torch type.
        scale: floats of integers go from 0 to 1; between integers, 8 bits are added or the lower 8 dropped.
    """

    dtype: Any = "float32"
    scale: bool = False

    def __post_init__(self) -> None:
        """Check the arguments."""
        known = ("uint8", "uint16", "float16", "bfloat16", "float32")
        name = getattr(self.dtype, "__name__", None) or str(self.dtype).removeprefix("torch.")
        if name not in known:
            raise self._fail(f"dtype={self.dtype!r}; there are: {', '.join(known)}")
        self._set(dtype=name, scale=bool(self.scale))
