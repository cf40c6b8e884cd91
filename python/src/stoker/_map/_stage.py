"""The stage between the ring and the loop: it gives batches to workers and theirs to the loop, in order."""

from __future__ import annotations

import collections
import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import _wire as wire
from .._batch import INDEX, ArraySpec, Batch, numpy_views
from .._connection import Connection, Position
from .._errors import ConfigError, StokerError, StokerTimeout, warn
from .._ragged import Ragged, Strings
from .._work import _wire
from .._work._process import Worker
from .._work._team import Team
from . import _worker
from ._failure import Failure
from ._maker import About, Failed, Functions, Maker

# The number of batches that each worker has ahead, so that it need not wait for the next one.
_AHEAD = 2
# The number of restarts of workers for the same record before their exit is an error.
_TRIES = 2
# The time that workers may take to exit on their own: none has anything to finish.
_GRACE = 0.5
# Waits are cut into pieces, because some events have no descriptor.
_SLICE = 0.1


class Made(NamedTuple):
    """A batch for the loop, and the stream's position after it."""

    batch: Batch
    after: Position


class End(NamedTuple):
    """The end of an epoch."""

    event: wire.EpochEnd


@dataclass
class _Task:
    """A batch that a worker has, or has made."""

    worker: int
    root: Any  # the slot, which goes back when nothing uses it any more
    about: About
    after: Position
    first: list[int]  # the numbers of its first records, for errors
    done: Batch | Failure | None = None


class _Process(Worker):
    """A worker of a stage."""

    def __init__(self, context: Any, arguments: tuple[Any, ...], number: int) -> None:
        super().__init__(context, _worker.main, arguments, number)
        self.tasks: dict[tuple[int, int], _Task] = {}  # what it has not answered, of epochs before too
        self.ring: Connection | None = None  # that whose ring it has
        self.second = False  # it has the second ring, too

    def answer(self, to_arrays: Callable[[list[Any], Any, Any], dict[str, Any]]) -> Any:
        """Return (gen, task, arrays or failure, seconds) of an answer that has come; None, EOFError as ``message``."""
        found = self.message()
        if found is None:
            return None
        message, fds = found
        try:
            kind, gen, task = message[:3]
            given = self.tasks.pop((gen, task))
            if kind == _wire.FAILED:
                return gen, task, message[3], 0.0
            _, _, _, seconds, described, pieces, dropped = message
            roots = self.roots(pieces, fds, dropped)
            return gen, task, to_arrays(described, roots, given.root), seconds
        finally:
            _wire.close(fds)


