"""Writes docs/internals/diagnosis-matrix.md and its plots from the results of the matrix.

python -m bench.doctor.report [RESULTS.json] [--docs DIR]
"""

# ruff: noqa: E501 - the page is written as it is to be read
from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from .. import charts
from ..figures import elsewhere, table
from .cells import HELDOUT, INJECTIONS, TUNING, all_cells
from .score import BAND, FED, ROOT, STARVED, TIE, Run, Score, bars, read, runs_of, score

VERDICTS = [*INJECTIONS]


def confusion_table(s: Score) -> str:
    rows = []
    for row, (right, count) in s.recall.items():
        cells = [str(s.confusion.get((row, v), "") or "") for v in VERDICTS]
        error = f"{s.gain_errors[row]:.0%}" if row in s.gain_errors else ""
        rows.append([f"**{row}**", *cells, f"{right} of {count}", error])
    head = ["lacking by measurement", *VERDICTS, "right", "error of the gain, median"]
    return table(head, rows, range(1, len(head)))


def rules_table(s: Score) -> str:
    rows = [["**stoker doctor**", "", f"**{s.balanced:.2f}**", f"{s.starved:.2f}", f"{s.false_alarms} of {s.healthy}"]]
    for r in s.rules:
        taken = r.names if r.rule.names else f"“input”, taken for {r.names}"
        rows.append(
            [
                r.rule.name,
                f"{r.rule.source}; says {taken}",
                f"{r.named:.2f}",
                f"{r.starved:.2f}",
                f"{r.false_alarms} of {s.healthy}",
            ]
        )
    return table(["rule", "of", "balanced accuracy", "starved or not", "false alarms"], rows, (2, 3, 4))


def runs_table(runs: list[Run]) -> str:
    rows = []
    for r in sorted(runs, key=lambda r: (INJECTIONS.index(r.truth.row), r.cell)):
        gains = ", ".join(f"{k} {v:.2f}" for k, v in sorted(r.truth.gains.items(), key=lambda g: -g[1]))
        said = f"{r.verdict} {r.gain:.2f}"
        wait = f"{r.signals['wait']:.0%}" if r.signals.get("wait") is not None else ""
        seen = f"{r.doctor.get('waiting') or 0:.0%}"
        rows.append(
            [f"`{r.cell}`", r.truth.row, gains, said if r.right else f"**{said}**", wait, seen, f"{r.wall:.1f}"]
        )
    head = ["cell", "lacks", "measured gains", "doctor said, gain", "waited", "doctor: waiting", "s"]
    return table(head, rows, (4, 5, 6))


def _point(r: Run) -> dict[str, Any]:
    tip = f"{r.cell}: {r.real_gain:.2f} measured, {r.gain:.2f} predicted"
    return {"x": r.real_gain, "y": r.gain, "hollow": not r.right, "tip": tip}


def overhead(runs: list[Run]) -> str:
    values = [r.doctor["overhead"] for r in runs if r.doctor.get("overhead") is not None]
    return f"{statistics.median(values):.1%} (worst {max(values):.1%})" if values else "not known"


