"""Checks the what-if of `stoker bench`: it predicts from one run, then the changed set-up is measured.

    make bench SUITES=whatif                                  about 4 minutes
    .venv/bin/python -m bench.whatif --rounds 1        half of it, no table is written

The changes that one machine can make: one core to two, a disk throttled by a control group to memory and to a faster
disk, and `keep` to `dct` on packs of the same photos. The control group is version 1, as root. Without one, those
lines are left out. Every set-up is measured once in each round. The prediction comes from the run of the starting
set-up in the same round. The table goes into docs/how-to/bench.md, all figures into bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import planner, procs, runner, stored
from .figures import table
from .run import _git, _slug

ROOT = runner.ROOT
GUIDE = ROOT / "docs/how-to/bench.md"
BEGIN, END = "<!-- written by python -m bench.whatif -->", "<!-- end of what it wrote -->"


@dataclass(frozen=True)
class Setup:
    """A run of `stoker bench` on one of the packs."""

    codec: str
    cores: int
    step_ms: float = 0
    spin: bool = False
    disk_mb: float = 0  # 0: all in memory

    @property
    def name(self) -> str:
        parts = [self.codec, f"{self.cores} core{'s' if self.cores > 1 else ''}"]
        if self.step_ms:
            parts.append(f"t {self.step_ms:g} ms {'spin' if self.spin else 'sleep'}")
        parts.append(f"cold, {self.disk_mb:g} MB/s" if self.disk_mb else "in memory")
        return ", ".join(parts)


@dataclass(frozen=True)
class Case:
    """Predictions from the run of one set-up for another."""

    start: Setup
    change: str  # the beginning of the scenario's name
    end: Setup
    disk_mb: float = 0  # of the scenario

    @property
    def name(self) -> str:
        return f"{self.start.name}: {self.change}"


KEEP, DCT = Setup("keep", 2), Setup("dct", 2)
KEEP_1, DCT_1 = Setup("keep", 1), Setup("dct", 1)
SLOW, SLOW_DCT = Setup("keep", 2, disk_mb=20), Setup("dct", 2, disk_mb=50)
CASES = (
    Case(KEEP_1, "twice the cores", KEEP),
    Case(DCT_1, "twice the cores", DCT),
    Case(Setup("keep", 1, 30, spin=True), "twice the cores", Setup("keep", 2, 30, spin=True)),
    Case(Setup("keep", 1, 50), "twice the cores", Setup("keep", 2, 50)),
    Case(KEEP_1, "a dct pack", DCT_1),
    Case(KEEP, "a dct pack", DCT),
    Case(SLOW, "all data in memory", KEEP),
    Case(SLOW_DCT, "all data in memory", DCT),
    Case(SLOW, "nothing in memory", Setup("keep", 2, disk_mb=60), 60),
    Case(SLOW_DCT, "nothing in memory", Setup("dct", 2, disk_mb=150), 150),
    Case(SLOW, "a dct pack", Setup("dct", 2, disk_mb=20)),
)
BATCH = 64


def say(text: str) -> None:
    print(f"bench: {text}", flush=True)


class Check:
    """The set-ups of one machine, and their runs."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        self.packs = planner.make_packs(a.work, a.binary)
        self.disk = planner.disk_of(a.work)
        blkio = planner.BLKIO
        caps = (blkio / "blkio.throttle.read_bps_device").exists() and os.access(blkio, os.W_OK)
        cores = len(os.sched_getaffinity(0))
        self.cases = [c for c in CASES if (caps or not c.start.disk_mb) and max(c.start.cores, c.end.cores) <= cores]
        self.rounds: list[dict[str, Any]] = []

    def run(self, setup: Setup, disk_mb: float, predict: bool) -> dict[str, Any]:
        """The output of `stoker bench --json` for a set-up."""
        cold = setup.disk_mb > 0
        command = [
            str(self.a.binary), "bench", str(self.packs[setup.codec]), "--json", "--batch", str(BATCH),
            "--cores", str(setup.cores), "--cache", "cold" if cold else "warm", "--au", "0.9",
            "--seconds", f"{self.a.seconds * (1.5 if cold else 1):g}s",
        ]  # fmt: skip
        if setup.step_ms:
            command += ["--t", f"{setup.step_ms:g}ms"]
        if setup.spin:
            command += ["--spin"]
        command += ["--disk", f"{disk_mb:g}MB"] if predict and disk_mb else []
        command += [] if predict else ["--no-what-if"]
        cap = planner.Cell(setup.codec, BATCH, 0, disk_mb=setup.disk_mb)
        with planner.capped(cap, self.disk) as group:
            if group:
                command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]
            out = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if out.returncode:
            raise SystemExit(f"{setup.name}: {(out.stderr.strip().splitlines() or ['no output'])[-1]}")
        result: dict[str, Any] = json.loads(out.stdout)
        return result

    def round(self) -> None:
        """Every set-up once: those in memory first, for reading all of a pack takes a while."""
        setups = {s: None for c in self.cases for s in (c.start, c.end)}
        runs = {}
        for setup in sorted(setups, key=lambda s: s.disk_mb > 0):
            starts = [c for c in self.cases if c.start == setup]
            got = self.run(setup, max((c.disk_mb for c in starts), default=0), bool(starts))
            runs[setup.name] = got
            say(f"{setup.name}: {got['examples_per_second']:,.0f}/s, limit {got['limit']}")
        self.rounds.append(runs)

    def rows(self) -> list[dict[str, Any]]:
        """Predicted and measured, medians over the rounds."""
        rows = []
        for case in self.cases:
            start, said, got, limits = [], [], [], []
            for runs in self.rounds:
                run = runs[case.start.name]
                scenario = next(s for s in run["what_if"] if s["name"].startswith(case.change))
                start.append(run["examples_per_second"])
                said.append(scenario["examples_per_second"])
                limits.append(scenario["limit"])
                got.append(runs[case.end.name]["examples_per_second"])
            rows.append({
                "name": case.name, "case": asdict(case), "start": statistics.median(start),
                "predicted": statistics.median(said), "measured": statistics.median(got), "limit": limits[-1],
                "spread": (max(got) - min(got)) / statistics.median(got),
            })  # fmt: skip
        return rows


