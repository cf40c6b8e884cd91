"""The harness of the benchmarks: its list of suites, its options, and its result files."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from bench import __main__ as main
from bench import stored

from . import CHECKOUT


def bench(*names: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *names]
    return subprocess.run(command, cwd=CHECKOUT, env=os.environ | env, capture_output=True, text=True, check=False)


def test_the_list_has_all_suites_and_their_modules_exist() -> None:
    said = bench("list").stdout
    for name, suite in main.SUITES.items():
        assert f"\n{name} " in "\n" + said
        for module in (suite.module, *(r.split()[0] for r in suite.report)):
            assert importlib.util.find_spec(module), module
        spec = importlib.util.find_spec(suite.module)
        if spec.submodule_search_locations:
            spec = importlib.util.find_spec(f"{suite.module}.__main__")
        flags = Path(spec.origin).read_text()
        for option in suite.options:
            flag = main.FLAGS.get(option, "--" + option.lower().replace("_", "-"))
            common = {"--rounds", "--data"}  # bench.against adds them
            assert f'"{flag}"' in flags or flag in common, (name, flag)


def test_what_is_not_known_is_refused() -> None:
    said = bench("nope")
    assert said.returncode == 2 and "there is no suite nope" in said.stderr
    said = bench("order", ROUNDS="3")
    assert said.returncode == 2 and "order does not take ROUNDS; it takes SEEDS, ONLY" in said.stderr


def test_results_are_short_and_whole(tmp_path: Path) -> None:
    data = {"machine": {"time": "2026-01-02"}, "runs": [{"a": [1, 2]}, {"a": None}], "one": [3]}
    stored.save(tmp_path / "x.json", data)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == data and len(text.splitlines()) == 8
    for file in stored.FOLDER.glob("*.json"):
        assert file.read_text() == stored.text(json.loads(file.read_text())), file.name