def write(results: dict[str, Any], docs: Path) -> Path:
    cores = results.get("cores", 2)
    held, tuned = runs_of(results, HELDOUT), runs_of(results, TUNING)
    s = score(held, cores)
    t = score(tuned, cores) if tuned else None
    img = docs / "img"
    img.mkdir(parents=True, exist_ok=True)
    right: dict[tuple[str, str], int] = {}
    for r in held:
        right[r.truth.row, r.verdict] = right.get((r.truth.row, r.verdict), 0) + r.right
    confusion = {
        "title": "What lacked, and what doctor said",
        "subtitle": f"{len(held)} runs that no threshold was tuned on; balanced accuracy {s.balanced:.2f}",
        "of": "doctor said",
        "rows": list(s.recall),
        "columns": VERDICTS,
        "counts": [[s.confusion.get((row, c), 0) for c in VERDICTS] for row in s.recall],
        "right": [[right.get((row, c), 0) for c in VERDICTS] for row in s.recall],
    }
    charts.draw(img / "diagnosis-confusion.svg", "matrix", confusion)
    named = [r for r in held if r.truth.starved and r.verdict not in FED]
    gains = {
        "title": "The gain that doctor predicts, and the one there is",
        "subtitle": f"{len(named)} starved runs of the held-out set; median error {s.gain_error:.0%}",
        "x_label": "measured: the loop with the resource removed",
        "y_label": "predicted by doctor",
        "unit": " x",
        "band": 0.2,
        "band_name": "within 20%",
        "hollow": "wrong verdict",
        "groups": [
            {"name": v, "points": [_point(r) for r in named if r.verdict == v]} for v in VERDICTS if v not in FED
        ],
    }
    if named:
        charts.draw(img / "diagnosis-gain.svg", "scatter", gains)
    wrong = [r for r in held if not r.right]
    skipped = results.get("skipped") or {}
    errors = {k: v["error"] for k, v in results["runs"].items() if "error" in v}
    known = {c.id for c in all_cells()}
    text = f"""# Diagnosis matrix: is `stoker doctor` right?

<!-- Written by `python -m bench.doctor.report`; edit bench/doctor/report.py instead. -->

Real PyTorch training loops with an artificial bottleneck, watched by `stoker doctor --json`, which knows nothing
of it. The truth is measured: the same loop again with one resource removed at a time. `make bench SUITES=doctor`
repeats it in about an hour; as root on a machine with control groups of version 1 and /dev/fuse it runs every cell,
elsewhere those that it can.

- **Machine:** {results.get("cpu", results.get("machine", ""))}, {cores} cores, Linux {results.get("kernel", "")}
- **Commit, date:** {results.get("commit", "")}, {results.get("date", "")}
- **Runs:** {len(held)} held-out, {len(tuned)} for tuning; doctor watches {results.get("seconds", "")} s, attached to the running loop
- **Doctor's own CPU time:** {overhead(held)} of one core, median

{elsewhere(docs, "diagnosis-matrix.md")}![Confusion matrix](img/diagnosis-confusion.svg)

## Compared with the targets

On the held-out set: no threshold was chosen by it.

{table(["measured", "value", "bar", "met"], [[b.what, b.value, b.bar, "yes" if b.met else "**no**"] for b in bars(s)], ())}

## Verdicts

{confusion_table(s)}

{_wrong(wrong)}

![Predicted against measured gain](img/diagnosis-gain.svg)

## Compared with the rules of other tools

On the same runs. Each rule has its best case: it sees the true share of waiting, measured inside of the loop, and the true
utilisation of the simulated accelerator. If it only reports "input-bound", its alarm counts as the resource for which it
is right most often. The column "starved or not" needs no name.

{rules_table(s)}

{_tuning(t)}

## Method

- **Loops** (`bench/doctor/train/`): JPEG folders in torch's DataLoader with 0, 1 and 2 workers, WebDataset shards, an HTTP
  server, a pack in `stoker.Loader`, arrays in memory, Python objects as targets. The step is a small convolutional
  network on the CPU, a sleep (an accelerator works) or a busy loop (so does the thread that launches its kernels). Scripts are written as users write them, and import nothing that helps doctor.
- **Injections** (`bench/doctor/inject.py`):
  - CPU: heavy transforms, `cpu.cfs_quota_us`, antagonist processes.
  - Storage: `blkio.throttle.read_bps_device` and `read_iops_device` with cold files, thousands of small cold files, a slow
    FUSE file system (`bench/doctor/slow`).
  - Network: an HTTP server with latency or little bandwidth.
  - Memory: `memory.limit_in_bytes` with swap.
  - Hand-off: nested Python objects, large float batches, conversions in the trainer.
  - Accelerator: long steps. Some loops lack nothing, and some have a scarcity that does not matter.
- **Truth** (`bench/doctor/truth.py`): steps per second with one resource removed, divided by those of the watched loop.
  Without *cpu*, decode and transform return a stored result. There is no quota and no antagonist. Without *storage*,
  files are in the page cache. Without *network*, they are local. Without *memory*, there is no limit. Without *handoff*,
  nothing is collated, pickled or converted. A cell lacks the resource with the largest gain, from {STARVED - 1:.0%} on. Below that it is fed, and both
  "accelerator" and "healthy" are right. Within {BAND:.0%} of that border either answer is right ({s.borderline} of {len(held)} runs), and so is a resource within {TIE:.0%}
  of the best one ({s.ties} runs).
- **Balanced accuracy** is the mean of the right share over the rows of the table above. Rare rows count as much as
  common ones. **False alarms** are verdicts that name a resource of the data path on a fed run.
- **Error of the gain**: |predicted / measured - 1| for the resource that doctor named, on starved runs. A starved run that it
  called fed counts with a predicted gain of 1.
- Cells of the two sets differ in severity, seed, loader or step (`python -m bench.doctor.run --list`).

{_skipped(skipped, errors, known)}

## All held-out runs

A verdict in bold is wrong. *waited* is the share of the time measured inside of the loop, *doctor: waiting* the share that doctor saw
from outside.

{runs_table(held)}
"""
    path = docs / "diagnosis-matrix.md"
    path.write_text(text)
    return path


def _wrong(wrong: list[Run]) -> str:
    if not wrong:
        return "No verdict was wrong."
    lines = [f"The wrong verdicts ({len(wrong)}):", ""]
    for r in wrong:
        gains = ", ".join(f"{k} {v:.2f}" for k, v in sorted(r.truth.gains.items(), key=lambda g: -g[1]))
        lines.append(
            f"- `{r.cell}` lacks {r.truth.row if r.truth.starved else 'nothing'} ({gains}); doctor said {r.verdict}, gain {r.gain:.2f}."
        )
    return "\n".join(lines)


def _tuning(t: Score | None) -> str:
    if t is None:
        return ""
    return (
        f"On the tuning set ({len(t.runs)} runs), for comparison: balanced accuracy {t.balanced:.2f}, false alarms "
        f"{t.false_alarms} of {t.healthy}, median error of the gain {t.gain_error:.0%}. The two are alike where the "
        "thresholds did not learn the tuning set by heart."
    )


def _skipped(skipped: dict[str, str], errors: dict[str, str], known: set[str]) -> str:
    lines = ["## Not run", ""]
    reasons: dict[str, list[str]] = {}
    for name, why in skipped.items():
        if name in known:
            reasons.setdefault(why, []).append(name)
    lines += [f"- {len(names)} cells: {why}." for why, names in reasons.items()]
    lines += [f"- `{name}`: {why}" for name, why in errors.items()]
    return "\n".join(lines) if len(lines) > 2 else "Every cell ran on this machine."


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", type=Path, nargs="?")
    p.add_argument("--docs", type=Path, default=ROOT / "docs/internals")
    a = p.parse_args()
    path, results = read(a.results)
    if not runs_of(results, HELDOUT):
        print(f"bench-doctor: {path} has no finished run of the held-out set, so there is nothing to report")
        return 2
    print(f"bench-doctor: wrote {write(results, a.docs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
