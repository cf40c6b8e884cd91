"""The engine as a process: reports of its crashes, and missing resources of the system."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker._process import EngineProcess, anonymous_file

_DUMP = "\n".join(f"0x{i:016x}:  0x0000000000000000" for i in range(400))


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (
            f"runtime/cgo: pthread_create failed: no\nSIGABRT: x\nPC=0x1\n{_DUMP}\nfatal error: later",
            "runtime/cgo: ",
        ),
        (f"started\nruntime: out of memory\nfatal error: out of memory\n{_DUMP}", "runtime: out of memory"),
        (f"fatal error: first\npanic: second\n{_DUMP}", "fatal error: first"),
        (f"malloc(): corrupted\nSIGABRT: abort\n{_DUMP}", "malloc(): corrupted"),
        (f"SIGSEGV: x\n{_DUMP}\nruntime: y", "SIGSEGV: x"),
        ("no crash at all", "no crash at all"),
    ],
)
def test_a_crash_report_begins_with_its_first_line(tmp_path: Path, log: str, first: str) -> None:
    binary = tmp_path / "engine"
    (tmp_path / "log").write_text(log)
    binary.write_text(f"#!/bin/sh\ncat {tmp_path}/log >&2\nexit 2\n")
    binary.chmod(0o700)
    engine = EngineProcess(str(binary))
    died = engine.died()
    engine.take_socket().close()
    engine.forget()
    assert died.log.startswith(first)
    assert ("ulimit -u" in str(died)) == ("pthread_create" in log)


@pytest.mark.parametrize("refused", [errno.EPERM, errno.ENOSYS])
def test_memfd_create_refused(monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(refused, os.strerror(refused))

    monkeypatch.setattr(os, "memfd_create", refuse)
    fd = anonymous_file("x")
    assert os.pwrite(fd, b"abc", 0) == 3
    os.close(fd)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(stoker.StokerError, match=r"memfd_create is refused.*TMPDIR"):
        anonymous_file("x")


def test_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(stoker.StokerError, match=r"could not be started.*ulimit -n"):
        EngineProcess("stoker")
