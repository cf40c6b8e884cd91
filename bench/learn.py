"""The automatic cache: the time of its epochs over a folder, compared with the folder without a cache and its packs.

    make bench SUITES=cache                          about 5 minutes on 2 cores
    make bench SUITES=cache ROUNDS=5 DATA=folder

Each arm runs three epochs, from an empty cache, once with the loader as the limit and once with a step as the limit.
The step is on another device: a pause, of which the loader needs a share of 0.6. The arms of a round follow each
other immediately, in an order that changes. Targets are compared with medians of the rounds' ratios. Results go to
bench/results/cache-<machine>-<commit>.json, and from there into a marked region of docs/internals/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import datasets, procs, regions, runner, stored
from .against import arguments
from .figures import table
from .learn_arm import BATCH
from .run import _git, _slug

ROOT = runner.ROOT
PAGE = ROOT / "docs/internals/benchmarks.md"
EPOCHS = 3
# The approximate new memory of an arm: the system's cache of the cached files, and the engine.
MEMORY = 2 << 30
# The share of a step's time that the loader needs without the cache.
BUSY = 0.6
ARMS = ("folder", "folder that learns", "keep pack", "dct pack", "step, folder", "step, folder that learns")

Round = dict[str, Any]


def seconds(r: Round, arm: str, since: int = 0, until: int = EPOCHS) -> float:
    return float(sum(e["seconds"] for e in r[arm]["epochs"][since:until]))


def rate(arm: str, of: str, since: int = 0, until: int = EPOCHS) -> Callable[[Round], float]:
    """The rate of an arm in a round, relative to that of another one."""
    return lambda r: seconds(r, of, since, until) / seconds(r, arm, since, until)


FOLDER, LEARNS, KEEP, DCT, STEP, STEP_LEARNS = ARMS
# The targets: description, figure of a round, target, and whether it is a minimum or a maximum.
BARS: list[tuple[str, Callable[[Round], float], float, str]] = [
    ("a step limits: rate, of the folder's", rate(STEP_LEARNS, STEP), 0.99, "at least"),
    ("epoch 1: rate, of the folder's", rate(LEARNS, FOLDER, 0, 1), 0.7, "at least"),
    ("epochs 2 and 3: rate, of a dct pack's", rate(LEARNS, DCT, 1), 0.95, "at least"),
    ("three epochs: time, of the folder's", rate(FOLDER, LEARNS), 0.6, "at most"),
    ("the folder itself, warm: rate, of a keep pack's", rate(FOLDER, KEEP, 1), 0.95, "at least"),
]

HEAD = """## The cache of JPEG folders

`stoker.Loader(folder)` with RandomResizedCrop(224) and flips, batches of {batch}: {epochs} epochs without the cache,
with it (`cache="auto"`, the default, empty at the start), and from packs of the folder. Also with a step that is so
long that the loader works {busy:.0%} of the time. `make bench SUITES=cache` repeats it.

- **Machine:** {cores} cores of {cpu}, {memory} GiB
- **Date, commit:** {time}, {commit}
- **Method:** {images:,} {data}, warm, {rounds}, one arm after the other, medians. Memory is used once before
  each arm, because the host of a virtual machine may take free pages back.
"""


def say(text: str) -> None:
    print(f"cache: {text}", flush=True)


def packed(folder: Path, images: str) -> Path:
    """The pack of a folder, made once."""
    out = folder.with_name(f"{folder.name}-learn-{images}")
    if not out.exists():
        say(f"packing {folder.name} as {images}")
        command = [str(ROOT / "bin/stoker"), "pack", str(folder), str(out), "--images", images]
        subprocess.run(command, check=True, capture_output=True)
    return out


class Bench:
    """The arms of rounds."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        try:
            self.folder = datasets.make("photos", a.work, a.data.resolve(), say)
        except datasets.MissingError as error:
            say(f"{error}; generated pictures instead")
            self.folder = datasets.make("gen", a.work, a.data.resolve(), say)
        self.packs = {"keep pack": packed(self.folder, "keep"), "dct pack": packed(self.folder, "dct")}
        for path in (self.folder, *self.packs.values()):
            procs.warm(path)
        self.step = 0.0

    def run(self, arm: str) -> dict[str, Any]:
        """One arm."""
        a = self.a
        cache = a.work / "cache-learn"
        shutil.rmtree(cache, ignore_errors=True)
        path = self.packs.get(arm, self.folder)
        command = ["taskset", "-c", a.cores, runner.short(runner.python_of("project", a.work)), "-m", "bench.learn_arm"]
        command += [runner.short(path), "--epochs", str(EPOCHS)]
        if arm.endswith("learns"):
            command += ["--cache", str(cache)]
        if arm.startswith("step"):
            command += ["--step", str(self.step)]
        procs.use_memory(MEMORY)
        got = runner.run(command, a.limit, a.work / "logs/learn.log")
        shutil.rmtree(cache, ignore_errors=True)
        return got

    def calibrate(self) -> None:
        """Finds the step time at which the loader has idle time."""
        got = self.run("folder")
        if "error" in got:
            raise SystemExit(f"cache: {got['error']}")
        last = got["epochs"][-1]
        self.step = last["seconds"] / last["rows"] * BATCH / BUSY
        say(f"a step takes {self.step * 1000:.0f} ms")


