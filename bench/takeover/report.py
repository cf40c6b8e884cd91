"""Writes the region of docs/internals/benchmarks.md about unmodified scripts."""

from __future__ import annotations

import json
import statistics
from typing import Any

from .. import regions, runner
from ..figures import table
from . import measure, pairs, shapes

ROOT = runner.ROOT
PAGE = ROOT / "docs/internals/benchmarks.md"
REGION = "run"
# The targets. If the loader is recognised and is the limit: over all epochs, and from the second epoch on. The last
# one is the minimum for other scripts.
BARS = {"all": 2.0, "later": 4.0, "other": 0.98}

HEAD = """## Unmodified training scripts

Public training scripts, unmodified, under `python` and under `stoker run -- python`: {images:,} generated JPEGs (MNIST:
60,000 generated images, Pascal VOC: {voc:,} JPEGs with masks), {epochs} epochs, {workers} workers if the script has
that option. The model has a few thousand numbers on the CPU, so that the loader is the limit (Lightning and Fabric have
their own models). `make bench SUITES=run` repeats it.

- **Machine:** {cores} cores of {cpu}, {memory} GiB
- **Date, commit:** {time}, {commit}
- **Method:** {rounds}, one run after the other, medians. Samples per second of the training
  loader's epochs, from `iter()` to the end. Processor time and memory of all processes, from start to end. *Waits* is
  the share of the later epochs in which the loop waits for data. *At most* is the factor with data that costs nothing:
  the first batch again and again, without workers.
{note}"""

PAIRS = """### Pairs of dataset and transform

torch's `DataLoader` compared with `stoker.torch.DataLoader`, {workers} workers, batches of {batch}. The loop only reads
a byte of each page of a batch.
"""

SHAPES = """### Unrecognised datasets

torch's worker processes compared with ours, {workers} workers, an empty loop: any dataset, any collate function, as
Python. Batches per second in the second half of an epoch. Memory of all processes, shared memory included, near the end
of the epoch. Growth of a worker's private memory since its twentieth batch.
"""
# The targets there: rate and memory relative to torch's on each shape, hand-off, first batch of many paths.
SHAPE_BARS = {"rate": 1.0, "memory": 1.0, "hand-off": 5.0, "first_s": 2.0}


def newest() -> dict[str, Any]:
    """The newest results, none if there are none."""
    found = [json.loads(p.read_text()) for p in (ROOT / "bench/results").glob("run-*.json")]
    return max(found, key=lambda r: r["machine"]["time"], default={})


def rates(rounds: list[dict[str, Any]], arm: str) -> list[float]:
    """The median rate of each epoch."""
    runs = [r[arm]["epochs"] for r in rounds if r.get(arm, {}).get("epochs")]
    count = min(map(len, runs), default=0)
    return [statistics.median(run[i]["rate"] for run in runs) for i in range(count)]


def factor(rounds: list[dict[str, Any]], arms: tuple[str, ...], since: int) -> float | None:
    """The median of the rounds' ratios of time, from an epoch on."""
    shares = []
    for r in rounds:
        both = [sum(e["seconds"] for e in r[arm]["epochs"][since:]) for arm in arms if r.get(arm, {}).get("epochs")]
        if len(both) == 2 and all(both):
            shares.append(both[0] / both[1])
    return statistics.median(shares) if shares else None


def figure(rounds: list[dict[str, Any]], arm: str, key: str) -> float | None:
    values = [r[arm][key] for r in rounds if key in r.get(arm, {})]
    return statistics.median(values) if values else None


def per_thousand(rounds: list[dict[str, Any]], arm: str) -> float | None:
    """Seconds of processor time for 1,000 samples."""
    values = [
        r[arm]["cpu_s"] / sum(e["rows"] for e in r[arm]["epochs"]) * 1000
        for r in rounds
        if r.get(arm, {}).get("epochs") and "cpu_s" in r[arm]
    ]
    return statistics.median(values) if values else None


def both(values: list[float | None], spec: str) -> str:
    return " / ".join("-" if v is None else format(v, spec) for v in values)


