"""Batches of the engine, of records that Python chooses."""

from __future__ import annotations

import os
import time
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from ..._batch import INDEX, ArraySpec, torch_views
from ..._binary import find_binary
from ..._connection import Connection, Position
from ..._errors import EngineDied, StokerError
from ..._process import EngineProcess

Records = npt.NDArray[np.int64]

# So many slots stay with the engine; a program that holds more batches gets copies.
_KEPT = 2


class Stream:
    """An engine that makes the batches that it is asked for, in that order.

    It is used by one loop at a time: ``start`` begins anew. An engine that dies is started again once per batch.
    """

    def __init__(self, config: dict[str, Any], timeout: float = 300.0) -> None:
        """Start an engine with a configuration whose order is the client's."""
        self.config = config
        self.timeout = timeout
        self.wait_seconds = 0.0
        self.copies = 0
        self._asked: list[Records] = []
        self._at = Position(0, 0)
        self._open()

    def _open(self) -> None:
        process = EngineProcess(find_binary())
        connection = Connection(process.take_socket(), process, process.binary)
        try:
            connection.open(self.config, self.timeout)
            specs = [ArraySpec(described) for described in connection.info["arrays"]]
            for spec in specs:
                spec.check(self.config["batch_size"], int(connection.info["slot_bytes"]))
        except BaseException:
            connection.close()
            raise
        self.info = connection.info
        self._index = next(s.offset for s in specs if s.name == INDEX)
        self._views = torch_views([s for s in specs if s.name != INDEX])
        self._bytes = int(connection.info["slot_bytes"])
        self._connection = connection
        self._finalizer = weakref.finalize(self, _close, connection, os.getpid())

    @property
    def slots(self) -> int:
        """How many batches the engine has room for."""
        return self._connection.slots

    @property
    def ahead(self) -> int:
        """How many batches were asked for and not taken."""
        return len(self._asked)

    def start(self, epoch: int) -> None:
        """Begin a stream; random numbers depend on ``epoch`` and the place of a record in it."""
        self._asked.clear()
        self._begin(Position(epoch, 0))

    def _begin(self, position: Position) -> None:
        self._at = position
        if not self._connection.usable:
            self._connection.close()
            self._finalizer.detach()
            self._open()
        self._connection.start(position)
        for records in self._asked:
            self._connection.order(records)

    def ask(self, records: Records) -> None:
        """Ask for a batch, behind those that were asked for before."""
        self._asked.append(records)
        try:
            self._connection.order(records)
        except EngineDied:
            self._begin(self._at)

    def take(self) -> tuple[dict[str, Any], Records, int]:
        """Return the arrays of the batch that comes next, its index and the place of its first record.

        The index is the number of each record, or -1 - number where the engine cannot make it, which leaves its row to
        the caller.
        """
        before = time.perf_counter()
        try:
            try:
                self._connection.wait(self.timeout)
            except EngineDied:
                self._begin(self._at)
                self._connection.wait(self.timeout)
            event = self._connection.take()
        except BaseException:
            # Whatever it was, the stream is not where it is thought to be.
            self._connection.tear()
            raise
        finally:
            self.wait_seconds += time.perf_counter() - before
        root = self._connection.lease(event, self._bytes)  # type: ignore[arg-type]
        rows = event.rows  # type: ignore[union-attr]
        records = self._asked.pop(0)
        if rows != len(records):
            self._connection.tear()
            raise StokerError(f"the engine made a batch of {rows} rows where {len(records)} were asked for")
        place = self._at.row
        self._at = Position(self._at.epoch, place + rows)
        index: Records = np.ndarray((rows,), "<i8", root, self._index).copy()
        arrays = self._views(root, rows)
        if self._connection.held > self.slots - _KEPT:
            # Whoever keeps batches, as a list of them does, gets memory of their own.
            arrays = {name: array.clone() for name, array in arrays.items()}
            self.copies += 1
        return arrays, index, place

    def close(self) -> None:
        """End the engine. Arrays in use stay valid."""
        self._finalizer()


def _close(connection: Connection, pid: int) -> None:
    """Close what is left, but not in a forked child, where it is the parent's."""
    if os.getpid() == pid:
        connection.close()
