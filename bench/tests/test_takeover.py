"""The benchmark of unmodified scripts (bench/takeover): its runs, its counts and its report."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import CHECKOUT

SCRIPT = """
import sys, torch
from helper import EPOCHS
from torchvision import datasets, models, transforms as T
data = datasets.ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(224), T.ToTensor()]))
loader = torch.utils.data.DataLoader(data, batch_size=50, shuffle=True)
model = models.get_model("tiny", num_classes=4)
for x, y in torch.utils.data.DataLoader(data, 8):
    break  # which is no epoch
for epoch in range(EPOCHS):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
    print(f"loss: {loss.item():.3f}")
"""


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, binary: str) -> None:
    monkeypatch.setenv("STOKER_BINARY", binary)


def part(name: str) -> Any:
    return importlib.import_module(f"bench.{name}")


def git(*args: str | Path) -> str:
    name = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", *name, *args], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    """Return a folder with a clone of a repository that has a script and its imports."""
    folder = tmp_path / "clones/somebody+project"
    (folder / "train").mkdir(parents=True)
    (folder / "train/main.py").write_text(SCRIPT)
    (folder / "train/helper.py").write_text("EPOCHS = 2\n")
    (folder / "other.txt").write_text("not needed")
    git("init", "-q", folder)
    git("-C", folder, "add", "-A")
    git("-C", folder, "commit", "-qm", "x")
    return folder.parent


def script(**more: Any) -> Any:
    makes = {"name": "main.py", "repository": "somebody/project", "commit": "0" * 40, "path": "train/main.py"}
    return part("takeover").Script(**(makes | {"folders": ("train",), "arguments": lambda p: [str(p.data)]} | more))


def test_both_arms(clones: Path, photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    checkouts, measure = part("takeover.checkouts"), part("takeover.measure")
    checkout, commit = checkouts.get(script(), clones, tmp_path)
    assert commit == git("-C", clones / "somebody+project", "rev-parse", "HEAD")
    assert sorted(p.name for p in checkout.rglob("*.*") if p.is_file()) == ["helper.py", "main.py"]
    place = part("takeover").Place(checkout, photos, tmp_path / "out", 2, 0)
    for arm in measure.ARMS:
        got = measure.run(script(), place, arm, Path(sys.executable), "", 120)
        assert "error" not in got
        assert [(e["rows"], e["batches"], e["dataset"]) for e in got["epochs"]] == [(203, 5, "ImageFolder")] * 2
        assert all(0 < e["first_s"] < e["seconds"] for e in got["epochs"])
        assert got["cpu_s"] > 0 and got["memory_mib"] > 50 and 0.1 < got["loss"] < 10
        assert ("ImageFolder: in the engine" in got.get("report", "")) == (arm == "stoker run")
    rest = measure.run(script(), place, measure.REST, Path(sys.executable), "", 120)
    assert [(e["rows"], e["batches"]) for e in rest["epochs"]] == [(250, 5)] * 2
    assert all(e["waited_s"] < e["seconds"] for e in rest["epochs"])


def test_scripts_that_fail(clones: Path, tmp_path: Path) -> None:
    checkouts, measure = part("takeover.checkouts"), part("takeover.measure")
    (clones / "somebody+project/train/helper.py").write_text("raise SystemExit('it has no data')\n")
    git("-C", clones / "somebody+project", "commit", "-qam", "y")
    checkout, _ = checkouts.get(script(), clones, tmp_path)
    place = part("takeover").Place(checkout, tmp_path, tmp_path / "out", 2, 0)
    got = measure.run(script(path="train/helper.py"), place, "python", Path(sys.executable), "", 60)
    assert "it has no data" in got["error"]


def test_where_there_is_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkouts = part("takeover.checkouts")
    monkeypatch.setattr(checkouts, "_HOST", f"file://{tmp_path}/nowhere/")
    for commit in ("1" * 40, "tag of numpy"):
        with pytest.raises(checkouts.UnavailableError, match=r"somebody/project cannot be had: .*--checkouts names"):
            checkouts.get(script(commit=commit), None, tmp_path)
    with pytest.raises(checkouts.UnavailableError, match="nonsense-package is not installed"):
        checkouts.get(script(commit="tag of nonsense-package"), None, tmp_path)


def test_what_is_downloaded(monkeypatch: pytest.MonkeyPatch, clones: Path, tmp_path: Path) -> None:
    checkouts = part("takeover.checkouts")
    (clones / "somebody").mkdir()
    git("clone", "-q", "--bare", clones / "somebody+project", clones / "somebody/project")
    git("-C", clones / "somebody/project", "config", "uploadpack.allowFilter", "true")
    git("-C", clones / "somebody/project", "config", "uploadpack.allowAnySHA1InWant", "true")
    monkeypatch.setattr(checkouts, "_HOST", f"file://{clones}/")
    head = git("-C", clones / "somebody/project", "rev-parse", "HEAD")
    checkout, commit = checkouts.get(script(commit=head), None, tmp_path)
    assert commit == head and (checkout / "train/main.py").read_text() == SCRIPT


def run(seconds: float, **more: Any) -> dict[str, Any]:
    epoch = {"rows": 100, "seconds": seconds, "first_s": 0.1, "waited_s": 0.5, "rate": 100 / seconds}
    return {"epochs": [epoch] * 2, "cpu_s": 4.0, "memory_mib": 300.0, "loss": 1.5, **more}


def shape(slower: float) -> dict[str, float]:
    times = dict.fromkeys(("first_s", "hand_off_ms", "read_ms", "grown_mib"), 0.5 * slower)
    return {"rate": 100 / slower, "memory_mib": 300.0, **times}


def test_report() -> None:
    report = part("takeover.report")
    machine = {"cores": 2, "cpu": "x", "memory_gib": 4, "time": "2026-01-01 00:00:00"}
    settings = {"rounds": 1, "epochs": 2, "images": 100, "workers": 2, "cores": "0"}
    about = {"repository": "somebody/project", "commit": "c" * 40, "path": "x.py", "recognised": True}
    even = [{"python": run(1), "stoker run": run(1.2)}]
    result = {
        "machine": machine, "settings": settings, "commit": "abc", "changed_files": False,
        "scripts": {
            "fast": {"name": "A", **about, "rounds": [{"python": run(5), "stoker run": run(1)}]},
            "slow": {"name": "B", **about, "rounds": [{"python": run(3), "stoker run": run(1)}]},
            "other": {"name": "C", **about, "recognised": False, "rounds": even},
            "held": {"name": "E", **about, "rounds": [{"python": run(3), "stoker run": run(1)}], "rest": run(0.9)},
            "none": {"name": "D", **about, "rounds": [], "error": "no | network"},
        },
        "pairs": {"P": {"rounds": [{"torch": run(4), "stoker": run(1, where="engine")}]}},
        "shapes": {k: {"rounds": [{"torch": shape(2), "stoker": shape(1)}]} for k in part("takeover.shapes").SHAPES},
    }  # fmt: skip
    text = report.text(result)
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert "20 / 100" in rows["A"] and "5.00 x" in rows["A"] and "| met |" in rows["A"]
    assert "missed (4 x later)" in rows["B"]
    assert "0.83 x" in rows["C"] and "missed (0.98 x)" in rows["C"]
    assert "no / network" in rows["D"]
    assert "met; the rest limits later epochs to 3.3 x" in rows["E"]
    assert "50.0 / 100.0" in rows["batches of 8 numbers"] and "2.00 x" in rows["batches of 8 numbers"]
    assert "at least 5 | **no**" in next(line for name, line in rows.items() if name.startswith("hand-off"))
    assert "25 / 100" in rows["P"] and "engine" in rows["P"] and "20.00 / 20.00" in rows["P"]


def test_regions_stay() -> None:
    regions = part("regions")
    page = regions.put("# Page\n\ntext\n", "run", "first")
    page = regions.put(page, "run", "second")
    assert page.count("run:begin") == 1 and "second" in page and "first" not in page
    page = regions.put(page, "gpu", "third")
    new = regions.keep(page, "# Page\n\nother text\n")
    assert "second" in new and "third" in new and "\ntext" not in new
    assert regions.keep("# none", "# new\n") == "# new\n"


def test_every_shape(tmp_path: Path) -> None:
    """A few records of each, by both loaders."""
    pytest.importorskip("torch")
    shapes = part("takeover.shapes")
    # One process imports torch, and forks one for each side of a shape.
    few = (
        "import os, sys, torch; from bench.takeover import shapes as s; s.MANY = 8000\n"
        "for name in sys.argv[1:]:\n"
        "    n, *more = s.SHAPES[name]; s.SHAPES[name] = (n and 25 * more[0]['batch_size'], *more)\n"
        "    for side in ('torch', 'stoker'):\n"
        "        child = os.fork()\n"
        "        if not child: s.one(name, side, 1); sys.exit()\n"
        "        if status := os.waitpid(child, 0)[1]: sys.exit(f'{name}, {side}: status {status}')"
    )
    names = (shapes.HAND_OFF, shapes.PATHS, "batches of 8 numbers")
    command = [sys.executable, "-c", few, *names]
    said = subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT, timeout=300)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert len(lines) == 2 * len(names)
    for name, line in zip((name for name in names for _ in range(2)), lines, strict=True):
        got = json.loads(line)
        assert got["rate"] > 0 and got["memory_mib"] > 0 and ("hand_off_ms" in got) == (name == shapes.HAND_OFF)


def test_every_script_is_one_that_can_be_called(tmp_path: Path) -> None:
    scripts, data = part("takeover.scripts").SCRIPTS, part("takeover.data")
    place = part("takeover").Place(tmp_path, tmp_path, tmp_path, 3, 2)
    for one in scripts.values():
        assert all(isinstance(x, str) for x in one.arguments(place))
        assert one.data in data.MAKERS and one.path.startswith(tuple(one.folders))
        assert one.commit.startswith("tag of ") or len(one.commit) == 40
