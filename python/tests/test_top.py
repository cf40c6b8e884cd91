"""Engines of a node in ``stoker top``, and as metrics."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import socket
import struct
import subprocess
import termios
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker._binary import find_binary

PATIENCE = 120.0


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the engines of a test a runtime folder of their own."""
    monkeypatch.setenv("STOKER_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture
def loaders(node: Path, tmp_path: Path) -> Iterator[list[stoker.Loader]]:
    """Start two loaders that have delivered a batch, as two ranks."""
    np.save(tmp_path / "x.npy", np.arange(100))
    found = []
    for rank in range(2):
        loader = stoker.Loader(tmp_path / "x.npy", batch_size=5, ranks=stoker.Ranks(rank, 2))
        found.append(loader)
        next(iter(loader))
    yield found
    for loader in found:
        loader.close()


def top(*arguments: str) -> str:
    return subprocess.run(
        [find_binary(), "top", *arguments], check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout


def test_plain(loaders: list[stoker.Loader], node: Path) -> None:
    first, head, *rows = top().splitlines()
    assert first == "stoker top  1 run, 2 engines, 2 loaders"
    assert head.split()[:3] == ["run", "rank", "waiting"]
    assert sorted(re.findall(r" (\d/2) ", "\n".join(rows))) == ["0/2", "1/2"]
    assert loaders[0].stats()["engine"]["limit"]
    assert all(oct(f.stat().st_mode & 0o777) == "0o600" for f in node.iterdir())
    loaders[0].close()
    deadline = time.monotonic() + PATIENCE
    while "1 engine," not in top():  # it may still be exiting
        assert time.monotonic() < deadline
    loaders[1].close()
    while "no engine of this user is running" not in top():
        assert time.monotonic() < deadline
    assert not list(node.glob("engine-*"))


class Terminal:
    """A program in a terminal of 100 columns."""

    def __init__(self, *command: str) -> None:
        self._pid, self._fd = pty.fork()
        if not self._pid:
            os.environ["TERM"] = "xterm-256color"
            os.execvp("sh", ["sh", "-c", 'stty cols 100 rows 24; exec "$@"', "sh", *command])
        self._seen = ""
        self._columns = 100

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())
        self._seen = ""

    def wait_for(self, text: str) -> None:
        """Read what is drawn until a text is there."""
        deadline = time.monotonic() + PATIENCE
        while text not in self._seen:
            assert time.monotonic() < deadline, self._seen
            assert self._read(0.5), self._seen
            # Only changed cells are drawn. All are drawn for another size.
            self._columns ^= 1
            fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, self._columns, 0, 0))

    def _read(self, patience: float) -> bool:
        """Read what is drawn, and report whether the program may go on."""
        if not select.select([self._fd], [], [], patience)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the program has exited
            return False
        self._seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
        return bool(data)

    def end(self) -> int:
        """Read until the program exits, and return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(1):
            assert time.monotonic() < deadline
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


@pytest.mark.usefixtures("loaders")
def test_keys() -> None:
    terminal = Terminal(find_binary(), "top", "--interval", "0.2")
    terminal.wait_for("enter details")
    terminal.press("\r")
    terminal.wait_for("next: stoker doctor --pid")
    terminal.press("\x1b")
    terminal.wait_for("enter details")
    terminal.press("s")
    terminal.wait_for("rank↓")
    terminal.press("q")
    assert terminal.end() == 0
    terminal = Terminal(find_binary(), "top")
    terminal.wait_for("q end")
    terminal.press("\x03")
    assert terminal.end() == 130


@pytest.mark.usefixtures("node")
def test_metrics(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(50))
    with stoker.Loader(tmp_path / "x.npy", batch_size=5, metrics="127.0.0.1:0") as loader:
        for _ in loader:
            pass
        with urllib.request.urlopen(f"http://{loader.info['metrics']}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        assert re.search(r'^stoker_batches_total\{.*rank="0".*\} [1-9][0-9]+$', text, re.M), text
        assert "metrics on 127.0.0.1:" in top()


@pytest.mark.usefixtures("node")
def test_port_in_use(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(2))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        message = f'metrics="{address}": address already in use: training goes on without metrics'
        with pytest.warns(RuntimeWarning, match=re.escape(message)):
            loader = stoker.Loader(tmp_path / "x.npy", batch_size=2, metrics=address)
        assert [len(batch) for batch in loader] == [2]
        loader.close()