class Stage:
    """A user's functions between an engine and a loop.

    ``begin`` restarts an epoch, ``next`` gives its batches. With no workers the functions run in this process.
    """

    def __init__(self, functions: Functions, workers: int, seed: int, torch: bool) -> None:
        """Take the functions; workers are started with the first batch."""
        self._functions, self._workers, self._seed, self._torch = functions, workers, seed, torch
        self._here = Maker(functions, seed, "this process") if workers == 0 else None
        self._team = Team[_Process](_GRACE)
        self._sent: bytes | Functions | None = None
        self._context: Any = None
        self._specs: list[ArraySpec] = []
        self._beside: frozenset[str] = frozenset()
        self._gen = self._next = self._wanted = 0
        self._tasks: dict[int, _Task] = {}
        self._over: wire.EpochEnd | StokerError | None = None
        self._tries: collections.Counter[tuple[Position, int]] = collections.Counter()  # by batch and row
        self.seconds = 0.0
        self.restarts = 0

    @property
    def wants(self) -> int:
        """Return the number of batches that it can use concurrently."""
        return self._workers * _AHEAD

    def stats(self) -> dict[str, Any]:
        """Return the time spent in the functions."""
        return {"workers": self._workers, "seconds": self.seconds, "restarts": self.restarts}

    def __str__(self) -> str:
        names = [f"{n}={getattr(f, '__name__', type(f).__name__)}" for n, f in self._functions._asdict().items() if f]
        return f"{', '.join(names)} in {self._workers} workers" if self._workers else ", ".join(names)

    def adopt(self, specs: Sequence[ArraySpec]) -> None:
        """Set the arrays of the engine's batches."""
        self._specs = list(specs)
        self._beside = frozenset(s.name for s in specs if s.of)
        self._views = numpy_views(self._specs)

    def begin(self) -> None:
        """Start an epoch, or continue one. Results that workers still have are discarded."""
        self._gen += 1
        self._wanted = self._next  # numbers are not used again: a worker may still be at a batch of the epoch before
        self._tasks.clear()
        self._over = None

    @property
    def over(self) -> bool:
        """Whether the stream has ended. Its exception comes after the batches under way."""
        return self._over is not None

    # --- batches ----------------------------------------------------------------------------------------------------

    def next(self, connection: Connection, slot_bytes: int, epoch: int, timeout: float) -> Made | End | None:
        """Return the next batch or the end of the epoch; None if the stream has to be started again from there.

        Raises the errors of waiting for the engine, and the exceptions of the functions.
        """
        deadline = time.monotonic() + timeout
        while True:
            self._feed(connection, slot_bytes, epoch)
            task = self._tasks.get(self._wanted)
            if task is None:
                over, self._over = self._over, None
                if isinstance(over, StokerError):
                    raise over
                if over is not None:
                    return End(over)
                connection.wait(timeout)
                continue
            if task.done is None and not self._wait(connection, deadline):
                if time.monotonic() >= deadline:
                    raise self._timed_out(task, timeout)
                if self._restarted():
                    return None
                continue
            if task.done is not None:
                del self._tasks[self._wanted]
                self._wanted += 1
                if isinstance(task.done, Failure):
                    raise Raised(task.done, task.after)
                return Made(task.done, task.after)

    def _feed(self, connection: Connection, slot_bytes: int, epoch: int) -> None:
        """Give the engine's batches to workers, as many as they can use."""
        most = max(1, min(self.wants, connection.slots - 1))
        while self._over is None and len(self._tasks) < most and connection.ready():
            try:
                event = connection.take()
            except StokerError as error:
                self._over = error  # its turn comes behind the batches before it
                return
            if isinstance(event, wire.EpochEnd):
                if event.epoch >= epoch:  # else it is of the epoch before, which was left at its last batch
                    self._over = event
                continue
            root = connection.lease(event, slot_bytes)
            after = connection.cursor = Position(event.next_epoch, event.next_row)
            about = About(event.epoch, event.step, event.rows, event.repeated)
            task = _Task(0, root, about, after, self._first(root, event.rows))
            number, self._next = self._next, self._next + 1
            self._tasks[number] = task
            if self._here is not None:
                self._make_here(task)
            else:
                self._give(connection, number, task, event.slot, slot_bytes)

    def _first(self, root: Any, rows: int) -> list[int]:
        at = next(s.offset for s in self._specs if s.name == INDEX)
        found: list[int] = np.ndarray((min(rows, 3),), "<i8", root, at).tolist()
        return found

    def _make_here(self, task: _Task) -> None:
        maker = self._here
        if maker is None:
            raise RuntimeError("there are workers")
        before = time.perf_counter()

        def room(size: int) -> tuple[Any, int]:
            return np.empty(size, np.uint8), 0

        try:
            with maker.seeds.kept():
                arrays = maker.make(self._views(task.root, task.about.rows), task.about, self._beside, room)
            task.done = self._batch(task, {name: self._array(a) for name, a in arrays.items()})
        except Failed as failed:
            task.done = failed.failure
        task.root = None
        self.seconds += time.perf_counter() - before

    def _give(self, connection: Connection, number: int, task: _Task, slot: int, slot_bytes: int) -> None:
        self._start_all()
        # To the one with the least to do; among equals in turn.
        order = range(number, number + self._workers)
        worker = min((self._team.workers[n % self._workers] for n in order), key=lambda w: len(w.tasks))
        second = slot >= wire.MAX_SLOTS
        if worker.ring is not connection:
            self._send_ring(worker, connection, slot_bytes, False)
            worker.ring, worker.second = connection, False
        if second and not worker.second:
            self._send_ring(worker, connection, slot_bytes, True)
            worker.second = True
        task.worker = worker.number
        worker.tasks[self._gen, number] = task
        worker.send((_wire.TASK, self._gen, number, slot, task.about))

    def _send_ring(self, worker: _Process, connection: Connection, slot_bytes: int, second: bool) -> None:
        size, stride, fd = connection.ring(second)
        first = wire.MAX_SLOTS if second else 0
        about = size, stride, slot_bytes, self._specs, connection.private, self._beside
        worker.send((_wire.RING, first, *about), [fd])

    def _batch(self, task: _Task, arrays: dict[str, Any]) -> Batch:
        about = task.about
        beside = self._beside & arrays.keys()
        return Batch(arrays, about.epoch, about.step, about.rows, beside, about.repeated)

    # --- answers of workers -----------------------------------------------------------------------------------------

    def _arrays(self, described: list[Any], roots: Any, slot: Any) -> dict[str, Any]:
        return {name: self._value(value, roots, slot) for name, value in described}

    def _value(self, value: Any, roots: Any, slot: Any, raw: bool = False) -> Any:
        kind = value[0]
        if kind == "array":
            _, root, at, dtype, shape, strides = value
            numbers = np.dtype(np.int16 if dtype == "bfloat16" else dtype)
            lies = slot if root == _worker.RING_ROOT else roots[root]
            a: Any = np.ndarray(shape, numbers, lies, at, strides)
            return a if raw else self._array(a, bfloat16=dtype == "bfloat16")
        parts = [self._value(v, roots, slot, kind == "strings") for v in value[1:]]
        return Strings(Ragged(*parts)) if kind == "strings" else Ragged(*parts)

    def _array(self, a: Any, bfloat16: bool = False) -> Any:
        """Return an array as the loader's output has it."""
        if isinstance(a, Strings):
            return a  # which makes texts of NumPy's bytes
        if isinstance(a, Ragged):
            return Ragged(self._array(a.values), self._array(a.offsets))
        if not bfloat16 and a.dtype.name == "bfloat16":
            a, bfloat16 = a.view(np.int16), True
        if self._torch:
            import torch

            t = torch.from_numpy(a if min(a.strides, default=0) >= 0 else a.copy())
            return t.view(torch.bfloat16) if bfloat16 else t
        if bfloat16:
            import ml_dtypes  # type: ignore[import-not-found,import-untyped,unused-ignore]

            return a.view(ml_dtypes.bfloat16)
        return a

    def _wait(self, connection: Connection, deadline: float) -> bool:
        """Wait for a worker's answer or the engine's next batch. Report whether an answer came."""
        left = max(0.0, min(_SLICE, deadline - time.monotonic()))
        try:
            self._team.watch(connection.waiters() if self._over is None else ())
            ready, _ = self._team.wait(left)
        except (OSError, ValueError):
            return False  # closed by another thread
        return sum([self._take(worker) for worker in ready]) > 0

    def _take(self, worker: _Process) -> bool:
        found = False
        try:
            while (answer := worker.answer(self._arrays)) is not None:
                gen, number, what, seconds = answer
                self.seconds += seconds
                if gen != self._gen:
                    continue
                found = True
                task = self._tasks[number]
                task.done = what if isinstance(what, Failure) else self._batch(task, what)
                task.root = None  # the arrays hold it where they lie in it
        except EOFError:
            pass  # which _restarted sees
        return found

    # --- workers ----------------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        if self._team.workers:
            return
        if self._context is None:
            self._context, self._sent = _context(self._functions)
        try:
            self._team.begin(self._workers, self._start)
        except AssertionError as error:  # multiprocessing's, which lets no daemon have children
            self.close()
            raise ConfigError(f"workers of map= cannot be started here ({error}): use workers=0") from None
        except BaseException:
            self.close()
            raise

    def _start(self, number: int) -> _Process:
        return _Process(self._context, (self._sent, self._seed, number, os.getpid()), number)

    def _restarted(self) -> bool:
        """Restart workers that have exited, and report whether there were any.

        A function may have changed a part of a slot by then. So the engine makes all batches under way again from the
        beginning.
        """
        ended = [worker for worker in self._team.workers if worker.gone()]
        for worker in ended:
            self._take(worker)  # what it has answered before is not what ended it
            number, row = worker.marked
            task = worker.tasks.get((self._gen, number))
            if task is None and not any(n == number for _, n in worker.tasks):  # it ended before it began with one
                task, row = next((t for key, t in worker.tasks.items() if key[0] == self._gen), None), 0
            how = f"worker process {worker.number} of map= (pid {worker.process.pid}) {worker.how()}"
            if number < 0:
                self.close()
                raise StokerError(f"{how} before its first batch{worker.guard}")
            if task is not None:
                how += f" while it made batch {task.about.step} of epoch {task.about.epoch} ({_records(task)})"
                self._tries[task.after, row] += 1
                if self._tries[task.after, row] > _TRIES:
                    self.close()
                    raise StokerError(
                        f"{how}, also when it was started again {_TRIES} times\nhint: workers=0 runs the functions in "
                        "this process"
                    )
            warn(f"{how}; it is started again", RuntimeWarning)
            self._team.replace(worker, self._start)
            self.restarts += 1
        return bool(ended)

    def _timed_out(self, task: _Task, timeout: float) -> StokerTimeout:
        pid = self._team.workers[task.worker].process.pid
        what = f"worker process {task.worker} of map= (pid {pid}) is at batch {task.about.step} ({_records(task)})"
        return StokerTimeout(
            f"no batch within {timeout:g} s; {what}\nhint: limits=stoker.Limits(timeout=SECONDS) sets how long to wait",
            f"the functions: {what}",
        )

    def close(self) -> None:
        """End the workers."""
        self._team.close()
        self._tasks.clear()


