"""Three jobs under random faults; each batch is compared with the run without faults.

    python -m bench.hostile.soak [--minutes 20] [--seed N]

One job reads a folder with a cache on a small disk, one a pack, one a pack in a bucket (make servers). Each runs a few
epochs, and then begins again with other threads, memory and prefetch, which must not change a batch. A seed repeats the
choice and the times of the faults.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import ground
from .ground import UnavailableError, engines, job, run
from .kills import Job, Killed, tidy

# The longest time without a batch that is no failure: stops, retries of a dead server and busy machines add up.
PATIENCE = 180


class Bucket:
    """A server of S3 that can be killed, and come back."""

    def __init__(self, folder: Path) -> None:
        self.tool = ground.ROOT / "bin/tools/versitygw"
        if not self.tool.exists():
            raise UnavailableError("bin/tools/versitygw is not there: make servers builds it")
        self.data, self.meta = folder / "objects", folder / "meta"
        (self.data / "soak").mkdir(parents=True)
        self.meta.mkdir()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.keys = {
            "ROOT_ACCESS_KEY_ID": "STOKERSOAKACCESS",
            "ROOT_SECRET_ACCESS_KEY": "stokersoaksecret0123456789abcd",
        }
        self.start()

    def start(self) -> None:
        own = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")} | self.keys
        command = [
            self.tool,
            "--port",
            f"127.0.0.1:{self.port}",
            "--keep-alive",
            "--quiet",
            "posix",
            "--sidecar",
            self.meta,
            self.data,
        ]
        self.process = subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers() -> bool:
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0

        ground.wait_for(answers)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def environment(self) -> dict[str, str]:
        access, secret = self.keys.values()
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }  # fmt: skip


class Supervised(threading.Thread):
    """A job that is started again when it is killed, from the state after its last batch."""

    def __init__(
        self,
        name: str,
        source: str,
        env: dict[str, str],
        options: dict[str, Any],
        want: list[Any],
        epochs: int,
        rng: random.Random,
    ) -> None:
        super().__init__(name=name)
        self.source, self.env, self.options, self.want, self.rng = source, env, options, want, rng
        self.epochs = epochs
        self.over = threading.Event()
        self.running: Job | None = None
        self.trouble, self.compared, self.trainers, self.restarts, self.refused = "", 0, 0, 0, 0

    def command(self, state: str) -> list[str]:
        made = {**self.options, "threads": self.rng.choice([1, 2, 3])}
        memory = self.rng.choice(["64MB", "96MB", "200MB"])
        options = [
            "--states",
            "--batch",
            8,
            "--epochs",
            self.epochs,
            "--window",
            0,
            "--note",
            "--pause",
            0.02,
            "--memory",
            memory,
        ]
        return job(
            "stoker", self.source, *options, "--options", json.dumps(made), *(["--state", state] if state else [])
        )

    def run(self) -> None:
        try:
            while not self.over.is_set() and not self.trouble:
                self.one()
        except Exception as err:  # a thread's end must not go unseen
            self.trouble = repr(err)

    def one(self) -> None:
        """Run the epochs once."""
        state, at = "", 0
        while not self.over.is_set():
            env = dict(self.env)
            if self.rng.random() < 0.5:
                # A tenth of the reads are slow, and one in fifty fails.
                env["STOKER_TEST_FAULTS"] = "delay=30ms,chance=0.1;error,chance=0.02"
            self.running = running = Job(self.command(state), env)
            self.trainers += 1
            seen, restarts, last = 0, 0, time.monotonic()
            try:
                while True:
                    ended = running.process.poll() is not None
                    running.read()
                    for line in running.lines[seen:]:
                        seen += 1
                        last = time.monotonic()
                        restarts = line.get("restarts", restarts)
                        if "sum" not in line:
                            continue
                        if at >= len(self.want) or line["sum"] != self.want[at]:
                            self.trouble = f"batch {at} differs from the run without faults"
                            return
                        at, state = at + 1, json.dumps(line["state"])
                        self.compared += 1
                    if ended or self.over.is_set():
                        break
                    if time.monotonic() - last > PATIENCE:
                        self.trouble = f"no batch for {PATIENCE} s after batch {at}: {running.errors()[-500:]}"
                        return
                    time.sleep(0.02)
                if self.over.is_set():
                    return
                code = running.process.returncode
                if code == 0:
                    if at != len(self.want):
                        self.trouble = f"{at} batches, expected {len(self.want)}"
                    return
                if not running.batches and "cannot connect" in (errors := running.errors()) and "cannot open" in errors:
                    self.refused += 1  # the server was down; a batch system would start the job again
                elif code != -signal.SIGKILL:
                    self.trouble = f"the trainer ended with {code} after batch {at}: {running.errors()[-1000:]}"
                    return
            finally:
                self.restarts += restarts
                self.running = None
                running.close()


FAULTS = ("kill engine", "kill trainer", "stop engine", "stop trainer", "full disk", "kill server", "stop server")


class Injector:
    """Injects faults at random times, all of them from one seed."""

    def __init__(self, jobs: list[Supervised], bucket: Bucket | None, disk: Path | None, rng: random.Random) -> None:
        self.jobs, self.bucket, self.disk, self.rng = jobs, bucket, disk, rng
        self.count: Counter[str] = Counter()

    def inject(self) -> None:
        """Inject one fault. All random numbers are drawn before anything depends on the machine."""
        fault, target, seconds = self.rng.choice(FAULTS), self.rng.choice(self.jobs), self.rng.uniform(0.2, 3)
        if self.rng.random() < 0.03:
            seconds *= 5
        running = target.running
        trainer = running.pid if running is not None else 0
        pids = {"engine": engines(trainer), "trainer": [trainer]}.get(fault.split()[1], []) if trainer else []
        if fault == "full disk" and self.disk:
            with contextlib.suppress(OSError), open(self.disk / "filler", "wb", 0) as f:
                while True:
                    f.write(bytes(1 << 16))
            time.sleep(seconds)
            (self.disk / "filler").unlink()
            self.count[fault] += 1
        elif fault.endswith("server") and self.bucket:
            if fault == "kill server":
                self.bucket.stop()
                time.sleep(seconds)
                self.bucket.start()
            else:
                self.signal([self.bucket.process.pid], signal.SIGSTOP)
                time.sleep(seconds)
                self.signal([self.bucket.process.pid], signal.SIGCONT)
            self.count[fault] += 1
        elif pids and fault.startswith("kill"):
            self.signal(pids, signal.SIGKILL)
            self.count[f"{fault}, {target.name}"] += 1
        elif pids:
            self.signal(pids, signal.SIGSTOP)
            time.sleep(seconds)
            self.signal(pids, signal.SIGCONT)
            self.count[f"{fault}, {target.name}"] += 1

    @staticmethod
    def signal(pids: list[int], sig: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)


@contextlib.contextmanager
def small_disk(at: Path) -> Iterator[Path | None]:
    """Mount a disk of 4 MiB for the cache; None if this process may not."""
    at.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(at)], capture_output=True, check=False
    ).returncode:
        yield None
        return
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=False)


def soak(seconds: float, seed: int, images: int = 192, pace: float = 2.0, epochs: int = 10, say: Any = print) -> str:
    """Run the jobs for this time; return what went wrong, "" for nothing."""
    rng = random.Random(seed)
    result = Killed("soak")
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(ground.data(images))
        env = stack.enter_context(tidy(result))
        disk = stack.enter_context(small_disk(data / "disk"))
        sources: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
            "folder": (
                str(data / "tree"),
                {"STOKER_CACHE": "auto", "STOKER_CACHE_DIR": str(disk or data / "disk")},
                {"cache": True},
            ),
            "pack": (str(data / "pack"), {}, {}),
        }
        bucket = None
        try:
            bucket = Bucket(data)
        except UnavailableError as err:
            say(f"soak: without a bucket: {err}")
        else:
            stack.callback(bucket.stop)
            subprocess.run(["cp", "-r", str(data / "pack"), str(data / "objects/soak/pack")], check=True)
            sources["bucket"] = ("s3://soak/pack", bucket.environment(), {})
        if disk is None:
            say("soak: without a full disk: mounts cannot be made (root is needed)")
        jobs = []
        for name, (source, more, options) in sources.items():
            command = job("stoker", source, "--states", "--batch", 8, "--epochs", epochs)
            outcome = run(command, {**env, **more, "STOKER_CACHE": "off"})
            if not outcome.ended:
                return f"{name}: the run without faults fails: {outcome.why()}"
            jobs.append(
                Supervised(name, source, {**env, **more}, options, outcome.sums, epochs, random.Random(rng.random()))
            )
        injector = Injector(jobs, bucket, disk, rng)
        begun = time.monotonic()
        say(f"soak: {len(jobs)} jobs for {seconds / 60:.1f} minutes, seed {seed}")
        for j in jobs:
            j.start()
        try:
            spoken = begun
            while time.monotonic() - begun < seconds and not any(j.trouble for j in jobs):
                time.sleep(rng.uniform(0, pace))
                injector.inject()
                if time.monotonic() - spoken > 60:
                    spoken = time.monotonic()
                    say(
                        f"soak: {(spoken - begun) / 60:.0f} min, {sum(injector.count.values())} faults, "
                        + ", ".join(f"{j.name} {j.compared}" for j in jobs)
                        + " batches"
                    )
            # Each job must get on after the last fault.
            at = {j.name: j.compared for j in jobs}
            for j in jobs:
                deadline = time.monotonic() + PATIENCE
                while j.compared == at[j.name] and not j.trouble and time.monotonic() < deadline:
                    time.sleep(0.05)
        finally:
            for j in jobs:
                j.over.set()
            for j in jobs:
                j.join(PATIENCE)
        for what, n in sorted(injector.count.items()):
            say(f"soak: {n:5} x {what}")
        for j in jobs:
            say(
                f"soak: {j.name}: {j.compared} batches compared, {j.trainers} trainers, {j.restarts} restarts, {j.refused} x no server"
                + (f"; {j.trouble}" if j.trouble else "")
            )
        trouble = "; ".join(f"{j.name}: {j.trouble}" for j in jobs if j.trouble)
    # Files of a cache stay, in a folder of their own.
    left = result.left if "processes" in result.left or "/dev/shm" in result.left else ""
    return trouble or left


def summary(said: list[str], minutes: float, seed: int) -> str:
    """Return one sentence about a run without a failure."""
    faults = sum(int(n) for line in said for n in re.findall(r"^ *(\d+) x ", line))
    compared = sum(int(n) for line in said for n in re.findall(r": (\d+) batches compared", line))
    return (
        f"The last run passes: {minutes:.0f} minutes, {faults} faults, {compared:,} batches compared,\n"
        f"all equal to those of the run without faults (seed {seed})."
    )


def main() -> int:
    p = argparse.ArgumentParser(prog="python -m bench.hostile.soak", description=(__doc__ or "").split("\n")[0])
    p.add_argument("--minutes", type=float, default=20)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    a = p.parse_args()
    said: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)
        said.append(text.removeprefix("soak: "))

    trouble = soak(a.minutes * 60, a.seed, say=say)
    if not trouble and a.minutes >= 20:
        from .__main__ import save

        save("soak", [{"text": summary(said, a.minutes, a.seed)}])
    print(f"soak: {trouble or 'each batch was that of the run without faults'}; seed {a.seed}")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
