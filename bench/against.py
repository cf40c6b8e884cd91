"""Two commits of Stoker in turns: did a change make anything slower?

    make bench-against BASE=v0.3                      all of Stoker's own arms
    make bench-against BASE=5c72eae SUITES=photos ROUNDS=9
    make bench-against BASE=5c72eae FORMATS='csv|parquet'   the formats of bench/formats, '.' for all

The other commit is checked out and built below bench/work/against. Both commits read the same data, each from its own
packs, with its own scripts of bench/arms and bench/formats, since names of the Python client may differ. The two runs
of a round follow each other immediately, in an order that changes from round to round. The result is the median of the
rounds' ratios, because a machine drifts by more in an hour than the differences of interest. Results go to
bench/results/against-<machine>-<base>-<commit>.json.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import datasets, procs, runner, stored
from .run import _git, _slug
from .suite import SUITES, Arm, Suite

ROOT = runner.ROOT


def say(text: str) -> None:
    print(f"against: {text}", flush=True)


class Side:
    """One of the two commits: its program, its Python client, its packs."""

    def __init__(self, name: str, root: Path, work: Path) -> None:
        self.name, self.root, self.work = name, root, work
        self.environment = {"STOKER_BINARY": str(root / "bin/stoker"), "PYTHONPATH": str(root / "python/src")}

    def reads(self, arm: Arm, suite: Suite) -> Path:
        folder = arm.folder(suite.data_set)
        return self.work / folder if not arm.pack else self.work / "against" / self.name / folder

    def pack(self, arm: Arm, suite: Suite) -> None:
        out = self.reads(arm, suite)
        if not arm.pack or out.exists():
            return
        images = arm.pack.removeprefix("stoker-")
        source = self.work / "data" / suite.data_set
        source = {"raw": source / "bmp", "rows": source / "records.npy"}.get(images, source)
        out.parent.mkdir(parents=True, exist_ok=True)
        say(f"{self.name}: packing {runner.short(out)}")
        command = [str(self.root / "bin/stoker"), "pack", str(source), str(out)]
        subprocess.run(command + ([] if images == "rows" else ["--images", images]), check=True, capture_output=True)

    def run(self, arm: Arm, suite: Suite, a: argparse.Namespace) -> dict[str, Any]:
        data = self.reads(arm, suite)
        procs.warm(data)
        command = runner.arm_command(arm, suite, a.work, 0, a.cores)
        command[command.index("--data") + 1] = str(data)
        return runner.short_result(self._measure(command, arm.name, a))

    def run_format(self, name: str, folder: Path, a: argparse.Namespace) -> dict[str, Any]:
        command = ["taskset", "-c", a.cores, "", "-m", "bench.formats"]
        command += ["--side", "stoker", "--module", name, "--folder", str(folder)]
        got = self._measure(command, name, a)
        return got if "error" in got else {"examples_s": got["records_s"], "first_batch_s": got["first_batch_s"]}

    def _measure(self, command: list[str], name: str, a: argparse.Namespace) -> dict[str, Any]:
        """Run a command of bench in this commit's checkout, with the Python of the current one."""
        command[3] = str(runner.python_of("project", a.work))
        command += ["--seconds", str(a.seconds), "--warmup", str(a.warmup)]
        log = a.work / f"logs/against-{self.name}-{name}.log"
        return runner.run(command, a.limit, log, self.environment, self.root)


def checkout(commit: str, work: Path) -> Path:
    """A checkout of commit with its program built."""
    root = work / "against/checkout" / commit
    if not (root / "bin/stoker").exists():
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["git", "worktree", "prune"], check=True, cwd=ROOT)
        subprocess.run(["git", "worktree", "add", "--detach", "--force", str(root), commit], check=True, cwd=ROOT)
        say(f"building {commit}")
        subprocess.run(["go", "build", "-buildvcs=false", "-o", "bin/stoker", "./cmd/stoker"], check=True, cwd=root)
    return root


def ratios(rounds: list[dict[str, Any]], figure: str) -> list[float]:
    return [r["new"][figure] / r["old"][figure] for r in rounds if "error" not in r["new"] and "error" not in r["old"]]


