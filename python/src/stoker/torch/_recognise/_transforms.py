"""Transforms of torchvision as operations of the engine."""

from __future__ import annotations

import collections
import enum
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ... import transforms as st
from ..._errors import ConfigError
from . import _augment, _proof
from ._common import meant
from ._library import INSTEAD_OF, Unknown, check_class, check_instance, forwards_to, qualified
from ._program import ARRAY, BYTES, FLOATS, PICTURE, UNIT, V1, V2, Program, both, fill_of, only, pixels

__all__ = [
    "ARRAY", "BYTES", "FLOATS", "PICTURE", "UNIT", "Program", "Unchanged", "is_list", "parts_of", "recognise",
    "settled", "translate",
]  # fmt: skip


def recognise(transform: Any, channels: int, *, split: bool = False, pictures: bool = False) -> Program:
    """Return a transform's operations, or raise Unknown.

    With ``split``, a known beginning is enough: Python runs the rest, after the point where all pictures have one size.
    With ``pictures`` the result may be pictures.
    """
    _proof.check_settings()
    parts = parts_of(transform)
    program, good, at = Program(channels=channels), Program(), 0
    for i, part in enumerate(parts):
        try:
            _add(part, program)
        except Unknown as reason:
            if not split or not at:
                if split and not reason.step:
                    name = getattr(part, "__qualname__", type(part).__name__)
                    reason.step = (
                        f"put a crop or Resize((height, width)) before {name}: the engine runs it, and all before it"
                    )
                raise
            good.rest, good.why, good.step = parts[at:], str(reason), reason.step
            return good
        if program.plain and program.wrapped is not None and program.sized:
            good, at = program.copy(), i + 1
    if program.state == PICTURE and not (pictures and program.sized):
        raise Unknown("it gives pictures and no tensors")
    return program


def translate(transforms: Sequence[Any]) -> Program:
    """Return the engine's operations for a list of the libraries' transforms, and of Stoker's own, or raise Unknown.

    The list describes the engine's work, so the current state of the libraries' functions does not matter.
    """
    program = Program(proven=False)
    for transform in transforms:
        if isinstance(transform, st.Transform):
            program.add(transform)
            if isinstance(transform, st.ToDtype | st.Normalize):
                program.state = UNIT if isinstance(transform, st.ToDtype) and transform.scale else FLOATS
            continue
        parts: list[Any] = []
        _flatten(transform, parts, 0, proven=False)
        for part in parts:
            _add(part, program)
    return program


def parts_of(transform: Any) -> list[Any]:
    """Return the transforms that a transform calls in order."""
    parts: list[Any] = []
    _flatten(transform, parts, 0)
    return parts


def settled(transform: Any, channels: int, program: Program) -> list[Any]:
    """Return the parts of a transform that the engine runs and that draw no random numbers, in order."""
    parts = parts_of(transform)
    now, found = Program(channels=channels), []
    for part in parts[: len(parts) - len(program.rest)]:
        now.random = False
        _add(part, now)
        if not now.random:
            found.append(part)
    return found


def is_list(transform: Any) -> bool:
    """Say whether something is a list of transforms, of a library's."""
    return qualified(meant(type(transform))) in _CONTAINERS


class Unchanged:
    """Reports quickly whether a transform still matches the recognised one, also during an epoch."""

    def __init__(self, transform: Any, rest: int) -> None:
        """Remember it, without the number of its last parts that Python runs."""
        self._inner: list[tuple[Any, str, list[Any]]] = []
        parts: list[Any] = []
        self._walk(transform, parts)
        done = parts[: len(parts) - rest]
        inner = [part for outer in done for part in _with_inner(outer)]
        around = [of for of, _, _ in self._inner]
        # An object of the program only calls the objects that it holds.
        containers = [of for of in around if not forwards_to(meant(type(of)), "__call__")]
        self._kinds = [_Kind(part) for part in (*around, *inner)]
        self._states = [_State(part) for part in (*containers, *inner)]

    def _walk(self, transform: Any, parts: list[Any]) -> None:
        kind = meant(type(transform))
        name = qualified(kind)
        if name in _CONTAINERS:
            attribute = "transforms"
        elif kind is torch.nn.Sequential:
            attribute = "_modules"
        else:
            attribute = "" if name in _KNOWN else forwards_to(kind, "__call__") or ""
        if attribute not in vars(transform):
            parts.append(transform)
            return
        now = _inside(transform, attribute)
        self._inner.append((transform, attribute, now))
        for inner in now:
            self._walk(inner, parts)

    def __call__(self) -> bool:
        """Compare."""
        try:
            for of, attribute, before in self._inner:
                now = _inside(of, attribute)
                if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                    return False
            return all(same() for same in self._kinds) and all(same() for same in self._states)
        except (ValueError, RuntimeError):  # of arrays and tensors that are compared
            return False


