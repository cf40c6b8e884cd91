"""Limits of containers: memory, cores, and a page cache that is larger than the limit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import ground, soak
from .ground import Group, environment, job, run

MIB = 1 << 20


# Memory of an engine outside of memory= (docs/how-to/memory-grows.md).
BESIDE = 64


@dataclass
class Cell:
    """One setting of the matrix, and what was measured."""

    limit: int  # MiB of the control group
    cores: str
    data: str
    memory: str  # memory=
    budget: int = 0  # MiB that the engine works with
    engine: int = 0  # MiB of the engine that are not files
    peak: int = -1  # MiB of the group, with the page cache
    kills: int = 0
    threads: int = 0
    outcome: str = ""

    @property
    def trouble(self) -> str:
        """Return what is wrong, "" for nothing."""
        if self.outcome != "passes":
            return self.outcome
        if self.kills:
            return f"the kernel has killed {self.kills} processes"
        if self.peak > self.limit:
            return f"the group had {self.peak} MiB"
        if self.engine > self.budget + BESIDE:
            return f"the engine had {self.engine} MiB, more than {self.budget} + {BESIDE} MiB"
        most = {"0.5": 1, "one (cpuset)": 1}.get(self.cores, 2)
        return f"{self.threads} decoding threads" if self.threads > most else ""


# A loop that also measures its engine: the largest anonymous and shared memory of the process.
CODE = """
import json, os, sys, threading, time, stoker
path, options = sys.argv[1], json.loads(sys.argv[2])
side = options.pop("side")
memory = options.pop("memory")
cache = options.pop("cache", "auto")
limits = stoker.Limits(memory=memory, timeout=120) if memory else stoker.Limits(timeout=120)
loader = stoker.Loader(path, shuffle=True, seed=1, cache=cache, limits=limits, transforms={"image": [stoker.transforms.CenterCrop(side)]}, **options)
pid = loader._epochs.connection._process.pid
most, over, threads = 0, False, 0
def watch():
    global most, threads
    while not over:
        try:
            s = dict(l.split(":", 1) for l in open(f"/proc/{pid}/status") if l.startswith(("RssAnon", "RssShmem", "Threads")))
            most = max(most, int(s["RssAnon"].split()[0]) + int(s["RssShmem"].split()[0])); threads = max(threads, int(s["Threads"]))
        except (OSError, KeyError): pass
        time.sleep(0.005)
t = threading.Thread(target=watch, daemon=True); t.start()
n = 0
for _ in range(2):
    for b in loader: n += len(b)
