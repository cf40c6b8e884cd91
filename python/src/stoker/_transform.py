"""The base of all transforms.

The modules ``transforms``, ``audio``, ``video`` and ``volume`` are generated from the descriptions of the engine
(``scripts/surface.py``). So are the rules that arguments are checked by and the texts of the errors.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._errors import ConfigError, StokerError, UnknownArgument, nearest
from ._rules import RULES


class _Checked(type):
    """Refuses unknown arguments with the nearest known one."""

    if not TYPE_CHECKING:  # checkers and editors read the signature of the dataclass

        def __call__(cls, *args, **kwargs):
            known = list(cls.__signature__.parameters)
            for name in kwargs:
                if name not in known:
                    raise UnknownArgument(f"{cls.shown_name()} has no argument {name!r}; {nearest(name, known)}")
            try:
                return super().__call__(*args, **kwargs)
            except StokerError as error:
                raise error.with_traceback(None) from None

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of ``__init__``, for help() and editors."""
        signature = inspect.signature(vars(cls).get("__init__", object.__init__))
        return signature.replace(parameters=list(signature.parameters.values())[1:], return_annotation=cls)


class Transform(metaclass=_Checked):
    """A transform; the base of all others.

    A subclass is a frozen dataclass whose fields are the parameters of the engine's operation.
    """

    def __post_init__(self) -> None:
        """Check the arguments."""
        rules = RULES.get(self.shown_name(), {})
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            if f.name in rules:
                object.__setattr__(self, f.name, self._checked(f.name, getattr(self, f.name), rules[f.name]))

    def _checked(self, name: str, value: Any, rule: Mapping[str, Any]) -> Any:
        """Return an argument as the engine takes it, or raise a ConfigError."""
        if value is None and rule.get("optional"):
            return None
        try:
            return self._transforms(value) if rule["type"] == "transforms" else _value(value, rule)
        except ConfigError:
            raise
        except (TypeError, ValueError):
            text = f"{self.shown_name()}: {name} must be {rule['expects']}, not {value!r}"
            raise ConfigError(text) from None

    def _transforms(self, value: Any) -> tuple[Transform, ...]:
        for t in value:
            if isinstance(t, type) and issubclass(t, Transform):
                name = t.shown_name()
                raise ConfigError(f"{self.shown_name()}: {name} is a class; write {name}(...)")
            if not isinstance(t, Transform):
                raise ConfigError(f"{self.shown_name()}: {t!r} is not a stoker transform")
        return tuple(value) or _refuse()

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads: ``op`` and the parameters."""
        config: dict[str, Any] = {"op": self.shown_name()}
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            config[f.name] = _plain(getattr(self, f.name))
        return config

    @classmethod
    def shown_name(cls) -> str:
        """Return the name that users write and the engine has: ``Resize``, ``audio.Mono``."""
        module = cls.__module__.rpartition(".")[2]
        return f"{module}.{cls.__name__}" if module in ("audio", "video", "volume") else cls.__name__

    def __repr__(self) -> str:
        shown = []
        named = False
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            required = f.default is dataclasses.MISSING
            if required and not named and not f.kw_only:
                shown.append(repr(value))
            elif required or value != f.default:
                named = True
                shown.append(f"{f.name}={value!r}")
        return f"{self.shown_name()}({', '.join(shown)})"


def _plain(value: object) -> object:
    if isinstance(value, Transform):
        return value.to_config()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def _refuse() -> Any:
    raise ValueError


def _value(value: Any, rule: Mapping[str, Any]) -> Any:
    kind, words = rule["type"], rule.get("choices", ())
    if kind == "bool" and type(value).__name__ in ("bool", "bool_"):  # NumPy's, too
        return bool(value)
    word = getattr(value, "value", value)  # of an enumeration
    if rule.get("enum") == "dtype":
        word = getattr(value, "__name__", None) or str(value).removeprefix("torch.")
    elif rule.get("enum") == "InterpolationMode" and word == "nearest-exact":
        word = "nearest"
    if isinstance(word, str):
        if kind == "names":
            return (word,)
        return word if word in words or (kind == "text" and word) else _refuse()
    if kind == "names":
        names = tuple(value)
        return names if names and all(isinstance(n, str) for n in names) else _refuse()
    if kind not in ("int", "float"):
        raise TypeError
    limits = rule.get("range", {})
    if not hasattr(value, "__iter__") or getattr(value, "ndim", 1) == 0:
        alone = rule.get("single") or not ("counts" in rule or "most" in rule)
        return _number(value, rule, rule.get("alone", limits)) if alone else _refuse()
    numbers = tuple(_number(v, rule, limits) for v in value)
    ordered = not rule.get("ordered") or list(numbers) == sorted(numbers)
    counted = len(numbers) in rule.get("counts", ()) or 1 <= len(numbers) <= rule.get("most", 0)
    return numbers if counted and ordered else _refuse()


def _number(value: Any, rule: Mapping[str, Any], limits: Mapping[str, Any]) -> int | float:
    if isinstance(value, bool | str):
        raise TypeError
    x: int | float = operator.index(value) if rule["type"] == "int" else float(value)
    low, high = limits.get("min", -math.inf), limits.get("max", math.inf)
    inside = low <= x <= high and not (limits.get("over") and x == low) and not (limits.get("under") and x == high)
    if not (math.isfinite(x) and inside) or (rule.get("odd") and not x % 2) or (rule.get("nonzero") and not x):
        raise ValueError
    return x
