"""The generated modules of transforms: signatures, pickle, repr, equality, help, and which arguments are refused."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import audio, video, volume
from stoker import transforms as T
from stoker._rules import RULES
from stoker._transform import Transform

ROOT = Path(__file__).parent.parent.parent
CLASSES = [getattr(m, n) for m in (T, audio, video, volume) for n in m.__all__ if n != "Transform"]
NAMES = {**vars(T), "T": T, "audio": audio, "video": video, "volume": volume}
PROBED = json.loads((ROOT / "internal/transform/testdata/arguments.json").read_text())
every = pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.shown_name())


def example(cls: type[Transform]) -> Transform:
    found = re.search(r"^Example: ``(.+)``$", inspect.getdoc(cls) or "", re.MULTILINE)
    assert found, cls
    made = eval(found[1], NAMES)
    assert type(made) is cls
    return made


def test_nothing_is_out_of_date(binary: str) -> None:
    command = [sys.executable, str(ROOT / "scripts/surface.py"), "--check", "--binary", binary]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@every
def test_values(cls: type[Transform]) -> None:
    made = example(cls)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(made, protocol)) == made
    assert eval(repr(made), NAMES) == made == example(cls)
    assert hash(made) == hash(example(cls))
    assert made != 0
    assert made.to_config()["op"] == cls.shown_name()
    json.dumps(made.to_config())
    changed = [f for f in dataclasses.fields(cls) if isinstance(getattr(made, f.name), float)]
    for f in changed[:1]:
        value = getattr(made, f.name)
        other = dataclasses.replace(made, **{f.name: value / 2 or 0.25})
        assert other != made
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, f.name, value)


@every
def test_signature(cls: type[Transform]) -> None:
    fields = dataclasses.fields(cls)
    signature = inspect.signature(cls)
    assert list(signature.parameters) == [f.name for f in fields]
    for f, p in zip(fields, signature.parameters.values(), strict=True):
        assert p.annotation is not inspect.Parameter.empty
        assert not isinstance(p.annotation, str)  # help() shows the type
        assert p.default == (inspect.Parameter.empty if f.default is dataclasses.MISSING else f.default)
    text = pydoc.plain(pydoc.render_doc(cls))
    assert f"{cls.__name__}(" in text
    assert "*args" not in text.split("Args:")[0]
    for f in fields:
        assert re.search(rf"^ \|  +{f.name}: ", text, re.MULTILINE), f.name


@every
def test_arguments_are_those_that_the_engine_accepts(cls: type[Transform]) -> None:
    name = cls.shown_name()
    made = example(cls)
    for param, accepted in PROBED["accepted"][name].items():
        for i, value in enumerate(PROBED["probes"]):
            text = f"{name}: {param} must be {RULES[name][param]['expects']}, not {value!r}"
            try:
                dataclasses.replace(made, **{param: value})
            except stoker.ConfigError as error:
                assert str(error) == text
                assert i not in accepted, f"{name}: {param}={value!r}"
            else:
                assert i in accepted, f"{name}: {param}={value!r}"


def test_unknown_arguments_and_names() -> None:
    with pytest.raises(stoker.UnknownArgument, match=r"audio\.Pad has no argument 'multipl'; did you mean 'multiple'"):
        audio.Pad(multipl=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="size"):
        T.Resize()  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match=r"write stoker\.audio\.Resample"):
        T.Resample  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'Resampl'"):
        importlib.import_module("stoker.audio").Resampl  # noqa: B018
    with pytest.raises(stoker.ConfigError, match=r"RandomInvert is a class; write RandomInvert\(\.\.\.\)"):
        T.Compose([T.RandomInvert])  # type: ignore[list-item]


def test_values_of_libraries() -> None:
    assert T.RandomHorizontalFlip(np.float32(0.5)) == T.RandomHorizontalFlip()  # type: ignore[arg-type]
    assert T.CenterCrop(np.int64(4)) == T.CenterCrop(4)  # type: ignore[arg-type]
    assert T.Normalize(np.array([0.5]), np.array([2.0])) == T.Normalize([0.5], [2.0])  # type: ignore[arg-type]
    assert T.Resize(8, antialias=np.True_) == T.Resize(8)  # type: ignore[arg-type]
    assert T.MixUp(images="image") == T.MixUp(images=["image"])
    for bad in (float("nan"), float("inf")):
        with pytest.raises(stoker.ConfigError, match="p must be a number from 0 to 1"):
            T.RandomInvert(bad)


def test_checkers_read_the_signatures(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "x.py").write_text(
        "from stoker import transforms as T, audio\n"
        'T.Resize(8, "bicubic")\naudio.Normalize("std")\n'
        'T.Resize(8, "bicubik")\nT.Resize(siz=8)\naudio.Resample("16000")\n'
    )
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent", str(tmp_path / "x.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env={"MYPYPATH": str(ROOT / "python/src")}
    )
    assert re.findall(r"x\.py:(\d+): error", done.stdout) == ["4", "5", "6"], done.stdout + done.stderr
