"""Columns of tables that become one array."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from . import _options
from ._errors import ConfigError


class Column:
    """A column of a table in ``tensors=``, and the conversion of its values.

    Common conversions can be written as text: ``"age:normalize"``, ``"city:onehot"``, ``"income:fill=0:flag"``. By
    default texts become codes, and numbers stay unchanged.

    Args:
        field: its name. ``"*"`` stands for all columns of numbers or texts that no other column names.
        onehot: as many elements as the column has different values, with 1 at the place of the value. A missing value,
            or one that is not in ``classes``, has no 1.
        code: the place of the value among them, counted from 1. 0 is a missing value, or one that is not in
            ``classes``.
        classes: the values, in this order. Default: all values of the column, in ascending order.
        top: keep only this many values, the most frequent ones.
        fill: the replacement of missing numbers: ``"mean"`` (the default), ``"none"`` (NaN), or a number.
        flag: an additional element that is 1 if the value is missing, else 0.
        normalize: subtract the mean and divide by the standard deviation (of all numbers, not of a sample) of the
            column.
        mean: the mean for that, instead of the column's.
        std: the standard deviation for that, instead of the column's.
    """

    __module__ = "stoker"
    __slots__ = ("_config",)

    def __init__(
        self,
        field: str,
        *,
        onehot: bool = False,
        code: bool = False,
        classes: Sequence[str | int] | None = None,
        top: int | None = None,
        fill: float | str | None = None,
        flag: bool = False,
        normalize: bool = False,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
    ) -> None:
        if not isinstance(field, str) or not field:
            raise ConfigError(f"Column: field={field!r} must be the name of a field")
        config: dict[str, Any] = {"field": field}
        config |= {name: True for name, on in {"onehot": onehot, "code": code, "flag": flag}.items() if on}
        if normalize or mean is not None:
            config["normalize"] = True
        if classes is not None:
            if isinstance(classes, str):
                raise ConfigError(f"Column: classes={classes!r} must be a list of values")
            config["classes"] = [str(c) for c in classes]
        if top is not None:
            config["top"] = _options.whole("top", top, 1)
        if fill is not None:
            config["fill"] = fill if isinstance(fill, str) else repr(_number("fill", fill))
        for name, value in {"mean": mean, "std": std}.items():
            if value is not None:
                config[name] = [_number(name, v) for v in (value if isinstance(value, Sequence) else [value])]
        self._config = config

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads."""
        return self._config

    def __repr__(self) -> str:
        return f"Column({', '.join(f'{k}={v!r}' for k, v in self._config.items())})"


def to_view(tensors: object, tensors_of: str | os.PathLike[str] | None) -> str:
    """Return both arguments as a view of a URL; empty for none of them."""
    view = {} if tensors is None else {"tensors": json.dumps(to_config(tensors))}
    if tensors_of is not None:
        view["tensors_of"] = _options.source_url(tensors_of)
    return urlencode(view, quote_via=quote)


def to_config(tensors: object) -> dict[str, Any]:
    """Return what ``tensors=`` says in the form that the engine reads."""
    if not isinstance(tensors, Mapping):
        raise ConfigError(f'tensors={tensors!r} must be a dict such as {{"x": ["age:normalize", "city:onehot"]}}')
    out = {}
    for name, columns in tensors.items():
        if isinstance(columns, str) or not isinstance(columns, Sequence):
            raise ConfigError(f"tensors: {name!r}: {columns!r} must be a list of columns")
        for column in columns:
            if not isinstance(column, str | Column):
                raise ConfigError(f"tensors: {name!r}: {column!r} must be a name or a stoker.Column")
        out[str(name)] = [c if isinstance(c, str) else c.to_config() for c in columns]
    return out


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"Column: {name}={value!r} must be a number")
    return float(value)
