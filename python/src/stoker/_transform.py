"""The base of all transforms, and the checks of their arguments.

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
from typing import Any, ClassVar, TypeVar

from ._errors import ConfigError, StokerError, UnknownArgument, nearest

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

    # The engine's name of the operation, if another kind of data has a transform of the class's name.
    OP: ClassVar[str] = ""

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads: ``op`` and the parameters."""
        config: dict[str, Any] = {"op": self.OP or type(self).__name__}
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            config[f.name] = _plain(getattr(self, f.name))
        return config

    @classmethod
    def shown_name(cls) -> str:
        """Return the name that users write: of images the class's alone, else with its module, as ``audio.Mono``."""
        module = cls.__module__.rpartition(".")[2]
        return cls.__name__ if module.startswith("_") else f"{module}.{cls.__name__}"

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
        return f"{self.shown_name()}({', '.join(shown)})"

    def _set(self, **values: object) -> None:
        """Set checked values on the frozen instance."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _fail(self, text: str) -> ConfigError:
        return ConfigError(f"{self.shown_name()}: {text}")


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
