"""The kinds of jobs (kinds.py) in one go, for a quiet machine: how right doctor is, beside TraceML and the four rules.

    python -m bench.doctor.beside [--parts verdicts,truth,traceml,verify] [--only NAMES] [--seconds 10] [--resume]

verdicts   what doctor says of each kind, what the machine looked like meanwhile (for the rules), its overhead
truth      how fast each starved kind is without what it lacks
traceml    what TraceML (PyPI: traceml-ai) says of the kinds that it can be put into
verify     the first advice, tried: with --verify where it is an option of the loader, else as the removal of what
           the verdict names

Results are kept after each run, so that --resume goes on where a run was ended; the tables are printed at the end.
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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import kinds, score
from .kinds import FED, HELDOUT, KINDS, ROOT, TUNING, WORK, Kind

PARTS = ("verdicts", "truth", "traceml", "verify")
OVERHEAD = 0.01  # of one core
WITHIN = 0.25  # of the predicted gain
TRACEML = WORK / "venv" / "traceml" / "bin" / "traceml"
SHOWN = ("verdict", "gain", "real", "diagnosis", "predicted", "measured", "how", "error")
LONGER = 3  # times as long for TraceML, which wants many steps
TRIED = 12  # starved kinds whose first advice is tried


# --- parts ------------------------------------------------------------------------


def verdicts(kind: Kind, stoker: str, seconds: float) -> dict[str, Any]:
    from .run import Machine

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
        # It says what to do without: what that would give is the removal of it.
        measured = kinds.truth(kind, seconds)
        return {"advice": r.advice[0], "predicted": r.gain, "measured": measured, "how": "without " + r.verdict}
    return {"error": done.get("why", "") or f"said {r.verdict or r.line}"}


RUN: dict[str, Callable[[Kind, str, float], dict[str, Any]]] = {
    "verdicts": verdicts,
    "truth": truth,
    "traceml": traceml,
    "verify": verify,
}


# --- tables -----------------------------------------------------------------------


def starving(text: str) -> bool:
    """Whether TraceML's words call a job short of data."""
    return any(word in text.upper() for word in ("INPUT", "DATALOADER", "DATA_WAIT", "WAIT_HEAVY", "WAIT-HEAVY"))


def balanced(rows: list[tuple[bool, bool]]) -> float:
    """Of (starved, called starved)."""
    return score.balanced([("starved" if truth else "fed", truth == said) for truth, said in rows])


def wait_of(real: float) -> float:
    """The share of its time that a job waits, by what it gains without that."""
    return max(0.0, 1 - 1 / max(real, 1e-9))


# What other tools go by, given the true share of waiting and what the machine looked like.
RULES: dict[str, Callable[[dict[str, Any], float], bool]] = {
    "input wait > 5%": lambda _, wait: wait > 0.05,
    "input wait > 20%": lambda _, wait: wait > 0.20,
    "CPU > 90% and accelerator < 10%": lambda v, wait: v["full"] >= 0.5 and wait > 0.9,
    "iowait > 80% of one core": lambda v, _: v["iowait"] > 0.8 / (os.cpu_count() or 1),
}


@dataclass
class Row:
    kind: Kind
    verdict: dict[str, Any]
    real: float | None
    parts: dict[str, Any]

    @property
    def alarm(self) -> bool:
        return self.verdict["verdict"] not in FED

    def line(self) -> str:
        k, v = self.kind, self.verdict
        cells = [k.name, k.set, k.lacks or "nothing", f"{self.real:.2f}" if self.real else "", v["verdict"]]
        return "| " + " | ".join([*cells, f"{v['gain']:.2f}", f"{v['confidence']:.2f}", f"{v['overhead']:.2%}"]) + " |"


def rows_of(results: dict[str, dict[str, Any]]) -> list[Row]:
    by_name = {k.name: k for k in KINDS}
    out = []
    for name, parts in results.items():
        if name in by_name and parts.get("verdicts", {}).get("verdict"):
            out.append(Row(by_name[name], parts["verdicts"], parts.get("truth", {}).get("real"), parts))
    return out


