"""The worker processes of a loader or of a call: started, waited for, replaced and ended together."""

from __future__ import annotations

import os
import select
import warnings
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ._process import Worker, end_all

_W = TypeVar("_W", bound=Worker)


class Team(Generic[_W]):
    """Worker processes with numbers from 0.

    ``map=`` of a loader, ``stoker.torch.DataLoader`` and ``stoker.pack`` have one each.
    """

    def __init__(self, grace: float) -> None:
        """Start none yet; ``grace`` is the time that all together may take to exit on request."""
        self._grace, self._pid = grace, os.getpid()
        self.workers: list[_W] = []
        self._forget()

    def _forget(self) -> None:
        self._poll = select.poll()
        self._fds: dict[int, _W] = {}
        self._watched: tuple[int, ...] = ()

    def begin(self, count: int, start: Callable[[int], _W]) -> None:
        """Start this many workers."""
        try:
            for number in range(count):
                self.workers.append(_quietly(start, number))
        except BaseException:
            self.close()
            raise
        self.listen()

    def replace(self, worker: _W, start: Callable[[int], _W]) -> _W:
        """Start a worker in place of one that has exited."""
        worker.close()
        self.workers[worker.number] = new = _quietly(start, worker.number)
        self.listen()
        return new

    def listen(self, without: _W | None = None) -> None:
        """Wait for the current workers from now on, except for one that has exited."""
        self._forget()
        for worker in self.workers:
            for fd in (worker.sock.fileno(), worker.pidfd):
                if fd >= 0 and worker is not without:
                    self._fds[fd] = worker
                    self._poll.register(fd, select.POLLIN)

    def listens(self, worker: _W) -> bool:
        """Whether it waits for a worker."""
        return worker.sock.fileno() in self._fds

    def watch(self, fds: Sequence[int]) -> None:
        """End waits also when one of these descriptors can be read."""
        wanted = tuple(fds)
        if wanted == self._watched:
            return
        for fd in self._watched:
            if fd not in self._fds:
                self._poll.unregister(fd)
        for fd in wanted:
            self._poll.register(fd, select.POLLIN)
        self._watched = wanted

    def wait(self, seconds: float) -> tuple[list[_W], bool]:
        """Return the workers that have sent something or have exited, and whether anything has happened."""
        for worker in self.workers:
            if self.listens(worker):
                events = select.POLLIN if worker.flush() else select.POLLIN | select.POLLOUT
                self._poll.modify(worker.sock, events)
        ready = self._poll.poll(seconds * 1000)
        found = {id(w): w for w in (self._fds[fd] for fd, _ in ready if fd in self._fds)}
        if not ready:
            found = {id(w): w for w in self.workers if w.pidfd < 0 and w.gone()}
        return list(found.values()), bool(ready)

    def close(self) -> None:
        """End the workers; those of a forked child's parent are not its own."""
        workers, self.workers = self.workers, []
        if os.getpid() == self._pid:
            end_all(workers, self._grace)
        self._fds.clear()


def _quietly(start: Callable[[int], _W], number: int) -> _W:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return start(number)
