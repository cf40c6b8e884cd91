"""Writes the speed of formats, next to the formats' own libraries, to docs/reference/formats.md."""

from __future__ import annotations

import importlib
import json
import statistics
from typing import Any

from .. import runner

ROOT = runner.ROOT
PAGE = ROOT / "docs/reference/formats.md"

TITLE = "## Speed"

SPEED = """
## Speed, read as they are

Files in memory, {cores} cores ({cpu}), medians of {rounds} rounds in turns. The library's own records, in batches,
compared with the same records from `stoker.Loader`. MB/s are bytes of the files, if whole records are read. A missed
target is in the table. `make bench SUITES=formats` measures again.
"""


def ratios(got: dict[str, Any]) -> list[float]:
    """Stoker's rate by the library's, by round."""
    both = [(r["stoker"], r["reference"]) for r in got.get("rounds", [])]
    return [s["records_s"] / r["records_s"] for s, r in both if "records_s" in s and "records_s" in r]


def newest() -> dict[str, Any]:
    """The newest results, and earlier ones of other formats on the same kind of machine."""
    files = [json.loads(p.read_text()) for p in (ROOT / "bench/results").glob("formats-*.json")]
    files.sort(key=lambda got: str(got["machine"]["time"]))
    if not files:
        return {}
    last = files[-1]
    formats: dict[str, Any] = {}
    for got in files:
        if all(got["machine"][key] == last["machine"][key] for key in ("cpu", "cores")):
            formats |= {name: one | {"commit": got["commit"]} for name, one in got["formats"].items()}
    return {**last, "formats": dict(sorted(formats.items()))}


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in rows]) + "\n"


def median(got: dict[str, Any], side: str) -> float:
    values = [r[side]["records_s"] for r in got["rounds"] if "records_s" in r.get(side, {})]
    return statistics.median(values) if values else 0.0


def is_whole(module: str) -> bool:
    """Whether the records read are whole records of the files."""
    return bool(importlib.import_module(f"bench.formats.{module}").FORMAT.whole)


def least(module: str) -> float:
    """The minimum number of records per second."""
    return float(importlib.import_module(f"bench.formats.{module}").FORMAT.least)


def row(module: str, got: dict[str, Any]) -> list[str]:
    whole = is_whole(module)
    name, library, what = got["name"], got["library"], got["what"]
    if "error" in got:
        return [name, what, "", "", library, "", got["error"].strip().splitlines()[-1][:120]]
    ours, theirs, shares = median(got, "stoker"), median(got, "reference"), ratios(got)
    mb_s = f"{ours * got['bytes'] / got['records'] / 1e6:,.0f}" if whole and got.get("records") else ""
    if not shares:
        failed = next((r[s]["error"] for r in got["rounds"] for s in r if "error" in r[s]), "not measured")
        return [name, what, "", "", library, "", failed.strip().splitlines()[-1][:120]]
    factor = f"{statistics.median(shares):.1f} x ({min(shares):.1f}-{max(shares):.1f})"
    missed = "" if statistics.median(shares) >= got["bar"] else f", bar {got['bar']:g} x missed"
    if bar := least(module):
        missed += f", {bar:,.0f} records/s {'met' if ours >= bar else 'missed'}"
    return [name, what, f"{ours:,.0f}", mb_s, library, f"{theirs:,.0f}", factor + missed]


def tokens(formats: dict[str, Any]) -> str:
    """The time until the first batch for sequences of tokens, and the rate of tokens after that."""
    rows = []
    for name, got in formats.items():
        fmt = importlib.import_module(f"bench.formats.{name}").FORMAT
        ours = [r["stoker"] for r in got.get("rounds", []) if "records_s" in r.get("stoker", {})]
        if not fmt.tokens or not ours:
            continue
        first = statistics.median(r["first_batch_s"] for r in ours)
        rate = statistics.median(r["records_s"] for r in ours) * fmt.tokens
        row = [got["name"], f"{first:.2f}", f"{rate / 1e6:,.0f} M"]
        if fmt.tokens_s:
            met = rate >= fmt.tokens_s and first <= fmt.first_batch_s
            words = f"{fmt.tokens_s / 1e6:,.0f} M tokens/s, first batch within {fmt.first_batch_s:g} s"
            row.append(f"{words}: {'met' if met else '**missed**'}")
        rows.append([*row, *[""] * (4 - len(row))])
    head = ["tokens", "first batch, s, with starting the engine", "tokens/s", "bar"]
    return "\n" + table(head, rows) if rows else ""


def write() -> None:
    text = PAGE.read_text().partition("\n" + TITLE)[0]
    if got := newest():
        text += SPEED.format(
            cores=got["machine"]["cores"],
            cpu=got["machine"].get("cpu", ""),
            rounds=got["settings"]["rounds"],
        )
        head = ["format", "data", "records/s", "MB/s", "compared with", "records/s", "ratio", "commit"]
        text += "\n" + table(head, [[*row(name, g), g["commit"]] for name, g in got["formats"].items()])
        text += tokens(got["formats"])
    PAGE.write_text(text)
    print(f"formats: wrote {runner.short(PAGE)}")
