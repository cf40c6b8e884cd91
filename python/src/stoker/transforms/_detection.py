"""What detection needs besides: transforms of boxes and key points, and those that fit images without cutting them.

Boxes and key points follow the transforms of their image by themselves. What is here with the name of a class of
``torchvision.transforms.v2`` has its arguments and does what that does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._transform import Size, Transform, check_fill, check_probability, check_size

__all__ = [
    "ClampBoundingBoxes",
    "ClampKeyPoints",
    "ConvertBoundingBoxFormat",
    "LetterBox",
    "Mosaic",
    "Pad",
    "RandomHSV",
    "RandomIoUCrop",
    "SanitizeBoundingBoxes",
]

BOX_FORMATS = ("XYXY", "XYWH", "CXCYWH")


@dataclass(frozen=True, repr=False)
class LetterBox(Transform):
    """Scale the image so that it just fits and put it on a background, as ``LetterBox`` of Ultralytics does.

    The scale is the smaller of the two ratios of sides; sizes are rounded half to even. Boxes and key points are
    scaled by that ratio before it is rounded, as there. Unlike there, scaling down is antialiased.

    Args:
        size: the new size in pixels, or ``(height, width)``.
        fill: colour of the background; by default gray, 114 of 255. Masks: 0.
        center: put the image in the middle, else into the upper left corner.
        scaleup: also enlarge small images.
    """

    size: Size
    fill: float | Sequence[float] | None = None
    center: bool = True
    scaleup: bool = True

    def __post_init__(self) -> None:
        """Check the arguments."""
        self._set(
            size=check_size(self, self.size, square=True),
            fill=None if self.fill is None else check_fill(self, self.fill),
            center=bool(self.center),
            scaleup=bool(self.scaleup),
        )


@dataclass(frozen=True, repr=False)
class Pad(Transform):
    """Add pixels around the image.

    Args:
        padding: how many: one number for all sides, ``(left and right, top and bottom)`` or
            ``(left, top, right, bottom)``.
        fill: their colour, one number or one for each channel.
        padding_mode: ``"constant"``, which is the one that boxes can follow.
    """

    padding: int | Sequence[int]
    fill: float | Sequence[float] = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        """Check the arguments."""
        padding = self.padding
        try:
            sides = (int(padding),) if isinstance(padding, int) else tuple(int(p) for p in padding)
        except (TypeError, ValueError):
            sides = ()
        if len(sides) not in (1, 2, 4) or any(s < 0 for s in sides):
            raise self._fail(f"padding={padding!r} must be 1, 2 or 4 numbers of pixels")
        if self.padding_mode != "constant":
            raise self._fail(f"padding_mode={self.padding_mode!r}; there is: constant (RandomCrop has the others)")
        self._set(padding=sides[0] if len(sides) == 1 else sides, fill=check_fill(self, self.fill))


@dataclass(frozen=True, repr=False)
class RandomIoUCrop(Transform):
    """Crop at random so that a box overlaps with the crop by at least a drawn share, as SSD does.

    Boxes whose centre is not in the crop become boxes of no size, which ``SanitizeBoundingBoxes`` drops: it must
    follow. Something that fixes the size must follow, too. The boxes are those that follow the image.

    Args:
        min_scale: smallest share of width and height that is left.
        max_scale: largest share.
        min_aspect_ratio: smallest width / height of the crop.
        max_aspect_ratio: largest one.
        sampler_options: overlaps (intersection over union), of which one is drawn; from 1 on it means: no crop.
        trials: how many crops are tried for an overlap before another one is drawn.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not 0 < self.min_scale <= self.max_scale <= 1:
            raise self._fail(f"min_scale={self.min_scale!r} and max_scale={self.max_scale!r} must be between 0 and 1")
        if not 0 < self.min_aspect_ratio <= self.max_aspect_ratio:
            raise self._fail("min_aspect_ratio and max_aspect_ratio must be positive, the smaller one first")
        options = self.sampler_options
        if options is None:
            options = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
        if not options or not 1 <= self.trials <= 10_000:
            raise self._fail("sampler_options must not be empty, and trials must be from 1 to 10000")
        self._set(
            min_scale=float(self.min_scale),
            max_scale=float(self.max_scale),
            min_aspect_ratio=float(self.min_aspect_ratio),
            max_aspect_ratio=float(self.max_aspect_ratio),
            sampler_options=tuple(float(o) for o in options),
            trials=int(self.trials),
        )


