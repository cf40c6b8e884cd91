"""Python runs the transforms once on a picture of noise. Those that fail or differ are left to Python.

The recogniser reads parameters, and may accept more than the library does: a size that is a text, a deviation that is
zero in 32 bits, a fill of three numbers. The library itself is the reference.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import PIL.Image
import torch

from . import _transforms
from ._proof import Unknown

# Noise is larger than the results, so that crops fit in.
_SMALLEST = 64
# Random transforms may do nothing, or something else, at the first time.
_TIMES = 2


def check(transform: Any, program: _transforms.Program, held: Any, shape: tuple[int, ...], mode: str = "RGB") -> None:
    """Raise Unknown unless the engine's transforms accept a picture and give the engine's result.

    Args:
        transform: the whole transform. The part that the program leaves to Python is not run.
        program: the engine's operations.
        held: an array whose first image is the picture, None for noise.
        shape: the shape of one row of the engine's.
        mode: the mode of the picture of noise.
    """
    if held is None:
        picture = _noise(max(_SMALLEST, 5 * max(shape) // 4)).convert(mode)
    else:
        picture = PIL.Image.fromarray(np.asarray(held[0]))
    expected = _expected(program, shape)
    for _ in range(_TIMES if program.random else 1):
        try:
            made = _form(_run(transform, program, picture), program)
        except Exception as error:
            text = str(error).splitlines()
            raise Unknown(f"the transforms raise {type(error).__name__}{': ' + text[0] if text else ''}") from None
        if made != expected:
            raise Unknown(f"the transforms make {made}, and the engine would make {expected}")


def _run(transform: Any, program: _transforms.Program, value: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = _transforms.parts_of(transform)
        for part in parts[: len(parts) - len(program.rest)]:
            value = part(value)
    return value


def _noise(side: int) -> PIL.Image.Image:
    return PIL.Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8))


def _form(value: Any, program: _transforms.Program) -> str:
    """Return a description of a value's kind, for people."""
    if isinstance(value, PIL.Image.Image):
        return f"a picture {value.mode} of {value.size[1]} x {value.size[0]}"
    if not isinstance(value, torch.Tensor | np.ndarray):
        return f"a {type(value).__name__}"
    kind = "Tensor" if program.wrapped is None else type(value).__name__
    return f"a {kind} of {str(value.dtype).removeprefix('torch.')} and {' x '.join(map(str, value.shape))}"


def _expected(program: _transforms.Program, shape: tuple[int, ...]) -> str:
    if program.state == _transforms.PICTURE:
        return f"a picture {'RGB' if shape[2:] == (3,) else 'L'} of {shape[0]} x {shape[1]}"
    kind = "ndarray" if program.state == _transforms.ARRAY else "Image" if program.wrapped else "Tensor"
    number = "uint8" if program.state in (_transforms.BYTES, _transforms.ARRAY) else "float32"
    return f"a {kind} of {number} and {' x '.join(map(str, shape if len(shape) == 3 else (1, *shape)))}"
