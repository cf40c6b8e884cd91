"""Writes the region of docs/internals/benchmarks.md about remote data.

Each part is from the newest results that have it, with its targets.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from .. import regions, runner
from ..figures import spread, table

PAGE = runner.ROOT / "docs/internals/benchmarks.md"
REGION = "remote"
Runs = dict[str, list[dict[str, Any]]]  # of each arm

HEAD = """## Remote data

Servers on the same machine, which take their share of its cores: versitygw for S3, nginx for the web. Medians of
interleaved rounds (lowest to highest in brackets). `make bench SUITES=remote` repeats it.

- **Machine:** {cores} cores of {cpu}, {memory} GiB
- **Date, commits:** {when}
"""


class Part:
    """One part of the measurement."""

    def __init__(self, title: str, says: str, columns: dict[str, tuple[str, str]], bars: Callable[[Runs], list[Any]]):
        self.title, self.says = title, says
        self.columns = columns  # heading: key and format
        self.bars = bars


def middle(runs: Runs, arm: str, key: str) -> float | None:
    values = [r[key] for r in runs.get(arm, []) if r.get(key) is not None]
    return statistics.median(values) if values else None


def ratio(runs: Runs, key: str, over: str, under: str) -> float | None:
    a, b = middle(runs, over, key), middle(runs, under, key)
    return a / b if a and b else None


def bar(what: str, value: float | None, limit: float, less: bool = False, form: str = ".2f") -> list[Any]:
    """A row of the targets, none without a figure."""
    if value is None:
        return []
    met = value <= limit if less else value >= limit
    return [
        [
            what,
            format(value, form),
            f"at {'most' if less else 'least'} {format(limit, 'g')}",
            "yes" if met else "**no**",
        ]
    ]


def of_reads(runs: Runs) -> list[Any]:
    cpu, ours = "cpu_s_per_gb", "ours, versitygw"
    found = bar("CPU per GB / obstore's", ratio(runs, cpu, ours, "obstore, versitygw"), 1.0, less=True)
    found += bar("CPU per GB / boto3's", ratio(runs, cpu, ours, "boto3, versitygw"), 0.5, less=True)
    return found + bar("rate / a bare copy of the sockets", ratio(runs, "gb_s", "ours, nginx", "bare copy, nginx"), 0.9)


def of_epochs(runs: Runs) -> list[Any]:
    others = [arm for arm in runs if not arm.startswith("ours")]
    best = min(others, key=lambda arm: middle(runs, arm, "epoch_s") or float("inf"), default="")
    found = []
    for arm in (arm for arm in runs if arm.startswith("ours")):
        what, alone = f"{arm}: as fast as {best}, times", middle(runs, arm, "link_s")
        if alone:
            what += f" (its bytes alone: {(middle(runs, best, 'epoch_s') or 0) / alone:.2f})"
        found += bar(what, ratio(runs, "epoch_s", best, arm), 1.5)
    return found


def of_cached(runs: Runs) -> list[Any]:
    found = []
    for where in ("on the disk", "in memory"):
        figure = ratio(runs, "examples_s", f"ours, cached {where}", "ours, a local pack")
        found += bar(f"cached {where} / a local pack", figure, 0.98)
    return found


def of_link(runs: Runs) -> list[Any]:
    found = []
    for order in runs:
        found += bar(f"{order}: share of the link", middle(runs, order, "share"), 0.95)
        trips = middle(runs, order, "round_trips")
        found += bar(f"{order}: round trips to the first batch, beside its bytes", trips, 4, less=True)
    return found


def of_plan(runs: Runs) -> list[Any]:
    found = []
    for order in runs:
        off = middle(runs, order, "off")
        found += bar(f"{order}: off by", None if off is None else abs(off), 0.1, less=True)
    return found


def of_doctor(runs: Runs) -> list[Any]:
    off = middle(runs, "cache", "off")
    return bar("gain off by", None if off is None else abs(off), 0.2, less=True)


def of_disk(runs: Runs) -> list[Any]:
    found = []
    for ours, fio in (("ours, full", "fio, 112 KiB"), ("ours, window:64", "fio, 8 MiB")):
        found += bar(f"{ours} / {fio}", ratio(runs, "gb_s", ours, fio), 0.95)
    return found


def of_small(runs: Runs) -> list[Any]:
    return bar("files/s / fio's", ratio(runs, "examples_s", "ours", "fio"), 0.9)


EPOCH = {
    "epoch, s": ("epoch_s", ".2f"),
    "first batch, s": ("first_batch_s", ".2f"),
    "records/s": ("examples_s", ",.0f"),
}
READ = {"CPU-s per GB": ("cpu_s_per_gb", ".2f"), "GB/s": ("gb_s", ".2f")}
PARTS = {
    "reads": Part("Ranges of 8 MiB into memory", "16 at a time, of an object of 512 MiB.", READ, of_reads),
    "reads of 112 KiB": Part("Ranges of 112 KiB into memory", "As large as photographs.", READ, of_reads),
    "epochs, 100 MB/s": Part(
        "A first epoch, 100 MB/s and 10 ms away",
        "The same photographs, decoded and cropped, from opening the data to the last batch. The others read"
        " their own formats in the same bucket with 2 worker processes (s3torchconnector 8, one JPEG at a"
        ' time). For Stoker, the order of all records is the choice of `shuffle="auto"` for this small set.'
        " Windows of 16 chunks take less memory than WebDataset's two buffers of 1,000 records. The time of a"
        " format's bytes on the link is the lower limit of its epoch.",
        EPOCH | {"the bytes alone, s": ("link_s", ".2f")},
        of_epochs,
    ),
    "epochs": Part("A first epoch from a server on this machine", "As above, without the link.", EPOCH, of_epochs),
    **{
        f"cached, {images}": Part(
            f"Later epochs once all is cached, {images}",
            "Photographs, decoded and cropped, of a bucket and of a local pack that is in the system's memory.",
            {"records/s": ("examples_s", ",.0f")},
            of_cached,
        )
        for images in ("keep", "dct")
    },
    "link": Part(
        "1 Gbit/s and 60 ms away",
        "A network namespace with `tbf`, and a relay that delays requests by 60 +- 20 ms. Records are bytes."
        " `share` is the rate of the later epochs as a share of the link's rate, both without frame headers."
        " Round trips are the rest of the time to the first batch, in parts of 60 ms, without its bytes at the"
        " link's rate and without the engine's start. Work of the server, on the same cores, counts as round"
        " trips: compare the first batch without the link. At the server they are 3 at most"
        " (`TestRoundsToTheFirstBatch`).",
        {
            "first epoch, s": ("epoch_s", ".2f"),
            "share": ("share", ".2f"),
            "first batch, s": ("first_batch_s", ".2f"),
            "without the link, s": ("near_s", ".2f"),
            "round trips": ("round_trips", ".1f"),
        },
        of_link,
    ),
    "plan": Part(
        "What `stoker plan` predicts",
        "An epoch of records as bytes, 100 MB/s and 10 ms away.",
        {"predicted, s": ("predicted_s", ".2f"), "measured, s": ("steady_s", ".2f"), "off": ("off", "+.0%")},
        of_plan,
    ),
    "doctor": Part(
        "What `stoker doctor` predicts of a cache",
        "A training job, 100 MB/s and 10 ms away; then the same with `cache_dir=`.",
        {"predicted gain": ("predicted_gain", ".2f"), "gain": ("gain", ".2f"), "off": ("off", "+.0%")},
        of_doctor,
    ),
    "disk": Part(
        "A local disk, nothing in memory",
        "A pack of 4 GiB, compared with fio on the same files and sizes of reads.",
        {"GB/s": ("gb_s", ".2f"), "first batch, s": ("first_batch_s", ".2f")},
        of_disk,
    ),
    "disk, 300,000 files of 4 KiB": Part(
        "Small files, nothing in memory",
        "300,000 files of 4 KiB: ours in a random order, fio in that of their names, its fastest.",
        {"files/s": ("examples_s", ",.0f")},
        of_small,
    ),
}


def newest() -> dict[str, dict[str, Any]]:
    """The newest results of each part."""
    results = [json.loads(p.read_text()) for p in (runner.ROOT / "bench/results").glob("remote-*.json")]
    found: dict[str, dict[str, Any]] = {}
    for result in sorted(results, key=lambda r: str(r["machine"]["time"])):
        found |= {part: result for part in PARTS if any(r["part"] == part for r in result["runs"])}
    return found


def section(name: str, runs: Sequence[dict[str, Any]]) -> str:
    """The figures of a part, and its bars."""
    part = PARTS[name]
    by_arm: Runs = {}
    for run in runs:
        by_arm.setdefault(run["arm"], [])
        if "error" not in run:
            by_arm[run["arm"]].append(run)
    rows = []
    for arm, mine in sorted(by_arm.items(), key=lambda item: (not item[0].startswith("ours"), item[0])):
        cells = [[r[key] for r in mine if r.get(key) is not None] for key, _ in part.columns.values()]
        forms = [form for _, form in part.columns.values()]
        shown = [spread(v, form) if v else "-" for v, form in zip(cells, forms, strict=True)]
        rows.append([arm, *(shown if mine else ["failed", *["-"] * (len(shown) - 1)])])
    out = f"### {part.title}\n\n{part.says}\n\n" + table(["", *part.columns], rows) + "\n"
    if bars := part.bars({arm: mine for arm, mine in by_arm.items() if mine}):
        out += "\n" + table(["bar", "measured", "to be", "met"], bars, range(1, 3)) + "\n"
    return out


def text(found: dict[str, dict[str, Any]]) -> str:
    """The region."""
    last = max(found.values(), key=lambda r: str(r["machine"]["time"]))["machine"]
    stamps = {r["commit"]: str(r["machine"]["time"])[:10] for r in found.values()}
    head = HEAD.format(
        cores=last["cores"], cpu=last.get("cpu", ""), memory=last.get("memory_gib"),
        when=", ".join(f"{day} {commit}" for commit, day in sorted(stamps.items(), key=lambda i: i[1])),
    )  # fmt: skip
    parts = [section(name, [r for r in found[name]["runs"] if r["part"] == name]) for name in PARTS if name in found]
    return "\n".join([head, *parts])


def write() -> None:
    """Put the newest results into the page."""
    found = newest()
    if not found:
        raise SystemExit("remote: no results yet; make bench SUITES=remote makes them")
    PAGE.write_text(regions.put(PAGE.read_text(), REGION, text(found)))
    print(f"remote: wrote the section of {runner.short(PAGE)}")
