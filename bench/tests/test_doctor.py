"""The harness of the diagnosis matrix (bench/doctor): it measures, judges, and cleans up."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import CHECKOUT


def load(name: str) -> Any:
    return importlib.import_module(f"bench.doctor.{name}")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for number in range(16):
        folder = tmp_path / "images" / f"{number % 2:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (48, 40), (number, 0, 0)).save(folder / f"{number}.jpg")
    return tmp_path / "images"


class TinySetup:
    """A replacement for run.Setup, for one folder of images."""

    def __init__(self, tmp_path: Path, images: Path) -> None:
        self.binary = Path(sys.executable)
        self.work = self.temporary = tmp_path
        self.data = {"images": images, "served": images}
        self.others = load("inject").Others()
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}

    def python(self, script: str) -> Path:
        return Path(sys.executable)

    def warm(self, path: Path) -> None:
        load("inject").warm(path)

    def close(self) -> None:
        self.others.close()


@pytest.fixture
def setup(tmp_path: Path, images: Path) -> Iterator[TinySetup]:
    made = TinySetup(tmp_path, images)
    yield made
    made.close()


def test_cells_differ_and_cover_the_bars() -> None:
    cells = load("cells")
    found = cells.all_cells()
    held = [c for c in found if c.set == cells.HELDOUT]
    assert sum(c.runs for c in found) >= 100
    assert {c.injection for c in held} == set(cells.INJECTIONS)
    for injection in cells.INJECTIONS:
        assert sum(c.injection == injection for c in found) >= 4, injection
    assert sum(c.runs for c in held if c.injection in ("healthy", "accelerator")) >= 20
    assert not {c.id for c in held} & {c.id for c in found if c.set == cells.TUNING}


def test_truth_of_a_tiny_cell(setup: TinySetup, images: Path) -> None:
    """One cell, each resource removed in turn, in a real training loop."""
    pytest.importorskip("torchvision")
    cells, run = load("cells"), load("run")
    cell = cells.cell("tuning", "cpu", "imagefolder", "workers 1 batch 4 size 32 step sleep:1")
    zygote = run.Zygote(setup.python(""), setup.environment)
    try:
        assert cells.removals(cell) == ["", "cpu", "handoff"]
        for removed in ["", "cpu"]:
            answer = zygote.ask(
                {
                    "script": cell.script,
                    "argv": ["--data", str(images), *cell.argv],
                    "remove": removed,
                    "warm": 0.0,
                    "seconds": 0.05,
                }
            )
            assert answer.get("rate", 0) > 0, answer
            assert 0 <= answer["wait"] <= 1
        wrong = zygote.ask({"script": cell.script, "argv": [], "remove": "gravity", "warm": 0, "seconds": 0.1})
        assert "gravity" in wrong["error"]
    finally:
        zygote.close()
    assert not Path(f"/proc/{zygote.process.pid}").exists()


def test_run_beside_a_loop(setup: TinySetup, tmp_path: Path, images: Path) -> None:
    """A run with a stand-in for doctor: the loop's own figures are read, and the loop is gone afterwards."""
    pytest.importorskip("torchvision")
    cells, run = load("cells"), load("run")
    fake = tmp_path / "doctor"
    fake.write_text('#!/bin/sh\nsleep 0.5; echo "{\\"verdict\\": \\"healthy\\", \\"gain\\": 1, \\"job\\": $6}"\n')
    fake.chmod(0o755)
    setup.binary = fake
    cell = cells.cell("tuning", "healthy", "imagefolder", "workers 1 batch 4 size 32 step sleep:20")
    result = run.run_doctor(setup, cell, 1, 1)
    assert result["doctor"]["verdict"] == "healthy", result
    assert result["signals"]["steps"] > 0
    assert 0 <= result["signals"]["wait"] <= 1
    loops = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(images).encode() in _bytes(p)]
    assert not loops


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("condition", ["quota", "bps", "memory"])
def test_groups_are_removed(condition: str, setup: TinySetup, tmp_path: Path, images: Path) -> None:
    cells, inject, run = load("cells"), load("inject"), load("run")
    try:
        inject.check(condition, tmp_path)
    except inject.Unavailable as why:
        pytest.skip(str(why))
    cell = cells.cell("tuning", "cpu", "imagefolder", "workers 0", **{condition: {"quota": 0.5}.get(condition, 1e9)})
    with run.conditions(setup, cell) as (groups, address):
        assert address == str(images)
        member = subprocess.Popen(["sleep", "60"])
        groups[0].join(member.pid)
        folders = list(groups[0].folders)
        assert all(f.is_dir() for f in folders)
    assert not any(f.exists() for f in folders)
    # The whole process group has exited.
    assert member.wait(10) != 0