def of_set(which: str, some: list[Row]) -> list[str]:
    """What a set of kinds says of doctor and of the others."""
    starved = [r for r in some if r.kind.lacks]
    if not starved or len(starved) == len(some):
        return []
    truth = [bool(r.kind.lacks) for r in some]
    lines = [
        f"doctor, {which}: balanced accuracy {balanced([(t, r.alarm) for t, r in zip(truth, some, strict=True)]):.2f}"
    ]
    lines[0] += f" on {len(some)} kinds"
    errors = [abs(r.verdict["gain"] / r.real - 1) for r in starved if r.real and r.alarm]
    if errors:
        lines.append(
            f"doctor, {which}: gain {statistics.median(errors):.0%} off in the median, {max(errors):.0%} at worst"
        )
    known = [(r, r.real) for r in some if r.real]
    for name, says in RULES.items():
        if known:
            share = balanced([(bool(r.kind.lacks), says(r.verdict, wait_of(real))) for r, real in known])
            lines.append(f"rule {name}, {which}: {share:.2f} on {len(known)}")
    traced = [(r, r.parts["traceml"]["diagnosis"]) for r in some if r.parts.get("traceml", {}).get("diagnosis")]
    if traced:
        theirs = balanced([(bool(r.kind.lacks), starving(said)) for r, said in traced])
        ours = balanced([(bool(r.kind.lacks), r.alarm) for r, _ in traced])
        lines.append(f"TraceML, {which}: {theirs:.2f} on {len(traced)} kinds (doctor on the same: {ours:.2f})")
    return lines


def tables(results: dict[str, dict[str, Any]]) -> list[str]:
    rows = rows_of(results)
    lines = ["| kind | set | lacks | really | said | gain | sure | overhead |", "|---|---|---|---|---|---|---|---|"]
    lines += [*(r.line() for r in rows), ""]
    for which in (TUNING, HELDOUT):
        lines += of_set(which, [r for r in rows if r.kind.set == which])
    over = [r for r in rows if r.verdict["overhead"] > OVERHEAD]
    if rows:
        worst = max(r.verdict["overhead"] for r in rows)
        lines.append(f"overhead: above 1% of a core in {len(over)} of {len(rows)}, {worst:.2%} at worst")
    tried = [(n, p["verify"]) for n, p in results.items() if p.get("verify", {}).get("measured")]
    if tried:
        lines += ["", "| kind | first advice | how | predicted | measured |", "|---|---|---|---|---|"]
        lines += [
            f"| {n} | {t['advice'][:60]} | {t['how']} | {t['predicted']:.2f} | {t['measured']:.2f} |" for n, t in tried
        ]
        good = sum(abs(t["measured"] / t["predicted"] - 1) <= WITHIN for _, t in tried)
        lines.append(f"\nfirst advice: within {WITHIN:.0%} of what was predicted in {good} of {len(tried)}")
    return lines


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas between")
    parser.add_argument("--set", choices=(TUNING, HELDOUT, "all"), default="all")
    parser.add_argument("--only", default="", help="names of kinds, with commas between")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "doctor-kinds.json")
    parser.add_argument("--resume", action="store_true", help="keep what --out has")
    args = parser.parse_args(argv)
    parts = args.parts.split(",")
    if wrong := [p for p in parts if p not in RUN]:
        parser.error(f"no part is called {wrong[0]}; there are {', '.join(PARTS)}")
    if wrong := [n for n in args.only.split(",") if n and n not in {k.name for k in KINDS}]:
        parser.error(f"no kind is called {wrong[0]}; python -m bench.doctor.kinds --list names them")
    stoker = os.environ.get("STOKER_BINARY", str(ROOT / "bin" / "stoker"))
    results: dict[str, dict[str, Any]] = {}
    if args.resume and args.out.exists():
        results = json.loads(args.out.read_text())
    chosen = [k for k in KINDS if args.set in (k.set, "all") and (not args.only or k.name in args.only.split(","))]
    for part in parts:
        tried = 0
        for kind in chosen:
            done = results.setdefault(kind.name, {})
            if part in done:
                tried += bool(done[part].get("measured"))
                continue
            if part == "verify" and tried >= TRIED:
                break
            if why := kinds.missing(kind):
                print(f"{part} {kind.name}: left out, {why}", flush=True)
                continue
            try:
                done[part] = RUN[part](kind, stoker, args.seconds)
            except (RuntimeError, subprocess.SubprocessError) as why:
                done[part] = {"error": str(why)[-300:]}
            tried += bool(done[part].get("measured"))
            shown = {k: v for k, v in done[part].items() if k in SHOWN}
            print(f"{part} {kind.name}: {shown}", flush=True)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(tables(results)))


if __name__ == "__main__":
    main()
