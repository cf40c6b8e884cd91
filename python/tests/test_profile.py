"""``stoker profile`` and ``stoker bench`` around real training commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_bench import check_trace

import stoker
from conftest import SOURCE

PLAIN = """
import time, torch, sys
class Data(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, i):
        time.sleep(0.0005)
        return torch.zeros(3), i
for epoch in range(50):
    for x, y in torch.utils.data.DataLoader(Data(), batch_size=8):
        time.sleep(0.002)
"""

MARKED = """
import time, stoker
for batch in stoker.watch([bytes(8)] * 30):
    with stoker.stage("forward"):
        time.sleep(0.002)
    stoker.step()
time.sleep(1)
"""


def run(binary: str, *args: str, program: str, path: Path) -> subprocess.CompletedProcess[str]:
    script = path / "train.py"
    script.write_text(program)
    command = [binary, *args, "--", sys.executable, str(script)]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "STOKER_PYTHON_HOOK": str(Path(SOURCE) / "stoker" / "_hook")}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


def test_a_plain_torch_program(binary: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    saved = tmp_path / "before.json"
    trace = tmp_path / "trace.json"
    args = ["profile", "--max-batches", "40", "--save", str(saved), "--trace", str(trace)]
    done = run(binary, *args, program=PLAIN, path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wait" in done.stdout
    profile = stoker.ProfileResult.load(saved)
    assert profile.steps >= 38
    assert profile.wait.p50 > 0
    assert {s.name for s in profile.stages} == {"wait", "compute"}
    check_trace(json.loads(trace.read_text()), {"wait", "step"})
    assert "trainer: wait" in profile.compare(profile)


def test_a_marked_program(binary: str, tmp_path: Path) -> None:
    done = run(binary, "profile", "--json", program=MARKED, path=tmp_path)
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)
    assert profile["steps"] == 29
    forward = next(s for s in profile["stages"] if s["name"] == "forward")
    assert forward["where"] == "trainer"
    assert forward["seconds"] > 0
    done = run(binary, "bench", "--json", program=MARKED, path=tmp_path)
    result = json.loads(done.stdout)
    assert result["steps"]["marked"] is True
    assert result["steps"]["count"] == 29
    assert result["exit_code"] == 0


def test_a_program_of_the_engine(binary: str, photos: Path, tmp_path: Path) -> None:
    program = f"""
import stoker, time
loader = stoker.Loader({str(photos)!r}, batch_size=8, fields={{"image": [stoker.Resize((32, 32))]}})
for epoch in range(100):
    for batch in loader:
        time.sleep(0.005)
        stoker.step()
"""
    done = run(binary, "bench", "--steps", "150", "--json", program=program, path=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ended"] is True
    assert result["steps"]["waits_seen"] is True
    assert {s["name"] for s in result["engine"]} >= {"read", "decode", "collate"}
