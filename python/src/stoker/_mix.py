"""The weights of ``stoker.mix``."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import ConfigError
from ._options import Data


class Mixture:
    """The datasets of a mixture, and what the engine is told about them.

    ``opened`` returns a dataset itself, or the dataset of a path.
    """

    def __init__(self, datasets: Sequence[Data], opened: Callable[[Any], Data]) -> None:
        self._datasets, self._opened = datasets, opened
        self.config: dict[str, Any] = {}

    def ordered(self, weights: Mapping[Any, float]) -> list[float | int]:
        """Return weights in the order of the datasets."""
        if not isinstance(weights, Mapping):
            raise ConfigError("mix: the weights must be a dict of datasets, or paths, and numbers")
        given = {self._opened(k)._key(): (k, w) for k, w in weights.items()}
        mine = {d._key(): d for d in self._datasets}
        if other := [k for key, (k, _) in given.items() if key not in mine]:
            raise ConfigError(f"mix: {_name(other[0])} is not a dataset of the mixture, which has {self._names()}")
        if missing := [d for key, d in mine.items() if key not in given]:
            raise ConfigError(f"mix: the weights lack {_name(missing[0])}; 0 leaves it out")
        values = [_weight(*given[key]) for key in mine]
        if not any(values):
            raise ConfigError("mix: all weights are 0")
        return values

    def _names(self) -> str:
        some = ", ".join(_name(d) for d in self._datasets[:8])
        return some if len(self._datasets) <= 8 else f"{some} and {len(self._datasets) - 8} others"


def _name(key: Data | str | os.PathLike[str]) -> str:
    return repr(key._base if isinstance(key, Data) else os.fspath(key))[:100]


def _weight(key: Data | str | os.PathLike[str], value: Any) -> float | int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ConfigError(f"mix: the weight of {_name(key)} is {value!r:.40}, not a number")
    number = int(value) if isinstance(value, int | np.integer) else float(value)
    if not (math.isfinite(number) and 0 <= number < 2**53):
        raise ConfigError(f"mix: the weight of {_name(key)} is {value!r:.40}; it must be 0 or more, and finite")
    return number
