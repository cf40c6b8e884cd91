"""Saved states: the position of a training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._connection import Position
from ._errors import StateMismatch

VERSION = 1


def save(position: Position, seed: int, shuffle: bool | str, info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a position as a state that JSON can hold."""
    return {
        "version": VERSION,
        "seed": seed,
        "shuffle": shuffle,
        "epoch": position.epoch,
        "position": position.row,
        "records": int(info["len"]),
        "fingerprint": str(info.get("fingerprint", "")),
    }


def load(state: Mapping[str, Any], seed: int, shuffle: bool | str, info: Mapping[str, Any]) -> Position:
    """Return the position of a state that fits this loader."""
    if not isinstance(state, Mapping):
        raise StateMismatch(f"the state is a {type(state).__name__}, not what state_dict() returns")
    missing = [k for k in ("version", "seed", "epoch", "position", "records") if k not in state]
    if missing:
        raise StateMismatch(f"the state lacks {', '.join(missing)}; it is not what state_dict() returns")
    if state["version"] != VERSION:
        raise StateMismatch(
            f"the state has version {state['version']}, this package knows version {VERSION}; "
            "use the version of stoker that saved it"
        )
    for key in ("epoch", "position", "records", "seed"):
        value = state[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise StateMismatch(f"the state's {key} is {value!r}, not a whole number")
    if state["seed"] != seed:
        raise StateMismatch(f"the state was saved with seed={state['seed']}, this loader has seed={seed}")
    if (theirs := state.get("shuffle", shuffle)) != shuffle:
        raise StateMismatch(
            f"the state was saved with shuffle={theirs!r}, this loader has shuffle={shuffle!r}; make it with that order"
        )
    if state["records"] != info["len"]:
        raise StateMismatch(
            f"the state was saved over {state['records']} records, this loader has {info['len']}: other data"
        )
    theirs, ours = state.get("fingerprint", ""), info.get("fingerprint", "")
    if theirs and ours and theirs != ours:
        raise StateMismatch(
            f"the state was saved over other data with as many records (fingerprint {theirs}, here {ours})"
            + ("; or with other buckets, batch_size or world_size" if info.get("buckets") else "")
        )
    if state["position"] >= state["records"]:
        return Position(state["epoch"] + 1, 0)
    return Position(state["epoch"], state["position"])
