"""The harness of the benchmarks: its list of suites, its options, and its result files."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CHECKOUT

if not (CHECKOUT / "bench").is_dir():
    pytest.skip("bench is not in this tree", allow_module_level=True)


def bench(*names: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *names]
    return subprocess.run(command, cwd=CHECKOUT, env=os.environ | env, capture_output=True, text=True, check=False)


def test_the_list_has_all_suites_and_their_modules_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CHECKOUT))
    main = importlib.import_module("bench.__main__")
    said = bench("list").stdout
    for name, suite in main.SUITES.items():
        assert f"\n{name} " in "\n" + said
        for module in (suite.module, *(r.split()[0] for r in suite.report)):
            assert importlib.util.find_spec(module), module
        flags = subprocess.run(
            [sys.executable, "-c", f"import importlib.util as u; print(open(u.find_spec('{suite.module}.__main__' if "
             f"u.find_spec('{suite.module}').submodule_search_locations else '{suite.module}').origin).read())"],
            cwd=CHECKOUT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for option in suite.options:
            flag = main.FLAGS.get(option, "--" + option.lower().replace("_", "-"))
            common = {"--rounds", "--data"}  # bench.against adds them
            assert f'"{flag}"' in flags or flag in common, (name, flag)


def test_what_is_not_known_is_refused() -> None:
    said = bench("nope")
    assert said.returncode == 2 and "there is no suite nope" in said.stderr
    said = bench("order", ROUNDS="3")
    assert said.returncode == 2 and "order does not take ROUNDS; it takes SEEDS, ONLY" in said.stderr


def test_results_are_short_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CHECKOUT))
    stored = importlib.import_module("bench.stored")
    data = {"machine": {"time": "2026-01-02"}, "runs": [{"a": [1, 2]}, {"a": None}], "one": [3]}
    stored.save(tmp_path / "x.json", data)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == data and len(text.splitlines()) == 8
    for file in stored.FOLDER.glob("*.json"):
        assert file.read_text() == stored.text(json.loads(file.read_text())), file.name
