"""The base of all transforms: the modules ``transforms``, ``audio``, ``video`` and ``volume`` are generated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._described import Described, refuse
from ._errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # only checkers and editors need it

    def dataclass_transform(**_):
        """Return a decorator that changes nothing."""
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Transform(Described):
    """A transform; the base of all others.

    A subclass is a frozen dataclass whose fields are the parameters of the engine's operation.
    """

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        """Make it a dataclass."""
        dataclasses.dataclass(frozen=True, repr=False, kw_only=kw_only)(cls)

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
