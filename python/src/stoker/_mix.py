"""``stoker.mix``: several datasets as one, by weight."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _options
from ._dataset import Dataset, joined, open  # noqa: A004
from ._errors import ConfigError, public

Key = Dataset | str | os.PathLike[str]


@public
def mix(
    weights: Mapping[Any, float],
    *,
    schedule: Mapping[int, Mapping[Any, float]] | None = None,
    length: int | None = None,
) -> Dataset:
    """Return a mixture of datasets: loaders take their records in proportion to weights.

    ::

        data = stoker.mix({"web/": 3, "code/": 1})                    # three of four records are from web/
        loader = data.loader(batch_size=256, shuffle=True, seed=0)

    After any number of records, each dataset had its share of them within less than one record. Each dataset has an
    order of its own: all of its records once, then all of them once again in a new order. An epoch of the mixture does
    not end these rounds. So the order depends on the seed and the position alone, on any number of ranks.

    The datasets must have the same fields, with the same classes, as for ``concat``. ``map`` and ``sequences`` come
    after ``mix``: weights of sequences count sequences, and each dataset is packed on its own. A mixture is for
    loaders: without one, it has the records of its datasets one after the other.

    Args:
        weights: the weight of each dataset, or of each path; 0 or more. Shares are exact if they have a common
            denominator up to 1,048,576, and rounded to such parts otherwise.
        schedule: other weights from a position on: ``{1_000_000: {"web/": 1, "code/": 1}}``. A position is a number of
            records, over all ranks and epochs: the number of steps x ``batch_size`` x ranks. It names all datasets.
        length: records of an epoch of the mixture. Default: the records of all datasets together.

    Raises:
        ConfigError: a weight is refused, or the fields differ; the message names the field. Data is read only when
            needed.
    """
    if not isinstance(weights, Mapping) or not weights:
        raise ConfigError('mix needs the weights of datasets, such as stoker.mix({"web/": 3, "code/": 1})')
    datasets = [key if isinstance(key, Dataset) else open(key) for key in weights]
    if len({d._key() for d in datasets}) < len(datasets):
        raise ConfigError("mix: a dataset is there twice; give it one weight")
    mixture = Mixture(datasets)
    if schedule is None:
        schedule = {}
    if not isinstance(schedule, Mapping):
        raise ConfigError("mix: schedule must be a dict such as {1_000_000: {a: 1, b: 1}}")
    stages = {_options.whole("schedule: a position", at, 1, 2**62): w for at, w in schedule.items()}
    mixture.config = {
        "weights": mixture.ordered(weights),
        "schedule": [{"from": at, "weights": mixture.ordered(w)} for at, w in sorted(stages.items())],
        "length": 0 if length is None else _options.whole("length", length, 1, 2**40),
    }
    return joined("mix", datasets, mixture)


class Mixture:
    """The datasets of a mixture, and what the engine is told about them."""

    def __init__(self, datasets: list[Dataset]) -> None:
        self._datasets = datasets
        self.config: dict[str, Any] = {}

    def ordered(self, weights: Mapping[Any, float]) -> list[float | int]:
        """Return weights in the order of the datasets."""
        if not isinstance(weights, Mapping):
            raise ConfigError("mix: the weights must be a dict of datasets, or paths, and numbers")
        given = {(k if isinstance(k, Dataset) else open(k))._key(): (k, w) for k, w in weights.items()}
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


def _name(key: Key) -> str:
    return repr(key._base if isinstance(key, Dataset) else os.fspath(key))[:100]


def _weight(key: Key, value: Any) -> float | int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ConfigError(f"mix: the weight of {_name(key)} is {value!r:.40}, not a number")
    number = int(value) if isinstance(value, int | np.integer) else float(value)
    if not (math.isfinite(number) and 0 <= number < 2**53):
        raise ConfigError(f"mix: the weight of {_name(key)} is {value!r:.40}; it must be 0 or more, and finite")
    return number