def test_antagonists_end_with_their_owner() -> None:
    inject = load("inject")
    antagonists = inject.Antagonists(2)
    pids = [p.pid for p in antagonists.processes]
    antagonists.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_judging() -> None:
    score = load("score")
    starved = score.judge_truth({"cpu": 2.0, "storage": 1.95, "handoff": 1.1}, "storage")
    assert (starved.row, starved.right) == ("cpu", {"cpu", "storage"})
    fed = score.judge_truth({"everything": 1.02, "accelerator": 7.0}, "accelerator")
    assert (fed.row, fed.right, fed.starved) == ("accelerator", {"accelerator", "healthy"}, False)
    harmless = score.judge_truth({"cpu": 1.01, "storage": 1.0}, "storage")
    assert harmless.row == "healthy"
    border = score.judge_truth({"cpu": 1.12, "handoff": 1.0}, "cpu")
    assert border.borderline
    assert border.right == {"cpu", "accelerator", "healthy"}
    assert score.balanced([("a", True), ("a", True), ("a", False), ("b", False)]) == pytest.approx(1 / 3)


def test_score_and_report(tmp_path: Path) -> None:
    cells, score, report = load("cells"), load("score"), load("report")
    results: dict[str, Any] = {"truth": {}, "runs": {}, "skipped": {}, "cores": 2}
    for cell in cells.all_cells():
        fed = cell.injection in ("healthy", "accelerator")
        gains = {"everything": 1.0} if fed else {cell.injection: 2.0, "cpu": 2.0 if cell.injection == "cpu" else 1.0}
        results["truth"][cell.id] = {"gains": gains, "rates": {"": 1.0, **gains}}
        results["runs"][f"{cell.id}#0"] = {
            "set": cell.set,
            "cell": cell.id,
            "injection": cell.injection,
            "doctor": {"verdict": cell.injection, "gain": 1.0 if fed else 2.2, "waiting": 0.5},
            "wall": 12.5,
            "signals": {
                "wait": 0.0 if fed else 0.5,
                "busy": 0.5,
                "iowait": 0.0,
                "starving": 0.0,
                "steps": 9,
                "rate": 1.0,
            },
        }
    judged = score.score(score.runs_of(results, cells.HELDOUT), 2)
    assert judged.balanced == 1.0
    assert judged.gain_error == pytest.approx(0.1)
    assert judged.false_alarms == 0
    assert all(b.met for b in score.bars(judged))
    assert max(r.named for r in judged.rules) < 1
    page = report.write(results, tmp_path)
    assert "| balanced accuracy | 1.000 |" in page.read_text()
    assert (tmp_path / "img" / "diagnosis-confusion.svg").read_text().startswith("<svg")


def test_signals() -> None:
    run = load("run")
    log = "10.0 step 1 data 0.5 batch 1.0\nnonsense\n11.0 step 2 data 0.25 batch 1.0\n13.0 step 3 data 1 batch 2.0\n"
    steps = run.steps_in(log, 9, 12)
    assert len(steps) == 2
    seen = run.signals(steps, [(10.0, 0.95, 0.1), (10.25, 0.95, 0.3), (11.0, 0.5, 0.2)])
    assert seen["wait"] == pytest.approx(0.375)
    # Only in the second sample, from 10 to 10.25, did the step do nothing while the CPU was busy.
    assert seen["starving"] == pytest.approx(1 / 3)


