"""Transforms of volumes, with the names, arguments and formulas of MONAI.

Volumes are ``[z, y, x]``, or have channels in front; the spatial axes 0, 1 and 2 are z, y and x. A list of them works
on fields that are volumes: ``fields={"image": [volume.RandSpatialCrop(96), volume.RandFlip(0.5, 0)], "label": [...]}``.
Volumes of classes (labels, masks) are moved by the same random numbers as the image when they have the same moves at
the same places of their list, and their values are left alone. A crop that is first in a list is all that is read of a
volume, where the format allows that. What changes values makes ``float32``. The engine checks all arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ._transform import Transform

__all__ = [
    "CenterSpatialCrop",
    "NormalizeIntensity",
    "RandFlip",
    "RandRotate90",
    "RandScaleIntensity",
    "RandShiftIntensity",
    "RandSpatialCrop",
    "ResizeWithPadOrCrop",
    "ScaleIntensity",
    "ScaleIntensityRange",
    "SpatialPad",
]

Sides = int | Sequence[int]


@dataclass(frozen=True, repr=False)
class RandSpatialCrop(Transform):
    """Cut a part out at a random place. Volumes that are smaller stay as they are along those axes.

    Args:
        roi_size: voxels along z, y and x, or one number for all; -1 is all of an axis.
        max_roi_size: the most of them, with ``random_size``; by default all of the volume.
        random_center: draw the place; otherwise the middle is cut out.
        random_size: draw the size, too: behind it stands ``SpatialPad`` or ``ResizeWithPadOrCrop``.
    """

    roi_size: Sides
    max_roi_size: Sides | None = None
    random_center: bool = True
    random_size: bool = False


@dataclass(frozen=True, repr=False)
class CenterSpatialCrop(Transform):
    """Cut the middle out.

    Args:
        roi_size: voxels along z, y and x, or one number for all; -1 is all of an axis.
    """

    roi_size: Sides


@dataclass(frozen=True, repr=False)
class SpatialPad(Transform):
    """Fill up to at least a size.

    Args:
        spatial_size: voxels along z, y and x, or one number for all; -1 leaves an axis alone.
        method: ``"symmetric"`` fills at both ends, ``"end"`` at the end.
        mode: ``"constant"``.
        value: what is filled in.
    """

    spatial_size: Sides
    method: str = "symmetric"
    mode: str = "constant"
    value: float = 0.0


@dataclass(frozen=True, repr=False)
class ResizeWithPadOrCrop(Transform):
    """Cut the middle out, or fill up, to exactly a size.

    Args:
        spatial_size: voxels along z, y and x, or one number for all; -1 leaves an axis alone.
        method: ``"symmetric"`` fills at both ends, ``"end"`` at the end.
        mode: ``"constant"``.
        value: what is filled in.
    """

    spatial_size: Sides
    method: str = "symmetric"
    mode: str = "constant"
    value: float = 0.0


@dataclass(frozen=True, repr=False)
class RandFlip(Transform):
    """Turn axes round at random.

    Args:
        prob: how often.
        spatial_axis: the axes, one or several: 0 is z, 1 is y, 2 is x; by default all.
    """

    prob: float = 0.1
    spatial_axis: int | Sequence[int] | None = None


@dataclass(frozen=True, repr=False)
class RandRotate90(Transform):
    """Turn by 90, 180 or 270 degrees at random.

    Args:
        prob: how often.
        max_k: the number of quarters is drawn from 1 to this.
        spatial_axes: the plane, from its first axis towards its second.
    """

    prob: float = 0.1
    max_k: int = 3
    spatial_axes: Sequence[int] = (0, 1)


@dataclass(frozen=True, repr=False)
class RandScaleIntensity(Transform):
    """Multiply values by ``1 + factor``, at random.

    Args:
        factors: the factor is drawn between these two, or between minus and plus a number.
        prob: how often.
    """

    factors: float | Sequence[float]
    prob: float = 0.1


@dataclass(frozen=True, repr=False)
class RandShiftIntensity(Transform):
    """Add a random number to values.

    Args:
        offsets: it is drawn between these two, or between minus and plus a number.
        safe: has no meaning, since values become ``float32``.
        prob: how often.
    """

    offsets: float | Sequence[float]
    safe: bool = False
    prob: float = 0.1


@dataclass(frozen=True, repr=False)
class ScaleIntensity(Transform):
    """Make the smallest value of a volume ``minv`` and the largest ``maxv``.

    Args:
        minv: the smallest.
        maxv: the largest.
        factor: multiply by ``1 + factor`` in place of that.
    """

    minv: float = 0.0
    maxv: float = 1.0
    factor: float | None = None


@dataclass(frozen=True, repr=False)
class ScaleIntensityRange(Transform):
    """Make ``a_min`` to ``a_max`` into ``b_min`` to ``b_max``, such as Hounsfield units into 0 to 1.

    Args:
        a_min: from.
        a_max: to.
        b_min: what ``a_min`` becomes; without it and ``b_max``, 0.
        b_max: what ``a_max`` becomes; without it and ``b_min``, 1.
        clip: leave nothing outside of ``b_min`` to ``b_max``.
    """

    a_min: float
    a_max: float
    b_min: float | None = None
    b_max: float | None = None
    clip: bool = False


@dataclass(frozen=True, repr=False)
class NormalizeIntensity(Transform):
    """Subtract the mean of a volume and divide by its standard deviation.

    Args:
        subtrahend: what is subtracted in place of the mean; with ``channel_wise`` one for each channel.
        divisor: what is divided by in place of the standard deviation.
        nonzero: look only at values that are not 0, and change only them.
        channel_wise: each channel by itself.
    """

    subtrahend: float | Sequence[float] | None = None
    divisor: float | Sequence[float] | None = None
    nonzero: bool = False
    channel_wise: bool = False
