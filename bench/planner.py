"""Planner accuracy: predictions of plan.Predict from one `stoker probe`, compared with a real loader.

    python -m bench.planner [--resume] [--limit SECONDS] [--rounds N]     measure, then report
    python -m bench.planner --report                                      predict and report again

Cells of (n, t, cores, codec, cached share, disk cap, kind of step), in a random order, in blocks. Each block begins
with a probe, and its cells are predicted from that probe alone: nothing is fitted on cells. Caching is set by
dropping and reading parts of the packs. The disk is capped by a control group (version 1, as root). Without one,
those cells are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import random
import re
import shutil
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import datasets, planner_report, procs
from .run import _git, _slug

ROOT = Path(__file__).resolve().parent.parent
COPIES = 5
BLKIO = Path("/sys/fs/cgroup/blkio")
BLOCK = 4 << 20
# When others take more than so many cores, a cell is measured again, up to three times.
DISTURBED = 0.25
TRIES = 3


@dataclass(frozen=True)
class Cell:
    codec: str
    batch: int
    step_ms: float
    cores: int = 2
    cached: float = 1.0
    disk_mb: float = 0
    disk_iops: float = 0
    spin: bool = False

    @property
    def name(self) -> str:
        cap = f"{self.disk_mb:g} MB/s" if self.disk_mb else f"{self.disk_iops:g} IOPS" if self.disk_iops else "-"
        kind = "spin" if self.spin else "sleep"
        return (
            f"{self.codec} n={self.batch} t={self.step_ms:g}ms {kind} {self.cores}c cached {self.cached:.0%} cap {cap}"
        )


CELLS = [
    # JPEGs: bound by the cores, by the step, and in between.
    Cell("keep", 64, 10),
    Cell("keep", 64, 45),
    Cell("keep", 64, 80),
    Cell("keep", 128, 40, cores=1),
    Cell("keep", 64, 120, cores=1),
    Cell("keep", 64, 30, spin=True),
    Cell("keep", 64, 60, spin=True),
    Cell("keep", 64, 120, spin=True),
    Cell("keep", 64, 60, cores=1, spin=True),
    # The same with part of the data on the disk, with and without a cap.
    Cell("keep", 64, 10, cached=0),
    Cell("keep", 64, 10, cached=0.5),
    Cell("keep", 64, 10, cached=0, disk_mb=50),
    Cell("keep", 64, 10, cached=0.25, disk_mb=50),
    Cell("keep", 64, 10, cached=0.5, disk_mb=50),
    Cell("keep", 64, 10, cached=0.75, disk_mb=20),
    Cell("keep", 64, 100, cached=0.25, disk_mb=50),
    Cell("keep", 128, 50, cached=0, disk_mb=100),
    Cell("keep", 64, 20, cached=0, disk_iops=500),
    Cell("keep", 64, 20, cached=0.5, disk_iops=300),
    Cell("keep", 64, 60, cached=0.5, disk_mb=60, spin=True),
    # dct: five times the images per core.
    Cell("dct", 256, 5),
    Cell("dct", 256, 35),
    Cell("dct", 256, 60),
    Cell("dct", 128, 20, cores=1),
    Cell("dct", 256, 25, spin=True),
    Cell("dct", 256, 80, spin=True),
    Cell("dct", 256, 5, cached=0),
    Cell("dct", 256, 5, cached=0.5),
    Cell("dct", 256, 5, cached=0, disk_mb=100),
    Cell("dct", 256, 20, cached=0.5, disk_mb=100),
    Cell("dct", 256, 20, cached=0.75, disk_mb=100),
    Cell("dct", 128, 60, cached=0.25, disk_mb=200),
    Cell("dct", 128, 30, cores=1, cached=0.5, disk_mb=200),
    Cell("dct", 128, 10, cached=0.5, disk_iops=800),
    # Pixels: bytes decide.
    Cell("raw", 256, 2),
    Cell("raw", 256, 20),
    Cell("raw", 256, 10, cores=1),
    Cell("raw", 256, 12, spin=True),
    Cell("raw", 256, 5, cached=0),
    Cell("raw", 256, 5, cached=0.5),
    Cell("raw", 256, 5, cached=0, disk_mb=200),
    Cell("raw", 256, 5, cached=0.75, disk_mb=200),
    Cell("raw", 64, 40, cached=0.25, disk_mb=150),
    Cell("raw", 256, 20, cached=0.5, disk_iops=1500),
]


def say(text: str) -> None:
    print(text, flush=True)


# --- data --------------------------------------------------------------------


def make_packs(work: Path, binary: Path) -> dict[str, Path]:
    """Packs of 10,000 generated images, five copies of each, so that no epoch ends within a window."""
    packs = {codec: work / "packs/planner" / codec for codec in ("keep", "dct", "raw")}
    if all((p / "manifest.json").exists() for p in packs.values()):
        return packs
    source = datasets.make("gen", work, work, say)
    tree = work / "data/planner.part"
    shutil.rmtree(tree, ignore_errors=True)
    for file in sorted(source.glob("*/*.jpg")):
        folder = tree / file.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        for k in range(COPIES):
            os.link(file, folder / f"{k}-{file.name}")
    for codec, out in packs.items():
        say(f"packing {codec}")
        out.parent.mkdir(parents=True, exist_ok=True)
        more = ["--resize", "256"] if codec == "raw" else []
        subprocess.run([binary, "pack", tree, out, "--images", codec, *more], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    os.sync()
    return packs


class Held:
    """Parts of files that are locked into the page cache: a kernel that reclaims ahead of need would take them away."""

    def __init__(self) -> None:
        self.views: list[tuple[int, int]] = []

    def hold(self, fd: int, start: int, length: int) -> None:
        address = procs.libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, start)
        if address not in (None, ctypes.c_void_p(-1).value):
            procs.libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(length))
            self.views.append((address, length))

    def release(self) -> None:
        for address, length in self.views:
            procs.libc.munmap(address, length)
        self.views.clear()


def set_cached(pack: Path, share: float, seed: int, held_parts: Held) -> float:
    """Reads a random share of the blocks of a pack into the page cache and drops the rest. Returns the share."""
    held_parts.release()
    rng = random.Random(seed)
    held = total = 0
    for shard in sorted(pack.glob("*.arrow")):
        size = shard.stat().st_size
        fd = os.open(shard, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead into blocks that shall be cold
            for start in range(0, size, BLOCK):
                length = min(BLOCK, size - start)
                if rng.random() < share:
                    at = start
                    while at < start + length:
                        at += len(os.pread(fd, start + length - at, at))
                    held_parts.hold(fd, start, length)
                else:
                    os.posix_fadvise(fd, start, length, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        have, length = procs.resident(shard)
        held, total = held + have, total + length
    return held / total


def disk_of(path: Path) -> str:
    """major:minor of the whole disk that holds path, in the format of control groups."""
    dev = os.stat(path).st_dev
    here = Path(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}").resolve()
    if (here / "partition").exists():
        here = here.parent
    return (here / "dev").read_text().strip()


@contextlib.contextmanager
def capped(cell: Cell, disk: str) -> Any:
    """A control group for the cell's processes, or None without a cap."""
    if not cell.disk_mb and not cell.disk_iops:
        yield None
        return
    group = BLKIO / f"stoker-planner-{os.getpid()}"
    group.mkdir()
    try:
        if cell.disk_mb:
            (group / "blkio.throttle.read_bps_device").write_text(f"{disk} {int(cell.disk_mb * 1e6)}")
        if cell.disk_iops:
            (group / "blkio.throttle.read_iops_device").write_text(f"{disk} {int(cell.disk_iops)}")
        yield group
    finally:
        for _ in range(50):  # its processes may still be ending
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


