"""Feeders: servers that build batches for a trainer, on nodes that are network namespaces with CPU quotas.

    make bench SUITES=feeders               7 minutes on 2 cores; tables go to docs/internals/benchmarks.md
    make test-flight                        100,000 batches are compared while servers are killed 50 times

Each server is in a network namespace of its own, with a link of 1 Gbit/s (veth and tbf), and in a control group with a
quarter of a core. Without root, servers are processes on this machine without quotas, and only the
transport is measured.
Rates of servers are measured with plain clients before and after each run of a trainer. The transport is compared with
arrow-go's Flight package on two cores, which both processes share (bench/flight).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import stoker
from stoker import transforms as T
from stoker._binary import find_binary

from . import procs, regions, runner, stored
from .figures import table
from .run import _git, _slug

ROOT = runner.ROOT
PAGE = ROOT / "docs/internals/benchmarks.md"
BATCH = 8
SEED = 7
CGROUP = Path("/sys/fs/cgroup/cpu")
# The shares of a core of a server, of a server at a quarter of its speed, and of a trainer.
SERVER, SLOW, TRAINER = 0.25, 0.0625, 0.25
WARMUP = 4.0


class Group:
    """A control group with a share of a core."""

    def __init__(self, quota: float) -> None:
        self.path = CGROUP / f"stoker-feeders-{os.getpid()}-{random.random()}"
        self.path.mkdir()
        (self.path / "cpu.cfs_period_us").write_text("20000")
        (self.path / "cpu.cfs_quota_us").write_text(str(int(20000 * quota)))

    def add(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                break
            time.sleep(0.05)


class Node:
    """A network namespace with a link of 1 Gbit/s to this one."""

    numbers = itertools.count(1)

    def __init__(self) -> None:
        n = next(Node.numbers)
        self.name, self.near, self.far = (f"sf{os.getpid()}{part}{n}" for part in "nab")
        self.address = f"10.231.{100 + n % 100}.2"
        self.inside = ["ip", "netns", "exec", self.name]
        shape = ["root", "tbf", "rate", "1gbit", "burst", "512kb", "latency", "50ms"]
        try:
            _do("ip", "netns", "add", self.name)
            _do("ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far, "netns", self.name)
            _do("ip", "addr", "add", f"10.231.{100 + n % 100}.1/24", "dev", self.near)
            _do("ip", "link", "set", self.near, "up")
            _do(*self.inside, "ip", "addr", "add", f"{self.address}/24", "dev", self.far)
            _do(*self.inside, "ip", "link", "set", self.far, "up")
            for where, device in ([], self.near), (self.inside, self.far):
                _do(*where, "tc", "qdisc", "add", "dev", device, *shape)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        subprocess.run(["ip", "link", "del", self.near], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"feeders: {' '.join(command)}: {done.stderr.strip()}")


def can_isolate() -> bool:
    """Report whether this process may make network namespaces and control groups."""
    tools = shutil.which("ip") and shutil.which("tc")
    return os.getuid() == 0 and bool(tools) and os.access(CGROUP / "cgroup.procs", os.W_OK)


class Server:
    """A server process, with a quota on a node of its own."""

    def __init__(self, config: Path, port: int = 0, quota: float = 0) -> None:
        self.group = Group(quota) if quota else None
        self.node = Node() if quota else None
        command = [find_binary(), "serve", "--flight", f"127.0.0.1:{port}", "--config", str(config)]
        if self.node:
            command = [*self.node.inside, *command[:3], f"{self.node.address}:7443", *command[4:], "--insecure"]
        if self.group:
            command = ["sh", "-c", f'echo $$ > {self.group.path}/cgroup.procs; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        line = self.process.stderr.readline()
        found = dict(re.findall(r"(\w+)=(\S+)", line))
        if "flight" not in found:
            raise SystemExit(f"the server did not start: {line}{self.process.stderr.read()}")
        self.address, self.manifest, self.pipeline = found["flight"], found["manifest"], found["pipeline"]
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        if self.group:
            self.group.remove()
        if self.node:
            self.node.remove()


@contextlib.contextmanager
def serving(config: Path, quotas: Sequence[float]) -> Iterator[list[Server]]:
    """Run servers with quotas."""
    servers: list[Server] = []
    try:
        servers.extend(Server(config, quota=quota) for quota in quotas)
        yield servers
    finally:
        for server in servers:
            server.kill()


def how(size: int) -> dict[str, Any]:
    """Return the arguments of a loader."""
    ops = [T.RandomResizedCrop(size), T.RandomHorizontalFlip()]
    return {"batch_size": BATCH, "shuffle": True, "seed": SEED, "transforms": {"image": ops}}


def save(data: Path, path: Path, size: int, **more: Any) -> int:
    """Write the file of a pipeline, and return the number of batches of an epoch."""
    with stoker.Loader(data, **how(size)) as loader:
        loader.save_pipeline(path)
        steps = len(loader)
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return steps


def stream(loader: stoker.Loader) -> Iterator[tuple[np.ndarray[Any, Any], bytes]]:
    """Yield record numbers and pixels of each batch, epoch after epoch."""
    while True:
        for batch in loader:
            yield batch["index"].copy(), batch["image"].tobytes()


def killed(data: Path, config: Path, batches: int, kills: int) -> None:
    """Compare a loader with three servers, which are killed again and again, with one without."""
    save(data, config, 16, threads=1, memory=64 << 20)
    servers = [Server(config) for _ in range(3)]
    feeders = ",".join(s.address for s in servers)
    limits = stoker.Limits(memory=128 << 20, prefetch=16)
    began = time.monotonic()
    with (
        stoker.Loader(data, **how(16), threads=1, limits=limits) as plain,
        stoker.Loader(data, **how(16), threads=1, limits=limits, feeders=feeders) as fed,
    ):
        every = max(batches // max(kills, 1), 1)
        done = 0
        for n, (want, got) in enumerate(zip(stream(plain), stream(fed), strict=True)):
            if not (want[0] == got[0]).all() or want[1] != got[1]:
                raise SystemExit(f"batch {n} differs")
            if n + 1 == batches:
                break
            if n % every == every // 2 and done < kills:
                one = random.randrange(3)
                port = int(servers[one].address.rpartition(":")[2])
                servers[one].kill()
                servers[one] = Server(config, port)
                done += 1
        stats = fed.stats()["engine"]["feeders"]
    for s in servers:
        s.kill()
    print(f"{batches:,} batches are equal, {done} kills, {time.monotonic() - began:.0f} s; {stats}", flush=True)
    if not stats["batches"] or stats["different"]:
        raise SystemExit("no batch came from a server, or some differed")


def direct(servers: list[Server], steps: int, seconds: float) -> float:
    """Return the batches per second that servers give to plain clients, three requests at a time each."""
    import pyarrow.flight as flight

    count, lock, stop = [0], threading.Lock(), threading.Event()

    def ask(server: Server, lane: int) -> None:
        client = flight.FlightClient(f"grpc://{server.address}")
        step = lane
        while not stop.is_set():
            at = step % (steps - 1)
            ticket = {"manifest": server.manifest, "pipeline": server.pipeline, "seed": SEED, "epoch": step // steps}
            ticket |= {"batch": at, "rows": [at * BATCH, at * BATCH + BATCH]}
            client.do_get(flight.Ticket(json.dumps(ticket).encode())).read_all()
            step += 1
            with lock:
                count[0] += 1

    lanes = [threading.Thread(target=ask, args=(s, 97 * i + k)) for i, s in enumerate(servers) for k in range(3)]
    for lane in lanes:
        lane.start()
    time.sleep(WARMUP / 2)
    began, before = time.monotonic(), count[0]
    time.sleep(seconds)
    per_second = (count[0] - before) / (time.monotonic() - began)
    stop.set()
    for lane in lanes:
        lane.join(60)
    return per_second


def trainer(data: str, feeders: str, seconds: float) -> None:
    """Be a trainer with a quarter of a core, and print what it got from servers."""
    group = Group(TRAINER)
    with stoker.Loader(data, **how(96), threads=1, feeders=stoker.Feeders(feeders, insecure=True)) as loader:
        engine = loader._epochs.live()._engine_pid()
        for pid in os.getpid(), engine:
            group.add(pid)
        # Batches that the trainer builds itself do not count.
        marks: list[tuple[float, int]] = []
        began = time.monotonic()
        for _ in stream_only(loader):
            if time.monotonic() - began > WARMUP + seconds * len(marks):
                marks.append((time.monotonic(), loader.stats()["engine"]["feeders"]["batches"]))
                if len(marks) == 2:
                    break
        stats, all_batches = loader.stats()["engine"]["feeders"], loader.stats()["batches"]
        (CGROUP / "cgroup.procs").write_text(str(os.getpid()))
        rate = (marks[1][1] - marks[0][1]) / (marks[1][0] - marks[0][0])
        print(json.dumps({"rate": rate, "batches": all_batches, "feeders": stats}))
    group.remove()


def stream_only(loader: stoker.Loader) -> Iterator[stoker.Batch]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def trained(data: Path, servers: list[Server], seconds: float) -> dict[str, Any]:
    """Run a trainer, and return what it got."""
    what = [str(data), ",".join(s.address for s in servers), str(seconds)]
    command = [sys.executable, "-m", "bench.feeders", "--trainer", *what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise SystemExit(f"feeders: the trainer failed: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def used_after(data: Path, config: Path) -> float:
    """Return the seconds from the line of a new server in the list until the server builds a batch."""
    stop = threading.Event()
    with serving(config, [SERVER, SERVER]) as servers, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "feeders.txt")
        path.write_text(servers[0].address + "\n")

        def train() -> None:
            feeders = stoker.Feeders(f"file:{path}", insecure=True)
            with stoker.Loader(data, **how(96), threads=1, feeders=feeders) as loader:
                for _ in stream_only(loader):
                    if stop.is_set():
                        return

        thread = threading.Thread(target=train)
        thread.start()
        try:
            time.sleep(3 + 4 * random.random())
            sent = Path(f"/sys/class/net/{servers[1].node.near}/statistics/rx_bytes")
            before = int(sent.read_text())
            part = path.with_suffix(".new")
            part.write_text("".join(s.address + "\n" for s in servers))
            part.rename(path)
            began = time.monotonic()
            while int(sent.read_text()) < before + 100_000:  # half a batch
                if time.monotonic() > began + 60:
                    raise SystemExit("feeders: the new server is not used")
                time.sleep(0.01)
            return time.monotonic() - began
        finally:
            stop.set()
            thread.join(60)


# The arms of the transport: name, code, connections of arrow-go, and whether it is encrypted.
WIRES = (
    ("arrow-go, 1 connection", "arrow-go", 1, False),
    ("arrow-go, 4 connections", "arrow-go", 4, False),
    ("Stoker", "stoker", 1, False),
    ("Stoker, TLS", "stoker", 1, True),
)


def wire(tool: str, folder: Path, how_: str, connections: int, tls: bool, seconds: float) -> dict[str, float]:
    """Send batches between two processes on two cores, and return GB/s and the CPU time of both per GB."""
    cores = ",".join(str(c) for c in sorted(os.sched_getaffinity(0))[:2])
    command = ["taskset", "-c", cores, tool, "-how", how_]
    if tls:
        cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
        if not os.path.exists(cert):
            new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
            name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
            _do("openssl", *new, *name, "-out", cert, "-keyout", key)
        command += ["-cert", cert, "-key", key]
    with subprocess.Popen([*command, "-serve"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            address = server.stdout.readline().strip()
            client = [*command, "-addr", address, "-connections", str(connections), "-seconds", str(seconds)]
            before = procs.cpu_seconds(server.pid)
            done = subprocess.run(client, capture_output=True, text=True, check=False, timeout=120)
            if done.returncode:
                raise SystemExit(f"feeders: the transport failed: {done.stderr}")
            got = json.loads(done.stdout)
            # The server's time includes the first second of the client.
            served = (procs.cpu_seconds(server.pid) - before) * got["seconds"] / (got["seconds"] + 1)
        finally:
            server.terminate()
    return {"gb_s": got["gb"] / got["seconds"], "cpu_s_per_gb": (got["cpu"] + served) / got["gb"]}


def wires(seconds: float, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Measure the transport in rounds, in an order that changes."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name, *_ in WIRES}
    with tempfile.TemporaryDirectory() as folder:
        tool = str(Path(folder, "flight"))
        subprocess.run(["go", "build", "-o", tool, "./bench/flight"], cwd=ROOT, check=True)
        for number in range(rounds):
            for name, how_, connections, tls in random.Random(number).sample(WIRES, len(WIRES)):
                got = wire(tool, Path(folder), how_, connections, tls, seconds)
                found[name].append(got)
                speed = f"{got['gb_s']:.2f} GB/s, {got['cpu_s_per_gb']:.2f} CPU-s per GB"
                say(f"round {number + 1}/{rounds} {name}: {speed}")
    return found


def say(text: str) -> None:
    print(f"feeders: {text}", flush=True)


def measure(data: Path, config: Path, steps: int, a: argparse.Namespace) -> dict[str, Any]:
    """Measure everything."""
    result: dict[str, Any] = {
        "wires": wires(a.seconds / 2, a.rounds),
        "scaling": [],
        "trainer": [],
        "slow": [],
        "new": [],
    }
    if not can_isolate():
        say("no root, ip, tc or control groups: only the transport is measured")
        return result
    for _ in range(a.rounds):
        with serving(config, [SERVER]) as servers:
            one = direct(servers, steps, a.seconds)
        with serving(config, [SERVER] * 4) as servers:
            before = direct(servers, steps, a.seconds)
            got = trained(data, servers, a.seconds)
            after = direct(servers, steps, a.seconds / 2)
        result["scaling"].append({"one": one, "four": before})
        result["trainer"].append({"servers": [before, after], **got})
        say(f"1 server {one:.1f} batches/s, 4 servers {before:.1f} and {after:.1f}, trainer {got['rate']:.1f}")
        with serving(config, [SERVER, SERVER, SERVER, SLOW]) as servers:
            before = direct(servers, steps, a.seconds)
            got = trained(data, servers, a.seconds)
            after = direct(servers, steps, a.seconds / 2)
        result["slow"].append({"servers": [before, after], **got})
        say(f"one slow server of 4: {before:.1f} batches/s and {after:.1f}, trainer {got['rate']:.1f}")
        result["new"].append(used_after(data, config))
        say(f"a new server is used after {result['new'][-1]:.1f} s")
    return result


def _spread(values: Sequence[float], form: str = ".2f") -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def text(r: dict[str, Any]) -> str:
    """Return the section of the page."""
    wire_rows = [
        [name, _spread([g["gb_s"] for g in got]), _spread([g["cpu_s_per_gb"] for g in got])]
        for name, got in r["wires"].items()
    ]
    plain = r["wires"]["Stoker"]
    best = [max(a["gb_s"], b["gb_s"]) for a, b in zip(r["wires"][WIRES[0][0]], r["wires"][WIRES[1][0]], strict=True)]
    bars = [
        (
            "plain transport: GB/s, of arrow-go's better one",
            [p["gb_s"] / b for p, b in zip(plain, best, strict=True)],
            1.3,
            True,
        ),
        (
            "TLS: CPU time per GB, of plain",
            [t["cpu_s_per_gb"] / p["cpu_s_per_gb"] for t, p in zip(r["wires"]["Stoker, TLS"], plain, strict=True)],
            2,
            False,
        ),
    ]
    if r["scaling"]:
        bars += [
            ("4 servers: rate, of that of 1", [s["four"] / s["one"] for s in r["scaling"]], 3.8, True),
            *(
                (
                    f"{what}: rate, of the sum of the servers' rates",
                    [t["rate"] / statistics.mean(t["servers"]) for t in r[key]],
                    bar,
                    True,
                )
                for what, key, bar in (
                    ("4 servers and a trainer, without its own batches", "trainer", 0.98),
                    ("the same, one server at a quarter of its speed", "slow", 0.95),
                )
            ),
            ("seconds until a new server is used", r["new"], 5, False),
        ]
    rows = []
    for what, found, bar, least in bars:
        value = statistics.median(found) if what.find("seconds") < 0 else max(found)
        met = value >= bar if least else value <= bar
        rows.append([what, _spread(found), f"{'at least' if least else 'at most'} {bar:g}", "yes" if met else "**no**"])
    out = (
        "## Feeders\n\n`make bench SUITES=feeders` measures servers that build batches for a trainer. The transport "
        "sends batches of 38.5 MB between two processes that share two cores. Servers have a quarter of a core each, "
        "in network namespaces with links of 1 Gbit/s. The trainer has a quarter of a core. Batches that it builds "
        "itself do not count.\n"
    )
    out += "\n" + table(["transport", "GB/s", "CPU seconds per GB"], wire_rows) + "\n"
    return out + "\n" + table(["", "measured", "bar", "met"], rows) + "\n"


def main() -> None:
    """Run the tests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=0, help="compare so many batches instead")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--report", action="store_true", help="write the region of docs/internals/benchmarks.md, and end"
    )
    parser.add_argument("--trainer", nargs=3, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.report:
        PAGE.write_text(
            regions.put(PAGE.read_text(), "feeders", text(json.loads(stored.newest("feeders-*.json").read_text())))
        )
        say(f"wrote the section of {runner.short(PAGE)}")
        return
    os.environ["STOKER_CACHE"] = "off"
    if a.trainer:
        trainer(a.trainer[0], a.trainer[1], float(a.trainer[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        tree, config = Path(folder, "tree"), Path(folder, "pipeline.json")
        count, size = ("800", "160x140") if a.batches else ("200", "800x600")
        gen = ["gen", "images", str(tree), "--count", count, "--classes", "4", "--seed", "5", "--size", size, "--tree"]
        subprocess.run([find_binary(), *gen], check=True, capture_output=True)
        if a.batches:
            killed(tree, config, a.batches, a.kills)
            return
        machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD")
        result: dict[str, Any] = {
            "machine": machine,
            "commit": commit,
            "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
            "settings": {"rounds": a.rounds, "seconds": a.seconds},
            "load": [os.getloadavg()[0]],
        }
        steps = save(tree, config, 96, threads=1, memory=64 << 20)
        result |= measure(tree, config, steps, a)
        result["load"].append(os.getloadavg()[0])
    path = a.out or ROOT / "bench/results" / f"feeders-{_slug(machine)}-{commit}.json"
    stored.save(path, result)
    print(text(result))


if __name__ == "__main__":
    main()
