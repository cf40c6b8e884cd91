"""Writes docs/internals/diagnosis-kinds.md: the accuracy of doctor on jobs of other kinds than those of the
matrix."""

# ruff: noqa: E501 - the page is written as it is to be read
from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .. import runner
from ..figures import table
from . import score
from .kinds import BAND, FED, HELDOUT, KINDS, ROOT, STARVED, TUNING, UNKNOWN, Kind, finds, starves

PAGE = ROOT / "docs/internals/diagnosis-kinds.md"
OVERHEAD = 0.01  # of one core
WITHIN = 0.25  # of the predicted gain
BALANCED, GAIN, WORST, TRIED = 0.95, 0.15, 2.0, (10, 12)
TAIL = re.compile(r" \([\d.]+\):\s*$")  # of an advice: its own gain, and the start of details
RUNS = 60  # of starved kinds and of fed ones


@dataclass
class Row:
    """A run of a kind, and the measurements of the kind."""

    kind: Kind
    parts: dict[str, Any]
    verdict: dict[str, Any]

    @cached_property
    def real(self) -> float | None:
        """The speed-up of the job without the scarce resource."""
        return self.parts.get("truth", {}).get("real")

    @property
    def unknown(self) -> bool:
        """Whether doctor gave no verdict."""
        return self.verdict["verdict"] == UNKNOWN

    @property
    def alarm(self) -> bool:
        return self.verdict["verdict"] not in FED and not self.unknown

    @property
    def starved(self) -> bool:
        """Whether it is starved, by measurement or, without a measurement, by intent."""
        return starves(self.kind.lacks, self.real)

    @property
    def found(self) -> bool:
        return finds(self.verdict["verdict"], self.kind.lacks, self.real)

    @property
    def wrong(self) -> bool:
        """Starved called fed, or the other way round."""
        return not self.found and not self.unknown

    @property
    def right(self) -> bool:
        """Whether the resource is also right."""
        named = self.verdict["verdict"] in self.kind.lacks.split("/")
        return self.found and (named or not (self.alarm and self.starved))

    @property
    def off(self) -> float | None:
        """The predicted gain over the real one, of a starved job that was called so."""
        return self.verdict["gain"] / self.real if self.real and self.starved and self.alarm else None


def cells(runs: list[Row]) -> list[str]:
    """The columns for the runs of one kind in the table of kinds: medians, and doctor's maximum overhead."""
    k, real = runs[0].kind, runs[0].real
    said = []
    for name in dict.fromkeys(r.verdict["verdict"] for r in runs):
        some = [r for r in runs if r.verdict["verdict"] == name]
        text = name if len(some) == len(runs) else f"{name} {len(some)} of {len(runs)}"
        said.append(text if some[0].right else f"**{text}**")
    gains = [r.verdict["gain"] for r in runs if r.alarm]
    return [
        f"`{k.name}`", k.lacks.replace("/", " or ") or "nothing", f"{real:.2f}" if real and k.lacks else "", str(len(runs)),
        ", ".join(said), f"{statistics.median(gains):.2f}" if gains else "",
        f"{statistics.median(r.verdict['confidence'] for r in runs):.2f}", f"{max(r.verdict['overhead'] for r in runs):.2%}",
    ]  # fmt: skip


def rows_of(results: dict[str, dict[str, Any]]) -> list[Row]:
    by_name = {k.name: k for k in KINDS}
    return [
        Row(by_name[name], parts, run)
        for name, parts in results.items()
        if name in by_name
        for run in parts.get("verdicts", [])
        if run.get("verdict")
    ]


def of_kinds(rows: list[Row]) -> list[list[Row]]:
    """The runs, grouped by kind."""
    out: dict[str, list[Row]] = {}
    for r in rows:
        out.setdefault(r.kind.name, []).append(r)
    return list(out.values())


# --- others -----------------------------------------------------------------------


def starving(text: str) -> bool:
    """Whether TraceML's words call a job short of data."""
    return any(word in text.upper() for word in ("INPUT", "DATALOADER", "DATA_WAIT", "WAIT_HEAVY", "WAIT-HEAVY"))


