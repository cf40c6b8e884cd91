"""The code within a worker process, for all kinds of workers."""

from __future__ import annotations

import gc
import os
import select
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from . import _wire
from ._memory import Page

# The interval of a worker's checks that the loader's process lives, in case the connection does not show it.
_LOOK = 5.0


class Ended(Exception):
    """The loader has closed the connection."""


class Inbox:
    """The worker's end of the connection."""

    def __init__(self, sock: socket.socket, page: Page) -> None:
        """Take over a connection to the process that has started this one, and the page that both have."""
        page.close_fd()
        gc.freeze()  # what lives now is the program's: looking at it would copy its pages
        self._sock = sock
        self._parent = os.getppid()

    def send(self, message: tuple[Any, ...], fds: list[int] | None = None) -> None:
        """Send a message; raises Ended if the other side has closed the socket."""
        try:
            _wire.send(self._sock, message, fds)
        except OSError:
            raise Ended from None

    def receive(self) -> tuple[tuple[Any, ...], list[int]]:
        """Wait for a message; raises Ended at the connection's end, or the loader's."""
        waiter = select.poll()
        waiter.register(self._sock, select.POLLIN)
        while True:
            if waiter.poll(_LOOK * 1000):
                try:
                    message, fds = _wire.receive(self._sock)
                except OSError:
                    raise Ended from None
                if message is None:
                    raise Ended
                return message, fds
            if os.getppid() != self._parent:
                raise Ended


def users(trace: TracebackType | None, ours: Sequence[str]) -> TracebackType | None:
    """Leave out the frames before the user's: those of files in these folders."""
    at = trace
    while at is not None and at.tb_frame.f_code.co_filename.startswith(tuple(ours)):
        at = at.tb_next
    return at or trace
