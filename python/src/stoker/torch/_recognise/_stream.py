"""Batches of the engine, of records that Python chooses."""

from __future__ import annotations

import collections
import contextlib
import os
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ... import _node
from ..._batch import INDEX, ArraySpec, torch_views
from ..._binary import find_binary
from ..._connection import Connection, Position
from ..._errors import EngineDied, StokerError
from ..._process import when_forgotten
from ..._restarts import Restarts

Records = npt.NDArray[np.int64]

# The number of slots that stay with the engine; a program that holds more batches gets copies.
_KEPT = 2


class Ring:
    """The data that a process needs to map the ring of an engine while a batch in it is in use."""

    def __init__(self, connection: Connection, slot_bytes: int, specs: list[ArraySpec]) -> None:
        """Take a descriptor of its own; slots have arrays as ``specs`` describes them."""
        self.slot_bytes, self.specs = slot_bytes, specs
        self.size, self.stride, fd = connection.ring()
        self.fd = os.dup(fd)
        when_forgotten(self, os.close, self.fd)


class Slot(NamedTuple):
    """A batch in the ring, which is in use for as long as ``root`` lives."""

    root: Any
    ring: Ring | None
    number: int
    rows: int


class Stream:
    """An engine that makes the batches that it is asked for, in that order.

    It is used by one loop at a time: ``start`` begins again. An engine that exits is restarted.
    """

    def __init__(self, config: dict[str, Any], *, shared: bool = False, timeout: float = 300.0) -> None:
        """Start an engine with a configuration in which the client gives the order.

        With ``shared``, other processes may read its ring.
        """
        self.config = config
        self.timeout = timeout
        self._shared = shared
        self._restarts = Restarts()
        self.wait_seconds = 0.0
        self.copies = 0
        # Batches that were requested and not taken: the place of each batch, and its records.
        self._asked: collections.deque[tuple[int, Records]] = collections.deque()
        self._sent = 0  # how many of them the engine knows
        self._epoch, self._reached = 0, -1  # the place behind the last batch that the engine knows
        self._open()

    def _open(self, tries: int = 3) -> None:
        """Start or reach an engine. Ranks of a job share one, which may end meanwhile because of another rank."""
        shared = _node.sharing(None)
        process = _node.engine(find_binary(), shared)
        connection = Connection(process.take_socket(), process, process.binary)
        try:
            connection.open(self.config, self.timeout, keep_ring=self._shared)
            specs = [ArraySpec(described) for described in connection.info["arrays"]]
            for spec in specs:
                spec.check(self.config["batch_size"], int(connection.info["slot_bytes"]))
        except BaseException as error:
            connection.close()
            if shared is not None and isinstance(error, EngineDied) and tries > 1:
                self._open(tries - 1)
                return
            raise
        self.info = connection.info
        self.specs = specs
        self._index = next(s.offset for s in specs if s.name == INDEX)
        self._views = torch_views([s for s in specs if s.name != INDEX])
        self.slot_bytes = int(connection.info["slot_bytes"])
        self.ring = Ring(connection, self.slot_bytes, specs) if self._shared else None
        self._connection = connection
        self._finalizer = when_forgotten(self, connection.close)

    @property
    def connection(self) -> Connection:
        """The connection to the engine that runs."""
        return self._connection

    @property
    def slots(self) -> int:
        """The number of batches that fit the engine's ring."""
        return self._connection.slots

    def start(self, epoch: int) -> None:
        """Begin a stream; random numbers depend on ``epoch`` and the place of a record in it."""
        self._asked.clear()
        self._epoch = epoch
        self._restart()

    def _restart(self, ended: EngineDied | None = None) -> None:
        """Begin again after the last batch taken, with another engine if the last one has exited."""
        ended = ended or self._connection.ended
        while True:
            if ended is not None:
                self.config = self._restarts.after(ended, self.config)
            self._sent, self._reached = 0, -1
            try:
                if not self._connection.usable:
                    self._connection.close()
                    self._finalizer.detach()
                    self._open()
                self._send()
            except EngineDied as error:
                ended = error
            else:
                return

    def _send(self) -> None:
        """Ask the engine for the next batches. A stream has no gaps: after a gap, a new stream begins."""
        batches = []
        while self._sent < len(self._asked):
            place, records = self._asked[self._sent]
            if place != self._reached:
                if self._sent:
                    break
                self._connection.start(Position(self._epoch, place))
            batches.append(records)
            self._sent += 1
            self._reached = place + len(records)
        if batches:
            self._connection.order(batches)

    def send(self) -> None:
        """Ask the engine for the batches that were added."""
        try:
            self._send()
        except EngineDied as error:
            self._restart(error)

    def add(self, records: Records, place: int) -> None:
        """Add a batch after the earlier ones; ``place`` is the number of the epoch's records before it."""
        self._asked.append((place, records))

    def ask(self, records: Records, place: int) -> None:
        """Add a batch, and ask for it."""
        self.add(records, place)
        self.send()

    def follow(self, other: Stream) -> None:
        """Continue the work of another engine, which is closed."""
        self.start(other._epoch)
        self._asked += other._asked
        other.close()
        self.send()

    def forget(self, batches: int) -> None:
        """Take back the last batches that were asked for."""
        for _ in range(batches):
            self._asked.pop()
        if self._sent > len(self._asked):
            self._sent, self._reached = 0, -1
            self.send()

    def take(self) -> tuple[dict[str, Any], Records, int]:
        """Return the arrays of the next batch, its index and the place of its first record.

        The index is the number of each record, or -1 - number if the engine cannot make it. Then the caller fills the
        row.
        """
        before = time.perf_counter()
        try:
            while True:
                try:
                    self._connection.wait(self.timeout)
                    break
                except EngineDied as error:
                    self._restart(error)
            event = self._connection.take()
        except BaseException:
            # After any failure, the stream's position is unknown.
            self._connection.tear()
            raise
        finally:
            self.wait_seconds += time.perf_counter() - before
        root, rows, place = self._lease(event)
        index: Records = np.ndarray((rows,), "<i8", root, self._index).copy()
        arrays = self._views(root, rows)
        if self._connection.held > self.slots - _KEPT:
            # A consumer that holds batches, for example in a list, gets copies.
            arrays = {name: array.clone() for name, array in arrays.items()}
            self.copies += 1
        return arrays, index, place

    def _lease(self, event: Any) -> tuple[Any, int, int]:
        """Return the bytes of a batch, its rows and the place of its first record."""
        root = self._connection.lease(event, self.slot_bytes)
        rows = event.rows
        place, records = self._asked.popleft()
        self._sent -= 1
        if rows != len(records):
            self._connection.tear()
            raise StokerError(f"the engine made a batch of {rows} rows where {len(records)} were asked for")
        with contextlib.suppress(EngineDied):  # which is seen when the next batch is waited for
            self._send()
        return root, rows, place

    # --- for other processes -------------------------------------------------

    def poll(self) -> Slot | None:
        """Return the batch that comes next, without waiting for it."""
        try:
            if not self._asked or not self._connection.ready():
                return None
            event: Any = self._connection.take()
        except EngineDied as error:
            self._restart(error)
            return None
        except BaseException:
            self._connection.tear()
            raise
        root, rows, _ = self._lease(event)
        return Slot(root, self.ring, event.slot, rows)

    def waiters(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when ``poll`` may say something new."""
        return self._connection.waiters()

    def close(self) -> None:
        """End the engine. Arrays in use stay valid."""
        self._finalizer()
