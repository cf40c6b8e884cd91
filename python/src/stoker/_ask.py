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
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from ._binary import environment, find_binary
from ._errors import ConfigError, EngineDied, StokerError
from ._process import started

if TYPE_CHECKING:
    from typing_extensions import Self

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
    if start is None:
        return ""
    hints = [line.strip() if line.startswith("  hint: ") else line for line in lines[start + 1 :]]
    return "\n".join([lines[start].removeprefix("stoker: "), *hints])


class Talk:
    """A command of ``stoker`` that answers this process. It ends with its last answer, and with this process."""

    def __init__(self, arguments: Sequence[str], failing: str = "", patience: float | None = None) -> None:
        """Start it.

        Args:
            arguments: the command.
            failing: what its errors begin with.
            patience: the seconds that an answer may take.
        """
        pipe = subprocess.PIPE
        command = [*arguments, f"--parent={os.getpid()}"]
        self._name, self._failing, self._patience = f"stoker {arguments[0]}", failing, patience
        self._child = started(self._name, find_binary(), command, stdin=pipe, stdout=pipe, stderr=pipe)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    def send(self, message: Any, *data: bytes) -> None:
        """Send a message, and data that belongs to it."""
        line = json.dumps(message, ensure_ascii=False).encode("utf-8", "backslashreplace")
        assert self._child.stdin is not None
        try:
            self._child.stdin.writelines([line, b"\n", *data])
            self._child.stdin.flush()
        except OSError:
            self._fail()

    def ask(self, message: Any) -> Any:
        """Send a message, and return the answer, which is a line."""
        self.send(message)
        assert self._child.stdout is not None
        waiter = select.poll()
        waiter.register(self._child.stdout, select.POLLIN)
        if not waiter.poll(None if self._patience is None else self._patience * 1000):
            raise self._late()
        return json.loads(self._child.stdout.readline() or self._fail())

    def last(self, message: Any) -> dict[str, Any]:
        """Send the last message, and return the last answer."""
        self.send(message)
        try:
            out, errors = self._child.communicate(timeout=self._patience)
        except subprocess.TimeoutExpired:
            raise self._late() from None
        return cast("dict[str, Any]", json.loads(out if self._child.returncode == 0 and out else self._fail(errors)))

    def _late(self) -> StokerError:
        return StokerError(f"{self._failing}{self._name} has not answered in {self._patience:g} seconds")

    def _fail(self, errors: bytes = b"") -> NoReturn:
        """Raise the error of the command, which has ended or is about to."""
        with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
            errors = errors or self._child.communicate(timeout=_PATIENCE)[1]
        self.close()
        code = self._child.returncode
        said = message(errors.decode(errors="replace")) or f"it ended with code {code}"
        raise (ConfigError if code == _USAGE else StokerError)(self._failing + said)

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


class Observer(Talk):
    """A process that watches while a loop of this one runs, and then reports on it.

    It reads the resources used by this process and its children when counting begins and ends, so that this costs the
    loop nothing.
    """

    def __init__(self, kind: str) -> None:
        """Start it, for a report of a kind: "bench" or "profile"."""
        super().__init__(["loop", kind], "no report on the loop: ", _PATIENCE)

    def begin(self) -> None:
        """Count from here."""
        self.ask("begin")

    def end(self) -> None:
        """Count up to here."""
        self.ask("end")