def test_list_and_bad_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = load("run")
    monkeypatch.setattr(sys, "argv", ["run", "--list", "--set", "heldout"])
    assert run.main() == 0
    assert "runs" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["run", "--only", "no such cell"])
    assert run.main() == 2


def test_kinds() -> None:
    """Each kind has its script and names its bottleneck in doctor's words. Half of the kinds are held out."""
    kinds = load("kinds")
    known = {"", "cpu", "storage", "network", "memory", "handoff", "latency"}
    scripts = {p.stem for p in (CHECKOUT / "bench" / "doctor" / "jobs").glob("*.py")} - {"job", "server"}
    assert scripts == {k.name for k in kinds.KINDS}
    assert {part for k in kinds.KINDS for part in k.lacks.split("/")} <= known
    held = [k for k in kinds.KINDS if k.set == kinds.HELDOUT]
    assert len(kinds.KINDS) >= 20
    assert 2 * len(held) >= len(kinds.KINDS)  # what a rule was changed for is held out no longer
    for name in scripts:
        compile((CHECKOUT / "bench" / "doctor" / "jobs" / f"{name}.py").read_text(), name, "exec")


def test_kinds_are_judged() -> None:
    kinds = load("kinds")
    results = [
        kinds.Result("a", kinds.HELDOUT, "cpu", "cpu", 2.0, 0.9, "", [], 2.5),
        kinds.Result("b", kinds.HELDOUT, "latency", "healthy", 1.0, 0.9, "", []),
        kinds.Result("c", kinds.HELDOUT, "", "accelerator", 3.0, 0.9, "", []),
        kinds.Result("d", kinds.HELDOUT, "", "unknown", 1.0, 0.2, "", []),
    ]
    lines = kinds.summary(results)
    assert "2 of 4 verdicts right" in lines[0]
    assert "accuracy of starved and fed 0.50" in lines[0]
    assert "20% in the median" in lines[1]


