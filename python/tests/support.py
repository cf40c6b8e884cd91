"""Helpers of more than one test file."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import _step

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
SOURCE = str(HERE.parent / "src")

Make = Callable[..., stoker.Loader]


def cli(binary: str, *args: object, code: int = 0, env: dict[str, str] | None = None) -> str:
    """Run a command of the program that must exit with a code. Return its outputs, with --json only the first."""
    command = [binary, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == code, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if "--json" in args else done.stdout + done.stderr


def packed(binary: str, source: object, out: Path, *options: object) -> Path:
    """Pack a source, and return the pack."""
    cli(binary, "pack", source, out, *options)
    return out


def encoded(pixels: Any, form: str = "PNG", **options: Any) -> bytes:
    """Return a picture, or an array of pixels, as an image file."""
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    (pixels if hasattr(pixels, "save") else image.fromarray(np.asarray(pixels))).save(out, form, **options)
    return out.getvalue()


def same_batches(a: Iterable[stoker.Batch], b: Iterable[stoker.Batch]) -> None:
    """Two loaders give the same batches, at least one."""
    n = 0
    for n, (x, y) in enumerate(zip(a, b, strict=True), 1):  # noqa: B007
        assert dict(x).keys() == dict(y).keys()
        for name in dict(x):
            np.testing.assert_array_equal(np.asarray(x[name]), np.asarray(y[name]), name)
    assert n > 0


def same_records(loader: stoker.Loader, columns: dict[str, Any]) -> None:
    """Each record of a shuffled epoch comes once, with its values in the columns: arrays, lists, text or bytes."""
    seen = []
    for batch in loader:
        for row, i in enumerate(batch.index.tolist()):
            seen.append(i)
            for name, values in columns.items():
                got, want = batch[name][row], values[i]
                if isinstance(want, bytes):
                    assert bytes(got) == want, f"{name} of record {i}"
                else:
                    np.testing.assert_array_equal(got, want, f"{name} of record {i}")
                    assert not isinstance(values, np.ndarray) or got.dtype == values.dtype.newbyteorder("="), name
    assert sorted(seen) == list(range(len(next(iter(columns.values()))))) != seen


def rows(loader: stoker.Loader) -> list[list[int]]:
    """Return the records of an epoch's batches."""
    return [batch.index.tolist() for batch in loader]


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that no server uses."""
    with socket.socket() as s:
        s.bind((host, 0))
        return int(s.getsockname()[1])


def answers(port: int) -> bool:
    """Whether a server on this machine takes connections."""
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def processes_of(pid: int) -> dict[int, bytes]:
    """Return the live child processes of a process, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid and fields[0] != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes()
    return found


def children(pid: int) -> list[int]:
    """Return the live child processes of a process, without the two that multiprocessing starts once and keeps."""
    kept = (b"from multiprocessing.resource_tracker import", b"from multiprocessing.forkserver import")
    return [child for child, command in processes_of(pid).items() if not any(text in command for text in kept)]


def alive(pid: int) -> bool:
    """Say whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: Iterable[int]) -> None:
    """Wait until processes have ended, which may learn of an end only by their sockets."""
    deadline = time.monotonic() + 60
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, f"processes {left} are left"
        time.sleep(0.05)


def open_files() -> set[str]:
    """Return the open files of this process."""
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(f"{fd.name}: {fd.readlink()}")
    return found


def shared_memory() -> set[str]:
    """Return the names in /dev/shm, without those that torch, probes and fuzzers of other processes create for a short
    time."""
    names = {p.name for p in Path("/dev/shm").iterdir()}
    return {n for n in names if not n.startswith(("torch_", "stoker-probe-", "stoker-fuzz-"))}


def left_in_memory(before: set[str]) -> set[str]:
    """Return the new names in /dev/shm that no other process uses. Other processes have semaphores there."""
    deadline = time.monotonic() + 10
    while new := shared_memory() - before:
        ours = [os.getpid()]
        for pid in ours:
            ours += processes_of(pid)
        for entry in Path("/proc").glob("[0-9]*/maps"):
            if int(entry.parent.name) not in ours:
                with contextlib.suppress(OSError):
                    maps = entry.read_text(errors="replace")
                    new = {n for n in new if f"/dev/shm/{n}" not in maps}
        if not new or time.monotonic() > deadline:  # what others are about to use goes in passing
            return new
        time.sleep(0.1)
    return set()


@contextlib.contextmanager
def leaving_nothing(files: Callable[[], set[str]] = open_files) -> Iterator[None]:
    """Fail when a process, an open file or something in /dev/shm is left."""
    gc.collect()
    # multiprocessing's own servers stay, with the pipes to them. They are used if JAX runs.
    resource_tracker.ensure_running()
    forkserver.ensure_running()
    _step.log()  # which a process opens with the first batch that it waits for
    before, opened, shm = set(children(os.getpid())), files(), shared_memory()
    yield
    # Another thread may be collecting garbage now. Then a collection here does nothing, and the files that the other
    # one closes stay open a little longer. Examples are torch's queues after their workers have exited.
    gc.collect()
    deadline = time.monotonic() + 10
    while len(files()) > len(opened) or not set(children(os.getpid())) <= before:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
        gc.collect()
    assert set(children(os.getpid())) <= before
    assert not left_in_memory(shm)
    assert len(files()) <= len(opened), files() - opened


def wait_for(what: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)
