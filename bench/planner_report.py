"""The accuracy of the planner: a summary, docs/internals/planner-accuracy.md and a plot."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from . import charts, stored
from .figures import elsewhere, table
from .runner import scrub

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs/internals"
BARS = (0.07, 0.20)


def cells(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per cell: the medians over its rounds, each predicted from the probe of its own block."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_name.setdefault(run["name"], []).append(run)
    rows = []
    for name, group in by_name.items():
        measured = [r["measured"]["throughput"] for r in group]
        predicted = [r["prediction"]["throughput"] for r in group]
        row = {"name": name, "cell": group[0]["cell"], "limit": group[0]["prediction"]["limit"], "rounds": len(group)}
        row["measured"], row["predicted"] = statistics.median(measured), statistics.median(predicted)
        row["spread"] = (max(measured) - min(measured)) / row["measured"]
        row["au"] = statistics.median(r["measured"]["au"] for r in group)
        row["au_predicted"] = statistics.median(r["prediction"]["au"] for r in group)
        row["p99"] = statistics.median(r["measured"]["step_p99"] for r in group)
        row["p99_predicted"] = statistics.median(r["prediction"].get("step_p99", 0) for r in group)
        for key in ("published", "corrected"):
            row[key] = statistics.median(r[key] for r in group)
        rows.append(row)
    order = {"keep": 0, "dct": 1, "raw": 2}
    key = lambda r: (order[r["cell"]["codec"]], -r["cell"]["cached"], r["cell"]["spin"], r["cell"]["step_ms"])  # noqa: E731
    return sorted(rows, key=key)


def error(row: dict[str, Any], key: str = "predicted") -> float:
    return float(row[key] / row["measured"] - 1)


def errors(rows: list[dict[str, Any]], key: str = "predicted") -> tuple[float, float]:
    """Median and worst of the absolute errors."""
    all_of = [abs(error(r, key)) for r in rows]
    return statistics.median(all_of), max(all_of)


def print_summary(runs: list[dict[str, Any]]) -> None:
    if not runs:
        return
    rows = cells(runs)
    for row in rows:
        print(
            f"{row['name']:62s} {row['measured']:9,.0f} {row['predicted']:9,.0f} {error(row):+7.1%}  "
            f"AU {row['au']:6.1%} {row['au_predicted']:6.1%}  "
            f"p99 {1e3 * row['p99']:6.1f} {1e3 * row['p99_predicted']:6.1f} ms  "
            f"{row['limit']:11s} {error(row, 'published'):+7.0%} {error(row, 'corrected'):+7.0%}"
        )
    for key, name in (("predicted", "stoker"), ("published", "DS-Analyzer"), ("corrected", "corrected")):
        middle, worst = errors(rows, key)
        print(f"{name:12s} median error {middle:.1%}, worst {worst:.1%}, {len(rows)} cells")


def write(results: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob("planner-*.json"):
        old.unlink()
    path.write_text(scrub(stored.text(results)))
    rows = cells(results["runs"])
    scatter(DOCS / "img/planner-accuracy.svg", rows)
    (DOCS / "planner-accuracy.md").write_text(page(results, rows))


def page(results: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    m = results["machine"]
    rounds = statistics.median(r["rounds"] for r in rows)
    limits: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        limits.setdefault(row["limit"], []).append(row)
    summary = []
    for key, name in (
        ("predicted", "**`plan.Predict`**"), ("published", "DS-Analyzer, as published"),
        ("corrected", "DS-Analyzer, corrected"),
    ):  # fmt: skip
        middle, worst = errors(rows, key)
        over = sum(abs(error(r, key)) > BARS[1] for r in rows)
        summary.append([name, f"{middle:.1%}", f"{worst:.1%}", str(over)])
    by_limit = [[name, str(len(g)), *(f"{e:.1%}" for e in errors(g))] for name, g in sorted(limits.items())]
    repeats = [r["spread"] for r in rows if r["rounds"] > 1]
    noise = f" Repeats of a cell differ by {statistics.median(repeats):.1%} in the median." if repeats else ""
    body = []
    for row in rows:
        c = row["cell"]
        cap = f"{c['disk_mb']:g} MB/s" if c["disk_mb"] else f"{c['disk_iops']:g} reads/s" if c["disk_iops"] else "-"
        body.append([
            c["codec"], str(c["batch"]), f"{c['step_ms']:g} ms {'spin' if c['spin'] else 'sleep'}", str(c["cores"]),
            f"{c['cached']:.0%}", cap, f"{row['measured']:,.0f}", f"{row['predicted']:,.0f}", f"{error(row):+.1%}",
            f"{row['au']:.1%}", f"{row['au_predicted']:.1%}", row["limit"], f"{error(row, 'published'):+.0%}",
            f"{error(row, 'corrected'):+.0%}",
        ])  # fmt: skip
    head = [
        "codec", "n", "t", "cores", "cached", "disk cap", "measured/s", "predicted/s", "error", "AU", "AU predicted",
        "limit", "DS-Analyzer", "corrected",
    ]  # fmt: skip
    median, worst = errors(rows)
    left = results["cells_left"]
    partial = f"{left} more cells are in the grid and were not measured in this run.\n\n" if left else ""
    met = "met" if median <= BARS[0] and worst <= BARS[1] else "not met"
    return f"""# How well the planner predicts

