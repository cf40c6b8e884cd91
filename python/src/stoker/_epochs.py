"""The batches of a loader's engine, one epoch after the other."""

from __future__ import annotations

import collections
import gc
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _device, _map, _node, _step
from . import _wire as wire
from ._batch import INDEX, ArraySpec, Batch, numpy_views, torch_views
from ._binary import find_binary
from ._connection import Connection, Position, connect
from ._errors import ConfigError, EngineDied, EngineRestarted, SkippedRecords, StokerError, StokerTimeout, warn
from ._fields import Field
from ._node import Sharing
from ._process import Engine, when_forgotten
from ._restarts import Restarts

_TWO_THREADS = "two threads use this loader at the same time; make one loader per thread, or take turns"
# Batches that are on their way to the device before they are asked for.
_AHEAD = 1


@dataclass(frozen=True)
class Form:
    """The form of batches in the program."""

    batch_size: int
    output: str  # "numpy" or "torch"
    layout: str
    fields: Mapping[str, Field]

    def layout_of(self, name: str) -> str:
        """Return the layout of the images of an array."""
        field = self.fields.get(name)
        return (field.layout if field else None) or self.layout

    def specs(self, info: dict[str, Any]) -> list[ArraySpec]:
        """Return the arrays that the engine has described, in the order in which a batch has them."""
        specs = [ArraySpec(d, self.layout_of(d["name"]) == "channels_last") for d in info["arrays"]]
        # `images, labels = batch` gives the arrays in the order of transforms=, then the others.
        order = {name: i for i, name in enumerate(self.fields)}
        specs = sorted(specs, key=lambda s: (s.name == INDEX, order.get(s.name, len(order))))
        for spec in specs:
            spec.check(self.batch_size, int(info["slot_bytes"]))
        return specs