def error(row: dict[str, Any]) -> float:
    return float(row["predicted"] / row["measured"] - 1)


def section(rows: list[dict[str, Any]], machine: dict[str, Any], commit: str, rounds: int) -> str:
    """The section for the guide."""
    errors = [abs(error(r)) for r in rows]
    body = []
    for row in rows:
        start, _, change = row["name"].rpartition(": ")
        disk = row["case"]["disk_mb"]
        body.append([
            start, change + (f", a disk of {disk:g} MB/s" if disk else ""), f"{row['start']:,.0f}",
            f"{row['predicted']:,.0f}", f"{row['measured']:,.0f}", f"{error(row):+.0%}", row["limit"],
        ])  # fmt: skip
    head = ["measured", "what if", "examples/s", "predicted", "then measured", "error", "limit"]
    return (
        f"{len(rows)} predictions, each from one run and compared with a run of the changed set-up. Median error "
        f"{statistics.median(errors):.1%}, worst {max(errors):.1%}.\n"
        f"{machine['cores']} cores of {machine.get('cpu', machine['arch'])}, {time.strftime('%Y-%m-%d')}, {commit}, "
        f"medians of {rounds} rounds. Batches of {BATCH}, RandomResizedCrop(224), packs of\n"
        "10,000 generated photos. A control group throttles cold set-ups. "
        "`make bench SUITES=whatif` repeats it.\n\n" + table(head, body)
    )


def write(text: str) -> None:
    guide = GUIDE.read_text()
    before, _, rest = guide.partition(BEGIN)
    _, _, after = rest.partition(END)
    GUIDE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=3, help="length of a run; cold ones take half as much again")
    p.add_argument("--work", type=Path, default=ROOT / "bench/work")
    p.add_argument("--binary", type=Path, default=ROOT / "bin/stoker")
    a = p.parse_args()
    a.work, a.binary = a.work.resolve(), a.binary.resolve()
    check = Check(a)
    for _ in range(a.rounds):
        check.round()
    rows = check.rows()
    for row in rows:
        print(f"{row['name']:55s} {row['predicted']:8,.0f} {row['measured']:8,.0f} {error(row):+6.1%}  {row['limit']}")
    errors = [abs(error(r)) for r in rows]
    print(f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")
    if len(check.cases) < len(CASES):
        say(f"{len(CASES) - len(check.cases)} cases need a control group of version 1 as root, or more cores: left out")
    if a.rounds < 2:
        return
    machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD") or "unknown"
    results = {"machine": machine, "commit": commit, "date": time.strftime("%Y-%m-%d"), "rows": rows}
    for old in (ROOT / "bench/results").glob("whatif-*.json"):
        old.unlink()
    out = ROOT / "bench/results" / f"whatif-{_slug(machine)}-{commit}.json"
    out.write_text(runner.scrub(stored.text(results)))
    write(section(rows, machine, commit, a.rounds))
    say(f"written: {runner.short(out)} and {runner.short(GUIDE)}")


if __name__ == "__main__":
    main()
