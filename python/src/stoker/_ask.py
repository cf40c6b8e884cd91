"""Requests to the binary. Only the binary has the rules and formats; Python asks it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast

from ._binary import environment, find_binary
from ._errors import ConfigError, EngineDied, StokerError
from ._process import started

_T = TypeVar("_T")
_USAGE = 2  # exit code: the arguments are wrong
_PATIENCE = 60.0


def run(arguments: Sequence[str], text: str = "", timeout: float | None = None, also: Sequence[int] = ()) -> Any:
    """Run a command that prints JSON, and return what it says."""
    return json.loads(ask(arguments, text, timeout, also))


def built(cls: type[_T], answer: Mapping[str, Any], **more: Any) -> _T:
    """Return a dataclass with those fields of an answer that it has, and more."""
    known = {f.name for f in dataclasses.fields(cast("Any", cls))}
    return cls(**{name: value for name, value in answer.items() if name in known} | more)


def ask(arguments: Sequence[str], text: str = "", timeout: float | None = _PATIENCE, also: Sequence[int] = ()) -> str:
    """Run ``stoker`` with arguments and standard input, and return its output.

    An exit code in ``also`` comes with an answer, if something was printed.
    """
    command = [find_binary(), *arguments]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=timeout, check=False, env=environment()
        )
    except subprocess.TimeoutExpired:
        raise StokerError(f"stoker {arguments[0]} took longer than timeout={timeout} seconds") from None
    if done.returncode < 0:
        said = f"stoker {arguments[0]} was ended by signal {-done.returncode}"
        raise EngineDied(said, done.returncode, done.stderr[-4096:])
    if done.returncode != 0 and not (done.returncode in also and done.stdout):
        said = message(done.stderr) or f"stoker {arguments[0]} ended with code {done.returncode}"
        raise (ConfigError if done.returncode == _USAGE else StokerError)(said)
    return done.stdout


def message(text: str) -> str:
    """Return the error and its hints without the program's name and its progress."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("stoker: ")), None)
    return "" if start is None else "\n".join([lines[start].removeprefix("stoker: "), *lines[start + 1 :]])


class Observer:
    """A process that watches while a loop of this one runs, and then reports on it.

    It reads the resources used by this process and its children when counting begins and ends, so that this costs the
    loop nothing. It exits after its report, on request, and with this process.
    """

    def __init__(self, kind: str) -> None:
        """Start it, for a report of a kind: "bench" or "profile"."""
        pipe = subprocess.PIPE
        command = ["loop", kind, f"--parent={os.getpid()}"]
        self._child = started("the observer", find_binary(), command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)

    def __enter__(self) -> Observer:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    def begin(self) -> None:
        """Count from here."""
        self._say("begin")

    def end(self) -> None:
        """Count up to here."""
        self._say("end")

    def _say(self, word: str) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(OSError):  # it has ended: there is no answer either
            self._child.stdin.write(f"{word}\n".encode())
        waiter = select.poll()
        waiter.register(self._child.stdout, select.POLLIN)
        if not waiter.poll(_PATIENCE * 1000):
            raise StokerError(f"stoker loop has not answered {word!r} in {_PATIENCE:g} seconds")
        if self._child.stdout.read(64) != b"ok\n":
            self._fail()

    def report(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Send the timings, and return the report."""
        try:
            out, errors = self._child.communicate(json.dumps(told).encode(), timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            raise StokerError(f"stoker loop has made no report in {_PATIENCE:g} seconds") from None
        if self._child.returncode != 0 or not out:
            self._fail(errors)
        return cast("dict[str, Any]", json.loads(out))

    def _fail(self, errors: bytes = b"") -> None:
        if not errors:
            self._child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
                errors = self._child.communicate(timeout=_PATIENCE)[1]
        said = message(errors.decode(errors="replace")) or f"it ended with code {self._child.returncode}"
        raise StokerError(f"no report on the loop: {said}")

    def close(self) -> None:
        """End it and wait for that; nothing happens when it has ended."""
        if self._child.poll() is None:
            self._child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_PATIENCE)
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