<!-- Written by `python -m bench.planner`; edit bench/planner_report.py instead. -->

`stoker plan` and the what-if of `stoker bench` predict with `plan.Predict`, from what `stoker probe` measured. This
page compares each prediction with a run of `stoker.Loader`: {len(rows)} cells of batch size n, step t, cores,
codec, cached share and disk cap. `make bench SUITES=planner` repeats it.

- **Machine:** {m["cores"]} cores of {m.get("cpu", m["arch"])}, {m.get("memory_gib", "?")} GiB, Linux {m["kernel"]}
- **Date, commit:** {results["probes"][-1]["time"][:16]}, {results["commit"]}
- **Probes, rounds of each cell:** {len(results["probes"])}, {rounds:g}

| from the probe alone | median error | worst | cells beyond 20% |
|---|---:|---:|---:|
{chr(10).join("| " + " | ".join(r) + " |" for r in summary)}

{partial}Bars: median at most {BARS[0]:.0%}, worst at most {BARS[1]:.0%}: {met}.{noise} AU is throughput x t / n, so
that its relative error is the same.

{elsewhere(DOCS, "planner-accuracy.md")}![Predicted against measured throughput](img/planner-accuracy.svg)

By the predicted limit:

{table(["limit", "cells", "median error", "worst"], by_limit)}

## Cells

{table(head, body)}

## Method

- 10,000 generated images ({results["copies"]} separate copies of 2,000), packed as `keep`, `dct` and `raw` (short side
  256). RandomResizedCrop(224), flip, shuffled.
- Cells come in a random order in blocks. Each block begins with one `stoker probe` of the `keep` pack, and its
  cells are predicted from that alone: no constant is fitted on cells.
- The cached share is set by dropping and reading random blocks of 4 MiB of the pack; a cell with less than 100%
  ends with the first epoch. Disk caps are those of a control group (`blkio.throttle`).
- A step sleeps, or spins as the launching thread of a framework does. Cores are restricted with `taskset`, for the
  engine and the trainer together. Steps until the ring has gone round once are left out.
- **DS-Analyzer** (Mohan et al., PVLDB 14(5), 2021) predicts min(F, P, G). The published version has
  F = D / (xD/C + (1-x)D/S), with 525 MB/s for S. The corrected version has the measured storage and its caps, and
  overlaps hits and misses.
"""


def scatter(path: Path, rows: list[dict[str, Any]]) -> None:
    """Predicted over measured throughput, both logarithmic, with the bar of 20%."""
    groups = []
    for codec in dict.fromkeys(r["cell"]["codec"] for r in rows):
        points = []
        for r in rows:
            if r["cell"]["codec"] == codec:
                tip = f"{r['name']}: {r['measured']:,.0f} measured, {r['predicted']:,.0f} predicted ({error(r):+.1%})"
                hollow = r["cell"]["cached"] < 1
                points.append({"x": r["measured"], "y": r["predicted"], "hollow": hollow, "tip": tip})
        groups.append({"name": codec, "points": points})
    median, worst = errors(rows)
    chart = {
        "title": "Predicted against measured throughput",
        "subtitle": f"{len(rows)} cells, examples per second, predicted from stoker probe alone",
        "x_label": "measured",
        "y_label": "predicted",
        "band": BARS[1],
        "band_name": f"within {BARS[1]:.0%}",
        "hollow": "part of the data on disk",
        "groups": groups,
        "notes": [
            "median error",
            f"plan.Predict: {median:.1%} (worst {worst:.0%})",
            f"DS-Analyzer: {errors(rows, 'published')[0]:.0%}",
            f"corrected: {errors(rows, 'corrected')[0]:.0%}",
        ],
    }
    charts.draw(path, "scatter", chart)
