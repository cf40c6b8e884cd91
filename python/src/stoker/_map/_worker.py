"""A worker process: it gets slots of the ring, calls the functions, and puts their results into shared memory."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
from typing import Any

import numpy as np

from .._ragged import Ragged, Strings
from .._work import _wire
from .._work._inside import Ended, Inbox
from .._work._memory import Page, Pieces
from .._work._ring import Ring
from ._failure import Failure
from ._maker import About, Failed, Functions, Maker

RING_ROOT = -1  # the number of the slot among the roots of arrays


def main(sock: socket.socket, page: Page, functions: Functions | bytes, seed: int, number: int, parent: int) -> None:
    """Run a worker until the loader ends it."""
    # Ctrl-C is for the program, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with(parent)
    with contextlib.suppress(Ended):
        _Worker(sock, page, functions, seed, number).run()


def _end_with(parent: int) -> None:
    """End this process with the program, whatever a function does then."""

    def wait() -> None:
        with contextlib.suppress(OSError):  # it is gone
            if hasattr(os, "pidfd_open"):
                waiter = select.poll()
                waiter.register(os.pidfd_open(parent), select.POLLIN)
                waiter.poll()
            while True:
                os.kill(parent, 0)
                time.sleep(5)
        os._exit(1)

    threading.Thread(target=wait, name="stoker-parent", daemon=True).start()


class _Worker:
    def __init__(self, sock: socket.socket, page: Page, functions: Functions | bytes, seed: int, number: int) -> None:
        self._inbox, self._page = Inbox(sock, page), page
        self._pieces = Pieces(page)
        self._task = -1
        self._rings: dict[int, Ring] = {}  # by their first slots
        self._visible = True
        self._beside: frozenset[str] = frozenset()
        self._broken: Failure | None = None
        who = f"worker process {number}"
        try:
            found = pickle.loads(functions) if isinstance(functions, bytes) else functions
            self._maker = Maker(found, seed, who)
            self._maker.at = self._mark
        except Exception as error:
            self._broken = Failure(error, f"loading map= or batch_map= ({who})", None)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)  # there is a process per core already

    def run(self) -> None:
        while True:
            message, fds = self._inbox.receive()
            if self._page.ended:
                raise Ended
            if message[0] == _wire.RING:
                _, first, size, stride, slot_bytes, specs, private, self._beside = message
                if first == 0:
                    self._rings.clear()
                self._rings[first] = Ring(fds[0], size, stride, slot_bytes, specs, writable=True, private=private)
                continue
            _, gen, task, slot, about = message
            before = time.perf_counter()
            self._task = task
            self._mark(0)
            try:
                if self._broken is not None:
                    raise Failed(self._broken)
                self._answer(gen, task, slot, about, before)
            except Failed as failed:
                self._pieces.abandon()
                self._inbox.send((_wire.FAILED, gen, task, failed.failure))

    def _answer(self, gen: int, task: int, slot: int, about: About, before: float) -> None:
        first = max(n for n in self._rings if n <= slot)
        ring = self._rings[first]
        root = ring.slot(slot - first)
        # The program cannot see what this process writes to a private ring.
        self._visible = not ring.private
        out = self._maker.make(ring.views(root, about.rows), about, self._beside, self._room)
        try:
            described = [(name, self._described(value, root)) for name, value in out.items()]
        except Exception as error:
            raise Failed(Failure(error, f"keeping batch {about.step} of epoch {about.epoch}", None)) from None
        self._pieces.send(self._inbox.send, (_wire.BATCH, gen, task, time.perf_counter() - before, described))

    def _mark(self, row: int) -> None:
        self._page.mark(self._task, row)

    def _room(self, size: int) -> tuple[Any, int]:
        found = self._pieces.take(size)
        if found is None:
            piece = self._pieces.open[self._pieces.reserve(size)]
            found = piece, piece.take(size) or 0
        return found[0].root, found[1]

    def _described(self, value: Any, slot: Any) -> tuple[Any, ...]:
        """Return the position of a value. Copy it to a piece first unless it is in a piece or in the slot."""
        if isinstance(value, Strings):
            return ("strings", *self._described(value.raw, slot)[1:])
        if isinstance(value, Ragged):
            return "ragged", self._described(value.values, slot), self._described(value.offsets, slot)
        found = self._lies(value, slot)
        if found is None:
            root, at = self._room(max(1, value.nbytes))
            copy: Any = np.ndarray(value.shape, value.dtype, root, at)
            copy[...] = value
            value = copy
            found = self._lies(value, slot) or (0, 0)
        dtype = "bfloat16" if value.dtype.name == "bfloat16" else value.dtype.str
        return "array", *found, dtype, value.shape, value.strides

    def _lies(self, value: Any, slot: Any) -> tuple[int, int] | None:
        """Return the root and the offset of an array's first element, None if it is not in shared memory."""
        if not value.size or min(value.strides, default=0) < 0:  # which torch does not take
            return None
        address = value.ctypes.data
        last = sum((n - 1) * s for n, s in zip(value.shape, value.strides, strict=True)) + value.itemsize
        base = slot.ctypes.data
        if self._visible and base <= address and address + last <= base + slot.nbytes:
            return RING_ROOT, address - base
        found = self._pieces.holds(address)
        return found if found is not None and self._pieces.holds(address + last - 1) is not None else None
