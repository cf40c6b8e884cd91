"""Saved states: the position of a training loop."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ._connection import Position
from ._errors import StateMismatch, warn
from ._fused import OnDevice
from ._map import _code

VERSION = 2

# The parts of a pipeline hash, 8 digits each: two of the engine, the work of this package, and the code of functions.
# The version of Python is before that code.
_PARTS = (
    "bucket, sequences, mix, drop_last or uneven", "transforms, fields or layout", "map, batch_map or device",
    "the code of map or batch_map",
)  # fmt: skip


class Functions:
    """The functions of a loader, as its states know them."""

    def __init__(self, functions: Sequence[object], device: OnDevice | None) -> None:
        """Describe the functions and the work on the device as they are now."""
        named = [getattr(f, "__qualname__", type(f).__qualname__) if f else None for f in functions]
        work = None if device is None else [v for k, v in vars(device).items() if k != "device"]
        self.names = ", ".join(f"{k}={n}" for k, n in zip(("map", "batch_map"), named, strict=True) if n)
        self.hash = ""
        if self.names or work is not None:
            self.hash = "-" + hashlib.sha256(repr((named, work)).encode()).hexdigest()[:8]
        if self.names and (code := _code.digest(functions)):
            self.hash += f"-{_code.VERSION}.{code}"


def _code_of(pipeline: str) -> tuple[str, str]:
    """Return the version of Python and the digits of the code in a pipeline hash, "" without any."""
    parts = pipeline.split("-")
    version, _, code = parts[3].rpartition(".") if len(parts) > 3 else ("", "", "")
    return version, code


def load_mix(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the weights of a mixture that were set by hand."""
    changes = state.get("mix", [])
    if not isinstance(changes, list) or not all(
        isinstance(c, Mapping) and {*c} == {"from", "weights"} for c in changes
    ):
        raise StateMismatch("the state's mix is not a list of positions and weights")
    return [dict(c) for c in changes]


def save(position: Position, ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return a position as a state that JSON can hold. ``ours`` is the identity of the pipeline."""
    return {"version": VERSION, "epoch": position.epoch, "position": position.row, **ours}


def load(state: Mapping[str, Any], ours: Mapping[str, Any], records: int, functions: str) -> Position:
    """Return the position of a state that fits this loader. Its ``ranks`` may differ. ``functions`` names functions."""
    if not isinstance(state, Mapping):
        raise StateMismatch(f"the state is a {type(state).__name__}, not what state_dict() returns")
    if (version := state.get("version", VERSION)) != VERSION:
        raise StateMismatch(
            f"the state has version {version}, this package knows version {VERSION}; "
            "use the version of stoker that saved it"
        )
    keys = ["version", "epoch", "position", *ours]
    missing = [k for k in keys if k not in state]
    if missing:
        raise StateMismatch(f"the state lacks {', '.join(missing)}; it is not what state_dict() returns")
    for key in ("epoch", "position", "seed"):
        value = state[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise StateMismatch(f"the state's {key} is {value!r}, not a whole number")
    _check_same(state, ours, functions)
    if "ranks" not in ours and state["position"] >= records:
        return Position(state["epoch"] + 1, 0)
    return Position(state["epoch"], state["position"])


def _check_same(state: Mapping[str, Any], ours: Mapping[str, Any], functions: str) -> None:
    """Raise an error that names the difference: the manifest, the order version, or the pipeline."""
    if state["manifest"] != ours["manifest"]:
        raise StateMismatch(
            f"the state has another manifest ({state['manifest']}, here {ours['manifest']}): it was saved over other "
            "data; make the loader with that data"
        )
    anew = f"or begin an epoch without a state: loader.set_epoch({state['epoch'] + 1})"
    version, order = _order(state["order"])
    our_version, our_order = _order(ours["order"])
    if version != our_version:
        raise StateMismatch(
            f"the state has order version {version}, this version of stoker has {our_version}; use the version that "
            f"saved it, {anew}"
        )
    for name, theirs, here in (("seed", state["seed"], ours["seed"]), ("shuffle", order, our_order)):
        if theirs != here:
            raise StateMismatch(
                f"the state has another pipeline: it was saved with {name}={theirs!r}, this loader has "
                f"{name}={here!r}; make it with {name}={theirs!r}, {anew}"
            )
    if (theirs := str(state["pipeline"])) != ours["pipeline"]:
        a, b = theirs.split("-"), ours["pipeline"].split("-")
        a, b = (x + [""] * (len(_PARTS) - len(x)) for x in (a, b))
        what = ", and ".join(name for name, x, y in zip(_PARTS[:3], a, b, strict=False) if x != y)
        if not what:
            _check_code(theirs, ours["pipeline"], functions, anew)
            return
        raise StateMismatch(
            f"the state has another pipeline: it was saved with other settings of {what}; make the loader with those, "
            f"{anew}"
        )


def _check_code(theirs: str, ours: str, functions: str, anew: str) -> None:
    """Raise an error if the code of functions differs, and warn if that cannot be told."""
    (version, code), (our_version, our_code) = _code_of(theirs), _code_of(ours)
    if version == our_version:
        raise StateMismatch(
            f"the state has another pipeline: it was saved with other code of {functions}; make the loader with that "
            f"code, {anew}"
        )
    why = f"it was saved with Python {version}" if code and our_code else "one of them is not written in Python"
    if not code and our_code:
        why = "the state has no hash of it"
    warn(f"whether {functions} has the code that the state was saved with is not checked: {why}", RuntimeWarning)


def _order(text: object) -> tuple[str, bool | str]:
    """Return the version of an order, and the order as ``shuffle=`` has it."""
    version, _, order = str(text).partition(":")
    return version, {"source": False, "full": True}.get(order, order)
