"""Writes docs/benchmarks.md and its plots from a result file.

    python -m bench.report [RESULTS.json] [--docs DIR]

Without a file it takes the newest one in bench/results.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from . import svg
from .bars import bars
from .suite import MEMORY, SUITES, Arm, Suite

ROOT = Path(__file__).resolve().parent.parent

CLASS_TITLES = {
    "bytes": ("JPEG bytes as they are", "Files, or a container that holds the same bytes."),
    "lossless": ("Lossless repacking", "Packed once; the pixels are the JPEG's own, bit for bit."),
    "lossy": ("Lossy repacking", "FFCV's writer re-encodes at quality 90, 4:2:0; both loaders get these same smaller JPEGs."),
    "raw": ("Raw pixels", "Records are copied, nothing is decoded."),
}


class Figures:
    """The rounds of each arm, by suite and arm."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results
        self.runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for run in results["runs"]:
            if "error" not in run:
                self.runs.setdefault((run["suite"], run["name"]), []).append(run)

    def values(self, suite: str, arm: str, key: str) -> list[float]:
        return [run[key] for run in self.runs.get((suite, arm), []) if run.get(key) is not None]

    def median(self, suite: str, arm: str, key: str = "examples_s") -> float | None:
        values = self.values(suite, arm, key)
        return statistics.median(values) if values else None

    def memory(self, suite: str, arm: str, key: str) -> float:
        values = [run["memory_mib"][key] for run in self.runs.get((suite, arm), []) if run.get("memory_mib")]
        return statistics.median(values) if values else 0.0

    def measured(self, suite: Suite, kind: str) -> list[Arm]:
        """The arms of a class that have a figure, fastest first."""
        arms = [a for a in suite.arms if kind in a.classes and (suite.name, a.name) in self.runs]
        return sorted(arms, key=lambda a: -(self.median(suite.name, a.name) or 0))


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    middle = format(statistics.median(values), form)
    return middle if len(values) < 2 else f"{middle} ({format(min(values), form)}-{format(max(values), form)})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: int = 1) -> str:
    """A Markdown table; columns from `right` on are aligned to the right."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---" if i < right else "---:" for i in range(len(head))) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def rates(figures: Figures, suite: Suite, kind: str) -> str:
    arms = figures.measured(suite, kind)
    if not arms:
        return ""
    rivals = [figures.median(suite.name, a.name) or 0 for a in arms if not a.ours and a.comparable]
    best = max(rivals, default=0.0)
    rows, notes = [], []
    for arm in arms:
        get = lambda key, arm=arm: figures.values(suite.name, arm.name, key)
        middle = figures.median(suite.name, arm.name) or 0
        if arm.note and arm.note not in notes:
            notes.append(arm.note)
        mark = f" [{notes.index(arm.note) + 1}]" if arm.note else ""
        run = figures.runs[(suite.name, arm.name)][0]
        row = [arm.title + mark, str(run["workers"]) if run["workers"] else "auto", spread(get("examples_s"))]
        if kind == "raw":
            row += [spread(get("batches_s"), ",.0f"), spread(get("gb_s"), ".2f")]
        row += [f"{middle / best:.2f}" if best and arm.comparable else "-"]
        row += [spread(get("cpu_s_per_1k"), ".4f" if kind == "raw" else ".2f"), spread(get("first_batch_s"), ".2f")]
        memory = lambda key, arm=arm: figures.memory(suite.name, arm.name, key)
        row += [f"{memory('pss'):,.0f}", f"{memory('private'):,.0f}", f"{memory('shmem'):,.0f}"]
        row += [f"{statistics.median(get('read_bytes_per_example')) / 1e3:,.1f}"]
        rows.append(row)
    head = ["loader", "workers", suite.unit]
    head += ["batches/s", "GB/s"] if kind == "raw" else []
    head += ["x best rival", "CPU-s per 1,000", "first batch s", "PSS MiB", "private", "shared", "KB read each"]
    text = table(head, rows)
    if notes:
        text += "\n\n" + "\n".join(f"[{i}] {note}\\" for i, note in enumerate(notes, 1)).rstrip("\\")
    return text


def plot_bars(figures: Figures, suite: Suite, kind: str, key: str = "examples_s") -> list[svg.Bar]:
    arms = [a for a in figures.measured(suite, kind) if a.comparable]
    best = max([figures.median(suite.name, a.name) or 0 for a in arms if not a.ours], default=0.0)
    out = []
    for arm in arms:
        values = figures.values(suite.name, arm.name, key)
        middle = statistics.median(values)
        remark = f"{middle / best:.1f} x" if arm.ours and best and key == "examples_s" else ""
        out.append(svg.Bar(arm.title.replace("**", ""), middle, min(values), max(values), arm.ours, remark))
    return out if key == "examples_s" else sorted(out, key=lambda b: b.value)


def plots(figures: Figures, docs: Path) -> list[str]:
    """Draws everything that has figures; gives the names of the files."""
    img = docs / "img"
    machine = figures.results["machine"]
    where = f"{machine['cores']} cores, {machine.get('cpu', '')}, {machine['time'][:10]}, medians and lowest to highest round"
    made = []

    def draw(name: str, title: str, subtitle: str, groups: list[svg.Group], unit: str) -> None:
        if any(g.bars for g in groups):
            svg.bars(img / name, title, subtitle, groups, unit, where)
            made.append(name)

    for suite in (SUITES["photos"], SUITES["gen"]):
        groups = [svg.Group(CLASS_TITLES[k][0], plot_bars(figures, suite, k)) for k in ("bytes", "lossless", "lossy")]
        what = "JPEG, RandomResizedCrop 224, flip, uint8 batches of 256 in the trainer's memory"
        draw(f"bench-{suite.name}.svg", f"Images per second: {suite.title.lower()}", what, groups, "img/s")
        groups = [
            svg.Group(CLASS_TITLES[k][0], plot_bars(figures, suite, k, "cpu_s_per_1k")) for k in ("bytes", "lossless", "lossy")
        ]
        draw(
            f"bench-{suite.name}-cpu.svg",
            f"CPU seconds per 1,000 images: {suite.title.lower()}",
            what + "; less is better",
            groups,
            "s",
        )
    for name in ("raw", "tiny", "tokens"):
        suite = SUITES[name]
        draw(f"bench-{name}.svg", suite.title, "Random order, into the trainer's memory, from the page cache",
             [svg.Group("", plot_bars(figures, suite, "raw"))], suite.unit)  # fmt: skip
    first = SUITES["photos"] if ("photos", "stoker-keep") in figures.runs else SUITES["gen"]
    groups = [svg.Group(CLASS_TITLES[k][0], plot_bars(figures, first, k)) for k in ("bytes", "lossless")]
    draw("benchmark.svg", "Images per second on two cores", f"{first.title}: JPEG, RandomResizedCrop 224, flip,"
         " uint8 batches of 256 in the trainer's memory; lossless, warm files", groups, "img/s")  # fmt: skip
    return made


def ceilings(figures: Figures) -> str:
    rounds: dict[tuple[str, str], list[float]] = {}
    for line in figures.results["ceilings"]:
        if "error" not in line:
            rounds.setdefault((line["set"], line["variant"]), []).append(line.get("images_s") or line["gb_s"])
    names = {
        "huffman": "entropy decoding alone",
        "decode": "full decode to RGBX, no resize",
        "full": "full decode + resize of the crop",
        "partial": "partial decode (crop, skip, stop early) + resize",
        "keep": "**Stoker**'s JPEG path, called from C",
        "dct": "**Stoker**'s dct path, called from C",
    }
    text = []
    for data_set in ("photos", "gen"):
        full = rounds.get((data_set, "full"))
        if full:
            rows = [
                [
                    title,
                    spread(rounds[data_set, key]),
                    f"{statistics.median(rounds[data_set, key]) / statistics.median(full):.2f}",
                ]
                for key, title in names.items()
                if (data_set, key) in rounds
            ]
            text.append(
                f"One core, {SUITES[data_set].title.lower()}, in memory:\n\n" + table(["C loop", "img/s", "x full"], rows)
            )
        python = sorted(
            ((v, k[1]) for k, v in rounds.items() if k[0] == f"decoders-{data_set}"), key=lambda x: -statistics.median(x[0])
        )
        if python:
            rows = [[name, spread(values)] for values, name in python]
            text.append(
                "The decoders that the other loaders use, whole images, one thread:\n\n" + table(["decoder", "img/s"], rows)
            )
    copies = []
    for record in (256 * 256 * 3, 32 * 32 * 3):
        for threads in (1, 2):
            key = f"copy-{record}-{threads}"
            if (key, "memcpy") in rounds:
                what = f"{record:,} bytes, {threads} thread{'s' if threads > 1 else ''}"
                copies.append([what, *(spread(rounds[key, v], ".1f") for v in ("memcpy", "stream"))])
    if copies:
        text.append(
            "Gathering random records into batches, GB/s of payload:\n\n" + table(["records", "memcpy", "non-temporal"], copies)
        )
    return "\n\n".join(text)


def packing(figures: Figures) -> str:
    rounds: dict[str, list[dict[str, Any]]] = {}
    for line in figures.results["packing"]:
        if "images_s" in line:
            rounds.setdefault(line["label"], []).append(line)
    if not rounds:
        return ""
    sizes = figures.results["data"].get(next(iter(figures.results["data"])), {}).get("bytes", 0)
    rows = []
    for label, lines in sorted(rounds.items(), key=lambda x: -statistics.median(r["images_s"] for r in x[1])):
        size = lines[0]["bytes"]
        cpu = statistics.median(r["cpu_s"] / r["records"] * 1000 for r in lines)
        rows.append(
            [
                label,
                spread([r["images_s"] for r in lines]),
                f"{cpu:.2f}",
                f"{size / 1e6:,.0f}",
                f"{size / sizes:.3f}" if sizes else "",
            ]
        )
    return table(["writer, one core", "img/s", "CPU-s per 1,000", "MB", "x the files"], rows)


def handoff(figures: Figures) -> str:
    rounds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in figures.results["handoff"]:
        if "handoff_us" in line:
            rounds.setdefault((line["suite"], line["name"]), []).append(line)
    titles = {(s.name, a.name): a.title for s in SUITES.values() for a in s.arms}
    rows = []
    for (suite, name), lines in sorted(rounds.items(), key=lambda x: (x[0][0], statistics.median(r["handoff_us"] for r in x[1]))):
        size = lines[0]["batch_bytes"]
        amount = f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} KB"
        p95 = statistics.median(r["handoff_us_p95"] for r in lines)
        rows.append([titles.get((suite, name), name), amount, spread([r["handoff_us"] for r in lines]), f"{p95:,.0f}"])
    return table(["loader", "batch", "us, median", "p95"], rows, 2) if rows else ""


def foreground(figures: Figures) -> str:
    rounds: dict[str, list[dict[str, Any]]] = {}
    for line in figures.results.get("foreground", []):
        if "slowdown" in line:
            rounds.setdefault(line["name"], []).append(line)
    titles = {a.name: a.title for a in SUITES["photos"].arms}
    rows = [
        [titles[name]] + [spread([x[key] for x in lines], ".2f") for key in ("slowdown", "slowdown_p50", "slowdown_p99")]
        for name, lines in sorted(rounds.items(), key=lambda x: statistics.median(r["slowdown"] for r in x[1]))
    ]
    return table(["loader", "mean", "median", "99th percentile"], rows) if rows else ""


def memory(figures: Figures) -> str:
    rows = []
    titles = {a.name: a.title for a in SUITES["photos"].arms}
    for name in MEMORY:
        for line in figures.results["memory"]:
            if line["name"] == name and "memory_mib" in line:
                m = line["memory_mib"]
                engine = line.get("engine_memory_mib") or {}
                own = f"{engine['private']:,.0f}" if engine else "-"
                rows.append([titles[name], str(line["workers"]), f"{m['private']:,.0f}", own, f"{m['shmem']:,.0f}",
                             f"{m['file']:,.0f}", f"{m['pss']:,.0f}", f"{m['procs']:.0f}", f"{line['examples_s']:,.0f}"])  # fmt: skip
    head = [
        "loader",
        "workers or threads",
        "private",
        "of which engine",
        "shared memory",
        "file pages",
        "all (PSS)",
        "processes",
        "img/s",
    ]
    return table(head, rows, 1) if rows else ""


def checks(figures: Figures) -> str:
    titles = {f"{s.name}/{a.name}": (s.title, a.title) for s in SUITES.values() for a in s.arms}
    word = {True: "yes", False: "**no**", None: "-"}
    rows = []
    for key, g in figures.results["gates"].items():
        suite, arm = titles.get(key, ("", key))
        if "error" in g:
            rows.append([arm, suite, "error", "", "", ""])
            continue
        pixels = "equal" if g.get("max_difference") == 0 else f"{g.get('max_difference')} ({g.get('psnr_db')} dB)"
        rows.append([arm, suite, word[g["once"]], "yes" if g["same"] else "no", word[g["pixels"]], pixels])
    head = [
        "loader",
        "data",
        "each record once",
        "same seed, same batches",
        "the right picture",
        "largest difference from Pillow (PSNR)",
    ]
    return table(head, rows, 6) if rows else ""


def section(title: str, text: str, intro: str = "", level: int = 2) -> str:
    if not text:
        return ""
    return f"{'#' * level} {title}\n\n" + (intro + "\n\n" if intro else "") + text + "\n\n"


def page(figures: Figures, made: Sequence[str]) -> str:
    r = figures.results
    m, s = r["machine"], r["settings"]
    shown: Callable[[str, str], str] = lambda name, alt: f"![{alt}](img/{name})\n\n" if name in made else ""
    versions = ", ".join(f"{k} {v}" for k, v in sorted(r["versions"].items()) if v)
    sets = ", ".join(f"{k}: {v['files']:,} files, {v['bytes'] / 1e6:,.0f} MB" for k, v in r["data"].items())
    out = [
        (
            "# Benchmarks\n\n<!-- Written by `python -m bench.report`; edit bench/report.py instead. -->\n\n"
            "Stoker beside the loaders that people would pick instead: the same bytes, the same cores, one process per run, rounds\n"
            "interleaved in random order. `make bench` repeats all of it; `make bench QUICK=1` takes 5 minutes and needs torch only.\n\n"
        )
    ]
    features = ", ".join(m.get("features", []))
    out.append(
        f"- **Machine:** {m['cores']} cores of {m.get('cpu', m['arch'])} ({features}), {m.get('memory_gib')} GiB,"
        f" {m.get('system', '')}, Linux {m['kernel']}\n"
        f"- **Date, commit:** {m['time'][:16]}, {r['commit']}{' with local changes' if r['changed_files'] else ''}\n"
        f"- **Versions:** {versions}, Python {m['python']}\n"
        f"- **Data:** {sets}\n"
        f"- **Method:** {s['rounds']} rounds, windows of at least {s['seconds']:g} s after {s['warmup']:g} s of warm-up;"
        " figures are medians, with the lowest and highest round in brackets. See [below](#method).\n\n"
    )
    out.append(shown("benchmark.svg", "Images per second on two cores, Stoker and the other loaders"))
    out.append(section("Against the bars", bars(figures), "What this project set out to reach, as ratios within this run."))
    for name in ("photos", "gen"):
        suite = SUITES[name]
        text = ""
        for kind in ("bytes", "lossless", "lossy"):
            title, intro = CLASS_TITLES[kind]
            text += section(title, rates(figures, suite, kind), intro, 3)
        if text:
            out.append(
                f"## {suite.title}\n\nJPEG, RandomResizedCrop 224 and flip, uint8 batches of 256 in the trainer's memory.\n\n"
            )
            out.append(shown(f"bench-{name}.svg", f"Images per second, {suite.title}") + text)
            out.append(shown(f"bench-{name}-cpu.svg", f"CPU seconds per 1,000 images, {suite.title}"))
    for name in ("raw", "tiny", "tokens"):
        text = rates(figures, SUITES[name], "raw")
        out.append(section(SUITES[name].title, shown(f"bench-{name}.svg", SUITES[name].title) + text if text else ""))
    out.append(
        section(
            "Ceilings", ceilings(figures), "C programs without a loader around them (bench/ceiling); more than this there is not."
        )
    )
    out.append(
        section(
            "Hand-off", handoff(figures), "How long taking a batch that is ready lasts, for a consumer slower than the loader."
        )
    )
    out.append(
        section("Memory", memory(figures), "Peak MiB of all processes together, each shared page counted once; real photographs.")
    )
    out.append(section("Packing", packing(figures)))
    out.append(section("Checks", checks(figures), CHECKS))
    failed = [[k, "`" + " ".join(v.split())[-260:].replace("|", "\\|").replace("`", "'") + "`"] for k, v in r["failed"].items()]
    out.append(section("Not run", table(["what", "why"], failed, 2) if failed else ""))
    out.append(METHOD)
    seen: dict[str, str] = {}
    for run in r["runs"]:
        seen.setdefault(f"{run['suite']}/{run['name']}", run["command"])
    commands = "\n".join(f"# {k}\n{v}" for k, v in seen.items())
    out.append(
        section(
            "Commands",
            f"```sh\n{commands}\n```" if commands else "",
            "Each arm can be run by hand, from the root of the repository.",
        )
    )
    return "".join(out).rstrip() + "\n"


CHECKS = """A figure counts only when each record comes exactly once in an epoch and its picture is the right one (the
centred square of each file, against Pillow's decode and resize; decoders and filters differ a little between loaders, so
rivals need 24 dB, Stoker at most 1 level). Stoker must also give the same batches for the same seed in another process."""

FOREGROUND = """How many times longer a fixed piece of Python in the trainer's main thread takes while the loader delivers 1.5
batches of 256 per second, against the same piece without a loader."""

METHOD = """## Method

