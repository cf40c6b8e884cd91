"""Reads every format without conversion and compares it with its reference library, in turns.

    make bench SUITES=formats                       all that can be installed, 15 minutes on 2 cores
    make bench SUITES=formats ONLY='hdf5|zarr' ROUNDS=3

Files are in memory. Each side runs in its own process on the same cores. The sides of a round follow each other
immediately, in an order that changes. The result is the median of the rounds' ratios. Results go to
bench/results/formats-<machine>-<commit>.json. `python -m bench.formats --report` writes their figures to
docs/reference/formats.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import procs, runner, stored
from ..against import arguments
from ..run import _git, _slug
from . import Format, __path__, report

ROOT = runner.ROOT
SIDES = ("stoker", "reference")


def say(text: str) -> None:
    print(f"formats: {text}", flush=True)


def modules(only: str) -> dict[str, Format]:
    """The formats with a matching module name, by that name."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__))
    return {
        name: importlib.import_module(f"bench.formats.{name}").FORMAT
        for name in names
        if name not in ("__main__", "report", "torch_side", "pictures", "sounds") and re.search(only, name)
    }


def stoker_batches(fmt: Format, folder: Path) -> Iterator[int]:
    """Consumes batches like a trainer: reads a byte of each page."""
    import numpy as np
    import stoker

    while fmt.own:
        yield from fmt.own(folder, fmt.batch)
    more = {key: value() if callable(value) else value for key, value in fmt.loader.items()}
    data = stoker.open(fmt.url(folder))
    if fmt.view is not None:
        data = fmt.view(data)
    with stoker.Loader(data, batch_size=fmt.batch, **more) as loader:
        while True:
            for batch in loader:
                for value in batch.values():
                    data = value if isinstance(value, np.ndarray) else getattr(value, "values", None)
                    if isinstance(data, np.ndarray):
                        data.reshape(-1).view(np.uint8)[::4096].max(initial=0)
                yield len(batch)


def reference_batches(fmt: Format, folder: Path) -> Iterator[int]:
    while True:
        yield from fmt.reference(folder, fmt.batch)


def rate(batches: Iterator[int], warmup: float, seconds: float) -> dict[str, float]:
    """Records per second over whole batches, after a warm-up, and the time of the first batch."""
    start = time.perf_counter()
    next(batches)
    first = time.perf_counter() - start
    while time.perf_counter() - start < warmup:
        next(batches)
    start, records, end = time.perf_counter(), 0, 0.0
    while end - start < seconds:
        records += next(batches)
        end = time.perf_counter()
    return {"records_s": records / (end - start), "first_batch_s": first}


def side(a: argparse.Namespace) -> None:
    """One side, in its own process: prints one line of JSON."""
    fmt = modules(f"^{a.module}$")[a.module]
    if a.side == "make":
        fmt.make(a.folder)
        print(json.dumps({"made": True}))
        return
    got = rate((stoker_batches if a.side == "stoker" else reference_batches)(fmt, a.folder), a.warmup, a.seconds)
    print(json.dumps(got))
    sys.stdout.flush()


def make(name: str, fmt: Format, work: Path) -> Path:
    """Makes the data of a format once, and returns its folder."""
    folder = work / "formats" / name
    if (folder / ".made").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say(f"{name}: making {fmt.what or 'data'}")
    command = [str(runner.python_of(fmt.env, work)), "-m", "bench.formats", "--side", "make"]
    got = runner.run([*command, "--module", name, "--folder", str(folder)], 600, work / "logs/formats.log")
    if "error" in got:
        raise RuntimeError(got["error"])
    (folder / ".made").touch()
    return folder


def measure(name: str, fmt: Format, a: argparse.Namespace) -> dict[str, Any]:
    """Both sides of a format in turns."""
    result: dict[str, Any] = {
        "name": fmt.name,
        "library": fmt.library,
        "what": fmt.what,
        "bar": fmt.bar,
        "batch": fmt.batch,
        "rounds": [],
    }
    if error := runner.broken_env(fmt.env, a.work):
        return result | {"error": error}
    try:
        folder = make(name, fmt, a.work)
    except RuntimeError as e:
        return result | {"error": str(e)}
    procs.warm(folder)
    result["bytes"] = sum(f.stat().st_size for f in procs.files_below(folder))
    inspected = subprocess.run(
        [ROOT / "bin/stoker", "inspect", fmt.url(folder), "--json"], capture_output=True, text=True, check=False
    )
    result["records"] = json.loads(inspected.stdout)["records"] if inspected.returncode == 0 else 0
    for number in range(a.rounds):
        runs = {}
        for which in random.Random(number).sample(SIDES, 2):
            python = runner.short(runner.python_of("project" if which == "stoker" else fmt.env, a.work))
            command = ["taskset", "-c", a.cores, python, "-m", "bench.formats", "--side", which, "--module", name]
            command += ["--folder", str(folder), "--seconds", str(a.seconds), "--warmup", str(a.warmup)]
            runs[which] = runner.run(command, a.limit, a.work / f"logs/formats-{name}-{which}.log")
            got = runs[which]
            words = f"{got['records_s']:,.0f} records/s" if "records_s" in got else got["error"][-300:]
            say(f"{name} {number + 1}/{a.rounds} {which}: {words}")
        result["rounds"].append(runs)
    return result


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--only", default="", metavar="REGEX", help="modules of bench/formats")
    p.add_argument("--report", action="store_true", help="write docs/reference/formats.md and end")
    p.add_argument("--side", choices=[*SIDES, "make"], help=argparse.SUPPRESS)
    p.add_argument("--module", help=argparse.SUPPRESS)
    p.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments(p, seconds=3, warmup=1.5)
    p.set_defaults(rounds=3)
    a = p.parse_args()
    if a.side:
        side(a)
        return
    if a.report:
        report.write()
        return
    a.work = a.work.resolve()
    machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD")
    path = a.out or ROOT / "bench/results" / f"formats-{_slug(machine)}-{commit}.json"
    result: dict[str, Any] = {
        "machine": machine,
        "commit": commit,
        "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "settings": {k: getattr(a, k) for k in ("rounds", "seconds", "warmup", "cores")},
        "formats": {},
    }
    if path.exists():  # earlier results of this commit, for other formats
        result["formats"] = json.loads(path.read_text())["formats"]
    for name, fmt in modules(a.only).items():
        result["formats"][name] = got = measure(name, fmt, a)
        path.parent.mkdir(parents=True, exist_ok=True)
        stored.save(path, result)
        if "error" in got:
            say(f"{name}: {got['error'][-300:]}")
    for name, got in result["formats"].items():
        if shares := report.ratios(got):
            middle, spread = statistics.median(shares), f"({min(shares):.2f}-{max(shares):.2f})"
            print(f"  {name:22s} {middle:6.2f} x {got['library']:32s} {spread}   bar {got['bar']:.1f}")
    say(f"all figures are in {runner.short(path)}")


if __name__ == "__main__":
    main()
