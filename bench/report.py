"""Writes docs/internals/benchmarks.md and its plots from a result file.

    python -m bench.report [RESULTS.json] [--docs DIR]

Without a file it takes the newest one in bench/results.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import charts, regions, stored, tables
from .bars import bars
from .figures import Figures, elsewhere, table
from .suite import SUITES, Suite

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs/internals"

CLASS_TITLES = {
    "bytes": ("JPEG bytes as they are", "Files, or a container that holds the same bytes."),
    "lossless": ("Lossless repacking", "Packed once; the pixels are the JPEG's own, bit for bit."),
    "lossy": (
        "Lossy repacking",
        "FFCV's writer re-encodes at quality 90, 4:2:0; both loaders get these same smaller JPEGs.",
    ),
    "raw": ("Raw pixels", "Records are copied, nothing is decoded."),
}


def plot_bars(figures: Figures, suite: Suite, kind: str, key: str = "examples_s") -> list[dict[str, Any]]:
    arms = [a for a in figures.measured(suite, kind) if a.comparable]
    best = max([figures.median(suite.name, a.name) or 0 for a in arms if not a.ours], default=0.0)
    out = []
    for arm in arms:
        values = figures.values(suite.name, arm.name, key)
        middle = statistics.median(values)
        remark = f"{middle / best:.1f} x" if arm.ours and best and key == "examples_s" else ""
        label = arm.title.replace("**", "")
        bar = {"label": label, "value": middle, "low": min(values), "high": max(values), "ours": arm.ours}
        out.append(bar | {"remark": remark})
    return out if key == "examples_s" else sorted(out, key=lambda b: b["value"])


def plots(figures: Figures, docs: Path) -> list[str]:
    """Draws all plots that have figures. Returns the names of the files."""
    img = docs / "img"
    machine = figures.results["machine"]
    where = f"{machine['cores']} cores, {machine.get('cpu', '')}, {machine['time'][:10]}; medians, lowest to highest"
    made = []

    def group(title: str, suite: Suite, kind: str, key: str = "examples_s") -> dict[str, Any]:
        return {"title": title, "bars": plot_bars(figures, suite, kind, key)}

    def draw(name: str, title: str, subtitle: str, groups: list[dict[str, Any]], unit: str) -> None:
        if any(g["bars"] for g in groups):
            heading = {"title": title, "subtitle": subtitle, "footer": where}
            charts.draw(img / name, "bars", heading | {"unit": unit, "groups": groups})
            made.append(name)

    kinds = ("bytes", "lossless", "lossy")
    for suite in (SUITES["photos"], SUITES["gen"]):
        title = suite.title.lower()
        groups = [group(CLASS_TITLES[k][0], suite, k) for k in kinds]
        draw(f"bench-{suite.name}.svg", f"Images per second: {title}", JPEG, groups, "img/s")
        groups = [group(CLASS_TITLES[k][0], suite, k, "cpu_s_per_1k") for k in kinds]
        what = f"CPU seconds per 1,000 images: {title}"
        draw(f"bench-{suite.name}-cpu.svg", what, JPEG + "; less is better", groups, "s")
    for name in ("raw", "tiny", "tokens"):
        suite = SUITES[name]
        draw(f"bench-{name}.svg", suite.title, "Random order, into the trainer's memory, from the page cache",
             [group("", suite, "raw")], suite.unit)  # fmt: skip
    first = SUITES["photos"] if ("photos", "stoker-keep") in figures.runs else SUITES["gen"]
    groups = [group(CLASS_TITLES[k][0], first, k) for k in ("bytes", "lossless")]
    draw("benchmark.svg", "Images per second on two cores", f"{first.title}: JPEG, RandomResizedCrop 224, flip,"
         " uint8 batches of 256 in the trainer's memory; lossless, warm files", groups, "img/s")  # fmt: skip
    return made


def section(title: str, text: str, intro: str = "", level: int = 2) -> str:
    if not text:
        return ""
    return f"{'#' * level} {title}\n\n" + (intro + "\n\n" if intro else "") + text + "\n\n"


def head(figures: Figures) -> str:
    """The head of the page: the machine, the versions and the time of the measurement."""
    r = figures.results
    m = r["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in sorted(r["versions"].items()) if v)
    sets = ", ".join(f"{k}: {v['files']:,} files, {v['bytes'] / 1e6:,.0f} MB" for k, v in r["data"].items())
    features = ", ".join(m.get("features", []))
    older = f"- **Of an older measurement:** {r['older']}\n" if "older" in r else ""
    return f"""# Benchmarks

