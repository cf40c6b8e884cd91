"""The exception of a user's function, on its way from a worker."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

from .._work._inside import users
from ._result import BadReturn

_OURS = (str(Path(__file__).parent),)
_LONGEST = 8 << 10  # characters of a traceback


class Failure:
    """An exception as text, with the frames of the user's code, and its type if that can be sent."""

    def __init__(self, error: BaseException, where: str, record: int | None) -> None:
        """Take an exception that is being handled."""
        self.record = record
        if isinstance(error, BadReturn):  # the frames are not the user's
            self.kind: type[BaseException] = TypeError
            self.text = f"{where}: {error}"
            return
        kind = type(error)
        # A generator or a ``for`` would treat these exceptions in a special way.
        sendable = isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration)
        if sendable:
            try:
                sendable = pickle.loads(pickle.dumps(kind)) is kind
            except Exception:
                sendable = False
        lines = traceback.format_exception(kind, error, users(error.__traceback__, _OURS))
        text = "".join(lines)
        if len(text) > _LONGEST:
            text = text[: _LONGEST // 2] + "\n[...]\n" + text[-_LONGEST // 2 :]
        self.kind = kind if sendable else RuntimeError
        first = "".join(traceback.format_exception_only(kind, error)).strip().splitlines()[0]
        self.text = f"{where}: {first[:500]}\n{text}"

    def error(self) -> BaseException:
        """Return a new exception for this process."""
        text = _Text(self.text) if issubclass(self.kind, KeyError) else self.text
        error: Any
        try:
            error = self.kind(text)
            if self.text not in str(error):
                error = RuntimeError(self.text)
        except Exception:  # it wants other arguments
            error = RuntimeError(self.text)
        return error  # type: ignore[no-any-return]


class _Text(str):
    """A text that a KeyError shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
