"""When an engine that has ended is started again, and which records are to blame."""

from __future__ import annotations

import collections
import signal
import time
from typing import Any

from ._errors import EngineDied, EngineRestarted, warn

# An engine that exits this often within this many seconds is not restarted.
_MOST, _WINDOW = 5, 60.0
# A record that was in flight in this many crashes is bad.
_CRASHES = 2
# Exit codes of a process that ended by its own fault. Go's runtime exits with 2 after a signal in C code and after a
# panic.
_CRASH_CODES = frozenset(
    {2, *(-s for s in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP))}
)


def _name(record: int) -> str:
    """Return the text for a record. If records differ per epoch, the number has the epoch, too (protocol.md)."""
    epoch, number = record >> 40, record & ((1 << 40) - 1)
    return f"record {number} of epoch {epoch}" if epoch else f"record {number}"


class Restarts:
    """The engines of one loader that have ended."""

    def __init__(self) -> None:
        self.total = 0
        self._ended: collections.deque[tuple[float, str]] = collections.deque(maxlen=_MOST)
        self._crashes: collections.Counter[int] = collections.Counter()

    def after(self, error: EngineDied, config: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration of the next engine.

        Records that were in flight in a crash are decoded one at a time from then on. If one of them crashes the engine
        again, it is bad.

        Raises:
            EngineDied: this was the fifth end within a minute.
        """
        if error.returncode is None:
            raise error  # somebody else's engine
        now = time.monotonic()
        self.total += 1
        text = str(error).splitlines()[0]
        self._ended.append((now, text))
        if len(self._ended) == _MOST and now - self._ended[0][0] < _WINDOW:
            raise self._too_often(error, now)
        if error.returncode not in _CRASH_CODES:
            warn(f"{text}; another engine goes on with the next batch", EngineRestarted)
            return config
        self._crashes.update(error.in_flight)
        bad = sorted(r for r, n in self._crashes.items() if n >= _CRASHES)
        blamed = sorted(set(bad) - set(config.get("crashed", ())))
        for record in blamed:
            text += f"; {_name(record)} was decoded in both crashes and is bad from now on"
        warn(f"{text}; another engine goes on with the next batch", EngineRestarted)
        return {**config, "crashed": bad, "suspects": sorted(set(self._crashes) - set(bad))}

    def _too_often(self, error: EngineDied, now: float) -> EngineDied:
        history = "\n".join(f"  {now - at:5.1f} s ago: {text}" for at, text in self._ended)
        return EngineDied(
            f"the engine ended {_MOST} times within {_WINDOW:.0f} s and is not started again:\n{history}\n{error}",
            error.returncode,
            error.log,
        )