<!-- Written by `python -m bench.report`; edit bench/report.py instead. -->

Stoker compared with other loaders: the same bytes, the same cores, one process per run, rounds in random order.
`make bench` repeats all of it. `make bench QUICK=1` takes 5 minutes and needs torch only.

- **Machine:** {m["cores"]} cores of {m.get("cpu", m["arch"])} ({features}), {m.get("memory_gib")} GiB,
  {m.get("system", "")}, Linux {m["kernel"]}
- **Date, commit:** {m["time"][:16]}, {r["commit"]}{" with local changes" if r["changed_files"] else ""}
{older}- **Versions:** {versions}, Python {m["python"]}
- **Data:** {sets}
- **Method:** {measured(r["runs"])}.
  Figures are medians, with the lowest and highest round in brackets. See [below](#method).

"""


def measured(runs: Sequence[dict[str, Any]]) -> str:
    """The settings of the runs. A continued measurement may have other settings for its other suites."""
    said = []
    for suite in dict.fromkeys(run["suite"] for run in runs):
        mine = [run for run in runs if run["suite"] == suite and "error" not in run]
        # Arms that are far slower may have been measured less often.
        counts = Counter(run["name"] for run in mine).values()
        fewest, rounds = min(counts, default=0), max(counts, default=0)
        several = f"{fewest} to {rounds}" if fewest < rounds else f"{rounds}"
        shortest = min((run["window_s"] for run in mine), default=0.0)
        said.append(f"{suite} {several} rounds of at least {shortest:.1f} s")
    return ", ".join(said)


def page(figures: Figures, made: Sequence[str], others: str) -> str:
    """The whole document. made are the existing plots, others is text about the neighbouring pages."""

    def shown(name: str, alt: str) -> str:
        return f"![{alt}](img/{name})\n\n" if name in made else ""

    r = figures.results
    out = [
        head(figures),
        others,
        shown("benchmark.svg", "Images per second on two cores, Stoker and the other loaders"),
    ]
    out.append(METHOD)
    for name in ("photos", "gen"):
        suite = SUITES[name]
        text = "".join(
            section(title, tables.rates(figures, suite, kind), intro, 3)
            for kind, (title, intro) in CLASS_TITLES.items()
            if kind != "raw"
        )
        if text:
            out.append(f"## {suite.title}\n\n{JPEG}.\n\n")
            out.append(shown(f"bench-{name}.svg", f"Images per second, {suite.title}") + text)
            out.append(shown(f"bench-{name}-cpu.svg", f"CPU seconds per 1,000 images, {suite.title}"))
    for name in ("raw", "tiny", "tokens"):
        title = SUITES[name].title
        text = tables.rates(figures, SUITES[name], "raw")
        out.append(section(title, shown(f"bench-{name}.svg", title) + text if text else ""))
    out.append(section("Ceilings", tables.ceilings(figures), CEILINGS))
    out.append(section("Hand-off", tables.flow(figures), FLOW))
    out.append(section("Hand-off after a pause", tables.handoff(figures), HANDOFF))
    out.append(section("The trainer's own thread", tables.foreground(figures), FOREGROUND))
    out.append(section("Memory", tables.memory(figures), MEMORY))
    out.append(section("Packing", tables.packing(figures)))
    out.append(section("Checks", tables.checks(figures), CHECKS))
    failed = [[k, f"`{' '.join(v.split())[-260:]}`".replace("|", "/")] for k, v in r["failed"].items()]
    out.append(section("Not run", table(["what", "why"], failed, 2) if failed else ""))
    out.append(section("Targets", bars(figures), BARS))
    seen: dict[str, str] = {}
    for run in r["runs"]:
        seen.setdefault(f"{run['suite']}/{run['name']}", run["command"])
    commands = "\n".join(f"# {k}\n{v}" for k, v in seen.items())
    out.append(section("Commands", f"```sh\n{commands}\n```" if commands else "", COMMANDS))
    return "".join(out).rstrip() + "\n"


JPEG = "JPEG, RandomResizedCrop 224 and flip, uint8 batches of 256 in the trainer's memory"

BARS = "The goals of this project, as ratios within one measurement."

CEILINGS = """C programs without a loader around them (bench/ceiling), run in the same rounds as the loaders. They are
the upper limits. Decoding is counted per second of CPU time."""

FLOW = "Batches of one 32x32 record, as fast as they come: the time from batch to batch is the loader's own cost."

HANDOFF = """The time to take a ready batch, for a consumer that has slept. On a virtual machine much of it is the
wake-up of the processor. After 0.3 s of sleep a bare `recv` that finds nothing took 35 us on a Xeon and
66 us on an EPYC. A `send` that wakes a process took 44 us."""

MEMORY = "Peak MiB of all processes together, each shared page counted once; real photographs."

COMMANDS = "Each arm can be run by hand, from the root of the repository."

CHECKS = """A figure counts only if each record comes exactly once in an epoch, with the right picture. That is the
centred square of each file, compared with Pillow's decode and resize. Decoders and filters differ between
loaders, so rivals need 24 dB, and Stoker at most 1 level. Stoker must also give the same batches for the
same seed in another process."""

FOREGROUND = """How many times longer a fixed piece of Python in the trainer's main thread takes while the loader
delivers 1.5 batches of 256 per second, against the same piece without a loader."""

METHOD = """## Method

- One process per arm and round, pinned with `taskset`; arms in a new random order in each round. A run that hangs
  is killed and reported.
- Files are in the page cache before each run (checked with mincore; read again otherwise). Each rival was tuned on
  this machine (workers or threads; the sweep is in the result file), and runs as its documentation recommends.
- Endless shuffled input, so that no epoch boundary of a rival falls into a window. The clock runs from one batch
  boundary to another, a multiple of 12 batches. The consumer reads every 4,097th byte of each batch.
- CPU seconds are user and system time of the whole process tree. PSS counts each shared page once. "Private" is
  without shared memory and file pages. "KB read each" counts bytes of read calls per example, without mapped files.
- "First batch" runs from the construction of the loader, imports done, to the first batch in hand, files warm.
- Other work on the machine is measured in each window (`cores_foreign`, `cores_stolen` in the result file).

"""


def add_older(results: dict[str, Any], old: dict[str, Any]) -> None:
    """Adds whole suites and tables of an older measurement, so that every ratio stays within one of them."""
    suites = {run["suite"] for run in results["runs"]}
    parts = list(dict.fromkeys(run["suite"] for run in old["runs"] if run["suite"] not in suites))
    results["runs"] += [run for run in old["runs"] if run["suite"] in parts]
    results["gates"] |= {k: v for k, v in old["gates"].items() if k.partition("/")[0] in parts}
    known = {line.get("set") for line in results["ceilings"]}
    results["ceilings"] += [line for line in old["ceilings"] if line.get("set") not in known]
    for name in ("flow", "memory", "packing", "foreground", "handoff"):
        if not results[name] and old[name]:
            results[name] = old[name]
            parts.append(name)
    for name in ("data", "versions", "failed"):
        results[name] = old[name] | results[name]
    results["older"] = f"{', '.join(parts)}: {old['machine']['time'][:16]}, {old['commit']}"


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("results", nargs="?", type=Path)
    p.add_argument("--docs", type=Path, default=DOCS, help="docs/internals/NAME for the page of another machine")
    p.add_argument("--older", type=Path, help="results to take the suites and tables from that the newer ones lack")
    a = p.parse_args()
    if a.results is None:
        # The other benchmarks keep their results in the same folder, with other names.
        other = (
            "against-", "cache-", "doctor-", "formats-", "gpu-", "latency-", "order", "planner-", "remote-", "run-",
            "reliability", "storage-", "whatif-", "writers-",
        )  # fmt: skip
        a.results = stored.newest("*.json", but=other)
    results = json.loads(a.results.read_text())
    if a.older:
        add_older(results, json.loads(a.older.read_text()))
    figures = Figures(results)
    made = plots(figures, a.docs)
    file = a.docs / "benchmarks.md"
    text = page(figures, made, elsewhere(a.docs, "benchmarks.md"))
    file.write_text(regions.keep(file.read_text(), text) if file.exists() else text)
    print(f"bench: wrote {a.docs / 'benchmarks.md'} and {len(made)} plots from {a.results.name}")


if __name__ == "__main__":
    main()
