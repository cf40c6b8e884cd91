"""The arguments of a loader, checked and as the engine reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from ._described import Described, check, choice, whole
from ._errors import ConfigError
from ._rules import RULES
from ._surface import FORMATS, VIEW_KEYS

__all__ = ["Data", "Group", "check", "choice", "group", "order", "sequence", "size", "source_url", "whole"]

_Group = TypeVar("_Group", bound="Group")


class Data:
    """Data that a loader reads, other than a path: a dataset of ``stoker.open``."""

    __slots__ = ()

    _base: str

    def _key(self) -> tuple[Any, ...]:
        """Return what tells datasets apart."""
        raise NotImplementedError

    def for_loader(self, function: Any) -> tuple[str, dict[str, Any] | None, Any, Any]:
        """Return the URL, the sequences, the function and the mixture of a loader, whose own function comes last."""
        raise NotImplementedError


class Group(Described):
    """A group of options, checked when it is made; its repr lists what was set."""

    def __post_init__(self) -> None:
        self.to_config()

    def to_config(self) -> dict[str, Any]:
        """Return the options as the engine reads them."""
        config: dict[str, Any] = {}
        for name, rule in RULES[self.shown_name()].items():
            value = self.checked(name, getattr(self, name), rule)
            if "key" in rule:
                config[rule["key"]] = _sent(value, rule["type"])
        if "cache" in config:
            asked = config["cache_dir"] or config["cache_limit"] or config["peers"]
            config["cache"] = _disk(config["cache"], bool(asked))
        if config.get("on_error") == "skip":
            config["max_bad"] = config["max_bad"] or "default"
        return config


def _sent(value: Any, kind: str) -> Any:
    """Return the value of an option in the engine's form; None is its default there."""
    if kind == "share" and value is not None:
        return f"{100 * value:.12g}%" if isinstance(value, float) and 0 <= value <= 1 else str(value)
    if value is None:
        return 0 if kind in ("int", "float", "bytes") else ""
    if kind == "path":
        return os.path.abspath(os.path.expanduser(os.fspath(value)))
    if kind == "url":
        return source_url(value)
    return list(value) if kind == "names" else value


def group(name: str, value: Any, of: type[_Group], bare: bool = False) -> _Group:
    """Return a group of options; None is the group with its defaults. ``bare``: its first option may come alone."""
    if isinstance(value, of):
        return value
    if value is not None:
        kind = f"a stoker.{of.__name__}(...)"
        if not bare:
            raise ConfigError(f"{name} must be {kind}, not {value!r}")
        rule = next(iter(RULES[of.shown_name()].values()))
        check(name, value, {**rule, "expects": f"{kind}, {rule['expects']}"})
    made: Any = of
    return made() if value is None else made(value)  # type: ignore[no-any-return]


def order(shuffle: Any) -> tuple[bool, int]:
    """Return the meaning of ``shuffle``: whether records are shuffled, and the window, 0 for none, -1 for automatic."""
    if not isinstance(shuffle, str):
        return bool(shuffle), 0
    if shuffle == "auto":
        return True, -1
    if found := re.fullmatch(r"window:([1-9]\d{0,8})", shuffle):
        return True, int(found[1])
    raise ConfigError(f'shuffle must be True, False, "auto", or "window:N" with a number of chunks, not {shuffle!r}')


def size(name: str, value: Any) -> int:
    """Check a number of bytes: a number, or text such as ``"2GB"`` or ``"512 MiB"``."""
    expects = 'a number of bytes of at least 1, or text such as "2GB"'
    return int(check(name, value, {"type": "bytes", "range": {"min": 1}, "expects": expects, "optional": True}) or 0)


# Switches off a cache that the program has not requested.
CACHE_VARIABLE = "STOKER_CACHE"


def _disk(value: Any, asked: bool) -> str:
    """Return the engine's setting of the disk cache; ``asked``: a folder, a limit or peers were named."""
    if asked and value == "auto":
        return "on"
    if value == "auto":
        switch = os.environ.get(CACHE_VARIABLE, "auto")
        if switch not in ("auto", "off"):
            raise ConfigError(f'{CACHE_VARIABLE}={switch!r} in the environment; it is "auto" or "off"')
        return switch
    return "on" if value else "off"


def sequence(
    length: Any, packing: str, fields: Sequence[str], shift: bool, dtype: str | None, pad: int
) -> dict[str, Any]:
    """Return the engine's settings of sequences."""
    if isinstance(fields, str):
        raise ConfigError(f"sequences: fields={fields!r} must be a list of names")
    return {
        "length": whole("length", length, 1),
        "packing": str(packing),
        "fields": list(fields),
        "no_shift": not shift,
        "dtype": dtype or "",
        "pad": whole("pad", pad, -(2**63)),
    }


def source_url(source: Any) -> str:
    """Return the source for the engine, whose working folder may differ."""
    try:
        text: str | bytes = os.fspath(source)
    except TypeError:
        raise ConfigError(f"source={source!r} must be a path or a URL") from None
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if not text:
        raise ConfigError("source is empty; it must be a path or a URL")
    # The part after a # selects records and fields.
    view = re.search(rf"#(?=({'|'.join(VIEW_KEYS)})=)", text)
    if view and view.start() and not os.path.lexists(os.path.expanduser(text)):
        return source_url(text[: view.start()]) + text[view.start() :]
    formats = "|".join((*FORMATS, "paths"))  # lists of paths are written by stoker.torch
    named = re.match(rf"({formats}):(?=[^/])", text)
    if named:
        path, mark, query = text[named.end() :].partition("?")
        if "://" in path:
            return text
        return named[0] + os.path.abspath(os.path.expanduser(path)) + mark + query
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text):
        return text
    return os.path.abspath(os.path.expanduser(text))
