"""Augmentations of torchvision as operations of the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ... import transforms as st
from . import _proof
from ._common import meant
from ._library import Unknown
from ._program import PICTURE, Program, fill_of, pixels

Known = dict[str, Callable[[Any, Program], None]]


def _warp_interpolation(t: Any) -> Any:
    name = str(getattr(t.interpolation, "value", t.interpolation))
    if name == "nearest-exact":
        name = "nearest"
    if name not in ("nearest", "bilinear"):
        raise Unknown(f"{type(t).__name__} with interpolation {name}: the engine has nearest and bilinear")
    return name


def _fill_for(t: Any, p: Program) -> Any:
    fill = fill_of(t)
    if isinstance(fill, tuple) and len(fill) != p.channels:
        raise Unknown(f"{type(t).__name__} with {len(fill)} fills of {p.channels} channels")
    return fill


def _color_jitter(t: Any, p: Program) -> None:
    ranges = {k: getattr(t, k) for k in ("brightness", "contrast", "saturation", "hue")}
    op = st.ColorJitter(**{k: None if v is None else tuple(map(float, v)) for k, v in ranges.items()})
    p.add_pixels(op, random=True)


def _random_grayscale(t: Any, p: Program) -> None:
    if p.channels == 3:
        p.add_pixels(st.RandomGrayscale(float(t.p)), random=True)


def _with_p(make: Callable[[float], st.Transform]) -> Callable[[Any, Program], None]:
    def add(t: Any, p: Program) -> None:
        p.add_pixels(make(float(t.p)), random=0 < t.p < 1)

    return add


def _posterize(t: Any, p: Program) -> None:
    p.add_pixels(st.RandomPosterize(int(t.bits), float(t.p)), random=0 < t.p < 1)


def _solarize(t: Any, p: Program) -> None:
    p.add_pixels(st.RandomSolarize(float(t.threshold), float(t.p)), random=0 < t.p < 1)


def _sharpness(t: Any, p: Program) -> None:
    p.add_pixels(st.RandomAdjustSharpness(float(t.sharpness_factor), float(t.p)), random=0 < t.p < 1)


def _pair(value: Any) -> tuple[float, float]:
    low, high = map(float, value)
    return low, high


def _blur(t: Any, p: Program) -> None:
    # torchvision makes tensors of pictures for it.
    p.add(st.GaussianBlur(tuple(map(int, t.kernel_size)), _pair(t.sigma)), random=True)


def _rotation(t: Any, p: Program) -> None:
    if t.expand and p.state == PICTURE:
        raise Unknown("RandomRotation with expand=True of pictures, whose size is Pillow's")
    center = None if t.center is None else _pair(t.center)
    op = st.RandomRotation(_pair(t.degrees), _warp_interpolation(t), bool(t.expand), center, _fill_for(t, p))
    p.add_pixels(op, random=True)


def _affine(t: Any, p: Program) -> None:
    translate, scale, center = (None if v is None else _pair(v) for v in (t.translate, t.scale, t.center))
    shear = None if t.shear is None else tuple(map(float, t.shear))
    interpolation, fill = _warp_interpolation(t), _fill_for(t, p)
    p.add_pixels(st.RandomAffine(_pair(t.degrees), translate, scale, shear, interpolation, fill, center), random=True)


def _perspective(t: Any, p: Program) -> None:
    interpolation, fill = _warp_interpolation(t), _fill_for(t, p)
    p.add_pixels(st.RandomPerspective(float(t.distortion_scale), float(t.p), interpolation, fill), random=True)


def _elastic(t: Any, p: Program) -> None:
    # torchvision makes tensors of pictures for it.
    p.add(st.ElasticTransform(_pair(t.alpha), _pair(t.sigma), _warp_interpolation(t), _fill_for(t, p)), random=True)


def _pad(t: Any, p: Program) -> None:
    if t.padding_mode != "constant":
        raise Unknown(f"Pad with padding_mode={t.padding_mode!r}: the engine's is constant")
    padding = list(t.padding) if isinstance(t.padding, list | tuple) else t.padding
    if isinstance(padding, list) and len(padding) == 1:
        padding = padding[0]
    fill = _fill_for(t, p)
    p.add(st.Pad(padding, 0 if fill is None else fill))


# The operations of torchvision's policies, in their order.
_POLICY = (
    *("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast"),
    *("Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert"),
)


def _magnitudes(t: Any, bins: int, names: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return the magnitudes of a policy's operations, except those that depend on the size of a picture."""
    found: dict[str, tuple[float, ...]] = {}
    whole = meant(type(t)).__name__ == "TrivialAugmentWide"
    if hasattr(type(t), "_AUGMENTATION_SPACE"):  # of v2
        functions = {name: f for name, (f, _) in type(t)._AUGMENTATION_SPACE.items()}
        for name, f in functions.items():
            _proof.check_function(f, name)
        lines = [f.__code__.co_firstlineno for f in functions.values()]  # each stands in the place of its name
        space, white = {name: (f(bins, 1, 1), False) for name, f in functions.items()}, 255.0
    else:
        space, white, lines = t._augmentation_space(*((bins,) if whole else (bins, (1, 1)))), 1.0, []
    if tuple(space) != tuple(names) or lines != sorted(lines):
        raise Unknown(f"the operations of {type(t).__name__} were changed")
    for name, (values, _) in space.items():
        if values is None or values.ndim == 0 or (name.startswith("Translate") and not whole):
            continue
        found[name] = tuple(values.tolist())
    # Pixels are whole numbers: half below the threshold is the same one, and needs no exact product.
    found["Solarize"] = tuple((math.ceil(v * white) - 0.5) / 255 for v in found["Solarize"])
    return found