def balanced(rows: list[tuple[bool, bool]]) -> float:
    """Of (starved, right)."""
    return score.balanced([("starved" if starved else "fed", right) for starved, right in rows])


def wait_of(real: float) -> float:
    """The share of its time that a job waits, from its gain without the waiting."""
    return max(0.0, 1 - 1 / max(real, 1e-9))


# The rules of other tools, given the true share of waiting and the state of the machine.
RULES: dict[str, Callable[[dict[str, Any], float], bool]] = {
    "input wait > 5%": lambda _, wait: wait > 0.05,
    "input wait > 20%": lambda _, wait: wait > 0.20,
    "CPU > 90% and accelerator < 10%": lambda v, wait: v["full"] >= 0.5 and wait > 0.9,
    "iowait > 80% of one core": lambda v, _: v["iowait"] > 0.8 / (os.cpu_count() or 1),
}


def others(rows: list[Row]) -> str:
    """The verdicts of rules and TraceML on the held-out kinds."""
    mine = balanced([(r.starved, r.found) for r in rows])
    lines = [["**stoker doctor**", "which, where and what to do", f"**{mine:.2f}**", str(len(rows))]]
    known = [(r, r.real) for r in rows if r.real]
    for name, says in RULES.items():
        share = balanced([(r.starved, r.starved == says(r.verdict, wait_of(real))) for r, real in known])
        lines.append([name, "starved or not, by the true waiting", f"{share:.2f}", str(len(known))])
    traced = [(r, r.parts["traceml"]["diagnosis"]) for r in rows if r.parts.get("traceml", {}).get("diagnosis")]
    if traced:
        share = balanced([(r.starved, r.starved == starving(said)) for r, said in traced])
        ours = balanced([(r.starved, r.found) for r, _ in traced])
        lines.append(["TraceML", f"starved or not (doctor on the same: {ours:.2f})", f"{share:.2f}", str(len(traced))])
    return table(["", "says", "balanced accuracy", "runs"], lines, (2, 3))


# --- page -------------------------------------------------------------------------


def bars(rows: list[Row], tried: list[dict[str, Any]]) -> str:
    """The held-out kinds compared with the targets."""
    starved, fed = [r for r in rows if r.starved], [r for r in rows if not r.starved]
    share = balanced([(r.starved, r.found) for r in rows])
    several = all(len(some) >= RUNS for some in (starved, fed))
    missed, alarms = sum(r.wrong for r in starved), sum(r.wrong for r in fed)
    errors = [abs(r.off - 1) for r in rows if r.off]
    worst = max((max(r.off, 1 / r.off) for r in rows if r.off), default=1.0)
    median = statistics.median(errors) if errors else 0.0
    over = statistics.median(r.verdict["overhead"] for r in rows)
    most = max(r.verdict["overhead"] for r in rows)

    def line(what: str, value: str, bar: str, met: bool) -> list[str]:
        return [what, value, bar, "yes" if met else "no"]

    lines = [
        line("balanced accuracy, starved or fed", f"{share:.2f}", f"at least {BALANCED}", share >= BALANCED),
        ['of these "unknown", wrong above and neither below', f"{sum(r.unknown for r in rows)} of {len(rows)}", "", ""],
        line("starved called fed", f"{missed} of {len(starved)}", f"none in {RUNS}", missed == 0 and several),
        line("false alarms", f"{alarms} of {len(fed)}", f"none in {RUNS}", alarms == 0 and several),
        line("error of the gain, median", f"{median:.0%}", f"at most {GAIN:.0%}", median <= GAIN),
        line("error of the gain, worst", f"{worst:.1f} x", f"at most {WORST:g} x", worst <= WORST),
        line("doctor's own CPU time, median (worst), of one core", f"{over:.2%} ({most:.2%})", f"below {OVERHEAD:.0%}", most < OVERHEAD),
    ]  # fmt: skip
    if tried:
        good = sum(abs(t["measured"] / t["predicted"] - 1) <= WITHIN for t in tried)
        bar = f"{TRIED[0]} of {TRIED[1]}"
        lines.append(line(f"first advice, gain within {WITHIN:.0%}", f"{good} of {len(tried)}", bar, good >= TRIED[0]))
    return table(["measured", "value", "bar", "met"], lines, ())


