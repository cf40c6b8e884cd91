"""Augmentations, with the names, arguments and distributions of ``torchvision.transforms.v2``.

All of them work on uint8 pixels, before ``ToDtype``; only ``RandomErasing`` may
also follow ``Normalize``. ``MixUp`` and ``CutMix`` work on whole batches and go
into ``Loader(batch_transforms=[...])``.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._transform import Transform, check_fill, check_probability, check_range

__all__ = [
    "AutoAugment",
    "AutoAugmentPolicy",
    "ColorJitter",
    "Compose",
    "CutMix",
    "ElasticTransform",
    "GaussianBlur",
    "Grayscale",
    "MixUp",
    "OneOf",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomRotation",
    "RandomSolarize",
    "TrivialAugmentWide",
]

Range = float | Sequence[float]
Fill = float | Sequence[float] | None


def _number(t: Transform, name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        x = float(value)
    except (TypeError, ValueError):
        raise t._fail(f"{name}={value!r} must be a number") from None
    if not low <= x <= high or math.isinf(x):
        bounds = "finite" if math.isinf(low) and math.isinf(high) else f"from {low:g} to {high:g}"
        raise t._fail(f"{name}={value!r} must be {bounds}")
    return x


def _whole(t: Transform, name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise t._fail(f"{name}={value!r} must be a whole number from {low} to {high}")
    return value


def _numbers(t: Transform, name: str, value: Any, counts: tuple[int, ...]) -> tuple[float, ...]:
    try:
        numbers = tuple(float(v) for v in value)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) not in counts or not all(map(math.isfinite, numbers)):
        raise t._fail(f"{name}={value!r} must be a list of {' or '.join(map(str, counts))} numbers")
    return numbers


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _angles(t: Transform, name: str, value: Any, counts: tuple[int, ...]) -> tuple[float, ...]:
    if _is_number(value):
        if value < 0:
            raise t._fail(f"{name}={value!r}: a single number must not be negative, it stands for (-x, x)")
        return (-float(value), float(value))
    return _numbers(t, name, value, counts)


def _warp_interpolation(t: Transform, value: Any) -> str:
    name = str(getattr(value, "value", value)).lower()
    if name not in ("nearest", "bilinear"):
        raise t._fail(f"interpolation={value!r}; there are: nearest, bilinear")
    return name


def _optional_fill(t: Transform, value: Any) -> Fill:
    return None if value is None else check_fill(t, value)


def _center(t: Transform, value: Any) -> tuple[float, ...] | None:
    return None if value is None else _numbers(t, "center", value, (2,))


@dataclass(frozen=True, repr=False)
class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue, in a random order.

    Args:
        brightness: the factor is drawn from ``[max(0, 1 - brightness), 1 + brightness]``,
            or from the given ``(min, max)``. None or 0 changes nothing.
        contrast: as ``brightness``.
        saturation: as ``brightness``.
        hue: the shift, as a share of a full turn, is drawn from ``[-hue, hue]`` or from the
            given ``(min, max)``, within -0.5 and 0.5.
    """

    brightness: Range | None = None
    contrast: Range | None = None
    saturation: Range | None = None
    hue: Range | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name in ("brightness", "contrast", "saturation"):
            self._set(**{name: self._factor(name, getattr(self, name), 1.0, 0.0, 1e6)})
        self._set(hue=self._factor("hue", self.hue, 0.0, -0.5, 0.5))

    def _factor(self, name: str, value: Any, center: float, low: float, high: float) -> Any:
        if value is None:
            return None
        if _is_number(value):
            if value < 0 or not math.isfinite(value) or center + value > high:
                raise self._fail(f"{name}={value!r} must be a number from 0 to {high - center:g}, or (min, max)")
            return value
        return check_range(self, name, value, low, high)


@dataclass(frozen=True, repr=False)
class Grayscale(Transform):
    """Convert to gray.

    Args:
        num_output_channels: 1, or 3 equal ones.
    """

    num_output_channels: int = 1

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.num_output_channels not in (1, 3):
            raise self._fail(f"num_output_channels={self.num_output_channels!r} must be 1 or 3")


@dataclass(frozen=True, repr=False)
class _WithProbability(Transform):
    p: float = 0.5

    def __post_init__(self) -> None:
        """Check the arguments."""
        self._set(p=check_probability(self, "p", self.p))


@dataclass(frozen=True, repr=False)
class RandomGrayscale(_WithProbability):
    """Convert to gray, with three equal channels, with probability ``p``."""

    p: float = 0.1


@dataclass(frozen=True, repr=False)
class RandomInvert(_WithProbability):
    """Invert the colours with probability ``p``."""


@dataclass(frozen=True, repr=False)
class RandomAutocontrast(_WithProbability):
    """Stretch each channel to the full range with probability ``p``."""