def line(name: str, rounds: list[dict[str, Any]]) -> str:
    """An arm's figures: rates of both sides, and the change of rate and processor time."""
    rate = ratios(rounds, "examples_s")
    if not rate:
        return f"  {name:24s} no round without an error"
    second = "CPU" if "cpu_s_per_1k" in next(r["new"] for r in rounds if "error" not in r["new"]) else "first batch"
    other = ratios(rounds, "cpu_s_per_1k" if second == "CPU" else "first_batch_s")
    old, new = (statistics.median(r[s]["examples_s"] for r in rounds if "error" not in r[s]) for s in ("old", "new"))
    both = (f"x{statistics.median(x):.3f} ({min(x):.2f}-{max(x):.2f})" for x in (rate, other))
    return f"  {name:24s} {old:10,.0f} -> {new:10,.0f}   rate {next(both)}   {second} {next(both)}   {len(rate)} rounds"


Measure = Callable[[Side], dict[str, Any]]


def measurements(a: argparse.Namespace, old: Side, new: Side) -> Iterator[tuple[str, Measure]]:
    """Yield each measurement: a name, and a function that measures one side."""
    if a.formats:
        from .formats import __main__ as formats  # which takes arguments() from here

        for name, fmt in formats.modules(a.formats).items():
            if error := runner.broken_env(fmt.env, a.work):
                say(f"{name}: skipped: {error}")
                continue
            folder = formats.make(name, fmt, a.work)
            procs.warm(folder)
            yield name, lambda side, name=name, folder=folder: side.run_format(name, folder, a)
        return
    for suite in (SUITES[name] for name in a.suites):
        try:
            datasets.make(suite.data_set, a.work, a.data.resolve(), say)
        except datasets.MissingError as e:
            say(f"{suite.title}: skipped: {e}")
            continue
        for arm in suite.arms:
            if not arm.ours or not re.search(a.arms, arm.name):
                continue
            for side in (old, new):
                side.pack(arm, suite)
            yield f"{suite.name}/{arm.name}", lambda side, arm=arm, suite=suite: side.run(arm, suite, a)


def arguments(p: argparse.ArgumentParser, seconds: float, warmup: float) -> None:
    """The options that measurements in turns share."""
    p.add_argument("--rounds", type=int, default=5, help="0 only prepares")
    p.add_argument("--seconds", type=float, default=seconds, help="shortest window of a run")
    p.add_argument("--warmup", type=float, default=warmup)
    p.add_argument("--limit", type=float, default=120)
    p.add_argument("--cores", default=",".join(map(str, sorted(os.sched_getaffinity(0))[:2])))
    p.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    p.add_argument("--work", type=Path, default=ROOT / "bench/work")
    p.add_argument("--out", type=Path, help="result file")


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("base", help="commit, branch or tag to compare with")
    p.add_argument("--suites", nargs="*", default=[s for s in SUITES if s != "gen"], choices=list(SUITES))
    p.add_argument("--arms", default="stoker-(folder|keep|dct)$|raw-|tiny-|tokens-", metavar="REGEX")
    p.add_argument("--formats", default="", metavar="REGEX", help="modules of bench/formats instead of suites")
    arguments(p, seconds=4, warmup=2)
    a = p.parse_args()
    a.work = a.work.resolve()
    base = _git("rev-parse", "--short=10", a.base + "^{commit}")
    if not base:
        raise SystemExit(f"against: {a.base} is not a commit of this repository")
    commit, machine = _git("rev-parse", "--short=10", "HEAD"), procs.describe_machine()
    path = a.out or ROOT / "bench/results" / f"against-{_slug(machine)}-{base}-{commit}.json"
    old, new = Side(base, checkout(base, a.work), a.work), Side(commit, ROOT, a.work)
    result: dict[str, Any] = {
        "machine": machine,
        "base": base,
        "commit": commit,
        "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "settings": {"rounds": a.rounds, "seconds": a.seconds, "warmup": a.warmup, "cores": a.cores},
        "arms": {},
    }
    if result["changed_files"]:
        shutil.rmtree(a.work / "against" / commit, ignore_errors=True)  # packs of an earlier state of this checkout
    for name, measure in measurements(a, old, new):
        rounds: list[dict[str, Any]] = []
        for number in range(a.rounds):
            pair = [("old", old), ("new", new)]
            rounds.append({k: measure(side) for k, side in (pair if number % 2 else pair[::-1])})
            for got in rounds[-1].values():
                if "error" in got:
                    say(f"{name}: {got['error'].splitlines()[-1]}")
        if not rounds:
            continue
        result["arms"][name] = rounds
        path.parent.mkdir(parents=True, exist_ok=True)
        stored.save(path, result)
        print(line(name, rounds), flush=True)
    say(f"all figures are in {runner.short(path)}")


if __name__ == "__main__":
    main()
