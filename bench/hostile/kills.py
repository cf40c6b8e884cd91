"""kill -9 of the engine, and of the trainer, again and again under one consumer of batches."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .ground import alive, descendants, engines, environment, job, lines_of, run, wait_for


class Job:
    """A running job whose lines are read as they come."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.lines: list[dict[str, Any]] = []
        # The job writes into files, so that its own speed does not depend on this reader.
        self._out, self._errors = (open(os.memfd_create("hostile"), "w+b") for _ in range(2))  # noqa: SIM115
        self.process = subprocess.Popen(
            command, env=env, stdout=self._out, stderr=self._errors, start_new_session=True, cwd="/"
        )
        self.pid = self.process.pid
        self._at = 0

    def read(self) -> list[dict[str, Any]]:
        """Return all whole lines so far."""
        data = os.pread(self._out.fileno(), 1 << 26, self._at)
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        self.lines += lines_of(whole.decode())
        return self.lines

    @property
    def batches(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "sum" in line]

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def kill(self) -> None:
        """Kill the trainer."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self._out.close()
        self._errors.close()


@dataclass
class Killed:
    """What was killed, and what became of the batches."""

    what: str
    kills: int = 0
    batches: int = 0
    trouble: str = ""
    slowest: float = 0  # seconds from a kill to the next batch
    left: str = ""

    def text(self) -> str:
        if self.trouble or self.left:
            return self.trouble or self.left
        return (
            f"passes: {self.kills} kills, {self.batches} batches, none lost or doubled, nothing left; "
            f"at most {self.slowest:.1f} s from a kill to the next batch"
        )


@contextlib.contextmanager
def tidy(result: Killed) -> Iterator[dict[str, str]]:
    """Give jobs folders of their own, and note what is left in them, in /dev/shm and in the list of processes."""
    with tempfile.TemporaryDirectory(prefix="stoker-hostile-") as folder:
        env = environment(
            TMPDIR=folder, STOKER_RUNTIME_DIR=folder + "/run", STOKER_CACHE_DIR=folder + "/cache", STOKER_HOSTILE=folder
        )
        shm = set(os.listdir("/dev/shm"))
        yield env
        deadline = time.monotonic() + 60
        while True:  # processes learn of an end by their sockets, and other programs use names for a short time
            pids = _with(folder)
            names = {n for n in set(os.listdir("/dev/shm")) - shm if n.startswith("stoker")}
            if (not pids and not names) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        # Sockets of killed engines stay until the next program that looks for engines removes them.
        files = [
            str(p.relative_to(folder)) for p in Path(folder).rglob("*") if not p.is_dir() and p.suffix != ".status"
        ]
        said = [
            f"{len(v)} {k}: {sorted(map(str, v))[:3]}"
            for k, v in (("processes", pids), ("names in /dev/shm", names), ("files", files))
            if v
        ]
        result.left = "left: " + "; ".join(said) if said else ""


def _with(folder: str) -> list[int]:
    """Return the processes of the jobs, by what they inherit."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and alive(int(entry)):
            with contextlib.suppress(OSError):
                if f"STOKER_HOSTILE={folder}\0".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
    return found


def kill_engines(source: Path, times: int, rng: random.Random) -> Killed:
    """Kill the engine at random moments while one trainer takes batches."""
    result = Killed("engine")
    common = ("--states", "--batch", 8)
    one = [b["sum"] for b in run(job("stoker", source, *common, "--epochs", 4), environment()).lines if "sum" in b]
    steps = len(one) // 4
    with tidy(result) as env:
        # The limit of five crashes a minute is off, so that all ends are handled in the same loop.
        running = Job(
            job("stoker", source, *common, "--epochs", 1 << 20, "--window", 0, "--note", "--pause", 0.01), env
        )
        try:
            while result.kills < times:
                before = len(wait_for(lambda: running.process.poll() is not None or running.read()) and running.batches)
                pid = wait_for(lambda: running.process.poll() is not None or engines(running.pid))
                if pid is True:
                    break
                time.sleep(rng.uniform(0, 0.3))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid[0], signal.SIGKILL)
                result.kills += 1
                at = time.monotonic()
                before = (running.read(), len(running.batches))[1]
                # Batches that were ready at the kill still come: the loop is beyond it when they are used up.
                wait_for(
                    lambda b=before, p=pid[0]: (
                        running.process.poll() is not None
                        or ((engines(running.pid) or [p]) != [p] and (running.read(), len(running.batches))[1] > b)
                    )
                )
                result.slowest = max(result.slowest, time.monotonic() - at)
            running.read()
            if running.process.poll() is not None:
                result.trouble = "the trainer ended: " + running.errors()[-300:]
            files = [line["files"] for line in running.lines if "files" in line]
            if len(files) > 1 and files[-1] > files[0] + 4:
                result.trouble = f"open files grew from {files[0]} to {files[-1]}"
        except TimeoutError:
            result.trouble = f"no batch within 120 s of kill {result.kills}"
        finally:
            running.close()
        result.batches = len(running.batches)
    for k, line in enumerate(running.batches):
        if k < len(one) and line["sum"] != one[k]:
            result.trouble = result.trouble or f"batch {k} differs"
    for epoch in range(len(running.batches) // steps):  # later epochs: each record once
        numbers = sorted(i for b in running.batches[epoch * steps : (epoch + 1) * steps] for i in b["numbers"])
        if numbers != list(range(len(numbers))):
            result.trouble = result.trouble or f"epoch {epoch} has lost or doubled records"
    return result


def kill_trainers(source: Path, times: int, rng: random.Random) -> Killed:
    """Kill the trainer at random moments, and go on from the state after its last batch."""
    result = Killed("trainer")
    common = ("--states", "--batch", 8, "--pause", 0.01)
    with tidy(result) as env:
        state, got = "", []
        try:
            while result.kills < times:
                begun = time.monotonic()
                running = Job(
                    job("stoker", source, *common, "--epochs", 1 << 20, *(("--state", state) if state else ())), env
                )
                try:
                    # Some are killed before their first batch.
                    if result.kills % 4:
                        wait_for(lambda r=running: r.read() or r.process.poll() is not None)
                        if state:
                            result.slowest = max(result.slowest, time.monotonic() - begun)
                    time.sleep(rng.uniform(0, 0.4))
                    family = descendants(running.pid)
                    if running.process.poll() is not None:
                        result.trouble = "the trainer ended: " + running.errors()[-300:]
                        break
                    running.kill()
                    result.kills += 1
                    running.read()
                    got += running.batches
                    if running.batches:
                        state = json.dumps(running.batches[-1]["state"])
                    wait_for(lambda f=family: not any(map(alive, f)))
                finally:
                    running.close()
        except TimeoutError:
            result.trouble = f"no batch, or processes left, 120 s after kill {result.kills}"
    result.batches = len(got)
    rows, epoch = 0, []
    total = 0
    for line in got:
        epoch += line["numbers"]
        rows += len(line["numbers"])
        if line["state"]["epoch"] > total:  # the state after the last batch of an epoch is in the next one
            if sorted(epoch) != list(range(len(epoch))):
                result.trouble = result.trouble or f"epoch {total} has lost or doubled records"
            total, epoch = line["state"]["epoch"], []
    want = [
        b["sum"]
        for b in run(job("stoker", source, "--states", "--batch", 8, "--epochs", total + 1), environment(), 600).lines
        if "sum" in b
    ]
    if [b["sum"] for b in got] != want[: len(got)]:
        result.trouble = result.trouble or "the batches differ from those of a run without kills"
    return result
