"""Limits of containers: memory, cores, and a page cache that is larger than the limit."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import ground
from .ground import Group, environment, job, run

MIB = 1 << 20


# An engine that cannot do the work in its memory names the amount that it needs.
NEEDS = re.compile(r"set memory to (\d+) MiB or more")


@dataclass
class Cell:
    """One setting of the matrix, and what was measured."""

    limit: int  # MiB of the control group
    memory: str  # memory=
    images: str
    cache: str
    peak: int  # MiB of the group, with the page cache
    kills: int
    outcome: str
    engine: int = 0  # MiB of the engine that are not files
    needs: int = 0  # MiB that the engine asked for, and then got

    @property
    def passed(self) -> bool:
        return self.outcome == "passes" and not self.kills and (self.peak <= self.limit if self.peak > 0 else True)


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


def loop(path: Path, **options: Any) -> list[str]:
    return [sys.executable, "-c", CODE, str(path), json.dumps(options)]


def matrix(folder: Path, long: bool) -> Iterator[Cell]:
    """Run a loader at every setting, in a control group with this limit."""
    sizes = {"small": (300, "64x64", 48, 64)}
    if long:
        sizes |= {"photos": (120, "1200x900", 224, 16), "large": (24, "4000x3000", 512, 4)}
    for name, (count, size, _, _) in sizes.items():
        if not (folder / name).exists():
            ground.gen(folder / name, count, size)
        if not (folder / f"{name}-pack").exists():
            ground.stoker("pack", folder / name, folder / f"{name}-pack", "--images", "keep")
    limits = (256, 512, 2048) if long else (256,)
    memories = ("", "60%") if long else ("", "64MB")
    caches = ("off", "on") if long else ("on",)
    for limit in limits:
        for name, (_, _, side, batch) in sizes.items():
            for memory in memories:
                for cache in caches:
                    asked = f"{limit * 6 // 10}MB" if memory == "60%" else memory
                    yield _cell(folder, limit, name, asked, cache, side, batch)


def _cell(folder: Path, limit: int, name: str, memory: str, cache: str, side: int, batch: int) -> Cell:
    group = Group()
    try:
        group.set("memory", str(limit * MIB))
        source = folder / (name if cache == "on" else f"{name}-pack")
        env = environment(
            STOKER_CACHE="auto" if cache == "on" else "off",
            STOKER_CACHE_DIR=str(folder / f"cache-{limit}-{name}-{memory}"),
        )
        options = {"side": side, "batch_size": batch, "memory": memory} | ({"cache": True} if cache == "on" else {})
        outcome = run(group.wrap(loop(source, **options)), env, 240)
        needs = 0
        for _ in range(8):
            if not (asked := NEEDS.search(outcome.errors)):
                break
            needs = int(asked[1])
            outcome = run(group.wrap(loop(source, **options | {"memory": needs * MIB})), env, 240)
        text = "passes" if outcome.ended else outcome.why()
        cell = Cell(limit, memory or "default", name, cache, group.peak // MIB, group.kills, text, needs=needs)
        if outcome.ended:
            line = outcome.lines[0]
            cell.engine = line["engine_kib"] >> 10
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
