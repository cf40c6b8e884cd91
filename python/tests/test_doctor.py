"""``with stoker.doctor():`` around small loops."""

from __future__ import annotations

import ast
import inspect
import json
import os
import time
from pathlib import Path

import pytest

import stoker
from conftest import CHECKOUT
from stoker._binary import find_binary

VERDICTS = {"cpu", "storage", "network", "memory", "handoff", "latency", "accelerator", "healthy", "unknown"}


@pytest.fixture(scope="module", autouse=True)
def binary() -> None:
    try:
        find_binary()
    except stoker.EngineNotFound as error:
        pytest.skip(str(error))


def test_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stoker.doctor(save=tmp_path / "r.json") as d:
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            time.sleep(0.01)
            stoker.step()
    assert d.verdict in VERDICTS
    assert d.gain >= 1
    assert d.result["pid"] == os.getpid()
    assert d.result["version"] == 1
    assert json.loads((tmp_path / "r.json").read_text()) == d.result
    assert d.text.startswith("stoker doctor: ")
    assert d.text in capsys.readouterr().err


def test_quiet_and_error_of_the_block(capsys: pytest.CaptureFixture[str]) -> None:
    d = stoker.doctor(quiet=True)
    with pytest.raises(KeyError), d:
        time.sleep(0.3)
        raise KeyError("of the block")
    assert "stoker doctor" not in capsys.readouterr().err
    assert d.verdict in VERDICTS


def test_bad_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(stoker.ConfigError, match="no folder"):
        stoker.doctor(save=tmp_path / "nowhere" / "r.json")
    monkeypatch.setenv("STOKER_BINARY", str(tmp_path / "missing"))
    with pytest.raises(stoker.EngineNotFound), stoker.doctor():
        pass


def test_failure_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "stoker"
    fake.write_text("#!/bin/sh\necho 'stoker: it broke' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("STOKER_BINARY", str(fake))
    with pytest.warns(RuntimeWarning, match="it broke"), stoker.doctor() as d:
        time.sleep(0.2)
    assert d.verdict == ""


def test_advice_names_real_options() -> None:
    """Each option that advice prints is one of the function that it names (the list is kept by internal/doctor)."""
    listed = CHECKOUT / "internal" / "doctor" / "testdata" / "actions.txt"
    if not listed.exists():
        pytest.skip("the engine's source is not in this tree")
    data = pytest.importorskip("torch.utils.data")
    signatures = {
        "DataLoader": inspect.signature(data.DataLoader.__init__),
        "stoker.Loader": inspect.signature(stoker.Loader.__init__),
    }
    calls = [line for line in listed.read_text().splitlines() if line.startswith(tuple(f"{n}(" for n in signatures))]
    assert len(calls) >= 5
    for line in calls:
        call = ast.parse(line, mode="eval").body
        assert isinstance(call, ast.Call), line
        parameters = signatures[ast.unparse(call.func)].parameters
        for keyword in call.keywords:
            assert keyword.arg in parameters, f"{line}: there is no option {keyword.arg}"
            wanted = parameters[keyword.arg].annotation
            if isinstance(keyword.value, ast.Constant) and isinstance(wanted, str):
                assert type(keyword.value.value).__name__ in wanted, f"{line}: {keyword.arg} is {wanted}"
