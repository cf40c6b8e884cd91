"""The bars that this project set itself, as ratios within one measurement, and whether they are met."""

from __future__ import annotations

import statistics

from .figures import Figures, table
from .suite import SUITES

# (suite arm, what, {rival: bar}); ratios of medians of examples per second.
END_TO_END = (
    (
        "stoker-keep",
        "JPEG bytes as they are",
        {
            "ffcv-same": 1.9,
            "dali": 1.9,
            "grain": 1.9,
            "torch-pillow": 2.4,
            "torch best": 1.7,
            "tf-antialias": 2.4,
            "tf": 1.3,
        },
    ),
    (
        "stoker-dct",
        "lossless repacking (dct)",
        {"ffcv-same": 4.8, "dali": 4.8, "torch-pillow": 6.0, "torch best": 4.4, "tf": 3.2},
    ),
    ("stoker-dct-q90", "dct of FFCV's q90 JPEGs", {"ffcv-q90": 4.0}),
)
TORCH = ("torch-pillow", "torch-torchvision", "torch-simplejpeg")


def _row(
    what: str, ratio: float | None, bar: float, detail: str = "", less: bool = False, form: str = ".2f"
) -> list[str]:
    if ratio is None:
        return []
    met = ratio <= bar if less else ratio >= bar
    sign = "at most" if less else "at least"
    return [what, format(ratio, form), f"{sign} {bar:g}", "yes" if met else "**no**", detail]


def bars(figures: Figures) -> str:
    """The table of all bars that this measurement can answer."""
    rows: list[list[str]] = []
    for suite in ("photos", "gen"):
        where = "photographs" if suite == "photos" else "generated"
        for arm, what, rivals in END_TO_END:
            mine = figures.median(suite, arm)
            for rival, bar in rivals.items():
                if rival == "torch best":
                    known = [(figures.median(suite, t) or 0, t) for t in TORCH]
                    theirs, name = max(known)
                    label = f"the best torch decoder ({name.removeprefix('torch-')})"
                else:
                    theirs, label = figures.median(suite, rival) or 0, rival
                if mine and theirs:
                    rows.append(
                        _row(f"{where}, {what} / {label}", mine / theirs, bar, f"{mine:,.0f} / {theirs:,.0f} img/s")
                    )
        rows += _one_core(figures, suite, where)
    rows += _raw(figures)
    rows += _small(figures)
    rows = [r for r in rows if r]
    return table(["measured", "ratio or value", "bar", "met", "figures"], rows) if rows else ""


def ceiling(figures: Figures, data_set: str, variant: str) -> float | None:
    values = [
        line.get("images_s") or line["gb_s"]
        for line in figures.results["ceilings"]
        if line.get("set") == data_set and line.get("variant") == variant and "error" not in line
    ]
    return statistics.median(values) if values else None


def _one_core(figures: Figures, suite: str, where: str) -> list[list[str]]:
    full, partial = ceiling(figures, suite, "full"), ceiling(figures, suite, "partial")
    keep, dct = ceiling(figures, suite, "keep"), ceiling(figures, suite, "dct")
    rows = []
    if full and partial and keep and dct:
        rows.append(
            _row(f"{where}, one core: dct / C loop of full decode", dct / full, 3.2, f"{dct:,.0f} / {full:,.0f} img/s")
        )
        rows.append(
            _row(
                f"{where}, one core: keep / C loop of partial decode",
                keep / partial,
                0.97,
                f"{keep:,.0f} / {partial:,.0f} img/s",
            )
        )
        cores = len(str(figures.results["settings"]["cores"]).split(","))
        for arm, rate in (("stoker-keep", keep), ("stoker-dct", dct)):
            if mine := figures.median(suite, arm):
                what = f"{where}, end to end / (one core x {cores}): {arm.removeprefix('stoker-')}"
                rows.append(_row(what, mine / (rate * cores), 0.93, f"{mine:,.0f} / {rate * cores:,.0f} img/s"))
        for kind, rate in (("keep", keep), ("dct", dct)):
            if engine := ceiling(figures, suite, f"engine-{kind}"):
                what = f"{where}, one core: CPU of the engine / C loop of the same kernels, {kind}"
                rows.append(_row(what, rate / engine, 1.05, f"{engine:,.0f} / {rate:,.0f} img per CPU-s", less=True))
        packing = ceiling(figures, suite, "pack-dct")
        size = [x["bytes_ratio"] for x in figures.results["ceilings"] if x.get("set") == suite and "bytes_ratio" in x]
        if packing and size:
            rows.append(_row(f"{where}, bytes of dct / JPEG", size[0], 1.15, "", less=True, form=".3f"))
    return rows


