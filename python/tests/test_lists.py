"""What both sides know by name is the same: operations, element types, kinds of fields, options."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import _batch, _options
from stoker import transforms as T
from stoker.transforms import Transform


@pytest.fixture(scope="module")
def engine(binary: str) -> dict[str, Any]:
    out = subprocess.run([binary, "_names"], check=True, capture_output=True, text=True, timeout=60).stdout
    names: dict[str, Any] = json.loads(out)
    return names


def parameters(cls: type[Transform]) -> list[str]:
    return sorted(f.name for f in dataclasses.fields(cls))  # type: ignore[arg-type]


def test_operations(engine: dict[str, Any]) -> None:
    known = {**engine["operations"], **engine["batch_operations"]}
    ours = {}
    for module in (T, stoker.audio, stoker.video, stoker.volume):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) and issubclass(thing, Transform) and thing is not Transform:
                ours[thing.shown_name()] = parameters(thing)
    # What DataLoader alone gives: Pillow's arithmetic, and the magnitudes of this torch.
    internal = {"pillow", "magnitudes"}
    assert ours == {name: [p for p in taken if p not in internal] for name, taken in known.items()}
    # What is in both lists takes the same.
    for name in set(engine["operations"]) & set(engine["batch_operations"]):
        assert engine["operations"][name] == engine["batch_operations"][name]


def test_element_types(engine: dict[str, Any]) -> None:
    types = {name: np.dtype(code) for name, code in _batch._DTYPES.items()}
    ours = {name: {"size": of.itemsize, "numpy": of.str[1:]} for name, of in types.items()}
    ours["bfloat16"]["numpy"] = ""  # NumPy has none; its bits are passed on as those of integers
    assert ours == engine["dtypes"]
    made = []
    for name in engine["dtypes"]:
        try:
            made.append(T.ToDtype(name).dtype)
        except stoker.ConfigError:
            continue
    assert sorted(made) == sorted(engine["to_dtype"])


def test_kinds(engine: dict[str, Any]) -> None:
    assert set(_batch.KINDS) == set(engine["kinds"])


def test_options(engine: dict[str, Any], make: Any, tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(8))
    loader = make(tmp_path / "x.npy", batch_size=4, on_error="skip")
    # Only DataLoader gives the order itself, and crashes of earlier engines give the others.
    internal = {"order", "crashed", "suspects"}
    assert sorted({*loader._epochs.config, *internal}) == engine["options"]
    # Each is an argument of the loader, under this or another name, or comes from the environment.
    elsewhere = {
        "outputs": "transforms",
        "pad": "transforms",
        "layout": "transforms",
        "local_world_size": "ranks",
        "sequence": "sequence_length",
        "window": "shuffle",
        "view": "where",
        **dict.fromkeys(stoker.Cache().to_config(), "cache"),
        **dict.fromkeys(stoker.Limits().to_config(), "limits"),
        **dict.fromkeys(("rank", "world_size", "uneven"), "ranks"),
        **dict.fromkeys(stoker.OnError().to_config(), "on_error"),
    }
    arguments = inspect.signature(stoker.Loader).parameters
    for option in set(engine["options"]) - internal:
        assert elsewhere.get(option, option) in arguments, option
    field = stoker.Field("image", mask=True, follow="x", depth=16)
    assert set(field.to_config("a", "NHWC")) <= {*engine["outputs"]}
    taken = {p for p in inspect.signature(stoker.Field.__init__).parameters if p != "self"}
    renamed = {"field": "source", "ops": "transforms"}
    assert {renamed.get(key, key) for key in engine["outputs"] if key != "name"} == taken


def test_formats(engine: dict[str, Any]) -> None:
    for name in engine["formats"]:
        assert re.match(rf"{name}:/.*/x\?a=../b$", _options.source_url(f"{name}:x?a=../b"))
    assert not re.match("nothing:/", _options.source_url("nothing:x"))
