"""The base of all transforms: the modules ``transforms``, ``audio``, ``video`` and ``volume`` are generated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ._described import Described, refuse
from ._errors import ConfigError


class Transform(Described):
    """A transform; the base of all others.

    A subclass is a frozen dataclass whose fields are the parameters of the engine's operation.
    """

    def checked(self, name: str, value: Any, rule: Mapping[str, Any]) -> Any:
        """Return an argument as the engine takes it, or raise a ConfigError."""
        if rule["type"] != "transforms":
            return super().checked(name, value, rule)
        try:
            return self._transforms(value)
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
        return tuple(value) or refuse()

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads: ``op`` and the parameters."""
        config: dict[str, Any] = {"op": self.shown_name()}
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            config[f.name] = _plain(getattr(self, f.name))
        return config


def _plain(value: object) -> object:
    if isinstance(value, Transform):
        return value.to_config()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value