def row(name: str, rounds: list[dict[str, Any]], arms: tuple[str, ...], more: list[str]) -> list[str]:
    """Rates by epoch, the speed-up, processor time and memory: torch's and ours."""
    by_epoch = [rates(rounds, arm) for arm in arms]
    count = max(map(len, by_epoch))
    cells = [both([r[i] if i < len(r) else None for r in by_epoch], ",.0f") for i in range(count)]
    whole, later = factor(rounds, arms, 0), factor(rounds, arms, 1)
    cells += ["-" if x is None else f"{x:.2f} x" for x in (whole, later)]
    cells += [both([per_thousand(rounds, arm) for arm in arms], ".2f")]
    cells += [both([figure(rounds, arm, "memory_mib") for arm in arms], ",.0f")]
    return [name, *cells, *more]


def verdict(got: dict[str, Any]) -> str:
    """Whether the bars are met."""
    whole, later = (factor(got["rounds"], measure.ARMS, since) for since in (0, 1))
    if whole is None:
        return "-"
    if not got["recognised"] or not got.get("limited", True):
        return "met" if whole >= BARS["other"] else f"missed ({BARS['other']:g} x)"
    found = (("all", whole, "in all"), ("later", later, "later"))
    most = at_most(got) or BARS["later"]
    missed = [f"{BARS[key]:g} x {words}" for key, value, words in found if (value or 0) < BARS[key]]
    if missed and most < BARS["later"]:  # also with data that costs nothing
        missed = [words for words in missed if words != f"{BARS['later']:g} x later"]
        if not missed:
            return f"met; the rest limits later epochs to {most:.1f} x"
    return f"missed ({', '.join(missed)})" if missed else "met"


def at_most(got: dict[str, Any]) -> float | None:
    """The speed-up of the later epochs with data that costs nothing, at least the measured one."""
    rest = got.get("rest", {}).get("epochs", [])[1:]
    plain = rates(got["rounds"], measure.ARMS[0])[1:]
    if not rest or not plain:
        return None
    most = statistics.median(e["rate"] for e in rest) / statistics.median(plain)
    return max(most, factor(got["rounds"], measure.ARMS, 1) or 0.0)


def waits(rounds: list[dict[str, Any]], arm: str) -> float | None:
    """The share of the later epochs that the loop waits for data."""
    runs = [r[arm]["epochs"][1:] for r in rounds if r.get(arm, {}).get("epochs")]
    shares = [sum(e["waited_s"] for e in run) / sum(e["seconds"] for e in run) for run in runs if run]
    return statistics.median(shares) if shares else None


def text(result: dict[str, Any]) -> str:
    """The region."""
    if not result:
        return ""
    m, s = result["machine"], result["settings"]
    counts = [
        len(got.get("rounds", [])) for part in ("scripts", "pairs", "shapes") for got in result.get(part, {}).values()
    ]
    fewest, count = min(filter(None, counts), default=0), max(counts, default=0)  # those of a part may be fewer
    note = f"- **Note:** {result['note']}\n" if result.get("note") else ""
    out = HEAD.format(
        images=s["images"], voc=s["images"] // 10, epochs=s["epochs"], workers=s["workers"], cores=m["cores"],
        cpu=m.get("cpu", ""), memory=m.get("memory_gib"), time=m["time"][:16], note=note,
        commit=result["commit"] + (" with local changes" if result["changed_files"] else ""),
        rounds=f"{fewest} to {count} rounds" if fewest < count else f"{count} round{'s' if count > 1 else ''}",
    )  # fmt: skip
    epochs = [f"epoch {i + 1}" for i in range(s["epochs"])]
    sides = ["all epochs", "from the second", "CPU-s per 1,000", "MiB"]
    rows, left = [], []
    for got in result["scripts"].values():
        errors = [r[arm]["error"] for r in got["rounds"] for arm in r if "error" in r[arm]]
        reason = got.get("error") or (errors[0] if errors and not rates(got["rounds"], measure.ARMS[1]) else "")
        if reason:
            left.append([got["name"], f"`{' '.join(reason.split())[-200:]}`".replace("|", "/")])
            continue
        losses = both([figure(got["rounds"], arm, "loss") for arm in measure.ARMS], ".3f")
        taken = "engine" if got["recognised"] else "as it was"
        waited = both([waits(got["rounds"], arm) for arm in measure.ARMS], ".0%")
        most = at_most(got)
        limit = "-" if most is None else f"{most:.1f} x"
        rows.append(row(got["name"], got["rounds"], measure.ARMS, [waited, limit, losses, taken, verdict(got)]))
    if rows:
        more = ["waits", "at most", "last loss", "training loader", "bar"]
        head = ["script, samples/s `python` / `stoker run`", *epochs, *sides, *more]
        out += "\n" + table(head, rows, range(1, len(head) - 2)) + "\n"
    if left:
        out += "\n" + table(["left out", "why"], left, 2) + "\n"
    rows = [
        row(name, got["rounds"], pairs.SIDES, [_where(got["rounds"])])
        for name, got in result["pairs"].items()
        if rates(got["rounds"], "stoker")
    ]
    if rows:
        head = ["pair, samples/s torch / ours", *epochs, *sides, "runs in"]
        out += "\n" + PAIRS.format(workers=s["workers"], batch=pairs.BATCH) + "\n"
        out += table(head, rows, range(1, len(head) - 1)) + "\n"
    out += shapes_text(result)
    sources = {f"{g['repository']} at {g['commit'][:10]}" for g in result["scripts"].values() if "commit" in g}
    if sources:
        out += "\nScripts: " + ", ".join(sorted(sources)) + ".\n"
    return out