class Epochs:
    """An engine, and the loop that takes its batches: the loop's position, and its turn.

    It is used by one loop at a time. An engine that exits is restarted, and continues with the next batch.

    Args:
        config: the engine's configuration.
        form: the form of batches.
        timeout: seconds to wait for a batch.
        socket: the socket of a running engine; None to start one.
        shared: whose engine on this machine to use, which is started if there is none; None for one of its own.
        stage: runs the program's functions, if there are any.
        feeder: copies batches to a device, if requested.
    """

    def __init__(
        self,
        config: dict[str, Any],
        form: Form,
        timeout: float,
        socket: str | None,
        shared: Sharing | None,
        stage: _map.Stage | None,
        feeder: _device.BatchFeeder | None,
    ) -> None:
        self.config, self.form, self.timeout = config, form, timeout
        self.stage, self.feeder = stage, feeder
        self.connection: Connection | None = None
        self._pid = os.getpid()
        self._socket, self.shared = socket, shared
        # Reentrant, because an interrupt just after acquire() leaves it taken by its own thread.
        self._lock = threading.RLock()
        self.wait_seconds = 0.0
        self.batches = 0
        # Copies in a row since the program keeps all batches, and whether it knows.
        self.copies = feeder is None
        self._copied = 0
        self._warned = False
        self.skipped = 0
        self.restarts = Restarts()
        self.shut = False
        # The positions of state_dict, of the next `for`, and of the running one, and the loop whose turn it is.
        self.position = self.upcoming = self._running = Position(0, 0)
        self._turn: object = None
        self._finalizer: Any = None
        self.info: dict[str, Any] = {}

    # --- the engine --------------------------------------------------------

    def connect(self, tries: int = 3) -> None:
        """Start or reach an engine and open the source. A shared engine may end meanwhile because of another loader."""
        process: Engine | None = None
        if self._socket is None:
            binary = find_binary()
            process = _node.engine(binary, self.shared)
            sock = process.take_socket()
            where = process.binary
        else:
            where = self._socket
            sock = connect(where)
        connection = Connection(sock, process, where)
        try:
            connection.open(self.config, self.timeout, self.stage is not None)
            self._check_same_data(connection.info)
            specs = self.form.specs(connection.info)
            self._views = (torch_views if self.form.output == "torch" else numpy_views)(specs)
            if self.stage is not None:
                self.stage.adopt(specs)
            if self.feeder is not None:
                classes = connection.info.get("classes") or {}
                layouts = {s.name: self.form.layout_of(s.name) for s in specs}
                self.feeder.expect(specs, layouts, classes, self.stage is not None)
        except BaseException as error:
            connection.close()
            if self.shared is not None and isinstance(error, EngineDied) and tries > 1:
                self.connect(tries - 1)
                return
            raise
        self._slot_bytes = int(connection.info["slot_bytes"])
        self.specs = specs
        if self.feeder is not None:
            self.feeder.feeder.adopt(connection)
        self._beside = frozenset(s.name for s in specs if s.of)
        self.connection = connection
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = when_forgotten(self, connection.close)

    def open(self) -> None:
        """Start or reach an engine and open the source. An engine that ends meanwhile is replaced, once."""
        try:
            self.connect()
        except EngineDied as error:
            self._prepare_restart(error)
            self.connect()

    def widen(self, batches: int) -> None:
        """Make the ring large enough for the batches of all workers, if the memory allows it."""
        if self.live().slots > batches:
            return
        before = self.config
        self.config = {**before, "prefetch": batches}
        self.live().close()
        try:
            self.connect()
        except ConfigError:
            self.config = before
            self.connect()

    def reopen(self, **config: Any) -> dict[str, Any]:
        """Continue with an engine that has other settings, and return its description."""
        self._check_usable()
        before, self.config = self.config, {**self.config, **config}
        self.live().close()
        try:
            self.connect()
        except BaseException:
            self.config = before
            raise
        self.info |= self.live().info
        return self.info

    @property
    def next_position(self) -> Position:
        """The position of the batch that the engine will be asked for next."""
        return self.upcoming if self._turn is None else self._running

    def _check_same_data(self, info: dict[str, Any]) -> None:
        """A restarted engine must see the data that the loader was made with."""
        before = self.info
        if before and (before["len"], before.get("fingerprint")) != (info["len"], info.get("fingerprint")):
            source = self.config["source"]
            raise StokerError(f"the data at {source} has changed since the loader was made; make a new Loader")

    def live(self) -> Connection:
        """Return the connection."""
        if self.connection is None:
            raise StokerError("the loader was closed; make a new one")
        return self.connection

    def _check_usable(self) -> None:
        if not self.ours:
            raise StokerError(
                f"this loader belongs to process {self._pid}; a forked child cannot use it. Make a new "
                "stoker.Loader in the child, with its own ranks=stoker.Ranks(rank, world_size) when they share the data"
            )
        if self.shut:
            raise StokerError("the loader was closed; make a new one")

    @property
    def ours(self) -> bool:
        """Whether this process has made it; a forked child cannot use it."""
        return os.getpid() == self._pid

    def close(self) -> None:
        """End the engine and its helpers."""
        self.shut = True
        if self.ours and self.feeder is not None:
            self.feeder.feeder.close()
        if self.ours and self.connection is not None:
            self.connection.close()
            if self._finalizer is not None:
                self._finalizer.detach()
            if self.stage is not None:
                self.stage.close()

    # --- iterating ---------------------------------------------------------

    def __len__(self) -> int:
        return int(self.info["steps"])

    def begin(self, loader: Any) -> Epoch:
        """Begin the next epoch, or continue at a loaded state or after a lost engine. ``loader`` is the caller."""
        self._check_usable()
        if not self._lock.acquire(False):
            raise StokerError(_TWO_THREADS)
        try:
            begin = self.upcoming
            self._turn = turn = object()
            self.position = self._running = begin
            self.upcoming = Position(begin.epoch + 1, 0)
            if len(self):
                self._stream_again(begin)
            return Epoch(self, loader, turn, begin.epoch)
        except (EngineDied, EngineRestarted, StokerTimeout):
            self.upcoming = begin
            raise
        finally:
            self._lock.release()

    def go_to(self, position: Position) -> None:
        """Have the next epoch begin there, and the running one end."""
        self._turn = None
        self.position = self.upcoming = position

    def runs(self, epoch: Epoch) -> bool:
        """Whether it is this loop's turn."""
        return self._turn is epoch.turn

    def full(self) -> bool:
        """Whether the program holds all batches that there is room for."""
        return self.connection is not None and self.connection.held >= self.connection.slots

    def has_next(self) -> bool:
        """Whether the next batch, or its error, is ready without waiting."""
        if self.stage is not None:
            return not self.full()
        if self.connection is None or self.connection.cursor is None or not self._lock.acquire(False):
            return False
        try:
            return self.connection.ready()
        except EngineDied:
            return True  # next() starts another engine, or raises
        finally:
            self._lock.release()

    def _stream_again(self, position: Position) -> None:
        """Make the stream deliver the batch at ``position`` next, with another engine if this one has exited."""
        while True:
            try:
                self._stream_from(position)
            except EngineDied as error:
                self._prepare_restart(error)
            else:
                return

    def _prepare_restart(self, error: EngineDied) -> None:
        """Drop the connection to an engine that has ended; raise if there will not be another one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self.config = self.restarts.after(error, self.config)

    def _stream_from(self, position: Position) -> None:
        """Make the stream deliver the batch at ``position`` next."""
        if self.connection is not None and not self.connection.usable:
            ended = self.connection.ended
            self.connection.close()
            self.connection = None
            if ended is not None and ended.returncode is not None:
                raise ended  # as for an end that is seen while a batch is waited for
        if self.connection is None:
            self.connect()
        connection = self.live()
        if self.stage is not None:
            self.stage.begin()
        if connection.cursor != position:
            connection.start(position)

    def next(self, turn: object, epoch: int) -> Batch | None:
        """Return the next batch of an epoch, None at its end."""
        if self.shut or not self.ours:
            self._check_usable()
        if not self._lock.acquire(False):
            raise StokerError(_TWO_THREADS)
        before = time.perf_counter()
        rows = _step.NONE
        # As begin_wait and end_wait, but without marking this frame: no wait begins inside this one.
        inside = _step.is_inside_wait()
        if not inside:
            _step.write(_step.WAIT_BEGIN, 0)
        try:
            while True:
                try:
                    batch = self._next(turn, epoch)
                except EngineDied as error:
                    self._prepare_restart(error)
                else:
                    rows = len(batch) if batch is not None else _step.NONE
                    return batch
        except (EngineDied, EngineRestarted, StokerTimeout) as error:
            # The next `for` tries again where this one stopped.
            self.upcoming = self._running
            if isinstance(error, StokerTimeout) and self.connection is not None:
                self.connection.cursor = None
            raise
        except StokerError:
            if self.shut:
                raise StokerError("the loader was closed") from None
            raise
        finally:
            if not inside:
                _step.write(_step.WAIT_END, rows)
            self.wait_seconds += time.perf_counter() - before
            self._lock.release()

    def _next(self, turn: object, epoch: int) -> Batch | None:
        """Return the next batch, None at the end of the epoch."""
        connection = self.connection
        begun = connection is not None and (connection.cursor is not None or (self.stage and self.stage.over))
        if turn is not self._turn or connection is None or not begun:
            if turn is self._turn and self._running.epoch > epoch:
                return None  # the engine ended between the last batch and the message of the epoch's end
            if not self._resume(turn):
                return None
            connection = self.live()
        if self.stage is not None:
            return self._next_mapped(self.stage, connection, epoch)
        while True:
            connection.wait(self.timeout)
            batch, end = self._take(connection, epoch)
            if batch is not None or end:
                return batch

    def _next_mapped(self, stage: _map.Stage, connection: Connection, epoch: int) -> Batch | None:
        """Return the next batch that the user's functions have made."""
        try:
            while (found := stage.next(connection, self._slot_bytes, epoch, self.timeout)) is None:
                self._stream_from(self._running)
                connection = self.live()
        except _map.Raised as raised:
            self.position = self._running = raised.after
            error: BaseException = raised.failure.error()
        except (StokerError, Warning):
            raise
        except BaseException:
            connection.tear()
            stage.close()
            raise
        else:
            if isinstance(found, _map.End):
                self.position = self._running = connection.cursor = Position(found.event.epoch + 1, 0)
                if found.event.skipped:
                    self._report_skipped(found.event)
                return None
            self.position = self._running = found.after
            self.batches += 1
            return found.batch
        raise error

    def _resume(self, turn: object) -> bool:
        """Begin the stream again at the position of the running epoch; False if the epoch is empty."""
        if turn is not self._turn:
            raise StokerError(
                "another `for` over this loader has begun, or a state was loaded; a loader feeds one loop at a "
                "time. For two loops make two loaders"
            )
        if not len(self):
            return False
        self._stream_from(self._running)
        return True

    def _take(self, connection: Connection, epoch: int) -> tuple[Batch | None, bool]:
        """Take one event: (batch, whether the epoch has ended)."""
        try:
            event = connection.take()
            if isinstance(event, wire.EpochEnd):
                # It belongs to the preceding epoch if that loop was left at its last batch.
                ours = event.epoch >= epoch
                if ours:
                    self.position = self._running = connection.cursor = Position(event.epoch + 1, 0)
                if event.skipped:
                    self._report_skipped(event)
                return None, ours
            root = connection.lease(event, self._slot_bytes)
            views = self._views(root, event.rows)
            batch = Batch(views, event.epoch, event.step, event.rows, self._beside, event.repeated)
            if self.copies and connection.held >= connection.slots:
                batch = self._kept(connection, batch)
            else:
                self._copied = 0
            self.position = self._running = connection.cursor = Position(event.next_epoch, event.next_row)
            self.batches += 1
            return batch, False
        except (StokerError, Warning):
            raise
        except BaseException:
            connection.tear()  # the next `for` starts the engine anew
            raise

    def _kept(self, connection: Connection, batch: Batch) -> Batch:
        """Return a copy if the program holds all other batches, so that the engine can use this one's memory.

        A ring of two batches has one for the program and one for the engine: the program gets no copies.
        """
        if connection.slots <= 2:
            return batch
        if not self._copied:
            gc.collect()  # frees batches in reference cycles
        connection.release_dead()
        if connection.held < connection.slots:
            return batch
        self._copied += 1
        if self._copied == 2 and not self._warned:
            self._warned = True
            warn(
                f"the program keeps {connection.slots - 1} batches, for which the engine has room; further batches are "
                "copies, in memory of the program\n"
                "hint: keep .copy() of what you need of a batch, or drop batches, to train at full speed",
                RuntimeWarning,
            )
        return batch.copy()

    def _report_skipped(self, end: wire.EpochEnd) -> None:
        self.skipped += end.skipped
        what = (
            "1 record was replaced because it"
            if end.skipped == 1
            else f"{end.skipped} records were replaced because they"
        )
        lines = "\n".join("  " + line for line in end.report.splitlines())
        warn(
            f"epoch {end.epoch}: {what} could not be used:\n{lines}",
            SkippedRecords,
        )


