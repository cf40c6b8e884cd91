from __future__ import annotations

import gc
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import processes
import stoker
from stoker._binary import find_binary
from support import CHECKOUT, HERE, cli

# Imports make two million objects, and no garbage that matters.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, once all files have been imported."""
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in several processes if the environment says so."""
    wanted = int(os.environ.get("STOKER_TEST_PROCESSES", "1"))
    if wanted < 2 or session.testsfailed or session.config.option.collectonly:
        return None
    return processes.run(session, wanted)


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
    cli(binary, "gen", "images", out, *args)
    return out


@pytest.fixture(scope="session")
def pack(binary: str, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same images as a pack."""
    out = tmp_path_factory.mktemp("pack") / "photos"
    cli(binary, "pack", photos, out, "--images", "keep")
    return out


@pytest.fixture(scope="session")
def pages_data(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the data that pages and docstrings speak of: scripts/docs_data.py."""
    out = tmp_path_factory.mktemp("pages") / "data"
    code = "import sys, pathlib, docs_data; docs_data.make(pathlib.Path(sys.argv[1]))"
    env = os.environ | {"PYTHONPATH": str(CHECKOUT / "scripts"), "STOKER_BINARY": binary}
    subprocess.run([sys.executable, "-c", code, str(out)], check=True, env=env)
    return out


@pytest.fixture(autouse=True, scope="session")
def _interrupts() -> Iterator[None]:
    """Make Ctrl-C interrupt, even if the shell has started this in the background and told it to ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
