"""Hints for names and arguments that do not exist: those of other libraries, and the most similar ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ._rules import RULES
from ._surface import ARGUMENTS, ELSEWHERE, GROUPS, VIEW_KEYS


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name that is most like ``name``, or all of them."""
    names = sorted(known)
    lower = {n.lower(): n for n in names}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    if found:
        return f"did you mean {lower[found[0]]!r}?"
    return f"there are: {', '.join(names)}" if names else "there are none"


def argument(name: str, known: Iterable[str]) -> str:
    """Return the replacement of an argument, or the most similar argument."""
    known = list(known)
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    if name in VIEW_KEYS:
        return f"views are methods of a dataset: stoker.open(path).{name}(...)"
    for option, of in GROUPS.items():
        # A loader of another library may call an option as the engine does: its key.
        keys = [key for key, rule in RULES[of].items() if name in (key, rule.get("key"))]
        if option in known and keys:
            return f"use {option}=stoker.{of}({keys[0]}=...)"
    return nearest(name, known)


def missing(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that a module does not have."""
    text = f"module {module!r} has no attribute {name!r}"
    return AttributeError(text if name.startswith("_") else text + hint(name, known))


def hint(name: str, known: Iterable[str]) -> str:
    """Return the replacement of a name, or the most similar name."""
    instead = ELSEWHERE.get(name) or _module_of(name) or nearest(name, known)
    return f"; {instead}" if len(instead) < 200 else ""  # and not a list of all names


def _module_of(name: str) -> str:
    """Return how a transform is written, if it is one, or nearly one, and was looked for without its module."""
    transforms = RULES.keys() - {*GROUPS.values(), "Loader"}
    written = {n.rpartition(".")[2]: f"stoker.{n if '.' in n else 'transforms.' + n}" for n in sorted(transforms)}
    if name in written:
        return f"write {written[name]}"
    near = difflib.get_close_matches(name, written, 1, 0.8)
    return f"did you mean {written[near[0]]!r}?" if near else ""