def _inside(transform: Any, attribute: str) -> list[Any]:
    found = vars(transform).get(attribute)
    if isinstance(found, dict):
        return list(found.values())
    return list(found) if isinstance(found, list | tuple) else [found]


def _with_inner(part: Any) -> Iterator[Any]:
    yield part
    if qualified(meant(type(part))) in {*_CONTAINERS, *_COMPOSITES}:
        for inner in part.transforms:
            yield from _with_inner(inner)


class _Kind:
    """Compares an object's class, and the methods of classes that no library defines (_proof.watch has the others)."""

    def __init__(self, part: Any) -> None:
        self._part, self._kind = part, type(part)
        self._order = self._kind.__mro__
        own = [cls for cls in self._order[:-1] if cls.__module__.partition(".")[0] not in _proof.LIBRARIES]
        self._own = [(cls, _defined(cls)) for cls in own]

    def __reduce__(self) -> tuple[Any, ...]:
        return _Kind, (self._part,)  # another process has classes of its own

    def __call__(self) -> bool:
        """Compare."""
        same = type(self._part) is self._kind and self._kind.__mro__ is self._order
        return same and all(_defined(cls) == before for cls, before in self._own)


def _defined(cls: type) -> list[tuple[str, Any, Any]]:
    """Return the members of a class, with the code of its functions, ignoring watched calls (_pending)."""
    found = [(name, getattr(value, INSTEAD_OF, value)) for name, value in vars(cls).items()]
    return [(name, value, getattr(value, "__code__", None)) for name, value in found if value is not None]


class _State:
    """Compares an object's attributes and their contents: first whether they are the same objects."""

    def __init__(self, part: Any) -> None:
        self._part, attributes = part, vars(part)
        self._keys, self._values = list(attributes), list(attributes.values())
        self._copy = _copied(attributes)
        inside = [(v, self._copy[k]) for k, v in attributes.items() if _is_open(v)]
        self._empty = [v for v, _ in inside if type(v) in _TABLES and not v]
        self._full = [(v, copy) for v, copy in inside if type(v) not in _TABLES or v]

    def __reduce__(self) -> tuple[Any, ...]:
        return _State, (self._part,)

    def __call__(self) -> bool:
        """Compare."""
        now = vars(self._part)
        if len(now) != len(self._keys) or not all(map(operator.is_, map(now.get, self._keys), self._values)):
            return _is_like(now, self._copy)
        return not any(self._empty) and all(_is_like(value, copy) for value, copy in self._full)


_TABLES = (dict, collections.OrderedDict)
_CLOSED = (int, float, bool, str, type(None), types.FunctionType, enum.Enum)


def _is_open(value: Any) -> bool:
    """Report whether something inside of a value may change."""
    return not isinstance(value, _CLOSED) and (type(value) is not tuple or any(map(_is_open, value)))


def _copied(value: Any) -> Any:
    """Return a value with copies of all that can be changed in place: lists, dictionaries, tensors and arrays."""
    kind = type(value)
    if kind in _TABLES:
        return kind((k, _copied(v)) for k, v in value.items())
    if kind in (list, tuple):
        return kind(map(_copied, value))
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if kind in (set, np.ndarray) else value


def _is_like(now: Any, before: Any) -> bool:
    """Report whether a value is the one that was copied."""
    kind = type(now)
    if kind is not type(before):
        return False
    if kind in _TABLES:
        return now.keys() == before.keys() and all(map(_is_like, now.values(), before.values()))
    if kind in (list, tuple):
        return len(now) == len(before) and all(map(_is_like, now, before))
    if isinstance(now, torch.Tensor | np.ndarray):
        return now.dtype == before.dtype and now.shape == before.shape and bool((now == before).all())
    return now is before or bool(now == before)


