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
from support import HERE, SOURCE

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
loader = stoker.Loader({str(photos)!r}, batch_size=8, transforms={{"image": [stoker.transforms.Resize((32, 32))]}})
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


EACH = """
import sys, lazy_torchvision, torch
from {package} import DataLoader
from torchvision import datasets, transforms as T
data = datasets.ImageFolder(sys.argv[1], T.Compose([T.Resize((24, 24)), T.ToTensor()]))
class Own(torch.utils.data.Dataset):
    def __len__(self): return len(data)
    def __getitem__(self, i): return data[i]
batches = 0
for dataset, workers in ((data, 0), (data, 2), (Own(), 2)):
    loader = DataLoader(dataset, 8, num_workers=workers, persistent_workers=workers > 0)
    batches += sum(1 for epoch in range(2) for x, y in loader)
print("batches", batches, flush=True)
"""


@pytest.mark.parametrize("command", ["profile", "bench"])
@pytest.mark.parametrize("package", ["torch.utils.data", "stoker.torch"])
@pytest.mark.parametrize("taken", [False, True])
def test_each_step_counts_once(
    binary: str, photos: Path, tmp_path: Path, command: str, package: str, *, taken: bool
) -> None:
    """Loaders of torch and of Stoker, with and without ``stoker run``: as many steps as the loop had batches."""
    pytest.importorskip("torchvision")
    script, trace = tmp_path / "train.py", tmp_path / "trace.json"
    script.write_text(EACH.format(package=package))
    hook = str(Path(SOURCE) / "stoker" / "_hook")
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{HERE}", "STOKER_PYTHON_HOOK": hook}
    whole = ["--max-batches", "0", "--trace", str(trace)] if command == "profile" else ["--seconds", "300"]
    run = [binary, "run", "--first", "2", "--"] if taken else []
    done = subprocess.run(
        [binary, command, "--json", *whole, "--", *run, sys.executable, str(script), str(photos)],
        capture_output=True, text=True, timeout=300, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "batches 156" in done.stderr
    result = json.loads(done.stdout)
    if command == "profile":
        assert result["steps"] == 155
        starts = [e["ts"] for e in json.loads(trace.read_text())["traceEvents"] if e["name"] == "wait"]
        assert len(starts) == len(set(starts)) == 156
    else:
        assert (result["steps"]["count"], result["steps"]["examples"]) == (155, 6 * 203)


def test_it_ends_the_program_without_a_traceback(binary: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for command in (["profile", "--max-batches", "20"], ["bench", "--steps", "20"]):
        done = run(binary, *command, program=PLAIN, path=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "KeyboardInterrupt" not in done.stderr
