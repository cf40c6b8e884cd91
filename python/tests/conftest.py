from __future__ import annotations

import contextlib
import gc
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import _step
from stoker._binary import find_binary

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
SOURCE = str(HERE.parent / "src")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the cache of engines out of the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("STOKER_CACHE", "off")  # which is on in the tests of it
        yield


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """Hide the imported objects from the garbage collector: torch and the libraries it loads make two million."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _no_engine_of_records() -> Iterator[None]:
    """End the engine of datasets' records after each file: tests of loaders see that no child is left."""
    yield
    if "stoker._reader" in sys.modules:
        sys.modules["stoker._reader"]._forget()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for events that will not come: held batches, engines that neither start nor exit."""
    monkeypatch.setattr("stoker._connection._START_GRACE", 0.2)
    monkeypatch.setattr("stoker._connection._HELD_GRACE", 0.2)
    monkeypatch.setattr("stoker._process._END_GRACE", 0.2)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make loaders start tests/fake_engine.py."""
    script = tmp_path / "fake-engine"
    command = shlex.join([sys.executable, "-S", str(HERE / "fake_engine.py")])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("STOKER_BINARY", str(script))


@pytest.fixture
def make() -> Iterator[Callable[..., stoker.Loader]]:
    """Make loaders and close them at the end."""
    loaders: list[stoker.Loader] = []

    def make(*args: object, **kwargs: object) -> stoker.Loader:
        loaders.append(stoker.Loader(*args, **kwargs))  # type: ignore[arg-type]
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Replace all devices by a fake one. At the end no rule may have been broken."""
    pytest.importorskip("torch")
    from fake_device import Fake

    from stoker import _device

    device = Fake()
    monkeypatch.setattr(_device, "open_device", lambda _: device)
    yield device
    assert not device.broken


@pytest.fixture(scope="session")
def binary() -> str:
    """Return the real engine's binary."""
    return find_binary()


@pytest.fixture(scope="session")
def photos(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 203 generated JPEGs in 4 classes."""
    out = tmp_path_factory.mktemp("photos") / "tree"
    args = ["--count", "203", "--classes", "4", "--seed", "5", "--size", "160x140", "--tree"]
    subprocess.run([binary, "gen", "images", str(out), *args], check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def pack(binary: str, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same images as a pack."""
    out = tmp_path_factory.mktemp("pack") / "photos"
    subprocess.run([binary, "pack", str(photos), str(out), "--images", "keep"], check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def pages_data(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the data that pages and docstrings speak of: scripts/docs_data.py."""
    out = tmp_path_factory.mktemp("pages") / "data"
    code = "import sys, pathlib, docs_data; docs_data.make(pathlib.Path(sys.argv[1]))"
    env = os.environ | {"PYTHONPATH": str(CHECKOUT / "scripts"), "STOKER_BINARY": binary}
    subprocess.run([sys.executable, "-c", code, str(out)], check=True, env=env)
    return out


def children(pid: int) -> list[int]:
    """Return the live child processes of a process, without the one that Python itself starts to spawn others."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                python = b"multiprocessing.resource_tracker" in (entry / "cmdline").read_bytes()
                if int(fields[1]) == pid and fields[0] != "Z" and not python:
                    found.append(int(entry.name))
    return found


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


@pytest.fixture(autouse=True, scope="session")
def _interrupts() -> Iterator[None]:
    """Make Ctrl-C interrupt, even if the shell has started this in the background and told it to ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
            ours += children(pid)
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


def rows(loader: stoker.Loader) -> list[list[int]]:
    """Return the records of an epoch's batches."""
    return [batch.index.tolist() for batch in loader]


def wait_for(what: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)
