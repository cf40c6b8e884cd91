"""Classes and arguments as the engine describes them: their checks and their errors.

``scripts/surface.py`` generates the classes and the rules (``_rules``) from the descriptions of the engine.
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
from ._units import parse_bytes


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


class Described(metaclass=_Checked):
    """The base of generated classes: frozen dataclasses whose fields are parameters that the engine has described."""

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name, rule in RULES.get(self.shown_name(), {}).items():
            object.__setattr__(self, name, self.checked(name, getattr(self, name), rule))

    def checked(self, name: str, value: Any, rule: Mapping[str, Any]) -> Any:
        """Return an argument as the engine takes it, or raise a ConfigError."""
        return check(name, value, rule, f"{self.shown_name()}: ")

    @classmethod
    def shown_name(cls) -> str:
        """Return the name that users write and the engine has: ``Resize``, ``audio.Mono``, ``Limits``."""
        module = cls.__module__.rpartition(".")[2]
        return f"{module}.{cls.__name__}" if module in ("audio", "video", "volume") else cls.__name__

    def __repr__(self) -> str:
        shown = []
        named = False
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            if not f.init:
                continue
            value = getattr(self, f.name)
            required = f.default is dataclasses.MISSING
            if required and not named and not f.kw_only:
                shown.append(repr(value))
            elif required or value != f.default:
                named = True
                shown.append(f"{f.name}={value!r}")
        return f"{self.shown_name()}({', '.join(shown)})"


def check(name: str, value: Any, rule: Mapping[str, Any], of: str = "") -> Any:
    """Return an argument as the engine takes it, or raise a ConfigError."""
    if value is None and rule.get("optional"):
        return None
    try:
        return _value(value, rule)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        why = f" ({error})" if rule["type"] == "bytes" and str(error) else ""
        raise ConfigError(f"{of}{name} must be {rule['expects']}, not {value!r}{why}") from None


def whole(name: str, value: Any, low: int, high: int = 2**63 - 1) -> int:
    """Check a whole number."""
    limit = f"of at least {low}" if high >= 2**63 - 1 else f"from {low} to {high}"
    n: int = check(name, value, {"type": "int", "expects": f"a whole number {limit}"})
    if not low <= n <= high:
        raise ConfigError(f"{name} must be a whole number {limit}, not {value!r}")
    return n


def choice(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Check one of several words."""
    if value not in known:
        raise ConfigError(f"{name}={value!r}; {nearest(str(value), known)}")
    return str(value)


def refuse() -> Any:
    """Refuse an argument."""
    raise ValueError


def _value(value: Any, rule: Mapping[str, Any]) -> Any:
    kind, words = rule["type"], rule.get("choices", ())
    if kind in ("path", "url", "share"):
        return value
    if kind == "bytes":
        return _number(parse_bytes(value) if isinstance(value, str) else value, {"type": "int"}, rule.get("range", {}))
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
        return word if word in words or (kind == "text" and word) else refuse()
    if kind == "names":
        names = tuple(value)
        return names if (names or rule.get("empty")) and all(isinstance(n, str) for n in names) else refuse()
    if kind not in ("int", "float"):
        raise TypeError
    limits = rule.get("range", {})
    if not hasattr(value, "__iter__") or getattr(value, "ndim", 1) == 0:
        alone = rule.get("single") or not ("counts" in rule or "most" in rule)
        return _number(value, rule, rule.get("alone", limits)) if alone else refuse()
    numbers = tuple(_number(v, rule, limits) for v in value)
    ordered = not rule.get("ordered") or list(numbers) == sorted(numbers)
    counted = len(numbers) in rule.get("counts", ()) or 1 <= len(numbers) <= rule.get("most", 0)
    return numbers if counted and ordered else refuse()


def _number(value: Any, rule: Mapping[str, Any], limits: Mapping[str, Any]) -> int | float:
    if isinstance(value, bool | str):
        raise TypeError
    x: int | float = operator.index(value) if rule["type"] == "int" else float(value)
    low, high = limits.get("min", -math.inf), limits.get("max", math.inf)
    inside = low <= x <= high and not (limits.get("over") and x == low) and not (limits.get("under") and x == high)
    if not (math.isfinite(x) and inside) or (rule.get("odd") and not x % 2) or (rule.get("nonzero") and not x):
        raise ValueError
    return x