def _flatten(transform: Any, parts: list[Any], depth: int, *, proven: bool = True) -> None:
    """List the transforms in the order of their calls."""
    if depth > 8:
        raise Unknown("transforms lie in each other more than 8 deep")
    kind = meant(type(transform))
    name = qualified(kind)
    if name in _CONTAINERS or name == "torch.nn.modules.container.Sequential":
        if proven:
            check_class(kind)
        check_instance(transform)
        inside = list(vars(transform)["_modules"].values()) if kind is torch.nn.Sequential else transform.transforms
        if type(inside) not in (list, tuple):
            raise Unknown(f"the transforms of a {kind.__name__} are a {type(inside).__name__} and no list")
        for inner in inside:
            _flatten(inner, parts, depth + 1, proven=proven)
        return
    if name not in _KNOWN:
        attribute = forwards_to(kind, "__call__")
        inner = getattr(transform, "__dict__", {}).get(attribute or "")
        if inner is not None:
            _flatten(inner, parts, depth + 1, proven=proven)
            return
    parts.append(transform)


def _add(transform: Any, program: Program) -> None:
    """Add a transform to the engine's operations, or raise Unknown, after which the program cannot be used."""
    kind = meant(type(transform))
    name = qualified(kind)
    known = _KNOWN.get(name)
    if known is None:
        what = name if not hasattr(transform, "__qualname__") else f"the function {transform.__qualname__}"
        raise Unknown(f"{what} is not known to the engine")
    if program.proven:
        check_class(kind)
    check_instance(transform)
    if program.wrapped and not name.startswith((V2, "torch.")):
        program.wrapped = None
    program.python = program.python or name in _PYTHONS
    try:
        known(transform, program)
    except ConfigError as error:
        raise Unknown(str(error).splitlines()[0]) from None
    program.names.append(kind.__name__)


def _members(transforms: Any, p: Program) -> list[list[st.Transform]]:
    """Return the engine's operations for each of the transforms inside another one, or raise Unknown."""
    if type(transforms) is torch.nn.ModuleList:
        if p.proven:
            check_class(torch.nn.ModuleList)
        check_instance(transforms)
    elif not isinstance(transforms, list | tuple):
        raise Unknown(f"transforms in a {type(transforms).__name__}")
    before = p.state, p.channels, p.mode
    found = []
    for t in transforms:
        inner = replace(p.copy(), ops=[])
        if is_list(t):
            if p.proven:
                check_class(meant(type(t)))
            check_instance(t)
            inner.ops = [op for ops in _members(t.transforms, inner) for op in ops]
        else:
            _add(t, inner)
        if before != (inner.state, inner.channels, inner.mode):
            raise Unknown(f"{type(t).__name__} inside another transform: put what changes types or colours outside")
        if inner.wrapped != p.wrapped:
            p.wrapped = None
        p.python = p.python or inner.python
        found.append(inner.ops)
    return found


def _one(ops: list[st.Transform]) -> st.Transform:
    """Return one operation for several, or for none."""
    return ops[0] if len(ops) == 1 else st.Compose(ops) if ops else st.RandomHorizontalFlip(0.0)


def _random_apply(t: Any, p: Program) -> None:
    ops = [op for ops in _members(t.transforms, p) for op in ops]
    if ops:
        p.add(st.RandomApply(ops, float(t.p)), random=True)


def _random_choice(t: Any, p: Program) -> None:
    shares = t.probabilities if hasattr(t, "probabilities") else t.p
    p.add(st.RandomChoice([_one(ops) for ops in _members(t.transforms, p)], shares), random=True)


def _random_order(t: Any, p: Program) -> None:
    p.add(st.RandomOrder([_one(ops) for ops in _members(t.transforms, p)]), random=True)


def _interpolation(t: Any, p: Program) -> Any:
    name = str(getattr(t.interpolation, "value", t.interpolation))
    if name not in ("bilinear", "bicubic") and not (name in ("nearest", "nearest-exact") and p.state == PICTURE):
        raise Unknown(f"{type(t).__name__} with interpolation {name}")
    if p.state == BYTES and getattr(t, "antialias", True) is not True:
        raise Unknown(f"{type(t).__name__} of tensors without antialias")
    return name


def _size(value: Any) -> Any:
    """Return a size as the library reads it: the shorter side, or both."""
    sides = [value] if type(value) is int else value
    if type(sides) not in (list, tuple) or len(sides) not in (1, 2) or {*map(type, sides)} != {int}:
        raise Unknown(f"the size {value!r}")
    return sides[0] if len(sides) == 1 else tuple(sides)


