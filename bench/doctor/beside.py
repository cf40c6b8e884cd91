"""Runs all kinds of jobs (kinds.py), on a quiet machine: the accuracy of doctor compared with TraceML and the four
rules.

    python -m bench.doctor.beside [--parts verdicts,truth,traceml,verify] [--only NAMES] [--seconds 10] [--resume]
    python -m bench.doctor.beside --report

verdicts   doctor's verdict for each kind, the state of the machine meanwhile (for the rules), doctor's overhead
truth      the rate of each starved kind without the cause
traceml    the verdict of TraceML (PyPI: traceml-ai) for the kinds that it supports
verify     the first advice, tried: with --verify if it is an option of the loader, otherwise by removing the cause
           that the verdict names

With --runs N the verdicts are repeated until there are N runs of starved kinds and N of fed ones. Results are saved
after each run, so that --resume continues an interrupted run. kinds_report.py writes
docs/internals/diagnosis-kinds.md from them. --truths FILE takes the truths of another run on a similar machine, for
kinds whose scripts did not change.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import procs, stored
from ..run import _git, _slug
from . import kinds, kinds_report
from .kinds import HELDOUT, KINDS, ROOT, TUNING, WORK, Kind

PARTS = ("verdicts", "truth", "traceml", "verify")
TRACEML = WORK / "venv" / "traceml" / "bin" / "traceml"
SHOWN = ("verdict", "gain", "real", "diagnosis", "predicted", "measured", "how", "error")
LONGER = 3  # times as long for TraceML, which needs many steps
TRIED = 12  # starved kinds whose first advice is tried


# --- parts ------------------------------------------------------------------------


def verdict(kind: Kind, stoker: str, seconds: float) -> dict[str, Any]:
    from .run import Machine

    kinds.prepare(kind)
    machine = Machine()
    machine.start()
    started = time.time()
    r = kinds.diagnose(kind, stoker, seconds)
    machine.close()
    samples = [s for s in machine.samples if s[0] > started + 2]
    busy = [s[1] for s in samples]
    return {
        **asdict(r),
        "busy": statistics.mean(busy) if busy else 0.0,
        "full": sum(b > 0.9 for b in busy) / max(1, len(busy)),
        "iowait": statistics.mean([s[2] for s in samples]) if samples else 0.0,
    }


def truth(kind: Kind, _: str, seconds: float) -> dict[str, Any]:
    if not kind.lacks:
        return {"real": 1.0}
    return {"real": kinds.truth(kind, seconds)}


def traceml(kind: Kind, _: str, seconds: float) -> dict[str, Any]:
    """TraceML's own words: the diagnosis of its final summary."""
    if kind.venv or kind.ranks > 1 or "torch" not in kind.needs.split():
        return {"error": "not a job of PyTorch in one process"}
    if not TRACEML.exists():
        return {"error": "bench/setup.sh traceml makes its environment"}
    folder = Path(tempfile.mkdtemp(prefix="traceml-"))
    told = [str(TRACEML), "run", "--mode=summary", "--logs-dir", str(folder), str(kinds.HERE / "traced.py"), "--args"]
    script = str(kinds.HERE / "jobs" / f"{kind.name}.py")
    try:
        with kinds.conditions(kind):
            job = subprocess.Popen(
                [*told, script, "--seconds", str(LONGER * seconds)],
                env=kinds.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
            try:
                said, _ = job.communicate(timeout=LONGER * seconds + 120)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                said, _ = job.communicate()
        found = sorted(folder.rglob("*summary*.json"))
        if not found:
            return {"error": said.strip()[-300:]}
        words = diagnosis(json.loads(found[-1].read_text()))
        return {"error": words or "no diagnosis"} if "INSUFFICIENT" in words or not words else {"diagnosis": words}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def diagnosis(summary: Any) -> str:
    """The first thing in a summary that is called a diagnosis."""
    if isinstance(summary, dict):
        for name in ("primary_diagnosis", "diagnosis"):
            value = summary.get(name)
            if isinstance(value, str):
                return value
            if isinstance(value, dict):
                return str(value.get("kind") or value.get("status") or value.get("label") or value)
        for value in summary.values():
            if found := diagnosis(value):
                return found
    return ""


def verify(kind: Kind, stoker: str, seconds: float) -> dict[str, Any]:
    if not kind.lacks or kind.ranks > 1:
        return {"error": "nothing to try"}
    r = kinds.diagnose(kind, stoker, seconds, "--verify")
    done = r.verified or {}
    if done.get("measured"):
        return {
            "advice": done["title"],
            "predicted": done["predicted"],
            "measured": done["measured"],
            "how": "--verify",
        }
    if r.verdict in kind.lacks.split("/") and r.advice:
        # Its advice is to remove the cause, so the gain of that removal counts.
        measured = kinds.truth(kind, seconds)
        return {"advice": r.advice[0], "predicted": r.gain, "measured": measured, "how": "without " + r.verdict}
    return {"error": done.get("why", "") or f"said {r.verdict or r.line}"}


RUN: dict[str, Callable[[Kind, str, float], dict[str, Any]]] = {
    "verdicts": verdict,
    "truth": truth,
    "traceml": traceml,
    "verify": verify,
}


def rounds(chosen: list[Kind], results: dict[str, dict[str, Any]], runs: int) -> Iterator[Kind]:
    """The kinds to run next: each once, then starved and fed kinds in turns until both have so many runs. A kind that
    cannot run is dropped."""
    gone: set[str] = set()

    def of(kind: Kind) -> list[dict[str, Any]]:
        return results.get(kind.name, {}).get("verdicts", [])

    def said(kind: Kind) -> int:
        return sum(bool(r.get("verdict")) for r in of(kind))

    def starved(kind: Kind) -> bool:
        return kinds.starves(kind.lacks, results.get(kind.name, {}).get("truth", {}).get("real"))

    for sort in (True, False):
        some = [k for k in chosen if starved(k) == sort]
        while left := [k for k in some if k.name not in gone]:
            kind = min(left, key=said)
            if said(kind) and sum(map(said, some)) >= runs:
                break
            before = said(kind)
            yield kind
            if said(kind) == before:
                gone.add(kind.name)


def truths(file: Path, machine: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Truths from a results file of a similar machine, for kinds whose scripts have not changed since."""
    old = json.loads(file.read_text())
    then, commit = old["machine"], old["commit"]
    if any(then.get(k) != machine.get(k) for k in ("cpu", "cpu_model", "cores")):
        raise SystemExit(f"{file} is of another machine: {then.get('cpu')}, {then.get('cores')} cores")
    if not _git("rev-parse", "--verify", f"{commit}^{{commit}}"):
        raise SystemExit(f"{file} is of commit {commit}, which is not here: nothing tells which scripts have changed")
    changed = {Path(n).stem for n in _git("diff", "--name-only", commit, "--", "bench/doctor/jobs").split()}
    if common := {"job", "server"} & changed:
        raise SystemExit(f"bench/doctor/jobs/{common.pop()}.py has changed since {file}: all truths are to be measured")
    return {n: k["truth"] for n, k in old["kinds"].items() if "real" in k.get("truth", {}) and n not in changed}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas between")
    parser.add_argument("--set", choices=(TUNING, HELDOUT, "all"), default="all")
    parser.add_argument("--only", default="", help="names of kinds, with commas between")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--out", type=Path, help="default: bench/results/doctor-kinds-<machine>-<commit>.json")
    parser.add_argument("--runs", type=int, default=0, help="verdicts on starved kinds and on fed ones, at least")
    parser.add_argument("--budget", type=float, default=0, help="begin nothing more after so many seconds")
    parser.add_argument("--resume", action="store_true", help="keep what --out has")
    parser.add_argument("--truths", type=Path, help="results to take the truths of unchanged scripts from")
    parser.add_argument("--report", action="store_true", help="write the page from the newest results, and run nothing")
    args = parser.parse_args(argv)
    if args.report:
        return kinds_report.write()
    parts = args.parts.split(",")
    if wrong := [p for p in parts if p not in RUN]:
        parser.error(f"no part is called {wrong[0]}; there are {', '.join(PARTS)}")
    if wrong := [n for n in args.only.split(",") if n and n not in {k.name for k in KINDS}]:
        parser.error(f"no kind is called {wrong[0]}; python -m bench.doctor.kinds --list names them")
    stoker = os.environ.get("STOKER_BINARY", str(ROOT / "bin" / "stoker"))
    machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD") or "unknown"
    out = args.out or ROOT / "bench" / "results" / f"doctor-kinds-{_slug(machine)}-{commit}.json"
    whole: dict[str, Any] = {"machine": machine, "commit": commit, "seconds": args.seconds, "kinds": {}}
    if args.resume and out.exists():
        whole = json.loads(out.read_text())
    results: dict[str, dict[str, Any]] = whole["kinds"]
    if args.truths:
        for name, known in truths(args.truths, machine).items():
            results.setdefault(name, {}).setdefault("truth", known)
    chosen = [k for k in KINDS if args.set in (k.set, "all") and (not args.only or k.name in args.only.split(","))]
    began = time.monotonic()

    def late() -> bool:
        return bool(args.budget) and time.monotonic() - began > args.budget

    def run(part: str, kind: Kind) -> dict[str, Any] | None:
        """One run of a part, printed and saved; None if it cannot run."""
        if why := kinds.missing(kind):
            print(f"{part} {kind.name}: left out, {why}", flush=True)
            return None
        try:
            found = RUN[part](kind, stoker, args.seconds)
        except (RuntimeError, subprocess.SubprocessError) as error:
            found = {"error": str(error)[-300:]}
        shown = {k: v for k, v in found.items() if k in SHOWN}
        print(f"{part} {kind.name}: {shown}", flush=True)
        done = results.setdefault(kind.name, {})
        if part == "verdicts":
            done.setdefault(part, []).append(found)
        else:
            done[part] = found
        out.parent.mkdir(parents=True, exist_ok=True)
        stored.save(out, whole)
        return found

    for part in parts:
        if part == "verdicts":
            for kind in rounds(chosen, results, args.runs):
                if late():
                    break
                run(part, kind)
            continue
        tried = 0
        for kind in chosen:
            done = results.get(kind.name, {})
            if part in done:
                tried += bool(done[part].get("measured"))
            elif late() or (part == "verify" and tried >= TRIED):
                break
            elif found := run(part, kind):
                tried += bool(found.get("measured"))
    if late():
        print("the time is over; --resume goes on", flush=True)
    kinds_report.write()


if __name__ == "__main__":
    main()
