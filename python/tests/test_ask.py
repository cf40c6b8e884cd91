"""Requests to the binary, and the process that watches while a loop runs."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

import stoker
from stoker._ask import Observer, ask
from support import alive, children, open_files, processes_of

LOOP = {"loader": "x", "steps": [10_000_000] * 3, "waits": [0] * 3, "seconds": 0.03}


def test_the_observer_reports_and_is_gone(binary: str) -> None:
    before = open_files()
    with Observer("bench") as observer:
        observer.begin()
        burned = sum(i * i for i in range(2_000_000))
        observer.end()
        report = observer.last(LOOP)
    assert burned > 0
    assert report["steps"] == 3
    assert report["step"]["p99"] == 0.01
    # It counts neither itself nor its own use.
    assert report["processes"] == 1 + len(processes_of(os.getpid()))
    assert report["cpu"] > 0
    assert report["pss"] > 0
    assert open_files() == before


def test_an_observer_that_is_not_needed_ends(binary: str) -> None:
    before = open_files()
    observer = Observer("profile")
    observer.begin()
    pid = observer._child.pid
    observer.close()
    observer.close()
    assert not alive(pid)
    assert open_files() == before


def test_an_observer_that_dies_is_an_error(binary: str) -> None:
    with Observer("bench") as observer:
        os.kill(observer._child.pid, signal.SIGKILL)
        with pytest.raises(stoker.StokerError, match="no report on the loop: it ended with code -9"):
            observer.begin()
    with Observer("bench") as observer:
        observer.begin()
        observer.end()
        with pytest.raises(stoker.StokerError, match="no report on the loop: standard input holds no loop: 0 steps"):
            observer.last({})


def test_ask_says_what_the_binary_says(binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(["version"]).startswith("stoker ")
    with pytest.raises(stoker.ConfigError, match="bench what"):
        ask(["bench"])
    with pytest.raises(stoker.StokerError, match="holds no study"):
        ask(["loop", "study"], "[]")
    script = tmp_path / "slow"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("STOKER_BINARY", str(script))
    with pytest.raises(stoker.StokerError, match=r"stoker x took longer than timeout=0\.1 seconds"):
        ask(["x"], timeout=0.1)


def test_a_bench_that_fails_leaves_nothing(binary: str) -> None:
    stoker.step()  # the step log stays
    before, processes = open_files(), children(os.getpid())

    def fails(batch: object) -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        stoker.bench([1, 2, 3], fails)
    for _ in stoker.Profiler([1, 2, 3, 4]):
        break
    assert open_files() == before
    assert children(os.getpid()) == processes