def test_truths_of_unchanged_kinds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The truth about a script is measured again on such a machine only if the script has changed."""
    beside = load("beside")
    machine = {"cpu": "a CPU", "cpu_model": "17", "cores": 2}
    kinds = {"csv_main": {"truth": {"real": 1.5}}, "zip_fed": {"truth": {"error": "no end"}}, "queue_fed": {}}
    kinds["sqlite_fed"] = {"truth": {"real": 1.0}}
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"machine": machine, "commit": "abc", "kinds": kinds}))
    changed = ["bench/doctor/jobs/sqlite_fed.py"]
    monkeypatch.setattr(beside, "_git", lambda verb, *_: "abc" if verb == "rev-parse" else "\n".join(changed))
    assert beside.truths(file, {**machine, "kernel": "7"}) == {"csv_main": {"real": 1.5}}
    with pytest.raises(SystemExit, match="another machine: a CPU, 2 cores"):
        beside.truths(file, {**machine, "cores": 4})
    changed.append("bench/doctor/jobs/job.py")
    with pytest.raises(SystemExit, match=r"job.py has changed"):
        beside.truths(file, machine)
    monkeypatch.setattr(beside, "_git", lambda *_: "")
    with pytest.raises(SystemExit, match="commit abc, which is not here"):
        beside.truths(file, machine)


def test_kinds_beside_others() -> None:
    beside, report = load("beside"), load("kinds_report")

    def verdict(said: str, gain: float, **more: float) -> list[dict[str, Any]]:
        figures = {"full": 0.0, "iowait": 0.0, "overhead": 0.004, "confidence": 0.8, **more}
        return [{"verdict": said, "gain": gain, **figures}]

    # Held-out kinds, two starved and two fed. One bottleneck turns out to cost nothing.
    held = [k.name for k in report.KINDS if k.set == report.HELDOUT and k.lacks == "cpu"]
    known = [k.name for k in report.KINDS if k.set == report.HELDOUT and not k.lacks]
    fed = known[0]
    results = {
        held[0]: {
            "verdicts": verdict("cpu", 2.0, overhead=0.012),
            "truth": {"real": 2.5},
            "traceml": {"diagnosis": "INPUT-BOUND"},
            "verify": {"advice": "use 2 workers", "how": "--verify", "predicted": 2.0, "measured": 1.8},
        },
        held[1]: {"verdicts": verdict("storage", 5.0), "truth": {"real": 2.0}},
        held[2]: {"verdicts": verdict("healthy", 1.0), "truth": {"real": 1.01}},
        fed: {
            "verdicts": verdict("cpu", 1.3) + verdict("accelerator", 1.0) + [{"verdict": ""}],
            "truth": {"real": 1.0},
            "traceml": {"diagnosis": "COMPUTE-BOUND"},
        },
        known[1]: {"verdicts": verdict("unknown", 1.0)},
        "a kind of last year": {"verdicts": verdict("cpu", 3.0)},
    }
    machine = {"cpu": "a CPU", "cores": 2, "memory_gib": 8, "kernel": "6", "time": "2026-01-01 00:00:00"}
    text = report.text({"machine": machine, "commit": "abc", "seconds": 10, "kinds": results})
    for line in (
        f"| `{held[0]}` | cpu | 2.50 | 1 | cpu | 2.00 | 0.80 | 1.20% |",
        f"| `{held[1]}` | cpu | 2.00 | 1 | **storage** | 5.00 | 0.80 | 0.40% |",
        f"| `{held[2]}` | cpu | 1.01 | 1 | healthy |  | 0.80 | 0.40% |",
        f"| `{fed}` | nothing |  | 2 | **cpu 1 of 2**, accelerator 1 of 2 | 1.30 | 0.80 | 0.40% |",
        "3 of 6 verdicts are right",
        "| balanced accuracy, starved or fed | 0.75 | at least 0.95 | no |",
        '| of these "unknown", wrong above and neither below | 1 of 6 |  |  |',
        "| starved called fed | 0 of 2 | none in 60 | no |",
        "| false alarms | 1 of 4 | none in 60 | no |",
        "| error of the gain, median | 85% | at most 15% | no |",
        "| error of the gain, worst | 2.5 x | at most 2 x | no |",
        "| first advice, gain within 25% | 1 of 1 | 10 of 12 | no |",
        "| TraceML | starved or not (doctor on the same: 0.75) | 1.00 | 3 |",
        "| input wait > 5% | starved or not, by the true waiting | 1.00 | 5 |",
        "| `queue_feeder`",
    ):
        assert (line in text) == (line != "| `queue_feeder`")
    assert "`executor_fed`" in text  # held out, and without a verdict
    assert "The others" not in text
    # Each kind once, then the one with fewest runs of those that lack something, then of the others.
    chosen = [k for k in report.KINDS if k.name in (held[0], held[1], fed)]
    kept: dict[str, dict[str, Any]] = {held[0]: {"verdicts": verdict("cpu", 2.0)}}
    asked = []
    for kind in beside.rounds(chosen, kept, 3):
        asked.append(kind.name)
        kept.setdefault(kind.name, {}).setdefault("verdicts", []).extend(verdict("cpu", 2.0))
    assert asked == [held[1], held[0], fed, fed, fed]
    assert [k.name for k in beside.rounds(chosen, {}, 1)] == [held[0], held[1], fed]  # none of them can be run
    assert beside.diagnosis({"a": [], "b": {"primary_diagnosis": {"kind": "INPUT_BOUND"}}}) == "INPUT_BOUND"
    with pytest.raises(SystemExit):
        beside.main(["--parts", "guesses"])
    with pytest.raises(SystemExit):
        beside.main(["--only", "no_such_kind"])