over = True; t.join()
print(json.dumps({"rows": n, "engine_kib": most, "info": {k: v for k, v in loader.info.items() if k in ("memory", "threads", "slots", "slot_bytes", "budget")}, "threads": threads, "len": loader.num_records}))
print(json.dumps({"end": 1}))
"""


def loop(path: Path | str, **options: Any) -> list[str]:
    return [sys.executable, "-c", CODE, str(path), json.dumps(options)]


# The limits of cores: their name, and the controller of the group with its value.
CORES = {"0.5": ("cores", "0.5"), "one (cpuset)": ("cpus", "0"), "2": ("cores", "2")}


@dataclass
class Data:
    """The load of a cell: the source, the side of its crops, and the batch size."""

    source: str
    side: int
    batch: int
    cache: bool = False
    env: dict[str, str] = field(default_factory=dict)


def data(folder: Path, long: bool, stack: contextlib.ExitStack) -> dict[str, Data]:
    """Make the data of the matrix."""
    if not long:
        ground.gen(folder / "small", 300, "64x64")
        return {"folder": Data(str(folder / "small"), 48, 64, cache=True)}
    ground.gen(folder / "photos", 48, "1200x900")
    ground.gen(folder / "large", 12, "4000x3000")
    ground.stoker("pack", folder / "photos", folder / "dct", "--images", "dct")
    ground.stoker("pack", folder / "photos", folder / "raw", "--images", "raw", "--resize", "1920x1440")
    found = {
        "photos of 1 megapixel": Data(str(folder / "photos"), 224, 16, cache=True),
        "photos of 12 megapixels": Data(str(folder / "large"), 512, 4, cache=True),
        "pack, dct": Data(str(folder / "dct"), 224, 16),
        "pack, raw, 380 MiB": Data(str(folder / "raw"), 224, 16),
    }
    try:
        bucket = soak.Bucket(folder)
    except ground.UnavailableError as err:
        print(f"hostile: containers without a bucket: {err}", file=sys.stderr)
        return found
    stack.callback(bucket.stop)
    shutil.copytree(folder / "dct", folder / "objects/soak/pack")
    found["pack in a bucket, with a cache"] = Data("s3://soak/pack", 224, 16, cache=True, env=bucket.environment())
    return found


def matrix(folder: Path, long: bool) -> Iterator[Cell]:
    """Run a loader at every setting, in a control group with these limits."""
    with contextlib.ExitStack() as stack:
        for name, what in data(folder, long, stack).items():
            for limit in (256, 512, 2048) if long else (256,):
                for cores in CORES if long else ("2",):
                    yield _cell(folder, what, Cell(limit, cores, name, "default"))
                yield _cell(folder, what, Cell(limit, "2", name, f"{limit * 6 // 10}MiB"))


def _forget(source: str) -> None:
    """Drop a source from the page cache, so that reading it counts for the group."""
    for path in Path(source).rglob("*"):
        if path.is_file():
            with path.open("rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _cell(folder: Path, what: Data, cell: Cell) -> Cell:
    group = Group()
    try:
        group.set("memory", str(cell.limit * MIB))
        group.set(*CORES[cell.cores])
        with tempfile.TemporaryDirectory(dir=folder, prefix="cache-") as cache:
            env = environment(**what.env, STOKER_CACHE="auto" if what.cache else "off", STOKER_CACHE_DIR=cache)
            options = {"side": what.side, "batch_size": what.batch, "memory": cell.memory.replace("default", "")}
            if what.cache:
                options["cache"] = True
            _forget(what.source)
            outcome = run(group.wrap(loop(what.source, **options)), env, 300)
        cell.peak, cell.kills = group.peak // MIB, group.kills
        cell.outcome = "passes" if outcome.ended else outcome.why()
        if outcome.ended:
            line = outcome.lines[0]
            cell.engine, cell.threads = line["engine_kib"] >> 10, line["info"]["threads"]
            cell.budget = line["info"]["memory"]["budget"] >> 20
            if line["rows"] != 2 * line["len"]:
                cell.outcome = f"{line['rows']} rows, expected {2 * line['len']}"
        return cell
    finally:
        group.close()


@dataclass
class Check:
    """One check beside the matrix: its name, and "passes" with figures, or what was wrong."""

    name: str
    text: str


def page_cache(folder: Path, long: bool) -> Check:
    """Read a pack that is larger than the limit, twice, to its end."""
    limit = 256 if long else 128
    out = folder / "large-pack"
    if not out.exists():
        # Raw pixels: many bytes, made quickly.
        count = (2 if long else 1.3) * limit * MIB // (512 * 512 * 3)
        import numpy as np

        rows = (
            np.random.default_rng(1)
            .integers(0, 256, (int(count), 512 * 512 * 3 // 4), np.uint32)
            .view(np.uint8)[:, : 512 * 512 * 3]
        )
        np.save(folder / "large.npy", rows)
        ground.stoker("pack", folder / "large.npy", out)
        (folder / "large.npy").unlink()
    size = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
    group = Group()
    try:
        group.set("memory", str(limit * MIB))
        outcome = run(
            group.wrap(job("stoker", out, "--no-crop", "--batch", 8, "--epochs", 2, "--memory", "48MB")),
            environment(),
            600,
        )
        text = (
            outcome.why()
            if not outcome.ended
            else f"passes: {size // MIB} MiB read twice under a limit of {limit} MiB, {group.kills} killed"
        )
        if group.kills or size < limit * MIB:
            text = f"fails: {group.kills} processes killed, pack of {size // MIB} MiB"
        return Check("a pack larger than the memory limit", text)
    finally:
        group.close()


def cores(folder: Path) -> Iterator[Check]:
    """A quota of half a core, and one core by affinity: the engine has one decoding thread, and keeps to the quota."""
    pack = folder / "small-pack"
    if not pack.exists():
        ground.gen(folder / "small", 300, "64x64")
        ground.stoker("pack", folder / "small", pack, "--images", "keep")
    for name, controller, value in (("quota of 0.5 cores", "cores", "0.5"), ("cpuset of one core", "cpus", "0")):
        group = Group()
        try:
            group.set(controller, value)
            yield Check(name, _threads(group.wrap(loop(pack, side=48, batch_size=8, memory="64MB"))))
        except ground.UnavailableError as err:
            yield Check(name, f"not run: {err}")
        finally:
            group.close()
    yield Check(
        "affinity of one core (taskset)",
        _threads(["taskset", "-c", "0", *loop(pack, side=48, batch_size=8, memory="64MB")]),
    )


def _threads(command: list[str]) -> str:
    outcome = run(command, environment(), 240)
    if not outcome.ended:
        return outcome.why()
    made = outcome.lines[0]["info"].get("threads")
    return f"passes: {made} decoding thread" if made == 1 else f"fails: {made} decoding threads"


def checks(folder: Path, long: bool) -> Iterator[Check]:
    """Run the checks of cores and of the page cache."""
    yield from cores(folder)
    try:
        yield page_cache(folder, long)
    except ground.UnavailableError as err:
        yield Check("a pack larger than the memory limit", f"not run: {err}")
