"""The transforms of images that most pipelines have: resizing, cropping, flipping, normalising."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._transform import (
    MAX_CHANNELS,
    Size,
    Transform,
    check_fill,
    check_interpolation,
    check_probability,
    check_range,
    check_size,
)

__all__ = [
    "CenterCrop",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
]


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
