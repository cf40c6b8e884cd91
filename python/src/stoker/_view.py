"""Which records and fields of a source are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _options
from ._errors import ConfigError


def to_config(
    where: str | None,
    split: str | Mapping[str, float | int | str] | None,
    part: str | None,
    split_seed: int,
    stratify: str | None,
    group: str | None,
    select: Sequence[str] | None,
    drop: Sequence[str] | None,
    rename: Mapping[str, str] | None,
    kinds: Mapping[str, str] | None,
    resolution: int | str | None,
    dedupe: bool | Sequence[str],
) -> dict[str, Any]:
    """Return the form that the engine reads; empty for all of the source."""
    if isinstance(split, Mapping):
        split = ",".join(f"{name}:{share}" for name, share in split.items())
    texts = {"where": where, "split": split, "part": part, "stratify": stratify, "group": group}
    config: dict[str, Any] = {name: _text(name, value) for name, value in texts.items() if value is not None}
    if seed := _options.whole("split_seed", split_seed, 0, 2**64 - 1):
        config["split_seed"] = seed
    if resolution is not None:
        is_number = isinstance(resolution, int) and not isinstance(resolution, bool)
        config["resolution"] = str(resolution) if is_number else _text("resolution", resolution)
    if dedupe:
        config["dedupe"] = ["*"] if dedupe is True else _names("dedupe", dedupe)
    lists = {"select": select, "drop": drop}
    config |= {name: _names(name, value) for name, value in lists.items() if value is not None}
    maps = {"rename": rename, "kinds": kinds}
    config |= {name: _pairs(name, value) for name, value in maps.items() if value is not None}
    return config


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name}={value!r} must be a text")
    return value


def _names(name: str, value: object) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
        raise ConfigError(f'{name}={value!r} must be a list of names of fields, such as ["image", "label"]')
    return list(value)


def _pairs(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        example = '{"cls": "label"}' if name == "rename" else '{"label": "label"}'
        raise ConfigError(f"{name}={value!r} must be a dict such as {example}")
    return dict(value)
