"""The exceptions of the package. All of them are ``StokerError``."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ._elsewhere import argument
from ._elsewhere import nearest as nearest

_P = ParamSpec("_P")
_R = TypeVar("_R")


class StokerError(Exception):
    """Any failure that Stoker reports; the base of the exceptions below."""

    __module__ = "stoker"


class ConfigError(StokerError, ValueError):
    """The engine refused a setting of the loader: the source, a transform, an option."""

    __module__ = "stoker"


class UnknownArgument(ConfigError, TypeError):
    """An unknown argument; the message names the nearest known one."""

    __module__ = "stoker"


class EngineNotFound(StokerError):
    """There is no ``stoker`` binary; the message lists every place searched."""

    __module__ = "stoker"


class EngineDied(StokerError):
    """The engine process ended and was not started again.

    A loader restarts its engine automatically, with a warning (``EngineRestarted``). This error means that the engine
    ended while it opened the data, ended five times within a minute, or was started by another program
    (``STOKER_SOCKET``). The next ``for`` over the loader tries again and continues with the batch after the last one
    delivered.

    Attributes:
        returncode: exit code, or minus the signal's number; ``None`` when the
            engine is not a child of this process (``STOKER_SOCKET``).
        log: the last lines that the engine wrote, possibly empty.
        in_flight: the numbers of the records that it was decoding.
    """

    __module__ = "stoker"

    def __init__(self, message: str, returncode: int | None = None, log: str = "") -> None:
        super().__init__(message)
        self.returncode = returncode
        self.log = log
        self.in_flight: tuple[int, ...] = ()


class StokerTimeout(StokerError, TimeoutError):
    """No batch came within ``timeout`` seconds.

    The next ``for`` over the loader tries the same batch again.

    Attributes:
        waiting: the resource that the engine waits for, possibly empty.
    """

    __module__ = "stoker"

    def __init__(self, message: str, waiting: str = "") -> None:
        super().__init__(message)
        self.waiting = waiting


class RecordError(StokerError):
    """A record could not be read or decoded (with ``on_error="raise"``).

    Attributes:
        record: number of the record in the source, as in ``batch.index``.
        name: its location: a path, or a shard and row.
        reason: the reason in one line.
    """

    __module__ = "stoker"

    def __init__(self, message: str, record: int = -1, name: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.record = record
        self.name = name
        self.reason = reason


class BatchesHeld(StokerError):
    """The program holds so many batches that the engine has no memory for another."""

    __module__ = "stoker"


class StateMismatch(StokerError, ValueError):
    """A saved state belongs to other data, another seed or another version."""

    __module__ = "stoker"


class SkippedRecords(UserWarning):
    """Records of an epoch were replaced because they could not be read (``on_error="skip"``)."""

    __module__ = "stoker"


class EngineRestarted(UserWarning):
    """The engine exited and was restarted. The loop continues with the exact next batch."""

    __module__ = "stoker"


def warn(text: str, category: type[Warning]) -> None:
    """Warn about the line of the user's code that called this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def public(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make errors of ``function`` show one line of this package, and name the nearest argument for an unknown one."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except StokerError as error:
            raise error.with_traceback(None) from None
        except TypeError:
            import inspect

            known = inspect.signature(function).parameters
            unknown = next((name for name in kwargs if name not in known), None)
            if unknown is None or any(p.kind is p.VAR_KEYWORD for p in known.values()):
                raise
            of = function.__qualname__.removesuffix(".__init__")
            hint = argument(unknown, [n for n in known if n != "self"])
        raise UnknownArgument(f"{of} has no argument {unknown!r}; {hint}")

    return call