@dataclass(frozen=True, repr=False)
class RandomEqualize(_WithProbability):
    """Equalize the histogram of each channel with probability ``p``."""


@dataclass(frozen=True, repr=False)
class RandomPosterize(Transform):
    """Keep only the upper bits of each channel, with probability ``p``.

    Args:
        bits: how many, 0 to 8.
        p: probability.
    """

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        """Check the arguments."""
        self._set(bits=_whole(self, "bits", self.bits, 0, 8), p=check_probability(self, "p", self.p))


@dataclass(frozen=True, repr=False)
class RandomSolarize(Transform):
    """Invert the values at or above a threshold, with probability ``p``.

    Args:
        threshold: in units of the pixels: at most 255 where they are ``uint8``.
        p: probability.
    """

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        """Check the arguments."""
        threshold = _number(self, "threshold", self.threshold, high=65535)
        self._set(threshold=threshold, p=check_probability(self, "p", self.p))


@dataclass(frozen=True, repr=False)
class RandomAdjustSharpness(Transform):
    """Sharpen or soften with probability ``p``.

    Args:
        sharpness_factor: 0 gives a smoothed image, 1 the image, 2 twice its sharpness.
        p: probability.
    """

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        """Check the arguments."""
        factor = _number(self, "sharpness_factor", self.sharpness_factor, 0, 1e6)
        self._set(sharpness_factor=factor, p=check_probability(self, "p", self.p))


