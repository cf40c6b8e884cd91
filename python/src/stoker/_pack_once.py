"""The transforms that ``stoker.pack`` runs once, before packing, and paths that need no Python."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping

from . import _options
from ._errors import ConfigError
from ._fields import FieldSpec, outputs, parse_transforms


def made_once(
    transforms: Mapping[str, FieldSpec] | None, augment: int | None, seed: int, audio: str | None
) -> list[str]:
    """Return the options of the engine for transforms that are done before packing."""
    fields = parse_transforms(transforms)
    if padded := next((name for name, f in fields.items() if f.pad), None):
        raise ConfigError(f"transforms[{padded!r}]: a pack stores each row with its own length; pad in the loader")
    if augment is not None:
        augment = _options.whole("augment", augment, 1)
    if audio is not None:
        _options.choice("audio", audio, ("f32", "i16"))
    if not fields:
        if augment is not None:
            raise ConfigError(
                "augment= makes variants by random transforms: say which ones, such as "
                'transforms={"image": [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]}'
            )
        if audio is not None:
            raise ConfigError(
                'audio= is about sound that went through transforms=, such as {"audio": [stoker.audio.Resample(16000)]}'
            )
        return []
    config = json.dumps(outputs(fields, "NHWC"))
    options = ["--outputs", config, "--seed", str(seed)]
    options += ["--augment", str(augment)] if augment else []
    return [*options, *(["--audio", audio] if audio else [])]


def part_options(part: tuple[int, int] | None) -> list[str]:
    """Return the options of the engine for a part of a pack."""
    if part is None:
        return []
    try:
        i, n = map(operator.index, part)
    except (TypeError, ValueError):
        raise ConfigError(f"part={part!r}: give (i, n), with i from 0 to n-1, such as (0, 16)") from None
    return ["--part", f"{i}/{n}"]
