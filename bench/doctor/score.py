"""Judges the matrix: the measured truth of each run, doctor's verdicts, and the verdicts of other tools' rules.

python -m bench.doctor.score [RESULTS.json] [--set tuning|heldout|all]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import stored
from .cells import HELDOUT, INJECTIONS

ROOT = Path(__file__).resolve().parent.parent.parent
RESOURCES = ("cpu", "storage", "network", "memory", "handoff")
FED = ("accelerator", "healthy")
# The minimum gain for which a loop counts as starved, and the band around it in which either answer is right.
# Repeated runs of one loop differ by a few per cent.
STARVED = 1.10
BAND = 0.05
# Resources with a gain within this share of the best one are equally right answers.
TIE = 0.05
VERDICT_SECONDS = 20


@dataclass
class Truth:
    """The measured truth of a cell."""

    row: str  # the row of the confusion matrix
    right: frozenset[str]  # the verdicts that are right
    gains: dict[str, float]
    starved: bool
    borderline: bool

    @property
    def best(self) -> float:
        return max([g for r, g in self.gains.items() if r in RESOURCES], default=1.0)


def judge_truth(gains: dict[str, float], injection: str) -> Truth:
    """Returns the truth of a loop. The loop is starved if it becomes at least a tenth faster without one resource of
    its data path. Otherwise it is fed, and belongs to the row of the injection: a long step, or none."""
    data = {r: g for r, g in gains.items() if r in RESOURCES}
    if not data and "everything" in gains:
        # Not even the removal of the whole loader gains anything.
        data = {"everything": gains["everything"]}
    best = max(data, key=lambda r: data[r])
    top = data[best]
    starved = top >= STARVED and best in RESOURCES
    right: set[str] = set()
    if top >= STARVED - BAND:
        right |= {r for r, g in data.items() if r in RESOURCES and g >= (1 - TIE) * top}
    if top < STARVED + BAND:
        right |= set(FED)
    row = best if starved else injection if injection in FED else "healthy"
    return Truth(row, frozenset(right), gains, starved, STARVED - BAND <= top < STARVED + BAND)


@dataclass
class Run:
    """One run of a loop that doctor watched."""

    cell: str
    set: str
    truth: Truth
    verdict: str
    gain: float
    wall: float
    signals: dict[str, Any]
    doctor: dict[str, Any]

    @property
    def right(self) -> bool:
        return self.verdict in self.truth.right

    @property
    def real_gain(self) -> float:
        """The measured gain of the resource that doctor named, 1 for an irrelevant one."""
        return 1.0 if self.verdict in FED else self.truth.gains.get(self.verdict, 1.0)


def watched_rate(runs: dict[str, Any], cell: str) -> float | None:
    """Steps per second of an unchanged cell: the mean over its runs, while doctor watched."""
    rates = [r["signals"]["rate"] for r in runs.values() if r["cell"] == cell and r.get("signals", {}).get("rate")]
    return statistics.mean(rates) if rates else None


def gains_of(truth: dict[str, Any], rate: float | None) -> dict[str, float]:
    """The gain of each removal, relative to the rate of the loop while doctor watched, if that is known."""
    rates = truth["rates"]
    return {r: x / (rate or rates[""]) for r, x in rates.items() if r}


def runs_of(results: dict[str, Any], which: str) -> list[Run]:
    found = []
    for _, run in sorted(results["runs"].items()):
        truth = results["truth"].get(run["cell"])
        if "doctor" not in run or truth is None or "gains" not in truth or which not in ("all", run["set"]):
            continue
        d = run["doctor"]
        gains = gains_of(truth, watched_rate(results["runs"], run["cell"]))
        found.append(
            Run(
                run["cell"], run["set"], judge_truth(gains, run["injection"]), d["verdict"], d["gain"],
                run["wall"], run["signals"], d,
            )
        )  # fmt: skip
    return found


def balanced(pairs: list[tuple[str, bool]]) -> float:
    """The mean over the rows of the share that was answered rightly."""
    rows: dict[str, list[bool]] = {}
    for row, right in pairs:
        rows.setdefault(row, []).append(right)
    return statistics.mean(sum(r) / len(r) for r in rows.values()) if rows else float("nan")


# --- other tools ---------------------------------------------------------- Each rule gets the true figures of the
# run: the loop's own measurement of its waiting, the utilisation of the simulated accelerator, the machine's CPU and
# iowait. A rule that only says "input-bound" gets the name of the resource that gives it the best score over all
# runs.


@dataclass
class Rule:
    name: str
    source: str
    says: Callable[[dict[str, Any], int], bool]
    names: str | None  # the resource that the rule speaks of; None: "the input"


RULES = [
    Rule("input wait > 5%", "PyTorch's profiler; TensorBoard, moderately", lambda s, _: s["wait"] > 0.05, None),
    Rule("input wait > 20%", "TensorBoard/xprof, highly", lambda s, _: s["wait"] > 0.20, None),
    Rule(
        "CPU > 90% and accelerator < 10% in half of the samples",
        "SageMaker Debugger, CPU bottleneck",
        lambda s, _: s["starving"] >= 0.5,
        "cpu",
    ),
    Rule(
        "iowait > 80% of 1 / cores",
        "Glances, careful",
        lambda s, cores: s["iowait"] > 0.8 / cores,
        "storage",
    ),
]  # fmt: skip


@dataclass
class RuleScore:
    rule: Rule
    names: str  # the resource that its alarm was taken for
    named: float  # balanced accuracy over the rows
    starved: float  # balanced accuracy of starved against fed
    false_alarms: int


def score_rule(rule: Rule, runs: list[Run], cores: int) -> RuleScore:
    says = [rule.says(r.signals, cores) for r in runs]
    candidates = [rule.names] if rule.names else list(RESOURCES)

    def named(name: str) -> float:
        answers = [
            name in r.truth.right if s else bool(r.truth.right & set(FED)) for r, s in zip(runs, says, strict=True)
        ]
        return balanced([(r.truth.row, a) for r, a in zip(runs, answers, strict=True)])

    best = max(candidates, key=named)
    return RuleScore(rule, best, named(best), two_way(runs, says), alarms(runs, says))


def two_way(runs: list[Run], says: list[bool]) -> float:
    """Balanced accuracy of the question whether data is scarce, for any cause."""
    pairs = []
    for r, s in zip(runs, says, strict=True):
        right = bool(r.truth.right - set(FED)) if s else bool(r.truth.right & set(FED))
        pairs.append(("starved" if r.truth.starved else "fed", right))
    return balanced(pairs)


def alarms(runs: list[Run], says: list[bool]) -> int:
    return sum(s for r, s in zip(runs, says, strict=True) if not r.truth.starved and not r.truth.right - set(FED))


@dataclass
class Score:
    runs: list[Run]
    balanced: float
    starved: float
    recall: dict[str, tuple[int, int]]  # row -> right, all
    confusion: dict[tuple[str, str], int]  # (row, verdict) -> runs
    healthy: int
    false_alarms: int
    verdict_seconds: tuple[float, float]  # median, worst
    gain_error: float  # median of |predicted / measured - 1| over starved runs
    gain_errors: dict[str, float]  # the same per row
    borderline: int
    ties: int
    rules: list[RuleScore]


def score(runs: list[Run], cores: int) -> Score:
    recall: dict[str, tuple[int, int]] = {}
    confusion: dict[tuple[str, str], int] = {}
    for row in INJECTIONS:
        mine = [r for r in runs if r.truth.row == row]
        if mine:
            recall[row] = (sum(r.right for r in mine), len(mine))
        for r in mine:
            confusion[row, r.verdict] = confusion.get((row, r.verdict), 0) + 1
    fed = [r for r in runs if not r.truth.starved]
    starved = [r for r in runs if r.truth.starved]
    errors = {row: [gain_error(r) for r in starved if r.truth.row == row] for row in RESOURCES}
    walls = [r.wall for r in runs]
    alarm = [r.verdict not in FED for r in runs]
    return Score(
        runs=runs,
        balanced=balanced([(r.truth.row, r.right) for r in runs]),
        starved=two_way(runs, alarm),
        recall=recall,
        confusion=confusion,
        healthy=len(fed),
        false_alarms=alarms(runs, alarm),
        verdict_seconds=(statistics.median(walls), max(walls)) if walls else (float("nan"), float("nan")),
        gain_error=statistics.median([e for row in errors.values() for e in row] or [float("nan")]),
        gain_errors={row: statistics.median(e) for row, e in errors.items() if e},
        borderline=sum(r.truth.borderline for r in runs),
        ties=sum(len(r.truth.right - set(FED)) > 1 for r in starved),
        rules=[score_rule(rule, runs, cores) for rule in RULES],
    )


def gain_error(run: Run) -> float:
    return abs(run.gain / run.real_gain - 1) if run.verdict not in FED else abs(1 / run.truth.best - 1)


@dataclass
class Bar:
    what: str
    value: str
    bar: str
    met: bool


def bars(s: Score) -> list[Bar]:
    """The targets of this project."""
    best = max((r.named for r in s.rules), default=0.0)
    quiet, worst = s.false_alarms == 0 and s.healthy >= 20, s.verdict_seconds[1]
    return [
        Bar("balanced accuracy", f"{s.balanced:.3f}", "at least 0.90", s.balanced >= 0.90),
        Bar("false alarms on fed runs", f"{s.false_alarms} of {s.healthy}", "none in 20", quiet),
        Bar("seconds to the verdict, worst", f"{worst:.1f}", f"at most {VERDICT_SECONDS}", worst <= VERDICT_SECONDS),
        Bar("error of the predicted gain, median", f"{s.gain_error:.0%}", "at most 20%", s.gain_error <= 0.20),
        Bar("balanced accuracy, best rule's", f"{best:.3f}", "less than doctor's", s.balanced > best),
    ]  # fmt: skip


def read(path: Path | None) -> tuple[Path, dict[str, Any]]:
    """Reads results, by default the newest ones."""
    if path is None:
        path = stored.newest("doctor-*.json", but=("doctor-kinds-",))
    return path, json.loads(path.read_text())


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", type=Path, nargs="?")
    p.add_argument("--set", default=HELDOUT, choices=["tuning", "heldout", "all"])
    a = p.parse_args()
    path, results = read(a.results)
    runs = runs_of(results, a.set)
    if not runs:
        print(f"bench-doctor: {path} has no finished run of the set {a.set}")
        return 2
    s = score(runs, results.get("cores", 2))
    for r in runs:
        if not r.right:
            print(f"wrong: {r.cell}: truth {r.truth.row} {_round(r.truth.gains)}, said {r.verdict} {r.gain:.2f}")
    for row, (right, count) in s.recall.items():
        said = ", ".join(f"{v} {n}" for (x, v), n in sorted(s.confusion.items()) if x == row)
        error = f"; gain error {s.gain_errors[row]:.0%}" if row in s.gain_errors else ""
        print(f"{row:12} {right}/{count}  said {said}{error}")
    for b in bars(s):
        print(f"{b.what}: {b.value} (bar: {b.bar}; {'met' if b.met else 'MISSED'})")
    print(f"starved or not: {s.starved:.3f}; borderline {s.borderline}, ties {s.ties}")
    for r in s.rules:
        print(
            f"rule {r.rule.name} (as {r.names}): {r.named:.3f}, starved or not {r.starved:.3f}, "
            f"false alarms {r.false_alarms}"
        )
    return 0


def _round(gains: dict[str, float]) -> str:
    return ", ".join(f"{k} {v:.2f}" for k, v in sorted(gains.items(), key=lambda g: -g[1]))


if __name__ == "__main__":
    sys.exit(main())