- One process per arm and round, pinned with `taskset`; arms in a new random order in each round. A run that hangs is
  killed and reported.
- Files are in the page cache before each run (checked with mincore; read again otherwise). Each rival was tuned on this
  machine (workers or threads; the sweep is in the result file), and runs as its documentation recommends.
- Endless shuffled input, so that no epoch boundary of a rival falls into a window. The clock runs from one batch boundary
  to another, a multiple of 12 batches. The consumer reads every 4,097th byte of each batch.
- CPU seconds are user and system time of the whole process tree. PSS counts each shared page once; "private" leaves out
  shared memory and file pages. "KB read each" is what read calls returned per example; mapped files do not show in it.
- "First batch" runs from the construction of the loader, imports done, to the first batch in hand, files warm.
- What was taken away from the window by other work on the machine is measured and in the result file
  (`cores_foreign`, `cores_stolen`).

"""


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("results", nargs="?", type=Path)
    p.add_argument("--docs", type=Path, default=ROOT / "docs")
    a = p.parse_args()
    if a.results is None:
        found = sorted((ROOT / "bench/results").glob("*.json"), key=lambda f: f.stat().st_mtime)
        if not found:
            raise SystemExit("bench: no results yet; run make bench")
        a.results = found[-1]
    figures = Figures(json.loads(a.results.read_text()))
    made = plots(figures, a.docs)
    (a.docs / "benchmarks.md").write_text(page(figures, made))
    print(f"bench: wrote {a.docs / 'benchmarks.md'} and {len(made)} plots from {a.results.name}")


if __name__ == "__main__":
    main()