def _both_sides(value: Any) -> Any:
    """Return a size that a crop makes both sides of: one number would be the shorter side of something else."""
    size = _size(value)
    if isinstance(size, int):
        raise Unknown(f"the size {value!r} of a crop")
    return size


def _resize(t: Any, p: Program) -> None:
    pixels(t, p)
    if t.size is None:
        raise Unknown("Resize without a size")
    p.add(st.Resize(_size(t.size), _interpolation(t, p), t.max_size))


def _center_crop(t: Any, p: Program) -> None:
    pixels(t, p)
    p.add(st.CenterCrop(_size(t.size)))


def _random_resized_crop(t: Any, p: Program) -> None:
    pixels(t, p)
    p.add(st.RandomResizedCrop(_both_sides(t.size), tuple(t.scale), tuple(t.ratio), _interpolation(t, p)), random=True)


def _random_crop(t: Any, p: Program) -> None:
    pixels(t, p)
    fill = fill_of(t)
    padding = list(t.padding) if isinstance(t.padding, tuple | list) else t.padding
    if padding is not None and not isinstance(padding, int) and len(padding) == 1:
        padding = padding[0]
    size, fill = _both_sides(t.size), 0 if fill is None else fill
    p.add(st.RandomCrop(size, padding, bool(t.pad_if_needed), fill, t.padding_mode), random=True)


def _flip(make: Callable[[float], st.Transform]) -> Callable[[Any, Program], None]:
    def add(t: Any, p: Program) -> None:
        only(t, p, PICTURE, BYTES, UNIT, FLOATS)
        # A flip moves whole pixels, whatever they are by then.
        p.add(make(float(t.p)), random=0 < t.p < 1)

    return add


def _grayscale(t: Any, p: Program) -> None:
    pixels(t, p)
    n = int(t.num_output_channels)
    if p.channels == 1:
        if n != 1:
            raise Unknown("Grayscale to three channels of gray pictures")
        return
    if p.state != PICTURE or n == 3:
        p.add_pixels(st.Grayscale(n))
    elif all(isinstance(op, _GEOMETRY) for op in p.ops):
        p.mode = "L"  # Pillow's gray, where the engine decodes
    else:
        raise Unknown("Grayscale of pictures to one channel: put it before what changes colours")
    p.channels = n


def _to_unit(p: Program) -> None:
    p.add(st.ToDtype("float32", scale=True))
    p.state = UNIT


def _to_tensor(t: Any, p: Program) -> None:
    only(t, p, PICTURE)
    _to_unit(p)


def _pil_to_tensor(t: Any, p: Program) -> None:
    only(t, p, PICTURE)
    p.state, p.plain = BYTES, False  # colours lie last in it


def _to_image(t: Any, p: Program) -> None:
    only(t, p, PICTURE, BYTES, UNIT, FLOATS)
    if p.state == PICTURE:
        p.state = BYTES
    # A tensor only gets another class, which torch's collate takes off again.
    p.wrapped = True


def _to_pure(t: Any, p: Program) -> None:
    only(t, p, BYTES, UNIT, FLOATS)
    p.wrapped = False


def _to_dtype(t: Any, p: Program) -> None:
    dtype = t.dtype
    if isinstance(dtype, dict):
        raise Unknown(f"{type(t).__name__} with several types")
    scale = bool(getattr(t, "scale", True))
    if p.state in (PICTURE, ARRAY):
        raise Unknown(f"{type(t).__name__} of a {p.state}, which it leaves as it is")
    if dtype == (torch.uint8 if p.state == BYTES else torch.float32):
        return
    if p.state != BYTES or dtype != torch.float32:
        raise Unknown(f"{type(t).__name__} from a {p.state} to {dtype}")
    if scale:
        _to_unit(p)
    else:
        p.add(st.ToDtype("float32", scale=False))
        p.state = FLOATS


