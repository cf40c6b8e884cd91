"""Remote data: the cost of reading it, and the time of a first epoch.

    make bench SUITES=remote                       everything, about 20 minutes on 2 cores
    make bench SUITES=remote ONLY="reads plan"     some of it

reads   CPU seconds per GB and GB/s of ranges of 8 MiB and of 112 KiB, 16 in flight, into memory. Compared are ours,
        obstore and boto3 from the same versitygw, and ours from nginx with a bare copy of the sockets.
epochs  the first epoch of the same photographs, including opening the data: ours (keep and dct), LitData, MosaicML
        Streaming, WebDataset and s3torchconnector. All read from the same versitygw, with and without a link of
        100 MB/s and 10 ms.
cached  later epochs of the same photographs, after all of them are cached on the local disk or in memory, compared
        with a local pack of them
link    a network namespace with a `tbf` link of 1 Gbit/s, and 60 ms before each answer: a random epoch's share of the
        link, and the first batch
plan    the prediction of `stoker plan` for an epoch, compared with the measured time, at 10 ms and 100 MB/s
doctor  a job that waits for a server at 10 ms and 100 MB/s: the gain that stoker doctor predicts for a cache, and the
        measured gain
disk    an uncached local pack, and a folder of 300,000 small files, compared with fio on the same files and with the
        same sizes of reads

Results go to bench/results/remote-<machine>-<commit>.json after every run; --report writes
docs/internals/benchmarks.md from the newest of each part.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .. import datasets, procs, runner, stored
from ..against import arguments
from ..run import _git, _slug
from . import disk, link, report, servers

ROOT = runner.ROOT
Arm = Callable[[], dict[str, Any]]
PARTS = ("reads", "epochs", "cached", "link", "plan", "doctor", "disk")
OBJECT_BYTES = 512 << 20
# The target of a figure: ours divided by that of another arm, as a maximum or a minimum.
LINK_BYTES, LINK_LATENCY = 100e6, "10ms"
# So small a set is no more than a window to "auto", which takes all records. WebDataset's two buffers of 1,000 records
# take the memory of 25 chunks.
ORDERS = {"all records": "auto", "window:16": "window:16"}


def say(text: str) -> None:
    print(f"remote: {text}", flush=True)


class Bench:
    """One measurement."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        self.work: Path = a.work
        machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD")
        self.path: Path = a.out or ROOT / "bench/results" / f"remote-{_slug(machine)}-{commit}.json"
        self.results: dict[str, Any] = {
            "machine": machine,
            "commit": commit,
            "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
            "settings": {k: getattr(a, k) for k in ("suite", "rounds", "cores")},
            "load": os.getloadavg()[0],
            "runs": [],
            "skipped": {},
        }
        self.bucket = self.work / "remote/bucket"
        self.tool = self.work / "remote/read"

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stored.save(self.path, self.results)

    def note(self, part: str, arm: str, number: int, got: dict[str, Any]) -> None:
        got = runner.short_result(got) | {"part": part, "arm": arm, "round": number}
        self.results["runs"].append(got)
        self.save()
        shown = {k: round(v, 4) for k, v in got.items() if isinstance(v, float) and k in SHOWN}
        say(f"{part}, round {number + 1}: {arm}: {got.get('error', '')[-300:] or shown}")

    def skip(self, what: str, why: str) -> None:
        self.results["skipped"][what] = runner.scrub(why)
        say(f"{what}: skipped: {why}")
        self.save()

    def run(self, command: list[str], log: str, variables: dict[str, str] | None = None) -> dict[str, Any]:
        return runner.run(command, self.a.limit, self.work / f"logs/{log}.log", variables)

    def build(self) -> None:
        self.tool.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["go", "build", "-o", str(self.tool), "./bench/remote/read"], cwd=ROOT, check=True)

    def python(self, env: str) -> str:
        if error := runner.broken_env(env, self.work):
            raise servers.MissingError(error)
        return str(runner.python_of(env, self.work))

    def pinned(self, command: list[str]) -> list[str]:
        return ["taskset", "-c", self.a.cores, *command]

    def rounds(self, part: str, arms: dict[str, Arm]) -> None:
        for number in range(self.a.rounds):
            order = list(arms)
            random.Random(number).shuffle(order)
            for arm in order:
                self.note(part, arm, number, arms[arm]())

    # -- contents of the bucket --------------------------------------------------------------------------------------

    def fill(self, url: str, what: str, folder: Path, prefix: str) -> None:
        """Uploads a folder into the bucket unless it exists there."""
        mark = self.bucket.parent / f"{what}.done"
        if mark.exists():
            return
        say(f"uploading {what}")
        self.upload(url, folder, prefix)
        mark.touch()

    def upload(self, url: str, folder: Path, prefix: str, *more: str) -> None:
        command = [self.python("remote"), "-m", "bench.remote.upload", str(folder), prefix, *more]
        got = runner.run(command, 1800, self.work / "logs/upload.log", servers.environment(url))
        if "error" in got:
            raise servers.MissingError(got["error"])

    def object(self) -> Path:
        path = self.work / "remote/web/object.bin"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path.with_suffix(".part"), "wb") as f:
                for _ in range(OBJECT_BYTES >> 20):
                    f.write(random.randbytes(1 << 20))
            path.with_suffix(".part").rename(path)
        return path

    @contextlib.contextmanager
    def packed(self, data_set: str) -> Iterator[str]:
        """A server with our packs of a data set."""
        datasets.make(data_set, self.work, self.a.data, say)
        with servers.s3(self.bucket, self.work) as url:
            for images in ("keep", "dct"):
                mark = self.bucket.parent / f"{data_set}-{images}.done"
                if not mark.exists():
                    say(f"packing {data_set} into the bucket, {images}")
                    source, out = self.work / "data" / data_set, f"s3://{servers.BUCKET}/{data_set}-{images}"
                    command = [str(ROOT / "bin/stoker"), "pack", str(source), out, "--images", images]
                    variables = os.environ | servers.environment(url)
                    subprocess.run(command, check=True, env=variables, stdout=subprocess.DEVNULL)
                    mark.touch()
            yield url

    # -- parts --------------------------------------------------------------------------------------------------------

    def reads(self) -> None:
        self.build()
        with servers.s3(self.bucket, self.work) as s3, servers.web(self.object().parent, self.work) as web:
            self.fill(s3, "object", self.object(), "object")
            variables = servers.environment(s3)
            at = f"s3://{servers.BUCKET}/object/object.bin"
            kinds = (("reads", 8 << 20, self.a.bytes), ("reads of 112 KiB", 112 << 10, self.a.bytes // 8))
            for part, block, total in kinds:
                size = ["--block", str(block), "--bytes", str(total)]
                tool = self.pinned([str(self.tool), f"-block={block}", f"-bytes={total}"])
                here = f"{web}/object.bin"
                arms: dict[str, Arm] = {
                    "ours, versitygw": partial(self.run, [*tool, "-how=stoker", f"-url={at}"], "read", variables),
                    "ours, nginx": partial(self.run, [*tool, "-how=stoker", f"-url={here}"], "read"),
                    "bare copy, nginx": partial(self.run, [*tool, "-how=bare", f"-url={here}"], "read"),
                }
                try:
                    python = self.python("remote")
                except servers.MissingError as e:
                    self.skip("reads: obstore, boto3", str(e))
                else:
                    for client in ("obstore", "boto3"):
                        command = [python, "-m", "bench.remote.read_arm", client, "object/object.bin", *size]
                        arms[f"{client}, versitygw"] = partial(self.run, self.pinned(command), "read", variables)
                self.rounds(part, arms)

    def epochs(self) -> None:
        self.build()
        data_set = self.a.suite
        with self.packed(data_set) as url:
            files = len(datasets.records(data_set, self.work))
            packs = {}
            others = (("litdata", "side", "litdata"), ("mds", "mds", "mds"), ("webdataset", "side", "wds"))
            for name, env, kind in others:
                out = self.work / "packs" / data_set / kind
                try:
                    if not out.exists():
                        out.parent.mkdir(parents=True, exist_ok=True)
                        source = self.work / "data" / data_set
                        command = [self.python(env), "-m", "bench.packs", kind, str(source), str(out)]
                        got = self.run(command, "pack")
                        if "error" in got:
                            raise servers.MissingError(got["error"])
                    self.fill(url, f"{data_set}-{kind}", out, f"{data_set}-{kind}")
                    packs[name] = env
                except servers.MissingError as e:
                    self.skip(f"epochs: {name}", str(e))
            try:
                self.fill(url, f"{data_set}-files", self.work / "data" / data_set, f"{data_set}-files")
                packs["s3torch"] = "remote"
            except servers.MissingError as e:
                self.skip("epochs: s3torchconnector", str(e))
            for part, latency, rate in (("epochs, 100 MB/s", LINK_LATENCY, LINK_BYTES), ("epochs", "0s", 0.0)):
                with servers.throttled(url, self.tool, latency, rate) as slow:
                    self.rounds(part, self.epoch_arms(data_set, packs, slow, files, rate > 0))

    def epoch_arms(self, data_set: str, packs: dict[str, str], url: str, files: int, limited: bool) -> dict[str, Arm]:
        scratch = self.work / "remote/scratch"

        def one(name: str, env: str, kind: str, data: str, *more: str) -> dict[str, Any]:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            command = self.pinned([runner.short(runner.python_of(env, self.work)), "-m", f"bench.arms.{name}_arm"])
            command += ["--data", data, "--mode", "epoch", "--option", f"scratch={scratch}"]
            command += ["--records", str(files), *more]
            variables = servers.environment(url) | {"XDG_CACHE_HOME": str(scratch), "TMPDIR": str(scratch)}
            try:
                size = sum(p.stat().st_size for p in procs.files_below(here / f"{data_set}-{kind}"))
                return self.run(command, name, variables) | ({"link_s": size / LINK_BYTES} if limited else {})
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

        here = self.bucket / servers.BUCKET
        at = f"s3://{servers.BUCKET}/{data_set}"
        arms: dict[str, Arm] = {
            f"ours, {images}, {shown}": lambda images=images, order=order: one(
                "stoker", "project", images, f"{at}-{images}", "--option", f"shuffle={order}"
            )
            for images in ("keep", "dct")
            for shown, order in ORDERS.items()
        }
        workers = ["--workers", str(self.a.workers)]
        if "litdata" in packs:
            arms["LitData"] = lambda: one(
                "litdata", "side", "litdata", f"{at}-litdata", "--decode", "torchvision", *workers
            )
        if "mds" in packs:
            arms["MosaicML Streaming"] = lambda: one(
                "mds", "mds", "mds", f"{at}-mds", "--decode", "torchvision", *workers
            )
        if "webdataset" in packs:
            urls = self.work / "remote/wds.urls"
            self.upload(url, self.work / "packs" / data_set / "wds", f"{data_set}-wds", "--urls", str(urls))
            arms["WebDataset"] = lambda: one("webdataset", "side", "wds", str(urls), "--decode", "simplejpeg", *workers)
        if "s3torch" in packs:
            many = ["--workers", str(max(self.a.workers, 8))]  # each waits for one object at a time
            arms["s3torchconnector"] = lambda: one(
                "s3torch", "remote", "files", f"{at}-files/", "--decode", "simplejpeg", *many
            )
        return arms

    def cached(self) -> None:
        self.build()
        data_set = self.a.suite
        folder = self.work / "remote/kept"

        def one(path: str, url: str, *more: str) -> dict[str, Any]:
            shutil.rmtree(folder, ignore_errors=True)
            command = [self.python("project"), "-m", "bench.remote.cached_arm", path, *more]
            try:
                return self.run(self.pinned(command), "cached", servers.environment(url))
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        with self.packed(data_set) as url:
            for images in ("keep", "dct"):
                far = f"s3://{servers.BUCKET}/{data_set}-{images}"
                here = runner.short(self.bucket / servers.BUCKET / f"{data_set}-{images}")  # the server's own files
                arms: dict[str, Arm] = {
                    "ours, cached on the disk": partial(one, far, url, "--disk", str(folder)),
                    "ours, cached in memory": partial(one, far, url, "--memory"),
                    "ours, a local pack": partial(one, here, url),
                }
                self.rounds(f"cached, {images}", arms)

    def plan(self) -> None:
        self.build()
        data_set = self.a.suite
        with self.packed(data_set) as url, servers.throttled(url, self.tool, LINK_LATENCY, LINK_BYTES) as slow:
            cache = tempfile.mkdtemp(dir=self.work / "remote")
            variables = servers.environment(slow) | {"XDG_CACHE_HOME": cache}
            at = f"s3://{servers.BUCKET}/{data_set}-keep"
            for number in range(self.a.rounds):
                command = [str(ROOT / "bin/stoker"), "plan", at, "--batch", "256", "--step", "1ms", "--json", "--fresh"]
                done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables, check=False)
                if done.returncode:
                    self.note("plan", "plan", number, {"error": done.stderr})
                    continue
                said = json.loads(done.stdout)
                # At the end of an epoch, memory holds a good part of the next epoch of such a small set, and more for
                # larger windows. For a large set that part is negligible.
                for order, key in (("full", "seconds"), ("window:4", "seconds_window")):
                    arm = self.pinned([self.python("project"), "-m", "bench.remote.bytes_arm", at, order, "3"])
                    got = self.run(arm, "plan", variables)
                    if "error" not in got:
                        got["predicted_s"] = said["bucket"][key]
                        got["off"] = got["predicted_s"] / got["steady_s"] - 1
                    self.note("plan", order, number, got)
            shutil.rmtree(cache, ignore_errors=True)

    def doctor(self) -> None:
        self.build()
        data_set = self.a.suite
        with self.packed(data_set) as url, servers.throttled(url, self.tool, LINK_LATENCY, LINK_BYTES) as slow:
            variables = servers.environment(slow)
            arm = [self.python("project"), "-m", "bench.remote.train_arm", f"s3://{servers.BUCKET}/{data_set}-keep"]
            for number in range(self.a.rounds):
                cache = tempfile.mkdtemp(dir=self.work / "remote")
                saved = Path(cache) / "report.json"
                watch = [str(ROOT / "bin/stoker"), "doctor", "--seconds", "12", "--save", str(saved), "--"]
                done = subprocess.run(
                    self.pinned([*watch, *arm, "--seconds", "18"]),
                    capture_output=True, text=True, env=os.environ | variables, check=False,
                )  # fmt: skip
                after = self.run(self.pinned([*arm, "--seconds", "10", "--cache", cache]), "doctor", variables)
                if done.returncode or not saved.exists():
                    got: dict[str, Any] = {"error": done.stderr}
                elif "error" in after:
                    got = after
                else:
                    before = json.loads(done.stdout)  # of the run that was watched
                    said = json.loads(saved.read_text())
                    gain = after["steps_s"] / before["steps_s"]
                    got = {"verdict": said["verdict"], "predicted_gain": said["gain"], "gain": gain}
                    got |= {"off": said["gain"] / gain - 1, "advice": [a["title"] for a in said["advice"]]}
                shutil.rmtree(cache, ignore_errors=True)
                self.note("doctor", "cache", number, got)

    def link(self) -> None:
        self.build()
        link.measure(self)

    def disk(self) -> None:
        disk.measure(self)

    # -- the end ------------------------------------------------------------------------------------------------------

    def table(self) -> None:
        for part in dict.fromkeys(r["part"] for r in self.results["runs"]):
            print(part)
            runs = [r for r in self.results["runs"] if r["part"] == part and "error" not in r]
            for arm in dict.fromkeys(r["arm"] for r in runs):
                mine = [r for r in runs if r["arm"] == arm]
                every = [k for k in SHOWN if all(k in r for r in mine)]
                figures = [f"{k} {statistics.median(r[k] for r in mine):,.3f}" for k in every]
                print(f"  {arm:22s} {'   '.join(figures)}")
        for what, why in self.results["skipped"].items():
            print(f"  {what}: skipped: {why[:200]}")


SHOWN = (
    "cpu_s_per_gb", "gb_s", "epoch_s", "steady_s", "first_batch_s", "examples_s", "predicted_s", "off", "share",
    "round_trips", "open_s", "gain", "predicted_gain",
)  # fmt: skip


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS, metavar="PART", help=" ".join(PARTS))
    p.add_argument("--suite", default="photos", choices=["photos", "gen"], help="the data set")
    p.add_argument("--bytes", type=int, default=4 << 30, help="reads: how much is read")
    p.add_argument("--disk-bytes", type=int, default=4 << 30, help="disk: the size of the pack")
    p.add_argument("--small-files", type=int, default=300_000, help="disk: how many small files")
    p.add_argument("--workers", type=int, default=2, help="worker processes of the others")
    p.add_argument("--report", action="store_true", help="write the region of docs/internals/benchmarks.md, and end")
    arguments(p, seconds=0, warmup=0)
    a = p.parse_args()
    if a.report:
        report.write()
        return
    a.work, a.data = a.work.resolve(), a.data.resolve()
    if a.rounds == 0:
        return
    bench = Bench(a)
    for part in a.only:
        started = time.monotonic()
        try:
            getattr(bench, part)()
        except (servers.MissingError, datasets.MissingError) as e:
            bench.skip(part, str(e))
        say(f"{part}: {time.monotonic() - started:.0f} s")
    bench.table()
    say(f"all figures are in {runner.short(bench.path)}")


if __name__ == "__main__":
    main()
