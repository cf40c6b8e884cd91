"""The engine's operations on each picture, translated from a program's transforms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ... import transforms as st
from ._library import Unknown

_T = TypeVar("_T")

# The state of a sample between transforms: a picture of Pillow's, a tensor of uint8, one of floats from 0 to 1, or one
# of any floats.
PICTURE, BYTES, UNIT, FLOATS = "picture", "uint8 tensor", "float tensor", "normalised tensor"
# An array of NumPy's of uint8, colours first, as timm's ToNumpy makes them; nothing that is known takes one.
ARRAY = "uint8 array"


@dataclass
class Program:
    """The engine's operations on each picture, and the form of their result."""

    ops: list[st.Transform] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # the transforms that were recognised
    state: str = PICTURE
    channels: int = 3
    random: bool = False
    # Whether the libraries draw Python's random numbers, and not torch's, for some of these operations.
    python: bool = False
    # The mode that pictures are decoded to: "L" if they are made gray before any use of their colours.
    mode: str = "RGB"
    # Whether a tensor is one of torchvision's Image class; None if that is not known.
    wrapped: bool | None = False
    # Whether an array has the memory layout of the libraries' own.
    plain: bool = True
    # The later transforms, which Python runs in order, and the reason why the engine does not run the first of them.
    rest: list[Any] = field(default_factory=list)
    why: str = ""
    step: str = ""  # what to change about that
    # Whether the functions of the libraries must be known: those that the engine replaces.
    proven: bool = True

    def key(self) -> tuple[Any, ...]:
        """Return a key that is equal for programs with the same work of the engine."""
        ops = [repr(op.to_config()) for op in self.ops]
        return (*ops, self.state, self.channels, self.mode, self.wrapped, bool(self.rest))

    def add(self, op: st.Transform, *, random: bool = False) -> None:
        """Append an operation."""
        self.ops.append(op)
        self.random = self.random or random

    def add_pixels(self, op: st.Transform, *, random: bool = False) -> None:
        """Append an operation on pixels, with the arithmetic of the library that the transform would use."""
        self.add(Exact(op, self.state == PICTURE), random=random)

    def add_policy(self, op: st.Transform, magnitudes: dict[str, tuple[float, ...]]) -> None:
        """Append a policy whose operations have the given magnitudes."""
        self.add(Exact(op, self.state == PICTURE, tuple(magnitudes.items())), random=True)

    def copy(self) -> Program:
        """Return a copy that later transforms do not change."""
        return replace(self, ops=list(self.ops), names=list(self.names))

    @property
    def sized(self) -> bool:
        """Whether all pictures have one size at this point."""
        return any(isinstance(op, _SIZING) or (isinstance(op, st.Resize) and not _is_side(op.size)) for op in self.ops)


_SIZING = st.CenterCrop | st.RandomCrop | st.RandomResizedCrop


def _is_side(size: Any) -> bool:
    return isinstance(size, int)


class Exact(st.Transform):
    """An operation that computes as Pillow does with a picture, or as torchvision does with a tensor."""

    of: st.Transform
    pillow: bool
    magnitudes: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads."""
        op = self.of.to_config()
        if self.magnitudes:
            op["magnitudes"] = dict(self.magnitudes)
        return {"op": "Compose", "transforms": [op], "pillow": True} if self.pillow else op

    def __repr__(self) -> str:
        return repr(self.of)


def only(t: Any, p: Program, *states: str) -> None:
    """Check that a transform is at a point where it gets one of these."""
    if p.state not in states:
        raise Unknown(f"{type(t).__name__} of a {p.state}")


def pixels(t: Any, p: Program) -> None:
    """Check that a transform of pixels is at a point where the engine's gives the same result."""
    if p.state not in (PICTURE, BYTES):
        raise Unknown(
            f"{type(t).__name__} works on a {p.state}: put it before the conversion to floats",
            f"move {type(t).__name__} before ToTensor or ToDtype",
        )


def fill_of(t: Any) -> Any:
    """Return the colour that a transform fills with."""
    fill = t.fill
    own = vars(t).get("_fill", {"others": fill})
    if isinstance(fill, dict) or not isinstance(own, dict) or set(own) != {"others"}:
        raise Unknown(f"{type(t).__name__} with a fill for each type")
    fill = own["others"]
    numbers = [] if fill is None else list(fill) if isinstance(fill, list | tuple) else [fill]
    whole = [int(v) for v in numbers]
    if whole != numbers or any(not 0 <= v <= 255 for v in whole):
        raise Unknown(f"{type(t).__name__} with fill={fill}: the engine takes whole numbers from 0 to 255")
    return None if fill is None else whole[0] if len(whole) == 1 else tuple(whole)


V1, V2 = "torchvision.transforms.transforms.", "torchvision.transforms.v2."


def both(module: str, **known: _T) -> dict[str, _T]:
    """Return transforms by their full names: in torchvision's v1, and in a module of its v2."""
    return {at + name: of for name, of in known.items() for at in (V1, f"{V2}{module}.")}
