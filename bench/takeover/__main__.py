"""Public training scripts, unmodified, under plain Python and under `stoker run`; pairs of dataset and transform, and
unrecognised data of many shapes.

    make bench SUITES=run                                     all of it, about 40 minutes on 2 cores
    make bench SUITES=run ONLY='imagenet|timm' ROUNDS=1       a part
    make bench SUITES=run CHECKOUTS=path/to/clones            with existing clones, in folders called OWNER+NAME
    .venv/bin/python -m bench.takeover --help

The scripts come from their repositories at the commits in scripts.py. Without a network, or without its imports, a
script is left out and the reason is recorded. The scripts train a model of a few thousand numbers on the CPU, so that
the loader is the limit. The two arms of a round follow each other immediately, in an order that changes. Results go
to bench/results/run-<machine>-<commit>.json, and from there into a marked region of docs/internals/benchmarks.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .. import procs, runner, stored
from ..against import arguments
from ..run import _git, _slug
from . import Place, Script, checkouts, data, measure, pairs, report, shapes
from .scripts import SCRIPTS

ROOT = runner.ROOT
ENV = "public"
PARTS = ["scripts", "pairs", "shapes"]


def say(text: str) -> None:
    print(f"run: {text}", flush=True)


def missing(script: Script, python: Path) -> str:
    """The missing imports of a script."""
    if python == Path(sys.executable):
        absent = [name for name in script.needs if importlib.util.find_spec(name) is None]
    else:
        code = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if not u.find_spec(n)))"
        absent = subprocess.check_output([python, "-c", code, *script.needs], text=True).split()
    return f"{', '.join(absent)} is not installed" if absent else ""


def measure_script(name: str, script: Script, a: argparse.Namespace) -> dict[str, Any]:
    """Both arms of a script in turns."""
    result: dict[str, Any] = {
        "name": script.name, "repository": script.repository, "path": script.path, "recognised": script.recognised,
        "limited": script.limited, "rounds": [],
    }  # fmt: skip
    if error := missing(script, a.python):
        return result | {"error": error}
    try:
        checkout, result["commit"] = checkouts.get(script, a.checkouts, a.work)
    except checkouts.UnavailableError as e:
        return result | {"error": runner.scrub(str(e))}
    folder = data.make(script.data, a.work, a.images, say)
    procs.warm(folder)
    result["data"] = folder.name
    place = Place(checkout, folder, a.work / "run/out" / name, a.epochs, a.workers)
    for number in range(a.rounds):
        runs = {}
        for arm in random.Random(number).sample(measure.ARMS, 2):
            got = runs[arm] = measure.run(script, place, arm, a.python, a.cores, a.limit)
            rates = " ".join(f"{e['rate']:,.0f}" for e in got.get("epochs", []))
            say(f"{name} {number + 1}/{a.rounds} {arm}: {rates} samples/s {got.get('error', '')[-300:]}")
        result["rounds"].append(runs)
    if script.recognised and script.limited:
        got = result["rest"] = measure.run(script, place, measure.REST, a.python, a.cores, a.limit)
        rates = " ".join(f"{e['rate']:,.0f}" for e in got.get("epochs", []))
        say(f"{name} {measure.REST}: {rates} samples/s {got.get('error', '')[-300:]}")
    return result


def measure_pair(name: str, a: argparse.Namespace) -> dict[str, Any]:
    """Both sides of a pair in turns."""
    folder = data.make("folder", a.work, a.images, say)
    data.make("mnist", a.work, a.images, say)
    procs.warm(folder)
    return both_sides(name, ["--pair", name], ["--epochs", str(a.epochs), "--folder", str(folder)], a)


def measure_shape(name: str, a: argparse.Namespace) -> dict[str, Any]:
    """Both sides of a shape in turns."""
    return both_sides(name, ["--shape", name], [], a)


def both_sides(name: str, what: list[str], more: list[str], a: argparse.Namespace) -> dict[str, Any]:
    """torch's loader and ours in turns, each in a separate process."""
    result: dict[str, Any] = {"rounds": []}
    for number in range(a.rounds):
        runs = {}
        for side in random.Random(number).sample(pairs.SIDES, 2):
            command = [sys.executable, "-m", "bench.takeover", *what, side, *more, "--workers", str(a.workers)]
            command = ["taskset", "-c", a.cores, *command] if a.cores else command
            log = a.work / f"logs/run-pair-{side}.log"
            variables = measure.environment(log.with_suffix(".none")) | {"STOKER_BENCH_LOG": ""}
            shutil.rmtree(variables["STOKER_CACHE_DIR"], ignore_errors=True)
            got = runs[side] = runner.run(command, a.limit, log, variables)
            rates = " ".join(f"{e['rate']:,.0f}" for e in got.get("epochs", [got] if "rate" in got else []))
            say(f"{name} {number + 1}/{a.rounds} {side}: {rates} a second {got.get('error', '')[-300:]}")
        result["rounds"].append(runs)
    return result


def options() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--only", default="", metavar="REGEX", help="names of scripts, pairs and shapes")
    p.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    p.add_argument("--checkouts", type=Path, help="folder with clones of the repositories, called OWNER+NAME")
    p.add_argument("--images", type=int, default=2000)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--workers", type=int, default=2, help="num_workers of the loaders")
    p.add_argument("--report", action="store_true", help="write the region of docs/internals/benchmarks.md, and end")
    p.add_argument("--pair", nargs=2, help=argparse.SUPPRESS)
    p.add_argument("--shape", nargs=2, help=argparse.SUPPRESS)
    p.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments(p, seconds=0, warmup=0)
    p.set_defaults(rounds=3, limit=600)
    return p


def main() -> None:
    a = options().parse_args()
    if a.pair:
        pairs.one(*a.pair, a.folder, a.workers, a.epochs)
        return
    if a.shape:
        shapes.one(*a.shape, a.workers)
        return
    if a.report:
        report.write()
        return
    a.work = a.work.resolve()
    a.checkouts = a.checkouts and a.checkouts.resolve()
    a.python = runner.python_of(ENV, a.work)
    if runner.broken_env(ENV, a.work):
        a.python = Path(sys.executable)
    machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD")
    path = a.out or ROOT / "bench/results" / f"run-{_slug(machine)}-{commit}.json"
    result: dict[str, Any] = {
        "machine": machine,
        "commit": commit,
        "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "settings": {k: getattr(a, k) for k in ("rounds", "epochs", "images", "workers", "cores")},
        **{part: {} for part in PARTS},
    }
    if path.exists():  # earlier results of this commit
        old = json.loads(path.read_text())
        result |= {part: old.get(part, {}) for part in PARTS}

    def save() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        stored.save(path, result)

    for name, script in SCRIPTS.items():
        if "scripts" in a.parts and re.search(a.only, name):
            result["scripts"][name] = got = measure_script(name, script, a)
            save()
            if "error" in got:
                say(f"{name}: left out: {got['error']}")
    for part, names, one in (("pairs", pairs.PAIRS, measure_pair), ("shapes", shapes.SHAPES, measure_shape)):
        for name in names:
            if part in a.parts and re.search(a.only, name):
                result[part][name] = one(name, a)
                save()
    print(report.text(result))
    say(f"all figures are in {runner.short(path)}")


if __name__ == "__main__":
    main()