@dataclass(frozen=True, repr=False)
class GaussianBlur(Transform):
    """Blur with a Gaussian of random width; borders are reflected.

    Args:
        kernel_size: odd number of taps, or ``(columns, rows)``.
        sigma: standard deviation in pixels, or the range ``(min, max)`` it is drawn from.
    """

    kernel_size: int | Sequence[int]
    sigma: Range = (0.1, 2.0)

    def __post_init__(self) -> None:
        """Check the arguments."""
        size = self.kernel_size
        taps = (size,) if isinstance(size, int) else size
        try:
            taps = tuple(taps)
        except TypeError:
            taps = ()
        odd = all(isinstance(k, int) and not isinstance(k, bool) and k % 2 == 1 and 1 <= k <= 1023 for k in taps)
        if len(taps) not in (1, 2) or not odd:
            raise self._fail(f"kernel_size={size!r} must be an odd number from 1 to 1023, or two")
        sigma = (self.sigma, self.sigma) if _is_number(self.sigma) else self.sigma
        low, high = check_range(self, "sigma", sigma, 0, 1e6)
        if low <= 0:
            raise self._fail(f"sigma={self.sigma!r} must be larger than 0")
        self._set(kernel_size=taps * (2 // len(taps)), sigma=(low, high))


@dataclass(frozen=True, repr=False)
class RandomRotation(Transform):
    """Rotate by a random angle.

    Args:
        degrees: range of angles, anticlockwise: x for ``(-x, x)``, or ``(min, max)``.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        expand: make the image large enough for all of it; as its size then depends on
            the angle, a transform that fixes the size must follow.
        center: fixed point ``(x, y)`` from the upper left corner; by default the centre.
        fill: colour of what lies outside, one number or one for each channel.
    """

    degrees: Range
    interpolation: str = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: Fill = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        self._set(
            degrees=_angles(self, "degrees", self.degrees, (2,)),
            interpolation=_warp_interpolation(self, self.interpolation),
            expand=bool(self.expand),
            center=_center(self, self.center),
            fill=_optional_fill(self, self.fill),
        )


@dataclass(frozen=True, repr=False)
class RandomAffine(Transform):
    """Rotate, move, scale and shear at random.

    Args:
        degrees: range of angles, clockwise: x for ``(-x, x)``, or ``(min, max)``; 0 does not rotate.
        translate: largest shift as a share of width and height, ``(a, b)`` within 0 and 1.
        scale: range of factors ``(min, max)``.
        shear: range of angles: x for ``(-x, x)`` along the x axis, ``(min, max)``, or
            ``(min x, max x, min y, max y)``.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: colour of what lies outside, one number or one for each channel.
        center: fixed point ``(x, y)`` from the upper left corner; by default the centre.
    """

    degrees: Range
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: Range | None = None
    interpolation: str = "nearest"
    fill: Fill = 0
    center: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        translate, scale, shear = self.translate, self.scale, self.shear
        if translate is not None:
            translate = _numbers(self, "translate", translate, (2,))
            if not all(0 <= t <= 1 for t in translate):
                raise self._fail(f"translate={self.translate!r} must be between 0 and 1")
        if scale is not None:
            scale = _numbers(self, "scale", scale, (2,))
            if not all(1e-6 < s < 1e6 for s in scale):
                raise self._fail(f"scale={self.scale!r} must be positive")
        if shear is not None:
            shear = _angles(self, "shear", shear, (2, 4))
            if not all(-90 < s < 90 for s in shear):
                raise self._fail(f"shear={self.shear!r} must be between -90 and 90 degrees")
        self._set(
            degrees=_angles(self, "degrees", self.degrees, (2,)),
            translate=translate,
            scale=scale,
            shear=shear,
            interpolation=_warp_interpolation(self, self.interpolation),
            fill=_optional_fill(self, self.fill),
            center=_center(self, self.center),
        )


@dataclass(frozen=True, repr=False)
class RandomPerspective(Transform):
    """Look at the image from a random side with probability ``p``: each corner moves inwards.

    Args:
        distortion_scale: how far the corners move at most, as a share of half the width and height.
        p: probability.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: colour of what lies outside, one number or one for each channel.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: str = "bilinear"
    fill: Fill = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not 0 <= self.distortion_scale <= 1:
            raise self._fail(f"distortion_scale={self.distortion_scale!r} must be between 0 and 1")
        self._set(
            distortion_scale=float(self.distortion_scale),
            p=check_probability(self, "p", self.p),
            interpolation=_warp_interpolation(self, self.interpolation),
            fill=_optional_fill(self, self.fill),
        )


@dataclass(frozen=True, repr=False)
class ElasticTransform(Transform):
    """Move every pixel by smoothed noise, as if the image were seen through water.

    Boxes and key points follow as in torchvision: by the opposite of the displacement at their place, which is near
    the truth where displacements are small.

    Args:
        alpha: how far pixels are moved, a number or ``(x, y)``.
        sigma: how smooth the displacements are, in pixels, a number or ``(x, y)``.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: colour of what lies outside, one number or one for each channel.
    """

    alpha: float | Sequence[float] = 50.0
    sigma: float | Sequence[float] = 5.0
    interpolation: str = "bilinear"
    fill: Fill = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        pairs = {}
        for name in ("alpha", "sigma"):
            value = getattr(self, name)
            pairs[name] = _numbers(self, name, value if isinstance(value, Sequence) else [value], (1, 2))
        if min(pairs["sigma"]) < 0:
            raise self._fail(f"sigma={self.sigma!r} must not be negative")
        self._set(
            **pairs,
            interpolation=_warp_interpolation(self, self.interpolation),
            fill=_optional_fill(self, self.fill),
        )


@dataclass(frozen=True, repr=False)
class RandomErasing(Transform):
    """Erase a random box with probability ``p``.

    Behind ``Normalize``, ``value`` is a normalised value, so 0 is the mean colour;
    before ``ToDtype`` it is a pixel value.

    Args:
        p: probability.
        scale: smallest and largest area of the box, as a share of the image's.
        ratio: smallest and largest aspect ratio (height / width) of the box.
        value: one number, one for each channel, or ``"random"``: noise from the standard normal distribution,
            which goes behind ``Normalize``.
        inplace: without meaning here; taken so that lists can be carried over.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | str = 0.0
    inplace: bool = False

    def __post_init__(self) -> None:
        """Check the arguments."""
        value = self.value
        if isinstance(value, str):
            if value != "random":
                raise self._fail(f'value={value!r} must be a number, one for each channel, or "random"')
        elif _is_number(value):
            value = _number(self, "value", value)
        else:
            value = _numbers(self, "value", value, (1, 2, 3, 4))
        ratio = check_range(self, "ratio", self.ratio, 0, 1e6)
        if ratio[0] <= 0:
            raise self._fail(f"ratio={self.ratio!r} must be larger than 0")
        self._set(
            p=check_probability(self, "p", self.p),
            scale=check_range(self, "scale", self.scale, 0, 1),
            ratio=ratio,
            value=value,
            inplace=bool(self.inplace),
        )


class AutoAugmentPolicy(enum.Enum):
    """The policies of ``AutoAugment``, by the data they were learnt on."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


@dataclass(frozen=True, repr=False)
class AutoAugment(Transform):
    """One of 25 learnt pairs of operations (AutoAugment, arXiv:1805.09501).

    Args:
        policy: ``AutoAugmentPolicy`` or its value: ``"imagenet"``, ``"cifar10"``, ``"svhn"``.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: colour of what lies outside, one number or one for each channel; None is black.
    """

    policy: Any = "imagenet"
    interpolation: str = "nearest"
    fill: Fill = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        policy = getattr(self.policy, "value", self.policy)
        known = [p.value for p in AutoAugmentPolicy]
        if policy not in known:
            raise self._fail(f"policy={self.policy!r}; there are: {', '.join(known)}")
        self._set(
            policy=policy,
            interpolation=_warp_interpolation(self, self.interpolation),
            fill=_optional_fill(self, self.fill),
        )


@dataclass(frozen=True, repr=False)
class RandAugment(Transform):
    """``num_ops`` random operations of one strength (RandAugment, arXiv:1909.13719).

    Args:
        num_ops: how many.
        magnitude: strength, from 0 to ``num_magnitude_bins - 1``.
        num_magnitude_bins: number of strengths.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: colour of what lies outside, one number or one for each channel; None is black.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: Fill = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        bins = _whole(self, "num_magnitude_bins", self.num_magnitude_bins, 2, 1 << 20)
        _whole(self, "num_ops", self.num_ops, 0, 256)
        _whole(self, "magnitude", self.magnitude, 0, bins - 1)
        self._set(interpolation=_warp_interpolation(self, self.interpolation), fill=_optional_fill(self, self.fill))


@dataclass(frozen=True, repr=False)
class TrivialAugmentWide(Transform):
    """One random operation of random strength (TrivialAugment, arXiv:2103.10158).

    Args:
        num_magnitude_bins: number of strengths.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: colour of what lies outside, one number or one for each channel; None is black.
    """

    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: Fill = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        _whole(self, "num_magnitude_bins", self.num_magnitude_bins, 2, 1 << 20)
        self._set(interpolation=_warp_interpolation(self, self.interpolation), fill=_optional_fill(self, self.fill))


@dataclass(frozen=True, repr=False)
class _Composite(Transform):
    transforms: Sequence[Transform]

    def __post_init__(self) -> None:
        """Check the arguments."""
        value: Any = self.transforms
        if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
            raise self._fail(f"transforms={value!r} must be a list of at least one transform")
        for t in value:
            if isinstance(t, type) and issubclass(t, Transform):
                raise self._fail(f"{t.__name__} is a class; write {t.__name__}(...)")
            if not isinstance(t, Transform):
                raise self._fail(f"{t!r} is not a stoker transform")
        self._set(transforms=tuple(value))


@dataclass(frozen=True, repr=False)
class Compose(_Composite):
    """Do several transforms one after the other: one entry where one is wanted.

    Args:
        transforms: the transforms.
    """


@dataclass(frozen=True, repr=False)
class RandomApply(_Composite):
    """Do a list of transforms with probability ``p``.

    Args:
        transforms: the transforms; in ``batch_transforms``, one transform of batches.
        p: probability.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        self._set(p=check_probability(self, "p", self.p))


@dataclass(frozen=True, repr=False)
class RandomChoice(_Composite):
    """Do one of several transforms.

    Args:
        transforms: the transforms, of images or, in ``batch_transforms``, of batches.
        p: their probabilities; they are divided by their sum. Default: all alike.
    """

    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        if self.p is None:
            return
        p = _numbers(self, "p", self.p, (len(self.transforms),))
        if any(x < 0 for x in p) or sum(p) <= 0:
            raise self._fail(f"p={self.p!r} must not be negative and not all 0")
        self._set(p=p)


@dataclass(frozen=True, repr=False)
class OneOf(RandomChoice):
    """Another name for ``RandomChoice``."""


@dataclass(frozen=True, repr=False)
class RandomOrder(_Composite):
    """Do several transforms in a random order.

    Args:
        transforms: the transforms.
    """


@dataclass(frozen=True, repr=False, kw_only=True)
class _Mix(Transform):
    alpha: float = 1.0
    num_classes: int | None = None
    labels: str | None = None
    images: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        alpha = _number(self, "alpha", self.alpha, 0, 1e6)
        if alpha <= 0:
            raise self._fail(f"alpha={self.alpha!r} must be larger than 0")
        if self.num_classes is not None:
            _whole(self, "num_classes", self.num_classes, 1, 1 << 20)
        images: Any = self.images
        if images is not None:
            images = (images,) if isinstance(images, str) else tuple(images)
        self._set(alpha=alpha, images=images)


@dataclass(frozen=True, repr=False, kw_only=True)
class MixUp(_Mix):
    """Mix each image and label of a batch with the one before it (MixUp, arXiv:1710.09412).

    The share of the image itself is drawn per batch from Beta(alpha, alpha). The
    batch gains an array of soft labels: ``batch["label_soft"]``, float32, one column per class.
    Shuffle, so that neighbours differ. A batch is what one rank gets, so other
    world sizes make other pairs. Where images have boxes, the mixed one has those of both.

    Args:
        alpha: parameter of the Beta distribution.
        num_classes: number of classes; by default what the source says.
        labels: name of the labels, where there are several.
        images: names of the arrays to mix; by default all images.
    """


@dataclass(frozen=True, repr=False, kw_only=True)
class CutMix(_Mix):
    """Paste a random box of the record before into each image of a batch (CutMix, arXiv:1905.04899).

    The labels are mixed by area, as ``MixUp`` does: see there.

    Args:
        alpha: parameter of the Beta distribution of the share that is kept.
        num_classes: number of classes; by default what the source says.
        labels: name of the labels, where there are several.
        images: names of the arrays to mix, of one size; by default all images.
    """