def _raw(figures: Figures) -> list[list[str]]:
    rows = []
    mine, theirs = figures.median("raw", "raw-stoker"), figures.median("raw", "raw-ffcv")
    if mine and theirs:
        rows.append(
            _row("raw 256 px records / FFCV raw", mine / theirs, 1.05, f"{mine:,.0f} / {theirs:,.0f} records/s")
        )
    speed, most = figures.median("raw", "raw-stoker", "gb_s"), ceiling(figures, "copy-196608-2", "stream")
    if speed and most:
        rows.append(
            _row(
                "raw 256 px records / non-temporal copy, 2 threads",
                speed / most,
                0.85,
                f"{speed:.1f} / {most:.1f} GB/s",
            )
        )
    for suite, label in (("tiny", "CIFAR, raw, batch 256"), ("tokens", "2 KB tokens, batch 64")):
        mine = figures.median(suite, f"{suite}-stoker", "batches_s")
        rivals = [
            (statistics.median(r["batches_s"] for r in v), k[1]) for k, v in figures.runs.items() if k[0] == suite
        ]
        rivals = [r for r in rivals if "-stoker" not in r[1]]
        # A fancy index in the trainer's own process is not a loader (nothing runs during the training step). It has a
        # separate row.
        loaders = [r for r in rivals if not r[1].endswith("-memmap-batches")]
        for theirs, name in dict.fromkeys(max(found) for found in (loaders, rivals) if found):
            if mine:
                rows.append(
                    _row(f"{label} / best rival ({name})", mine / theirs, 5, f"{mine:,.0f} / {theirs:,.0f} batches/s")
                )
    return rows


def _small(figures: Figures) -> list[list[str]]:
    rows = []
    suite = "photos" if figures.runs.get(("photos", "stoker-keep")) else "gen"
    first = {arm: figures.median(suite, arm, "first_batch_s") for arm in ("stoker-keep", "stoker-dct")}
    rows += [
        _row(f"first batch, {arm.removeprefix('stoker-')} pack warm, s", seconds, 0.3, "", less=True)
        for arm, seconds in first.items()
    ]
    taken: dict[str, list[float]] = {}
    for line in figures.results.get("flow", []):
        if "flow_us" in line and "stoker" in line["name"]:
            taken.setdefault(line["name"], []).append(line["flow_us"])
    rows += [
        _row("hand-off, us per batch", statistics.median(values), 50, "", less=True, form=".0f")
        for values in taken.values()
    ]
    for name in ("stoker-keep", "stoker-dct"):
        lines = [x for x in figures.results["memory"] if x["name"] == name and "memory_mib" in x]
        if len(lines) > 1:
            # The trainer's own memory is the same in each; the ring is shared memory.
            total = [x["memory_mib"]["private"] + x["memory_mib"]["shmem"] for x in lines]
            rows.append(
                _row(f"memory, {name}: most / least at 2, 4, 8 threads", max(total) / min(total), 1.05, "", less=True)
            )
            private = max(x["memory_mib"]["private"] for x in lines)
            rows.append(_row(f"memory, {name}: private MiB of all processes", private, 250, "", less=True, form=".0f"))
    speeds: dict[str, list[float]] = {}
    for line in figures.results["packing"]:
        if "images_s" in line:
            speeds.setdefault(line["kind"], []).append(line["images_s"])
    for kind, bar in (("stoker-keep", 2500), ("stoker-dct", 500)):
        if kind in speeds:
            what = f"packing {kind.removeprefix('stoker-')}, one core, img/s"
            rows.append(_row(what, statistics.median(speeds[kind]), bar, form=",.0f"))
    collected = [n for runs in figures.runs.values() for r in runs for n in r.get("gc_in_steady_epochs", [])]
    if collected:
        what = "garbage collections in a steady epoch, median"
        rows.append(_row(what, statistics.median(collected), 0, f"most: {max(collected)}", less=True, form=".0f"))
    rows += _cpu(figures)
    return rows


def _cpu(figures: Figures) -> list[list[str]]:
    rows = []
    for suite in SUITES.values():
        for kind in ("bytes", "lossless", "lossy", "raw"):
            arms = [a for a in figures.measured(suite, kind) if a.comparable]
            costs = [(figures.median(suite.name, a.name, "cpu_s_per_1k") or 0, a) for a in arms]
            ours = min(((c, a.name) for c, a in costs if a.ours), default=None)
            rival = min(((c, a.name) for c, a in costs if not a.ours), default=None)
            if ours and rival:
                what = f"CPU per 1,000, {suite.name}, {kind}: {ours[1]} / lowest rival ({rival[1]})"
                rows.append(_row(what, ours[0] / rival[0], 1, f"{ours[0]:.4f} / {rival[0]:.4f} s", less=True))
    return rows
