"""The tables of docs/internals/benchmarks.md."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from .figures import Figures, spread, table
from .suite import FLOW, MEMORY, SUITES, Suite


def rates(figures: Figures, suite: Suite, kind: str) -> str:
    arms = figures.measured(suite, kind)
    if not arms:
        return ""
    rivals = [figures.median(suite.name, a.name) or 0 for a in arms if not a.ours and a.comparable]
    best = max(rivals, default=0.0)
    rows, notes = [], []
    for arm in arms:
        get = partial(figures.values, suite.name, arm.name)
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
        row += [f"{figures.memory(suite.name, arm.name, key):,.0f}" for key in ("pss", "private", "shmem")]
        row += [f"{statistics.median(get('read_bytes_per_example')) / 1e3:,.1f}"]
        rows.append(row)
    head = ["loader", "workers", suite.unit]
    head += ["batches/s", "GB/s"] if kind == "raw" else []
    head += ["x best rival", "CPU-s per 1,000", "first batch s", "PSS MiB", "private", "shared", "KB read each"]
    text = table(head, rows)
    if notes:
        text += "\n\n" + "\n".join(f"[{i}] {note}\\" for i, note in enumerate(notes, 1)).rstrip("\\")
    return text


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
        "engine-keep": "**Stoker**'s engine in Go, JPEG bytes (`stoker bench decode`)",
        "engine-dct": "**Stoker**'s engine in Go, dct",
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
                f"One core, {SUITES[data_set].title.lower()}, in memory:\n\n"
                + table(["C loop", "img/s", "x full"], rows)
            )
        python = sorted(
            ((v, k[1]) for k, v in rounds.items() if k[0] == f"decoders-{data_set}"),
            key=lambda x: -statistics.median(x[0]),
        )
        if python:
            rows = [[name, spread(values)] for values, name in python]
            text.append(
                "The decoders that the other loaders use, whole images, one thread:\n\n"
                + table(["decoder", "img/s"], rows)
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
            "Gathering random records into batches, GB/s of payload:\n\n"
            + table(["records", "memcpy", "non-temporal"], copies)
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


def flow(figures: Figures) -> str:
    rows = []
    for arm in FLOW:
        lines = [x for x in figures.results.get("flow", []) if x["name"] == arm.name and "flow_us" in x]
        if lines:
            rows.append([arm.title, spread([x["flow_us"] for x in lines])])
    return table(["loader", "us per batch"], rows) if rows else ""


def handoff(figures: Figures) -> str:
    rounds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in figures.results["handoff"]:
        if "handoff_us" in line:
            rounds.setdefault((line["suite"], line["name"]), []).append(line)
    titles = {(s.name, a.name): a.title for s in SUITES.values() for a in s.arms}
    rows = []
    for (suite, name), lines in sorted(
        rounds.items(), key=lambda x: (x[0][0], statistics.median(r["handoff_us"] for r in x[1]))
    ):
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
        [titles[name]]
        + [spread([x[key] for x in lines], ".2f") for key in ("slowdown", "slowdown_p50", "slowdown_p99")]
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
                sizes = [f"{m['private']:,.0f}", own, *(f"{m[k]:,.0f}" for k in ("shmem", "file", "pss", "procs"))]
                rows.append([titles[name], str(line["workers"]), *sizes, f"{line['examples_s']:,.0f}"])
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