def _rand_augment(t: Any, p: Program) -> None:
    bins = int(t.num_magnitude_bins)
    op = st.RandAugment(int(t.num_ops), int(t.magnitude), bins, _warp_interpolation(t), _fill_for(t, p))
    p.add_policy(op, _magnitudes(t, bins, _POLICY[:-1]))


def _trivial_augment(t: Any, p: Program) -> None:
    bins = int(t.num_magnitude_bins)
    op = st.TrivialAugmentWide(bins, _warp_interpolation(t), _fill_for(t, p))
    p.add_policy(op, _magnitudes(t, bins, _POLICY[:-1]))


def _auto_augment(t: Any, p: Program) -> None:
    policies = t.policies if hasattr(t, "policies") else t._policies
    if policies != t._get_policies(t.policy):
        raise Unknown("the policies of AutoAugment were changed")
    op = st.AutoAugment(t.policy.value, _warp_interpolation(t), _fill_for(t, p))
    p.add_policy(op, _magnitudes(t, 10, _POLICY[1:]))


def _on_pixels(known: Known) -> Known:
    """Return the same, for pictures and tensors of bytes alone."""

    def checked(add: Callable[[Any, Program], None]) -> Callable[[Any, Program], None]:
        def check(t: Any, p: Program) -> None:
            pixels(t, p)
            add(t, p)

        return check

    return {name: checked(add) for name, add in known.items()}


_V1, _V2 = "torchvision.transforms.transforms.", "torchvision.transforms.v2."
_POLICIES_V1, _POLICIES_V2 = "torchvision.transforms.autoaugment.", _V2 + "_auto_augment."

KNOWN: Known = _on_pixels(
    {
        _V1 + "ColorJitter": _color_jitter,
        _V2 + "_color.ColorJitter": _color_jitter,
        _V1 + "RandomGrayscale": _random_grayscale,
        _V2 + "_color.RandomGrayscale": _random_grayscale,
        _V1 + "RandomInvert": _with_p(st.RandomInvert),
        _V2 + "_color.RandomInvert": _with_p(st.RandomInvert),
        _V1 + "RandomAutocontrast": _with_p(st.RandomAutocontrast),
        _V2 + "_color.RandomAutocontrast": _with_p(st.RandomAutocontrast),
        _V1 + "RandomEqualize": _with_p(st.RandomEqualize),
        _V2 + "_color.RandomEqualize": _with_p(st.RandomEqualize),
        _V1 + "RandomPosterize": _posterize,
        _V2 + "_color.RandomPosterize": _posterize,
        _V1 + "RandomSolarize": _solarize,
        _V2 + "_color.RandomSolarize": _solarize,
        _V1 + "RandomAdjustSharpness": _sharpness,
        _V2 + "_color.RandomAdjustSharpness": _sharpness,
        _V1 + "GaussianBlur": _blur,
        _V2 + "_misc.GaussianBlur": _blur,
        _V1 + "RandomRotation": _rotation,
        _V2 + "_geometry.RandomRotation": _rotation,
        _V1 + "RandomAffine": _affine,
        _V2 + "_geometry.RandomAffine": _affine,
        _V1 + "RandomPerspective": _perspective,
        _V2 + "_geometry.RandomPerspective": _perspective,
        _V1 + "ElasticTransform": _elastic,
        _V2 + "_geometry.ElasticTransform": _elastic,
        _V1 + "Pad": _pad,
        _V2 + "_geometry.Pad": _pad,
        _POLICIES_V1 + "RandAugment": _rand_augment,
        _POLICIES_V2 + "RandAugment": _rand_augment,
        _POLICIES_V1 + "TrivialAugmentWide": _trivial_augment,
        _POLICIES_V2 + "TrivialAugmentWide": _trivial_augment,
        _POLICIES_V1 + "AutoAugment": _auto_augment,
        _POLICIES_V2 + "AutoAugment": _auto_augment,
    }
)