class Raised(Exception):
    """A function has raised. The loop may continue after its batch."""

    def __init__(self, failure: Failure, after: Position) -> None:
        super().__init__(failure)
        self.failure, self.after = failure, after


def _records(task: _Task) -> str:
    more = ", ..." if task.about.rows > len(task.first) else ""
    return f"records {', '.join(map(str, task.first))}{more}"


def _context(functions: Functions) -> tuple[Any, bytes | Functions]:
    """Return how processes are started, and the functions as they get them.

    Processes are forked, so that nothing needs to be pickled, unless the program has chosen another way. They are also
    not forked if the program has threads that do not survive it: those of JAX and of CUDA.
    """
    method = multiprocessing.get_start_method(allow_none=True)
    if method in (None, "fork"):  # which is also there where somebody has only asked for the default
        torch = sys.modules.get("torch")
        cuda = torch is not None and torch.cuda.is_initialized()
        method = "forkserver" if cuda or _jax_runs() else "fork"
    context = multiprocessing.get_context(method)
    if method == "fork":
        return context, functions
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]

        dumps: Any = cloudpickle.dumps
    except ImportError:
        dumps = pickle.dumps
    try:
        return context, dumps(functions)
    except Exception as error:
        more = "" if dumps is not pickle.dumps else "; with cloudpickle installed, lambdas and local functions can be"
        raise ConfigError(
            f"map= or batch_map= cannot be sent to processes that are not forked (start method {method}): "
            f"{type(error).__name__}: {error}{more}"
        ) from None


def _jax_runs() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "_backends", None))
