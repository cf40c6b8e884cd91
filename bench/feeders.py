"""Long tests of feeders: ``make test-flight``.

python -m bench.feeders                  # 100,000 batches, 50 kills, 1 and 4 servers of a quarter of a core
python -m bench.feeders --batches 5000 --kills 5
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import stoker
from stoker import transforms as T
from stoker._binary import find_binary

BATCH = 8
SEED = 7
CGROUP = Path("/sys/fs/cgroup/cpu")


class Server:
    """A server process."""

    def __init__(self, config: Path, port: int = 0, quota: float = 0) -> None:
        self.group = CGROUP / f"stoker-feeders-{os.getpid()}-{random.random()}" if quota else None
        if self.group:
            self.group.mkdir()
            (self.group / "cpu.cfs_period_us").write_text("20000")
            (self.group / "cpu.cfs_quota_us").write_text(str(int(20000 * quota)))
        command = [find_binary(), "serve", "--flight", f"127.0.0.1:{port}", "--config", str(config)]
        if self.group:
            command = ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs; exec "$@"', "sh", *command]
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
            for _ in range(100):
                with contextlib.suppress(OSError):
                    self.group.rmdir()
                    break
                time.sleep(0.05)


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


def rate(config: Path, steps: int, n: int, seconds: float) -> float:
    """Return the batches per second of n servers of a quarter of a core."""
    import pyarrow.flight as flight

    servers = [Server(config, quota=0.25) for _ in range(n)]
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
    time.sleep(3)
    began, before = time.monotonic(), count[0]
    time.sleep(seconds)
    per_second = (count[0] - before) / (time.monotonic() - began)
    stop.set()
    for lane in lanes:
        lane.join(60)
    for s in servers:
        s.kill()
    return per_second


def main() -> None:
    """Run the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=15)
    args = parser.parse_args()
    os.environ["STOKER_CACHE"] = "off"
    with tempfile.TemporaryDirectory() as folder:
        data, photos, config = Path(folder, "small"), Path(folder, "photos"), Path(folder, "pipeline.json")
        for tree, count, size in (data, "800", "160x140"), (photos, "200", "800x600"):
            gen = [
                "gen",
                "images",
                str(tree),
                "--count",
                count,
                "--classes",
                "4",
                "--seed",
                "5",
                "--size",
                size,
                "--tree",
            ]
            subprocess.run([find_binary(), *gen], check=True, capture_output=True)
        if args.batches:
            killed(data, config, args.batches, args.kills)
        if not args.seconds or not os.access(CGROUP, os.W_OK):
            print("no CPU quotas: the servers of a quarter of a core are not measured")
            return
        steps = save(photos, config, 96, threads=1, memory=64 << 20)
        one = rate(config, steps, 1, args.seconds)
        four = rate(config, steps, 4, args.seconds)
        print(f"servers of 0.25 cores: 1 gives {one:.1f} batches/s, 4 give {four:.1f} ({four / one:.2f} times)")
        if four < 3.8 * one:
            sys.exit("4 servers give less than 3.8 times as much")


if __name__ == "__main__":
    main()
