"""``with stoker.doctor():`` around small loops."""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stoker
from stoker._binary import find_binary
from support import CHECKOUT, HERE

VERDICTS = {"cpu", "storage", "network", "memory", "handoff", "latency", "accelerator", "healthy", "unknown"}


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
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


def test_options_that_verify_tries(tmp_path: Path) -> None:
    """The hook gives a program's DataLoaders other options, and leaves out those that no workers can have."""
    pytest.importorskip("torch.utils.data")
    script = tmp_path / "t.py"
    script.write_text(
        "from torch.utils.data import DataLoader\n"
        "d = DataLoader(list(range(8)), 2, num_workers=1, prefetch_factor=3)\n"
        "print(d.num_workers, d.persistent_workers, d.prefetch_factor, d.batch_size)\n"
    )
    hook = Path(stoker.__file__).parent / "_hook"
    for options, want in (
        ({"num_workers": 3, "persistent_workers": True}, "3 True 3 2"),
        ({"num_workers": 0, "persistent_workers": True, "prefetch_factor": 4}, "0 False None 2"),
        ({"no_such_option": 1}, "1 False 3 2"),
        ("nonsense", "1 False 3 2"),
    ):
        text = options if isinstance(options, str) else json.dumps(options)
        env = {**os.environ, "STOKER_TRY": text, "PYTHONPATH": f"{hook}:{Path(stoker.__file__).parent.parent}"}
        done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split("\n")[0] == want, done.stderr


def test_verify(tmp_path: Path) -> None:
    """Both runs end without help. The report gives the result of the second, or the reason why nothing could be
    tried."""
    pytest.importorskip("torch.utils.data")
    script = tmp_path / "train.py"
    script.write_text(
        "import time\n"
        "from torch.utils.data import DataLoader, Dataset\n"
        "class Slow(Dataset):\n"
        "    def __len__(self): return 1 << 20\n"
        "    def __getitem__(self, i):\n"
        "        time.sleep(0.02)\n"
        "        return i\n"
        "for batch in DataLoader(Slow(), 8):\n"
        "    time.sleep(0.01)\n"
    )
    command = [find_binary(), "doctor", "--verify", "--seconds", "4", "--save", str(tmp_path / "r.json"), "--"]
    done = subprocess.run(
        [*command, sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    verified = json.loads((tmp_path / "r.json").read_text())["verified"]
    assert verified.get("why") or verified["measured"] > 0
    assert "erified: " in done.stderr


def test_advice_names_real_options() -> None:
    """Each option that advice prints is one of the function that it names (the list is kept by internal/doctor)."""
    listed = CHECKOUT / "internal" / "doctor" / "testdata" / "actions.txt"
    if not listed.exists():
        pytest.skip("the engine's source is not in this tree")
    data = pytest.importorskip("torch.utils.data")
    signatures = {
        "DataLoader": inspect.signature(data.DataLoader.__init__),
        "stoker.Loader": inspect.signature(stoker.Loader.__init__),
        "stoker.pack": inspect.signature(stoker.pack),
    }
    calls = [line for line in listed.read_text().splitlines() if line.startswith(tuple(f"{n}(" for n in signatures))]
    assert len(calls) >= 5
    for line in calls:
        call = ast.parse(line.partition("   #")[0], mode="eval").body
        assert isinstance(call, ast.Call), line
        parameters = signatures[ast.unparse(call.func)].parameters
        for keyword in call.keywords:
            assert keyword.arg in parameters, f"{line}: there is no option {keyword.arg}"
            wanted = parameters[keyword.arg].annotation
            if isinstance(keyword.value, ast.Constant) and isinstance(wanted, str):
                assert type(keyword.value.value).__name__ in wanted, f"{line}: {keyword.arg} is {wanted}"


NOTES = """
import json, os, sys, lazy_torchvision, torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as T
data = datasets.ImageFolder(sys.argv[1], T.Compose([T.Resize((24, 24)), T.ToTensor()]))
class Own(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return data[i][0].mean()
torch.manual_seed(1)
for epoch in range(2):
    for batch in DataLoader(data, 16, shuffle=True): pass
for batch in DataLoader(Own(), 4, num_workers=2): pass
print(torch.randint(1 << 30, (1,)).item())
for fd in os.listdir("/proc/self/fd"):
    if os.path.islink(f"/proc/self/fd/{fd}") and "stoker-loaders" in os.readlink(f"/proc/self/fd/{fd}"):
        print(json.dumps([os.getpid(), json.loads(open(f"/proc/self/fd/{fd}").read())]))
"""


def test_loaders_are_written_down(photos: Path, tmp_path: Path) -> None:
    """The hook writes down each loader and the answer of ``stoker run``, and changes no random numbers."""
    pytest.importorskip("torchvision")
    script = tmp_path / "t.py"
    script.write_text(NOTES)
    hook = Path(stoker.__file__).parent / "_hook"
    env = {**os.environ, "PYTHONPATH": f"{hook}:{Path(stoker.__file__).parent.parent}:{HERE}"}
    said = []
    for more in ({}, {"STOKER_DOCTOR": "1"}):
        done = subprocess.run(
            [sys.executable, str(script), str(photos)], env={**env, **more}, capture_output=True, text=True, check=True
        )
        said.append(done.stdout.splitlines())
    assert said[0] == said[1][:1]
    pid, notes = json.loads(said[1][1])
    assert notes["pid"] == pid
    first, again, own = notes["loaders"]
    assert {k: first[k] for k in ("dataset", "num_workers", "batches", "engine", "epochs")} == {
        "dataset": "ImageFolder", "num_workers": 0, "batches": 13, "engine": True, "epochs": 1,
    }  # fmt: skip
    assert again["engine"] is True
    assert own["num_workers"] == 2
    assert own["dataset"] == "Own"
    # Doctor gives its answer regardless of what the recogniser knows of such a dataset.
    assert own["engine"] is True or "Own" in own["why"]


def test_a_torch_loop_has_a_speed_and_its_workers(photos: Path, tmp_path: Path) -> None:
    """``--compare`` of two runs of a plain script has the speed, and the number of workers that the script sets."""
    pytest.importorskip("torchvision")
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time, torch\n"
        "class Own(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 60\n"
        "    def __getitem__(self, i):\n"
        "        time.sleep(0.01)\n"
        "        return torch.zeros(3)\n"
        "for epoch in range(20):\n"
        "    for x in torch.utils.data.DataLoader(Own(), 4, num_workers=2):\n"
        "        time.sleep(0.02)\n"
    )
    saved = str(tmp_path / "r.json")
    for args in (["--save", saved, "--", sys.executable, str(script)], ["--load", saved, "--compare", saved]):
        command = [find_binary(), "doctor", *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["steps"]["count"] > 10
    assert report["loader"]["workers"] == 2
    assert "steps per second" in done.stdout
    assert "rows per second" in done.stdout
