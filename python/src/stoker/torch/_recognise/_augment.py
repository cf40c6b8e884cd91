"""Augmentations of torchvision as operations of the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ... import transforms as st
from . import _proof
from ._common import meant
from ._library import Unknown
from ._program import PICTURE, Program, both, fill_of, pixels

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


def _with_p(make: Callable[..., st.Transform], **first: Callable[[Any], Any]) -> Callable[[Any, Program], None]:
    """Return how a transform with a probability is added. ``first`` has its other parameters, and their types."""

    def add(t: Any, p: Program) -> None:
        values = [kind(getattr(t, name)) for name, kind in first.items()]
        p.add_pixels(make(*values, float(t.p)), random=0 < t.p < 1)

    return add


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


_POLICY_MODULES = ("torchvision.transforms.autoaugment.", "torchvision.transforms.v2._auto_augment.")

KNOWN: Known = _on_pixels(
    {
        **both(
            "_color",
            ColorJitter=_color_jitter,
            RandomGrayscale=_random_grayscale,
            RandomInvert=_with_p(st.RandomInvert),
            RandomAutocontrast=_with_p(st.RandomAutocontrast),
            RandomEqualize=_with_p(st.RandomEqualize),
            RandomPosterize=_with_p(st.RandomPosterize, bits=int),
            RandomSolarize=_with_p(st.RandomSolarize, threshold=float),
            RandomAdjustSharpness=_with_p(st.RandomAdjustSharpness, sharpness_factor=float),
        ),
        **both("_misc", GaussianBlur=_blur),
        **both(
            "_geometry",
            RandomRotation=_rotation,
            RandomAffine=_affine,
            RandomPerspective=_perspective,
            ElasticTransform=_elastic,
            Pad=_pad,
        ),
        **{at + "RandAugment": _rand_augment for at in _POLICY_MODULES},
        **{at + "TrivialAugmentWide": _trivial_augment for at in _POLICY_MODULES},
        **{at + "AutoAugment": _auto_augment for at in _POLICY_MODULES},
    }
)