def shapes_text(result: dict[str, Any]) -> str:
    """The part about data that nothing is known of."""
    rows, met = [], []

    def bar(words: str, value: float, spec: str, limit: float, least: bool) -> None:
        shown = float(format(value, spec))
        reached = shown >= limit if least else shown <= limit
        sense = "at least" if least else "at most"
        met.append([words, format(value, spec), f"{sense} {limit:g}", "yes" if reached else "**no**"])

    found = {name: got["rounds"] for name, got in result.get("shapes", {}).items() if _whole(got["rounds"])}
    for name, rounds in found.items():
        both_of = {
            key: [float(figure(rounds, side, key) or 0) for side in pairs.SIDES]
            for key in ("rate", "memory_mib", "first_s", "grown_mib", "hand_off_ms", "read_ms")
        }
        if name == shapes.HAND_OFF:
            ratio = statistics.median(r["torch"]["hand_off_ms"] / r["stoker"]["hand_off_ms"] for r in rounds)
            words = f"{name}, from the end of collate to the loop, times as fast as torch's"
            took = both(list(both_of["hand_off_ms"]), ".2f"), both(list(both_of["read_ms"]), ".2f")
            bar(f"{words} ({took[0]} ms; with a number of each page read {took[1]} ms)", ratio, ".1f",
                SHAPE_BARS["hand-off"], True)  # fmt: skip
            continue
        rate = statistics.median(r["stoker"]["rate"] / r["torch"]["rate"] for r in rounds)
        memory = statistics.median(r["stoker"]["memory_mib"] / r["torch"]["memory_mib"] for r in rounds)
        cells = [both(list(both_of[k]), f) for k, f in (("rate", ",.1f"), ("memory_mib", ",.0f"), ("first_s", ".2f"))]
        rows.append([name, cells[0], f"{rate:.2f} x", cells[1], *cells[2:], both(list(both_of["grown_mib"]), ",.1f")])
        bar(f"{name}: rate, of torch's", rate, ".2f", SHAPE_BARS["rate"], True)
        bar(f"{name}: memory, of torch's", memory, ".2f", SHAPE_BARS["memory"], False)
        if name == shapes.PATHS:
            bar(f"{name}: first batch, seconds", both_of["first_s"][1], ".2f", SHAPE_BARS["first_s"], False)
    if not rows:
        return ""
    head = ["data, torch / ours", "batches/s", "times", "MiB", "first batch, s", "a worker's growth, MiB"]
    bars = table(["", "measured", "bar", "met"], met, range(1, 2))
    words = SHAPES.format(workers=result["settings"]["workers"])
    return f"\n{words}\n{table(head, rows)}\n\n{bars}\n"


def _whole(rounds: list[dict[str, Any]]) -> bool:
    return bool(rounds) and all("rate" in r.get(side, {}) for r in rounds for side in pairs.SIDES)


def _where(rounds: list[dict[str, Any]]) -> str:
    return next((str(r["stoker"]["where"]) for r in rounds if "where" in r.get("stoker", {})), "-")


def write() -> None:
    """Put the newest results into the page."""
    result = newest()
    if not result:
        raise SystemExit("run: no results yet; make bench SUITES=run makes them")
    PAGE.write_text(regions.put(PAGE.read_text(), REGION, text(result)))
    print(f"run: wrote the section of {runner.short(PAGE)}")