# --- measuring ---------------------------------------------------------------


class Bench:
    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        self.state_path: Path = a.work / "planner.json"
        self.state: dict[str, Any] = {"blocks": [], "commit": _git("rev-parse", "--short=10", "HEAD") or "unknown"}
        if (a.resume or a.report) and self.state_path.exists():
            self.state = json.loads(self.state_path.read_text())
        self.env = os.environ | {"STOKER_BINARY": str(a.binary), "XDG_CACHE_HOME": str(a.work / "cache")}
        self.env["PYTHONPATH"] = str(a.source / "python/src")  # of the same version as the engine
        self.packs = make_packs(a.work, a.binary)
        self.disk = disk_of(a.work)
        self.can_cap = (BLKIO / "blkio.throttle.read_bps_device").exists() and os.access(BLKIO, os.W_OK)
        self.child: subprocess.Popen[str] | None = None
        self.held = Held()

    def save(self) -> None:
        part = self.state_path.with_suffix(".part")
        part.write_text(json.dumps(self.state, indent=1))
        part.rename(self.state_path)

    def counts(self) -> dict[str, int]:
        done: dict[str, int] = {}
        for block in self.state["blocks"]:
            for run in block["runs"]:
                done[run["name"]] = done.get(run["name"], 0) + 1
        return done

    def todo(self) -> list[Cell]:
        """The cells that remain to be measured, in a random order, those with the fewest measurements first."""
        done = self.counts()
        cells = [c for c in CELLS if self.can_cap or not (c.disk_mb or c.disk_iops)]
        cells = [c for c in cells if done.get(c.name, 0) < self.a.rounds and c.cores <= len(os.sched_getaffinity(0))]
        random.Random(len(self.state["blocks"])).shuffle(cells)
        return sorted(cells, key=lambda c: done.get(c.name, 0))

    def measure(self) -> None:
        start = time.monotonic()
        if not self.can_cap:
            say(f"no disk caps: {BLKIO} cannot be written; those cells are skipped")
        tried: dict[str, int] = {}
        while cells := [c for c in self.todo() if tried.get(c.name, 0) < TRIES]:
            if self.a.limit and time.monotonic() - start > self.a.limit - 30:
                break
            set_cached(self.packs["keep"], 1, 0, self.held)
            machine = self.probe()
            block: dict[str, Any] = {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "machine": machine, "runs": []}
            self.state["blocks"].append(block)
            for cell in cells[: self.a.block]:
                if self.a.limit and time.monotonic() - start > self.a.limit - 8:
                    break
                tried[cell.name] = tried.get(cell.name, 0) + 1
                self.cell(cell, block)
                self.save()
        left = self.todo()
        say(f"{len(CELLS)} cells, {len(left)} left" if left else "all cells are measured")

    def probe(self) -> Any:
        out = subprocess.run(
            [self.a.binary, "probe", self.packs["keep"], "--json"],
            check=True,
            env=self.env,
            capture_output=True,
            text=True,
        )
        return json.loads(out.stdout)

    def cell(self, cell: Cell, block: dict[str, Any]) -> None:
        pack = self.packs[cell.codec]
        seed = len(block["runs"])
        share = set_cached(pack, cell.cached, seed, self.held)
        job = {
            "data": str(pack), "batch": cell.batch, "step": cell.step_ms / 1e3, "spin": cell.spin, "seed": seed,
            "seconds": self.a.seconds, "cached": cell.cached,
        }  # fmt: skip
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: cell.cores]))
        command = ["taskset", "-c", cores, str(ROOT / ".venv/bin/python"), "-m", "bench.planner_cell", json.dumps(job)]
        with capped(cell, self.disk) as group:
            if group:
                command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]
            try:
                got = self.run(command)
            except (subprocess.SubprocessError, ValueError) as e:
                say(f"{cell.name}: failed: {e}")
                return
        if got["cores_foreign"] + got["cores_stolen"] > DISTURBED:
            say(f"{cell.name}: {got['cores_foreign']:.2f} cores went elsewhere; to be repeated")
            return
        block["runs"].append({"name": cell.name, "cell": asdict(cell), "share": share, "measured": got})
        say(f"{cell.name}: {got['throughput']:,.0f}/s, AU {got['au']:.1%}")

    def run(self, command: list[str]) -> dict[str, Any]:
        self.child = subprocess.Popen(
            command, env=self.env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, err = self.child.communicate(timeout=60)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
            raise
        if self.child.returncode:
            raise ValueError((err.strip().splitlines() or ["no output"])[-1])
        result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return result

    # --- predicting ----------------------------------------------------------

    def predicted(self) -> list[dict[str, Any]]:
        """All runs, with the prediction for each from the probe of its block."""
        stats = {codec: image_stats(pack) for codec, pack in self.packs.items()}
        runs, cells = [], []
        for number, block in enumerate(self.state["blocks"]):
            for run in block["runs"]:
                cell = Cell(**run["cell"])
                records, size = stats[cell.codec]
                pipeline = {
                    "batch": cell.batch, "step": cell.step_ms / 1e3, "cores": cell.cores, "codec": cell.codec,
                    "layout": "pack", "record_bytes": size / records,
                    "output_bytes": run["measured"]["slot_bytes"] / cell.batch,
                    "cached_share": run["share"], "disk_bandwidth": cell.disk_mb * 1e6, "disk_iops": cell.disk_iops,
                    "prefetch": run["measured"]["slots"] - 2, "spin": cell.spin,
                }  # fmt: skip
                cells.append({"machine": block["machine"], "pipeline": pipeline})
                runs.append(run | {"block": number, "pipeline": pipeline})
        out = subprocess.run(
            ["go", "run", "./bench/predict"], check=True, cwd=self.a.source, input=json.dumps({"cells": cells}),
            capture_output=True, text=True,
        )  # fmt: skip
        return [run | said for run, said in zip(runs, json.loads(out.stdout), strict=True)]


def image_stats(pack: Path) -> tuple[int, int]:
    manifest = json.loads((pack / "manifest.json").read_text())
    images = next(f["stats"] for f in manifest["fields"] if f["kind"] == "image")
    return manifest["records"], images["bytes"]


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--resume", action="store_true", help="go on with what was measured before")
    p.add_argument("--report", action="store_true", help="measure nothing, predict and report again")
    p.add_argument("--partial", action="store_true", help="write the result also when cells are left")
    p.add_argument("--limit", type=float, default=0, help="stop after about so many seconds; --resume goes on")
    p.add_argument("--rounds", type=int, default=1, help="how many times each cell is measured")
    p.add_argument("--block", type=int, default=10, help="cells per probe")
    p.add_argument("--seconds", type=float, default=4, help="window of a cell")
    p.add_argument("--work", type=Path, default=ROOT / "bench/work")
    p.add_argument("--binary", type=Path, default=ROOT / "bin/stoker")
    p.add_argument("--source", type=Path, default=ROOT, help="checkout whose plan.Predict is asked")
    a = p.parse_args()
    a.work, a.binary = a.work.resolve(), a.binary.resolve()
    return a


def main() -> None:
    a = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bench = Bench(a)
    try:
        if not a.report:
            bench.measure()
    except KeyboardInterrupt:
        bench.save()
        say("interrupted; --resume goes on")
        raise SystemExit(130) from None
    runs = bench.predicted()
    machine = procs.describe_machine()
    commit = bench.state.get("commit", "unknown")
    results: dict[str, Any] = {"machine": machine, "commit": commit, "copies": COPIES}
    results["probes"] = [{"time": b["time"], "machine": b["machine"]} for b in bench.state["blocks"]]
    results["runs"] = runs
    results["cells_left"] = len(bench.todo())
    planner_report.print_summary(runs)
    if not bench.todo() or (a.partial and runs):
        name = re.sub(r"[^a-z0-9.-]", "-", f"planner-{_slug(machine)}-{commit}.json")
        planner_report.write(results, ROOT / "bench/results" / name)
        say(f"written: bench/results/{name} and docs/internals/planner-accuracy.md")


if __name__ == "__main__":
    main()