def text(result: dict[str, Any]) -> str:
    """The region."""
    m, s, rounds = result["machine"], result["settings"], result["rounds"]
    count = len(rounds)
    out = HEAD.format(
        batch=BATCH, epochs=EPOCHS, busy=BUSY, cores=m["cores"], cpu=m.get("cpu", ""), memory=m.get("memory_gib"),
        time=m["time"][:16], images=s["images"], data=s["data"],
        commit=result["commit"] + (" with local changes" if result["changed_files"] else ""),
        rounds=f"{count} round{'s' if count > 1 else ''}",
    )  # fmt: skip
    rows = []
    for arm in ARMS:
        runs = [r[arm]["epochs"] for r in rounds]
        rates = [statistics.median(run[i]["rows"] / run[i]["seconds"] for run in runs) for i in range(EPOCHS)]
        cpu = [statistics.median(run[i]["cpu_s"] / run[i]["rows"] * 1000 for run in runs) for i in range(EPOCHS)]
        rows.append([arm, *(f"{x:,.0f}" for x in rates), " / ".join(f"{x:.2f}" for x in cpu)])
    out += "\n" + table(["images/s", *(f"epoch {i + 1}" for i in range(EPOCHS)), "CPU-ms per image"], rows) + "\n"
    rows = []
    for words, ratio, bar, sense in BARS:
        found = [ratio(r) for r in rounds]
        value = statistics.median(found)
        met = value >= bar if sense == "at least" else value <= bar
        spread = f"{value:.2f} ({min(found):.2f}-{max(found):.2f})"
        rows.append([words, spread, f"{sense} {bar:g}", "yes" if met else "**no**"])
    return out + "\n" + table(["", "measured", "bar", "met"], rows) + "\n"


def report() -> None:
    """Put the newest results into the page."""
    found = [json.loads(p.read_text()) for p in (ROOT / "bench/results").glob("cache-*.json")]
    if not found:
        raise SystemExit("cache: no results yet; make bench SUITES=cache makes them")
    PAGE.write_text(regions.put(PAGE.read_text(), "cache", text(max(found, key=lambda r: r["machine"]["time"]))))
    say(f"wrote the section of {runner.short(PAGE)}")


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--report", action="store_true", help="write the region of docs/internals/benchmarks.md, and end")
    arguments(p, seconds=0, warmup=0)
    a = p.parse_args()
    if a.report:
        report()
        return
    a.work = a.work.resolve()
    bench = Bench(a)
    bench.calibrate()
    machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD")
    path = a.out or ROOT / "bench/results" / f"cache-{_slug(machine)}-{commit}.json"
    result: dict[str, Any] = {
        "machine": machine,
        "commit": commit,
        "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "settings": {
            "rounds": a.rounds, "cores": a.cores, "step_s": bench.step, "images": len(procs.files_below(bench.folder)),
            "data": "photographs" if bench.folder.name == "photos" else "generated pictures",
        },
        "rounds": [],
    }  # fmt: skip
    for number in range(a.rounds):
        runs: Round = {}
        for arm in random.Random(number).sample(ARMS, len(ARMS)):
            got = runs[arm] = bench.run(arm)
            if "error" in got:
                raise SystemExit(f"cache: {arm}: {got['error']}")
            rates = " ".join(f"{e['rows'] / e['seconds']:,.0f}" for e in got["epochs"])
            say(f"round {number + 1}/{a.rounds} {arm}: {rates} images/s")
        result["rounds"].append(runs)
        path.parent.mkdir(parents=True, exist_ok=True)
        stored.save(path, result)
    print(text(result))


if __name__ == "__main__":
    main()