class Epoch(Iterator[Batch]):
    """One pass over a loader."""

    def __init__(self, epochs: Epochs, loader: Any, turn: object, epoch: int) -> None:
        # The loader lives as long as a loop iterates over it.
        self._epochs, self._loader = epochs, loader
        self.turn = turn
        self._epoch = epoch
        self._done = False

    def __next__(self) -> Batch:
        if not self._done:
            try:
                batch = self._epochs.next(self.turn, self._epoch)
            except StokerError as error:
                # The user's line and this one are all that the traceback shows.
                raise error.with_traceback(None) from None
            if batch is not None:
                return batch
            self._done = True
        raise StopIteration

    def __len__(self) -> int:
        return len(self._epochs)

    def __repr__(self) -> str:
        return f"<epoch {self._epoch} of {self._loader!r}>"


class DeviceEpoch(Iterator[Batch]):
    """One pass over a loader whose batches are on a device."""

    def __init__(self, epochs: Epochs, host: Epoch, batches: _device.BatchFeeder) -> None:
        self._epochs, self._host, self._batches, self._feeder = epochs, host, batches, batches.feeder
        self._ahead: collections.deque[tuple[_device.Pending, Any]] = collections.deque()
        # The exception that ended the host's iterator, and the loader's position at that time.
        self._end: tuple[BaseException, Any] | None = None

    def _fetch(self) -> None:
        """Take a batch of the host's and begin to copy it."""
        try:
            batch = next(self._host)
        except (StopIteration, StokerError) as end:
            self._end = end, self._epochs.position
        else:
            self._ahead.append((self._batches.begin(batch), self._epochs.position))

    def _more(self) -> bool:
        """Whether the next batch is ready without waiting. A failure comes after the earlier batches."""
        try:
            return self._epochs.has_next()
        except StokerError as end:
            self._end = end, self._epochs.position
            return False

    def __next__(self) -> Batch:
        self._feeder.sweep()
        if self._ahead and not self._epochs.runs(self._host):
            self._ahead.clear()  # another `for` has begun: the host says so
        if not self._ahead and self._end is None:
            if self._epochs.full():
                self._feeder.sweep(wait=True)
            self._fetch()
        # The next one is begun before this one is handed over, if it is there.
        while self._end is None and len(self._ahead) <= _AHEAD and self._more():
            self._fetch()
        if self._ahead:
            pending, position = self._ahead.popleft()
            self._epochs.position = position
            batch: Batch = self._feeder.finish(pending)
            return batch
        assert self._end is not None
        end, position = self._end
        if self._epochs.runs(self._host):
            self._epochs.position = position
        if isinstance(end, StopIteration):
            raise StopIteration
        self._end = None
        raise end.with_traceback(None) from None

    def __len__(self) -> int:
        return len(self._epochs)

    def __repr__(self) -> str:
        return repr(self._host)