HEAD = """# Other kinds of jobs: is `stoker doctor` right?

<!-- Written by `python -m bench.doctor.beside --report`; edit bench/doctor/kinds_report.py instead. -->

The [matrix](diagnosis-matrix.md) varies the scarcity of one resource. On this page the jobs differ in their code: own
threads, queues and pools, late services, locks, mapped files, databases, archives, frameworks, ranks and neighbours
(`bench/doctor/jobs/`). Half of the kinds were held out: no rule was changed because of them. If a rule was changed for a
kind later, that kind does not count as held out any more. `make bench SUITES=doctor-kinds` repeats it.

- **Machine:** {cpu}, {cores} cores, {memory} GiB, Linux {kernel}
- **Commit, date:** {commit}, {time}
- **Runs:** {held} runs of {kinds} held-out kinds and {tuned} of others; doctor watches {seconds:g} s from the start of the job
{left}
Starved jobs run at least {starved:.2f} times as fast without the scarcity, measured with the same script. Within {band:.2f} of that
either answer is right. "Lacks" is the scarcity that the script was written for.

## Compared with the targets

On the held-out kinds.

{bars}

## Compared with the rules of other tools

On the held-out kinds, starved or fed. Each rule gets the true share of waiting, which follows from the real gain. So a
rule on waiting is right by definition if its limit is the limit of "starved". It names neither the resource nor a remedy.

{others}
"""


def text(whole: dict[str, Any]) -> str:
    """The page."""
    m, results = whole["machine"], whole["kinds"]
    rows = rows_of(results)
    held, tuned = ([r for r in rows if r.kind.set == which] for which in (HELDOUT, TUNING))
    tried = {n: p["verify"] for n, p in results.items() if p.get("verify", {}).get("measured")}
    there = {r.kind.name for r in rows}
    sets = {r.kind.set for r in rows}  # a pass may be of one set only
    left = ", ".join(f"`{k.name}`" for k in KINDS if k.name not in there and k.set in sets)
    out = HEAD.format(
        cpu=m.get("cpu", ""), cores=m["cores"], memory=m.get("memory_gib"), kernel=m["kernel"], time=m["time"][:16],
        commit=whole["commit"], seconds=whole["seconds"], held=len(held), tuned=len(tuned), kinds=len(of_kinds(held)), starved=STARVED, band=BAND,
        left=f"- **No verdict:** {left}\n" if left else "", bars=bars(held, list(tried.values())), others=others(held),
    )  # fmt: skip
    head = ["kind", "lacks", "really", "runs", "said", "gain", "sure", "overhead"]
    for title, some in [pair for pair in (("Held out", held), ("The others", tuned)) if pair[1]]:
        right = sum(r.right for r in some)
        out += f"\n## {title}\n\n{right} of {len(some)} verdicts are right; wrong ones are bold. Gains and confidences are medians, overheads are maxima.\n\n"
        out += table(head, [cells(runs) for runs in of_kinds(some)], (2, 3, 5, 6, 7)) + "\n"
    if tried:
        lines = [
            [f"`{n}`", TAIL.sub("", t["advice"]), t["how"], f"{t['predicted']:.2f}", f"{t['measured']:.2f}"]
            for n, t in tried.items()
        ]
        out += "\n## First advice, tried\n\n"
        out += table(["kind", "advice", "how it was tried", "predicted", "measured"], lines, (3, 4)) + "\n"
    return out


def write() -> None:
    """The page, of the newest results."""
    found = [json.loads(p.read_text()) for p in (ROOT / "bench" / "results").glob("doctor-kinds-*.json")]
    found = [r for r in found if any(k.get("verdicts") for k in r["kinds"].values())]
    if not found:
        raise SystemExit("doctor: no results yet; make bench SUITES=doctor-kinds makes them")
    PAGE.write_text(text(max(found, key=lambda r: r["machine"]["time"])))
    print(f"doctor: wrote {runner.short(PAGE)}")
