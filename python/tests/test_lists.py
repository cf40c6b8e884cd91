"""Names that both sides know are the same: element types, options, formats, errors."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import _errors, _options, _surface
from support import cli


@pytest.fixture(scope="module")
def engine(binary: str) -> dict[str, Any]:
    out = cli(binary, "describe", "--json")
    names: dict[str, Any] = json.loads(out)
    return names


def test_element_types(engine: dict[str, Any]) -> None:
    for t in engine["dtypes"]:
        of = np.dtype(_surface.DTYPES[t["name"]])
        numpy = "" if t["name"] == "bfloat16" else of.str[1:]  # NumPy has none; its bits come as those of integers
        assert (of.itemsize, numpy) == (t["size"], t["numpy"])


def test_options(engine: dict[str, Any], make: Any, tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(8))
    loader = make(tmp_path / "x.npy", batch_size=4, on_error="skip")
    options = {o["name"] for o in engine["options"]}
    # Only DataLoader gives the order itself, and crashes of earlier engines give the others. Feeders are sent if there
    # are some.
    internal = {"order", "crashed", "suspects", "view", "sequence", "feeders"}
    assert {*loader._epochs.config, *internal} == options
    # Each is an argument of the loader, under this or another name, or comes from the environment.
    elsewhere = {
        "outputs": "transforms",
        "pad": "transforms",
        "layout": "transforms",
        "local_world_size": "ranks",
        "window": "shuffle",
        "mix": "source",
        "share": "limits",
        "pinned": "device",
        **dict.fromkeys(stoker.Cache().to_config(), "cache"),
        **dict.fromkeys(stoker.Limits().to_config(), "limits"),
        **dict.fromkeys(("rank", "world_size", "uneven"), "ranks"),
        **dict.fromkeys(stoker.OnError().to_config(), "on_error"),
    }
    arguments = inspect.signature(stoker.Loader).parameters
    for option in options - internal:
        assert elsewhere.get(option, option) in arguments, option
    field = stoker.Field("image", mask=True, follow="x", depth=16)
    assert set(field.to_config("a", "NHWC")) <= {*engine["outputs"]}
    taken = {p for p in inspect.signature(stoker.Field.__init__).parameters if p != "self"}
    renamed = {"field": "source", "ops": "transforms"}
    assert {renamed.get(key, key) for key in engine["outputs"] if key != "name"} == taken


def test_formats(engine: dict[str, Any]) -> None:
    for name in (f["name"] for f in engine["formats"]):
        assert re.match(rf"{name}:/.*/x\?a=../b$", _options.source_url(f"{name}:x?a=../b"))
    assert not re.match("nothing:/", _options.source_url("nothing:x"))


def test_errors(engine: dict[str, Any]) -> None:
    classes = {n: c for n, c in vars(_errors).items() if inspect.isclass(c) and issubclass(c, Exception)}
    assert list(classes) == [e["name"] for e in engine["errors"]]
    for e in engine["errors"]:
        found = classes[e["name"]]
        assert (inspect.getdoc(found) or "").startswith(e["doc"])
        own = () if e.get("base") == "UserWarning" or e["name"] == "StokerError" else ("StokerError",)
        assert {*own, *filter(None, [e.get("base")])} <= {c.__name__ for c in found.__mro__}