@dataclass(frozen=True, repr=False)
class ConvertBoundingBoxFormat(Transform):
    """Say in which format boxes come.

    Args:
        format: ``"XYXY"``, ``"XYWH"`` or ``"CXCYWH"``, or torchvision's ``BoundingBoxFormat``.
    """

    format: Any

    def __post_init__(self) -> None:
        """Check the arguments."""
        name = str(getattr(self.format, "value", self.format)).upper()
        if name not in BOX_FORMATS:
            raise self._fail(f"format={self.format!r}; there are: {', '.join(BOX_FORMATS)}")
        self._set(format=name)


@dataclass(frozen=True, repr=False)
class ClampBoundingBoxes(Transform):
    """Cut boxes at the borders of the image.

    Args:
        clamping_mode: without meaning for boxes that are not rotated, but for None, which does nothing.
    """

    clamping_mode: str | None = "auto"

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.clamping_mode not in ("auto", "soft", "hard", None):
            raise self._fail(f"clamping_mode={self.clamping_mode!r}; there are: auto, soft, hard, None")
        # None would be the default for the engine.
        self._set(clamping_mode=self.clamping_mode or "none")


@dataclass(frozen=True, repr=False)
class ClampKeyPoints(Transform):
    """Move key points outside of the image to its outermost pixels."""


@dataclass(frozen=True, repr=False)
class SanitizeBoundingBoxes(Transform):
    """Drop boxes that are too small or reach out of the image, and what belongs to them: labels, key points, areas.

    Args:
        min_size: the smallest width and height that is kept, at least 1.
        min_area: the smallest area that is kept, at least 1.
    """

    min_size: float = 1.0
    min_area: float = 1.0

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name in ("min_size", "min_area"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
                raise self._fail(f"{name}={value!r} must be a number, at least 1")
        self._set(min_size=float(self.min_size), min_area=float(self.min_area))


@dataclass(frozen=True, repr=False)
class RandomHSV(Transform):
    """Turn the hue and scale saturation and value at random, as ``RandomHSV`` of Ultralytics does; RGB of ``uint8``.

    The numbers are drawn from -gain to gain; what becomes of the 8-bit HSV of OpenCV is within one level of that.

    Args:
        hgain: most of a full turn of the hue, 0 to 1.
        sgain: most by which saturation is scaled up or down.
        vgain: most by which value is scaled up or down.
    """

    hgain: float = 0.5
    sgain: float = 0.5
    vgain: float = 0.5

    def __post_init__(self) -> None:
        """Check the arguments."""
        self._set(**{name: check_probability(self, name, getattr(self, name)) for name in ("hgain", "sgain", "vgain")})


@dataclass(frozen=True, repr=False)
class Mosaic(Transform):
    """Make each image of a batch of parts of four: itself and the three before it (YOLOv4, arXiv:2004.10934).

    It goes into ``batch_transforms``. The four meet at a random point, each keeps its size, and boxes, key points,
    labels and masks of one size come along. Boxes are cut, and dropped where 2 pixels, a tenth of their area or less
    are left, as Ultralytics does behind its mosaic. Images should fill their rows, as ``RandomResizedCrop(640)`` has
    them: the borders of a ``LetterBox`` are taken for picture.

    Args:
        p: probability for each image.
        images: names of the images, where there are several.
    """

    p: float = 1.0
    images: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        images: Any = self.images
        if images is not None:
            images = (images,) if isinstance(images, str) else tuple(images)
        self._set(p=check_probability(self, "p", self.p), images=images)
