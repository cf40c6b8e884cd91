"""The number of simulated accelerators that this machine feeds: DLIO's own PyTorch loader and Stoker, side by side in
DLIO.

    make bench SUITES=storage                       everything (about 20 minutes on 2 cores, 9 GB of generated data)
    .venv/bin/python -m bench.dlio --workloads cosmoflow --arms "stoker dlio-patched"
    .venv/bin/python -m bench.dlio --report  only write docs/internals/storage-benchmark.md from the results

DLIO measures both. Each simulated accelerator is a separate process under mpirun, which takes a batch, sleeps as long
as an A100 computes, and repeats this. Accelerator utilisation (AU) is DLIO's: computing time divided by total time,
without the first step. Both read the same files, from the page cache. DLIO's own loader hands over a small constant
instead of the bytes that it read. Stoker, through bench/dlio_plugin, delivers the bytes in the accelerator's process:
their number is checked, a sample of them is read, and some rows are compared with their files afterwards. So Stoker
has the harder task.

Results: bench/results/storage-<machine>-<commit>.json, saved after every run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import procs, runner, stored

ROOT = runner.ROOT
REPORT = ROOT / "docs/internals/storage-benchmark.md"


@dataclass(frozen=True)
class Shape:
    """A workload: its local data, and its settings for DLIO."""

    name: str
    title: str
    config: str
    record_bytes: int
    batch: int
    seconds: float
    target: float
    # Files that are written, and steps of each accelerator; names beyond the files are hard links.
    files: int
    steps: int
    # The fastest read_threads of DLIO's loader; batches that Stoker makes ahead (one of unet3d is a gigabyte).
    read_threads: int
    prefetch: int


SHAPES = {
    s.name: s
    for s in (
        Shape("unet3d", "unet3d: 146.6 MB, batch 7", "unet3d_a100", 146_600_628, 7, 0.636, 0.90, 40, 60, 2, 1),
        Shape("resnet50", "resnet50: 114,660 B, batch 400", "resnet50_a100", 114_660, 400, 0.435, 0.90, 8000, 32, 1, 3),
        Shape(
            "cosmoflow", "cosmoflow: 2.83 MB, batch 1", "cosmoflow_a100", 2_828_486, 1, 0.00551, 0.70, 600, 2000, 1, 4
        ),
    )
}

# The numbers to try, in this order, until an arm misses the target. If it misses the first one, smaller ones are
# tried.
ACCELERATORS = {
    "unet3d": {"dlio": (2,), "dlio-patched": (2, 3), "stoker": (2, 3, 4)},
    "resnet50": {"dlio": (1,), "dlio-patched": (4, 6), "stoker": (6, 8, 10), "stoker-tfrecord": (6, 8, 10)},
    "cosmoflow": {"dlio": (1,), "dlio-patched": (1, 2), "stoker": (4, 6)},
}
TITLES = {
    "dlio": "DLIO's PyTorch loader, as published",
    "dlio-patched": "DLIO's PyTorch loader, one debug line removed",
    "stoker": "**Stoker**, the same files",
    "stoker-tfrecord": "**Stoker**, TFRecord files as published",
}


def say(text: str) -> None:
    print(f"bench: {text}", flush=True)


class Storage:
    """One measurement."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        self.work: Path = a.work
        self.dlio = self.work / "dlio"
        self.data = self.work / "storage"
        self.python = self.dlio / "venv/bin/python"
        machine = procs.describe_machine()
        commit = _git("rev-parse", "--short=10", "HEAD") or "unknown"
        self.path: Path = a.out or ROOT / "bench/results" / f"storage-{_slug(machine)}-{commit}.json"
        self.listed: dict[Path, list[Path]] = {}
        self.results: dict[str, Any] = {
            "machine": machine,
            "commit": commit,
            "date": time.strftime("%Y-%m-%d"),
            "versions": {},
            "shapes": {s.name: asdict(s) for s in SHAPES.values()},
            "runs": [],
        }
        if a.resume and self.path.exists():
            self.results |= json.loads(self.path.read_text())

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stored.save(self.path, self.results)

    # -- data --------------------------------------------------------------------------------------------------------

    def generate(self, shape: Shape, form: str = "npz") -> Path:
        """The files of a shape, made once."""
        out = self.data / f"{shape.name}-{form}"
        if not (out / "storage.json").exists():
            files = shape.files if form == "npz" else max(1, shape.files // 1251)
            say(f"generating {runner.short(out)}")
            command = [str(self.a.binary), "gen", "storage", str(out), "--workload", shape.name]
            subprocess.run([*command, "--files", str(files), "--format", form], check=True)
        return out

    def names(self, shape: Shape, count: int) -> Path:
        """A folder of count names: hard links to the files of a shape, in turn. They share the page cache."""
        files = sorted((self.generate(shape) / "train").iterdir())
        out = self.data / f"{shape.name}-{count}"
        if not (out / "valid").exists():
            shutil.rmtree(out, ignore_errors=True)
            (out / "train").mkdir(parents=True)
            for i in range(count):
                os.link(files[i % len(files)], out / "train" / f"img_{i:06d}.npz")
            (out / "valid").mkdir()
        return out

    def warm(self, folder: Path) -> float:
        """Reads the uncached data, and returns the share that is cached afterwards."""
        seen: set[int] = set()
        have = size = 0
        for file in procs.files_below(folder):
            inode = file.stat().st_ino
            if inode in seen:
                continue
            seen.add(inode)
            h, s = procs.resident(file)
            if h < s:
                with open(file, "rb", buffering=0) as f:
                    while f.read(16 << 20):
                        pass
                h, s = procs.resident(file)
            have, size = have + h, size + s
        return have / max(size, 1)

    # -- one run -----------------------------------------------------------------------------------------------------

    def run(self, shape: Shape, arm: str, count: int, threads: int = 1) -> dict[str, Any]:
        """DLIO with one loader and so many accelerators."""
        records = shape.steps * shape.batch * count
        folder = self.names(shape, records)
        source = self.generate(shape, "tfrecord") / "train" if arm == "stoker-tfrecord" else folder / "train"
        resident = self.warm(source)
        out = self.work / "logs" / f"storage-{shape.name}-{arm}-{count}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        overrides = {
            "workload": shape.config,
            "++workload.framework": "pytorch",
            "++workload.workflow.checkpoint": "False",
            "++workload.train.epochs": "1",
            "++workload.train.computation_time": str(shape.seconds),
            "++workload.dataset.format": "npz",
            "++workload.dataset.num_files_train": str(records),
            "++workload.dataset.num_samples_per_file": "1",
            "++workload.dataset.record_length": str(shape.record_bytes),
            "++workload.dataset.data_folder": str(folder),
            "++workload.reader.data_loader": "pytorch",
            "++workload.reader.batch_size": str(shape.batch),
            "++workload.reader.read_threads": str(threads),
            "hydra.run.dir": str(out),
        }
        env = dict(os.environ)
        env.update(
            PATH=f"{self.python.parent}:{env['PATH']}", DFTRACER_ENABLE="0", OMP_NUM_THREADS="1",
            OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
            OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_mpi_yield_when_idle="1",
            OMPI_MCA_btl_vader_single_copy_mechanism="none",
        )  # fmt: skip
        engine = None
        if arm.startswith("stoker"):
            overrides["++workload.reader.data_loader_classname"] = "stoker_loader.StokerLoader"
            overrides["++workload.reader.data_loader_sampler"] = "index"
            env["PYTHONPATH"] = f"{ROOT / 'bench/dlio_plugin'}:{ROOT / 'python/src'}"
            # Behind the ranks, which are woken while the engines copy: with that 8 ranks have 1.5 points more of AU.
            wrapper = out / "engine"
            wrapper.write_text(f'#!/bin/sh\nexec nice -n 5 "{self.a.binary}" "$@"\n')
            wrapper.chmod(0o755)
            env["STOKER_BINARY"] = str(wrapper)
            env["STOKER_DLIO_OUT"] = str(out)
            slot = shape.batch * shape.record_bytes
            prefetch = self.a.prefetch.get(shape.name, shape.prefetch)
            limits = {"prefetch": prefetch, "memory": (prefetch + 3) * slot + (64 << 20)}
            options: dict[str, Any] = {"threads": 1, "limits": limits}
            env["STOKER_DLIO_OPTIONS"] = json.dumps(options)
            if arm == "stoker-tfrecord":
                env["STOKER_DLIO_SOURCE"] = f"{source}?data:bytes"  # records as they are
            if self.a.share:
                sock = out / "engine.sock"
                env["STOKER_SOCKET"] = str(sock)
                with open(out / "engine.log", "w") as log:
                    engine = subprocess.Popen([str(self.a.binary), "serve", "--socket", str(sock)], stderr=log)
                for _ in range(100):
                    if sock.exists():
                        break
                    time.sleep(0.05)
        self.patch(arm != "dlio")
        command = ["mpirun", "-n", str(count), "dlio_benchmark", *(f"{k}={v}" for k, v in overrides.items())]
        start = time.monotonic()
        watch = None
        try:
            with open(out / "stdout", "w") as log:
                child = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, cwd=out, env=env, start_new_session=True
                )
                watch = Watch([child.pid, *([engine.pid] if engine else [])])
                try:
                    child.wait(self.a.limit)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGTERM)
                    child.wait()
        finally:
            if watch:
                watch.stop()
            if engine:
                engine.terminate()
                engine.wait()
        got: dict[str, Any] = {
            "workload": shape.name, "arm": arm, "accelerators": count, "read_threads": threads, "shared": bool(engine),
            "steps": shape.steps, "resident": round(resident, 4), "seconds": time.monotonic() - start,
        }  # fmt: skip
        try:
            metric = json.loads((out / "summary.json").read_text())["metric"]
            got["au"] = float(metric["train_au_mean_percentage"]) / 100
            got["samples_s"] = float(metric["train_throughput_mean_samples_per_second"])
            got["gb_s"] = got["samples_s"] * shape.record_bytes / 1e9
        except (OSError, KeyError, ValueError) as e:
            lines = [line for line in (out / "stdout").read_text(errors="replace").splitlines() if line.strip()]
            got["error"] = runner.scrub(f"{type(e).__name__}: {lines[-1] if lines else 'no output'}")
        got.update(watch.result() if watch else {})
        if arm.startswith("stoker") and "error" not in got:
            got.update(self.check(shape, source, out, count))
        return got

    def known(self, workload: str, arm: str, count: int, number: int) -> dict[str, Any] | None:
        """A run that is among the results already."""
        key = {"workload": workload, "arm": arm, "accelerators": count, "round": number}
        return next((r for r in self.results["runs"] if all(r.get(k) == v for k, v in key.items())), None)

    def patch(self, patched: bool) -> None:
        """Installs DLIO's reader, as published or without its debug line."""
        lib = next((self.dlio / "venv/lib").glob("python3*")) / "site-packages/dlio_benchmark/reader"
        shutil.copyfile(
            lib / ("reader_handler.py.patched" if patched else "reader_handler.py.stock"), lib / "reader_handler.py"
        )

    def stored(self, shape: Shape, source: Path, record: int) -> tuple[int, int]:
        """Size and sum of every 4,097th byte of a record, read from its file."""
        import numpy as np

        files = self.listed.setdefault(source, sorted(source.iterdir()))
        if files[0].suffix == ".tfrecord":
            # Records of one size: a length and its checksum, the data, a checksum.
            per_file = files[0].stat().st_size // (shape.record_bytes + 16)
            at = record % per_file * (shape.record_bytes + 16) + 12
            data = np.fromfile(files[record // per_file], np.uint8, shape.record_bytes, offset=at)
        else:
            data = np.fromfile(files[record], np.uint8)
        return len(data), int(data[::4097].sum())

    def check(self, shape: Shape, source: Path, out: Path, count: int) -> dict[str, Any]:
        """The data that the ranks received: all bytes of all rows, in their own memory."""
        ranks = [json.loads((out / f"rank-{i}.json").read_text()) for i in range(count)]
        rows = sum(r["rows"] for r in ranks)
        size = sum(r["bytes"] for r in ranks)
        # A .npz file has headers around the record; a record is never smaller than its nominal size by more than that.
        whole = rows == shape.steps * shape.batch * count and size >= 0.998 * rows * shape.record_bytes
        if not whole:
            return {"error": f"the trainers were given {size:,} bytes in {rows:,} rows"}
        noted = [tuple(n) for r in ranks for n in r["noted"]]
        wrong = sum(self.stored(shape, source, record) != (size, total) for record, size, total in noted)
        if wrong or not noted:
            return {"error": f"{wrong} of {len(noted)} rows are not what their files hold"}
        return {
            "rows_compared": len(noted),
            "delivered_bytes": size,
            "checksums": [r["checksum"] for r in ranks],
            "wait_seconds": statistics.fmean(r["wait_seconds"] for r in ranks),
        }


class Watch:
    """CPU and memory of process trees, four times a second."""

    def __init__(self, roots: list[int]) -> None:
        self.roots = roots
        self.cpu = self.pss = 0.0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        turn = 0
        while not self.ended.wait(0.5):
            self.cpu = max(self.cpu, sum(procs.cpu_seconds(r) for r in self.roots))
            if turn % 6 == 0:
                self.pss = max(self.pss, sum(procs.memory(r)["pss"] for r in self.roots))
            turn += 1

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()

    def result(self) -> dict[str, float]:
        return {"cpu_s": round(self.cpu, 1), "pss_mib": round(self.pss)}


def _git(*args: str) -> str:
    try:
        return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _slug(machine: dict[str, Any]) -> str:
    from .run import _slug as slug

    return slug(machine)


# -- report -----------------------------------------------------------------------------------------------------------


HEAD = """\
# Storage benchmark: how many accelerators are fed

<!-- Written by `python -m bench.dlio --report`. Do not edit by hand. -->

{where}. Files in the page cache.
Each simulated accelerator is a process under `mpirun` that takes a batch and sleeps as long as an A100 computes;
[DLIO](https://github.com/argonne-lcf/dlio_benchmark) 2.0 runs and measures both loaders. AU is computing time divided
by time, without the first step. DLIO's PyTorch loader hands over a small constant instead of the bytes
that it has read. One debug line in DLIO's reader formats the index of all files for every sample: it is measured with
and without that line.

Stoker's plug-in (`bench/dlio_plugin`) hands over the bytes of the files, and reads every 65,537th of them in the
accelerator's process. It allocates the memory of its batches before DLIO's clock begins, and runs its engine at nice 5.
Some rows are compared with their files afterwards. Shapes are those of the storage benchmark of MLPerf, with fewer
files. This is not a submission to it.

| shape | loader | accelerators fed | at that number: AU | GB/s | CPU s | memory MiB |
|---|---|---|---|---|---|---|
"""
TARGETS = """
Targets: AU 90% for unet3d and resnet50, 70% for cosmoflow. Memory counts each shared page once, with the ring of
batches.

## All runs
Medians of the runs. On this shared machine repeats of one command differ by several points of AU. A loader
within five points of the target could feed one accelerator more or less.

| shape | loader | accelerators | runs | AU | least to most | GB/s | CPU s | memory MiB |
|---|---|---|---|---|---|---|---|---|
"""
AGAIN = """
## Again
`make bench SUITES=storage` installs DLIO into bench/work/dlio, generates the files and measures. With DLIO alone:

```sh
PYTHONPATH=$PWD/bench/dlio_plugin:$PWD/python/src mpirun -n 2 dlio_benchmark workload=unet3d_a100 \\
    ++workload.reader.data_loader_classname=stoker_loader.StokerLoader \\
    ++workload.reader.data_loader_sampler=index ++workload.dataset.data_folder=DIR
```
"""


def middle(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The medians of the rounds, a line for each number of accelerators."""
    lines = []
    for count in sorted({r["accelerators"] for r in runs}):
        tried = [r for r in runs if r["accelerators"] == count]
        good = [r for r in tried if "error" not in r]
        if not good:
            lines.append(tried[0] | {"runs": len(tried)})
            continue
        keys = ("au", "gb_s", "cpu_s", "pss_mib")
        line: dict[str, Any] = {k: statistics.median(r[k] for r in good) for k in keys}
        line |= {"least": min(r["au"] for r in good), "most": max(r["au"] for r in good)}
        lines.append(line | {"accelerators": count, "runs": len(good)})
    return lines


def fed(lines: list[dict[str, Any]], target: float) -> int:
    """The most accelerators that reached the target."""
    return max((r["accelerators"] for r in lines if r.get("au", 0) >= target), default=0)


def report(results: dict[str, Any]) -> str:
    """docs/internals/storage-benchmark.md"""
    machine = results["machine"]
    where = f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']:.0f} GiB, {results['date']}"
    lines = [HEAD.format(where=where).rstrip()]
    details = []
    for name, shape in results["shapes"].items():
        runs = [r for r in results["runs"] if r["workload"] == name]
        for arm, title in TITLES.items():
            mine = middle([r for r in runs if r["arm"] == arm])
            if not mine:
                continue
            best = fed(mine, shape["target"])
            at = next(
                (r for r in reversed(mine) if r["accelerators"] == best and r.get("au", 0) >= shape["target"]), None
            )
            cells = ["-"] * 4
            if at:
                cells = [f"{at['au']:.1%}", f"{at['gb_s']:.2f}", f"{at['cpu_s']:.0f}", f"{at['pss_mib']:,.0f}"]
            more = "" if not at or any(r["accelerators"] > best for r in mine) else " or more"
            lines.append(f"| {shape['title']} | {title} | **{best}**{more} | " + " | ".join(cells) + " |")
            for r in mine:
                au = f"{r['au']:.1%} | {r['least']:.1%} to {r['most']:.1%}" if "au" in r else r.get("error", "") + " |"
                details.append(
                    f"| {name} | {TITLES[arm].replace('**', '')} | {r['accelerators']} | {r['runs']} | {au} | "
                    f"{r.get('gb_s', 0):.2f} | {r.get('cpu_s', 0):.0f} | {r.get('pss_mib', 0):,.0f} |"
                )
    lines += [TARGETS.rstrip(), *details, AGAIN]
    return "\n".join(lines)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workloads", default=" ".join(SHAPES))
    p.add_argument("--arms", default=" ".join(TITLES))
    p.add_argument("--accelerators", default="", help="numbers to try instead of the usual ones")
    p.add_argument("--rounds", type=int, default=1, help="how often; the report gives medians")
    p.add_argument("--threads", type=int, default=0, help="read_threads of DLIO's loader, 0 for the shape's best")
    p.add_argument("--share", action="store_true", help="one stoker serve for all accelerators")
    p.add_argument("--limit", type=float, default=150, help="seconds that a run may take")
    p.add_argument("--work", type=Path, default=ROOT / "bench/work")
    p.add_argument("--binary", type=Path, default=ROOT / "bin/stoker")
    p.add_argument("--out", type=Path)
    p.add_argument("--resume", action="store_true", help="go on with the results that are there")
    p.add_argument("--generate", action="store_true", help="only make the data")
    p.add_argument("--report", action="store_true", help="only write the report from the newest results")
    p.add_argument("--prefetch", type=json.loads, default={}, help='batches made ahead, {"unet3d": 1}')
    a = p.parse_args()
    if a.report:
        REPORT.write_text(report(json.loads((a.out or stored.newest("storage-*.json")).read_text())))
        say(f"wrote {runner.short(REPORT)}")
        return 0
    a.work, a.binary = a.work.resolve(), a.binary.resolve()
    bench = Storage(a)
    if not bench.python.exists():
        say("DLIO is not installed: bench/dlio_setup.sh does it")
        return 1
    if a.generate:
        for name in a.workloads.split():
            bench.generate(SHAPES[name])
            if name == "resnet50":
                bench.generate(SHAPES[name], "tfrecord")
        return 0
    for number in range(a.rounds):
        for name in a.workloads.split():
            for arm in a.arms.split():
                ladder(bench, SHAPES[name], arm, number)
    return 0


def ladder(bench: Storage, shape: Shape, arm: str, number: int) -> None:
    """One round of a loader: more accelerators until the target is missed."""
    a = bench.a
    counts = ACCELERATORS[shape.name].get(arm, ())
    if a.accelerators and counts:
        counts = tuple(int(n) for n in a.accelerators.split(","))
    todo, passed = list(counts), False
    while todo:
        count = todo.pop(0)
        got = bench.known(shape.name, arm, count, number) if a.resume else None
        if got is None:
            got = bench.run(shape, arm, count, a.threads or shape.read_threads) | {"round": number}
            bench.results["runs"].append(got)
            bench.save()
        au = f"AU {got['au']:.1%}, {got['gb_s']:.2f} GB/s" if "au" in got else got.get("error", "")
        say(f"{shape.name} {arm} x{count}: {au}, {got.get('cpu_s', 0):.0f} CPU s, {got.get('pss_mib', 0):,.0f} MiB")
        reached = got.get("au", 0) >= shape.target and "error" not in got
        passed = passed or reached
        if not reached and not a.accelerators:
            todo = [count // 2] if count > 1 and not passed else []


if __name__ == "__main__":
    sys.exit(main())
