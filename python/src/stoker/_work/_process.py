"""A worker process, as the loader sees it: its connection, its memory and its end."""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

from . import _wire
from ._memory import PLACE, Page, Received
from ._pool import Pool, Pools

# The time that all workers together may take to exit on request before they are terminated, and then killed.
TERMINATE = 2.0

# Sockets connected to other processes. A forked child closes its copies, or they would keep processes alive.
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _after_fork() -> None:
    for sock in list(_sockets):
        sock.close()


os.register_at_fork(after_in_child=_after_fork)


# The usual mistake of a script whose workers exit before they begin.
_GUARD = (
    '. Without fork, each worker process runs the script again: put what it does under `if __name__ == "__main__":`'
)


class Worker:
    """A worker process. A subclass handles its messages."""

    def __init__(
        self,
        context: Any,
        target: Callable[..., None],
        arguments: Sequence[Any],
        number: int,
        pools: Pools | None = None,
    ) -> None:
        """Start a process that runs ``target(socket, page, *arguments)``; it may be one of those that have pools."""
        _check_guard()
        self.number = number
        # The hint in the error for a worker that exits before it begins.
        self.guard = "" if context.get_start_method() == "fork" else _GUARD
        self._pools = pools
        self._unsent: collections.deque[tuple[bytes, list[int]]] = collections.deque()
        self._page = Page()
        self._page.mark(-1, 0)
        self._received = Received(self._page)
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _sockets.add(self.sock)
        # The collector may find a worker and its objects in any order.
        weakref.finalize(self, self.sock.close)
        self.sock.setblocking(False)
        try:
            self.process = context.Process(target=target, args=(theirs, self._page, *arguments))
            self.process.daemon = True
            self.process.start()
        except BaseException:
            self.sock.close()
            raise
        finally:
            theirs.close()
            self._page.close_fd()
        # Without a pidfd the connection and a look now and then tell of its end.
        self.pidfd = -1
        with contextlib.suppress(OSError, AttributeError):
            self.pidfd = os.pidfd_open(self.process.pid)

    def send(self, message: tuple[Any, ...], fds: Sequence[int] = ()) -> None:
        """Send a message, immediately or when there is space. It gets copies of the descriptors."""
        data, folded = _wire.pack(message)
        self._unsent.append((data, folded + [os.dup(fd) for fd in fds]))
        self.flush()

    def flush(self) -> bool:
        """Send waiting messages, and report whether all are sent."""
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                _wire.send_packed(self.sock, data, fds)
            except BlockingIOError:
                return False
            except OSError:
                break  # it has ended, which is seen when it is waited for
            self._unsent.popleft()
            _wire.close(fds)
        return True

    def message(self) -> tuple[Any, list[int]] | None:
        """Return a message that has come, and its descriptors; None when there is none, EOFError at the end."""
        try:
            message, fds = _wire.receive(self.sock)
        except BlockingIOError:
            return None
        except OSError:
            raise EOFError from None
        if message is None:
            raise EOFError
        return message, fds

    def roots(self, pieces: Sequence[tuple[int, Any]], fds: Sequence[int], dropped: Sequence[int]) -> list[Any]:
        """Return the memory of a batch from the descriptions of its pieces, and forget dropped pieces."""
        for number in dropped:
            self._received.drop(number)
        new = iter(fds)
        roots: list[Any] = []
        for number, about in pieces:
            if isinstance(about, tuple):
                pool, place = self._pool(about[0]), about[1]
                if number == PLACE:
                    roots.append(pool.lease(place))
                    continue
                self._received.adopt(number, pool, place)
                about = 0
            mapping = self._received.add(number, about, next(new)) if about else None
            if about and self._pools is not None:
                self._pools.want(about)
            roots.append(self._received.lease(number, mapping))
        return roots

    def _pool(self, generation: int) -> Pool:
        if self._pools is None:
            raise RuntimeError("a batch is in a pool, and there is none")
        return self._pools.of(generation)

    def recover(self, epoch: int, tasks: Collection[int]) -> None:
        """Release the place that an exited process has taken for one of these unanswered tasks."""
        of, task, generation, place = self._page.held
        if generation and of == epoch and task in tasks:
            self._pool(generation).give(place)

    @property
    def marked(self) -> tuple[int, int]:
        """Its current task and row, or the last ones if it has exited; task -1 before its first one."""
        return self._page.marked

    def gone(self) -> bool:
        """Say whether the process has ended."""
        return not self.process.is_alive()

    def how(self) -> str:
        """Say how it ended."""
        code = self.process.exitcode
        if code is None or code >= 0:
            return "exited unexpectedly" + (f" with exit code {code}" if code is not None else "")
        memory = " (by the system, for want of memory, unless somebody did that)" if -code == signal.SIGKILL else ""
        return f"is killed by signal: {signal.strsignal(-code) or -code}{memory}"

    def end(self) -> None:
        """Tell it to end."""
        self._page.end()
        self.close()

    def close(self) -> None:
        """Close the connection. Batches that are in use stay valid."""
        while self._unsent:
            _wire.close(self._unsent.popleft()[1])
        self.sock.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def _check_guard() -> None:
    """Raise the error of a script that is run again by its own worker process; it is shown in one line.

    The loader that waits for this worker reports its own location.
    """
    if not getattr(multiprocessing.current_process(), "_inheriting", False):
        return
    error, show = RuntimeError("a worker process cannot start workers before it has begun" + _GUARD), sys.excepthook

    def shortly(kind: Any, value: Any, trace: Any) -> None:
        if value is error:
            print(f"RuntimeError: {error}", file=sys.stderr)
        else:
            show(kind, value, trace)

    sys.excepthook = shortly
    raise error


def end_all(workers: Sequence[Worker], grace: float) -> None:
    """End workers: they are asked, then terminated, then killed."""
    for worker in workers:
        worker.end()
    for seconds, insist in ((grace, "terminate"), (TERMINATE, "kill"), (TERMINATE, "")):
        deadline = time.monotonic() + seconds
        for worker in workers:
            worker.process.join(max(0, deadline - time.monotonic()))
        left = [worker for worker in workers if worker.gone() is False]
        if not left:
            break
        for worker in left:
            if insist:
                getattr(worker.process, insist)()