def _normalize(t: Any, p: Program) -> None:
    only(t, p, UNIT, FLOATS)
    # As torch reads them: a number is for all channels.
    mean, std = (torch.as_tensor(value, dtype=torch.float32, device="cpu") for value in (t.mean, t.std))
    if mean.ndim > 1 or std.ndim > 1:
        raise Unknown("Normalize with a mean for each pixel")
    mean, std = mean.reshape(-1).tolist(), std.reshape(-1).tolist()
    if len(mean) not in (1, p.channels) or len(std) not in (1, p.channels):
        raise Unknown(f"Normalize with {len(mean)} means of {p.channels} channels")
    n = max(len(mean), len(std))
    p.add(st.Normalize(mean * (n // len(mean)), std * (n // len(std))))
    p.state = FLOATS


def _random_erasing(t: Any, p: Program) -> None:
    only(t, p, UNIT, FLOATS)
    value = t.value
    if isinstance(value, str) and value != "random":
        raise Unknown(f"RandomErasing with value {value!r}")
    if value is None:
        value = "random"
    if isinstance(value, list | tuple):
        value = tuple(map(float, value))
        value = value[0] if len(value) == 1 else value
    p.add(st.RandomErasing(float(t.p), tuple(t.scale), tuple(t.ratio), value), random=True)


_GEOMETRY = (
    st.Resize | st.CenterCrop | st.RandomCrop | st.RandomResizedCrop | st.RandomHorizontalFlip | st.RandomVerticalFlip
)


def _timm_crop(t: Any, p: Program) -> None:
    """As torchvision's: the same distribution of the same boxes, drawn from Python's random numbers."""
    only(t, p, PICTURE)
    if isinstance(t.interpolation, tuple | list):
        raise Unknown(f"{type(t).__name__} with a random interpolation")
    if not (0 < t.scale[0] <= t.scale[1] <= 1 and 0 < t.ratio[0] <= t.ratio[1]):
        raise Unknown(f"{type(t).__name__} with scale {t.scale} and ratio {t.ratio}")
    _random_resized_crop(t, p)


def _maybe(add: Callable[[Any, Program], None]) -> Callable[[Any, Program], None]:
    """Return the same, for pictures alone: tensors stay as they are."""

    def maybe(t: Any, p: Program) -> None:
        only(t, p, PICTURE, BYTES, UNIT, FLOATS)
        if p.state == PICTURE:
            add(t, p)

    return maybe


def _to_numpy(t: Any, p: Program) -> None:
    only(t, p, PICTURE)
    p.state, p.plain = ARRAY, False


def _timm_to_tensor(t: Any, p: Program) -> None:
    if p.state != PICTURE or t.dtype not in (torch.float32, torch.uint8):
        raise Unknown(f"timm's ToTensor of a {p.state} to {t.dtype}")
    p.state, p.plain = BYTES, False
    if t.dtype == torch.float32:
        p.add(st.ToDtype("float32", scale=False))
        p.state = FLOATS


def _nothing(t: Any, p: Program) -> None:
    """Do nothing, as the transform does."""


_TIMM = "timm.data.transforms."
_CONTAINERS = both("_container", Compose=None).keys()
_COMPOSITES = both("_container", RandomApply=_random_apply, RandomChoice=_random_choice, RandomOrder=_random_order)

# Transforms that draw Python's random numbers.
_PYTHONS = (V1 + "RandomChoice", V1 + "RandomOrder", _TIMM + "RandomResizedCropAndInterpolation")

_KNOWN: dict[str, Callable[[Any, Program], None]] = {
    **both(
        "_geometry",
        Resize=_resize,
        CenterCrop=_center_crop,
        RandomResizedCrop=_random_resized_crop,
        RandomCrop=_random_crop,
        RandomHorizontalFlip=_flip(st.RandomHorizontalFlip),
        RandomVerticalFlip=_flip(st.RandomVerticalFlip),
    ),
    **both("_color", Grayscale=_grayscale),
    **both("_type_conversion", PILToTensor=_pil_to_tensor),
    **both("_misc", ConvertImageDtype=_to_dtype, Normalize=_normalize),
    **both("_augment", RandomErasing=_random_erasing),
    V1 + "ToTensor": _to_tensor,
    V2 + "_type_conversion.ToImage": _to_image,
    V2 + "_type_conversion.ToPureTensor": _to_pure,
    V2 + "_misc.ToDtype": _to_dtype,
    V2 + "_misc.Identity": _nothing,
    "torch.nn.modules.linear.Identity": _nothing,
    _TIMM + "RandomResizedCropAndInterpolation": _timm_crop,
    _TIMM + "MaybeToTensor": _maybe(_to_tensor),
    _TIMM + "MaybePILToTensor": _maybe(_pil_to_tensor),
    _TIMM + "ToNumpy": _to_numpy,
    _TIMM + "ToTensor": _timm_to_tensor,
    **_augment.KNOWN,
    **_COMPOSITES,
}
