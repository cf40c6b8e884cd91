"""One epoch made by worker processes of our own, in the loader's process."""

from __future__ import annotations

import collections
import itertools
import os
import pickle
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn

import torch
import torch.multiprocessing
from torch._utils import ExceptionWrapper
from torch.utils.data import _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

from .. import _step
from .._errors import warn
from .._work import _wire
from .._work._pool import Pools
from .._work._process import Worker
from .._work._team import Team
from . import _workers
from ._codec import Found, loads
from ._job import Job, Sent

# How often a worker is started again for the same record before its end is an error.
_TRIES = 2
# The time that all workers together may take to exit before they are terminated.
_GRACE = _utils.MP_STATUS_CHECK_INTERVAL
# The interval of checks that workers live, if the system cannot report it.
_LOOK = 1.0


class Waiting(_BaseDataLoaderIter):
    """torch's iterator, which writes each wait for a batch into the step log."""

    def __next__(self) -> Any:
        return _step.wait_for(super().__next__)[0]


class Failed:
    """The user's exception, which a worker sends in place of a batch."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    def reraise(self) -> NoReturn:
        """Raise it here."""
        self._wrapper.reraise()
        raise AssertionError("torch has not raised")


class WorkerProcess(Worker):
    """A worker process of this iterator."""

    def __init__(self, context: Any, job: Job | Sent, number: int, base_seed: int, pools: Pools) -> None:
        # The tasks sent in this epoch and not yet answered, with their indices, in order.
        self.tasks: dict[int, Any] = {}
        super().__init__(context, _workers.main, (job, number, base_seed), number, pools)
        self.share(pools)

    def share(self, pools: Pools) -> None:
        """Announce the pool of large batches from now on."""
        pool = pools.current
        if pool is not None and self.sock.fileno() >= 0:
            self.send((_wire.POOL, pool.generation, pool.size, pool.places), pool.fds)

    def receive(self) -> tuple[Any, ...] | None:
        """Return (task, epoch, content) of a received message; None if there is none, EOFError at the end."""
        found = self.message()
        if found is None:
            return None
        message, fds = found
        try:
            kind, epoch, task = message[:3]
            if kind == _wire.BATCH:
                return task, epoch, self._batch(message, fds)
            if kind == _wire.SMALL:
                _, _, _, body, places, buffers, beside = message
                # A copy, because the message's bytes cannot be written to.
                return task, epoch, loads(body, Found([bytearray(beside)], places), buffers)
            if kind == _wire.FAILED:
                return task, epoch, Failed(pickle.loads(message[3]))
            return task, epoch, _END
        finally:
            _wire.close(fds)

    def _batch(self, message: tuple[Any, ...], fds: list[int]) -> Any:
        _, _, _, body, places, buffers, pieces, dropped = message
        roots = self.roots(pieces, fds, dropped)
        if isinstance(body, tuple):
            root, at, size = body
            body = memoryview(roots[root])[at : at + size]
        return loads(body, Found(roots, places), buffers)

    def how(self) -> str:
        """Say how it ended, as torch does."""
        return f"DataLoader worker (pid(s) {self.process.pid}) {super().how()}"


_END = object()  # a worker's iterable dataset has ended
_WAITING = object()  # a batch that has not come


class _Following:
    """A loader in the middle of an epoch."""

    def __init__(self, loader: Any, order: Any) -> None:
        self._loader, self._index_sampler = loader, order

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class WorkerIterator(Waiting):
    """torch's iterator over worker processes, with workers and memory of our own.

    Tasks go to workers in turn, ``prefetch_factor`` ahead for each worker. A batch that comes out of order waits. If a
    worker exits without a request, it is started again with its tasks.
    """

    def __init__(self, loader: Any, job: Job | Sent, follows: tuple[Any, int] | None = None) -> None:
        """Start the workers.

        Args:
            loader: the DataLoader.
            job: the work of the workers; it is sent if they are not forked.
            follows: the order and the seed of another iterator of this epoch, after which this one continues without
                drawing numbers.
        """
        if follows is None:
            super().__init__(loader)
        else:
            loader, generator = _Following(loader, follows[0]), loader.generator or torch.default_generator
            before = generator.get_state()
            super().__init__(loader)
            generator.set_state(before)
            self._base_seed = follows[1]
        self._shut, self._pid = False, os.getpid()
        self._lost = ""
        self._job = job
        self._ahead = loader.prefetch_factor * loader.num_workers
        self._pools = Pools(self._ahead)
        self._in_order = getattr(loader, "in_order", True)
        self._context = loader.multiprocessing_context or torch.multiprocessing
        self._pins: ThreadPoolExecutor | None = None
        self._device = -1
        self._team = Team[WorkerProcess](_GRACE)
        if self._pin_memory:
            self._device = torch.accelerator.current_device_index()
            self._pins = ThreadPoolExecutor(1, "pin", _prepare_pinning, (self._device,))
        self._epoch = -1
        self._team.begin(self._num_workers, self._start)
        self._reset(loader, True)

    @property
    def _workers(self) -> list[Any]:
        """The processes, under torch's name for them."""
        return [worker.process for worker in self._team.workers]

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._epoch += 1
        self._next_task = 0  # the number of the next task
        self._wanted = 0  # the number of the next batch to yield
        # The worker of each task, and the batch when it has come.
        self._tasks: dict[int, tuple[int, Any]] = {}
        self._arrived: collections.deque[int] = collections.deque()  # where any order will do
        self._active = [True] * self._num_workers
        self._busy = [0] * self._num_workers
        self._turns = itertools.cycle(range(self._num_workers))
        self._tries: collections.Counter[tuple[int, int]] = collections.Counter()  # by task and row
        for worker in [] if first_iter else [*self._team.workers]:
            worker.tasks.clear()
            current = self._team.replace(worker, self._start) if worker.gone() else worker
            current.send((_wire.EPOCH, self._epoch))
        self._team.listen()
        for _ in range(self._ahead):
            self._give()

    def _start(self, number: int) -> WorkerProcess:
        return WorkerProcess(self._context, self._job, number, int(self._base_seed), self._pools)

    # --- tasks and batches ------------------------------------------------------------------------------------------

    def _give(self) -> None:
        """Give the next task to a worker."""
        try:
            index = self._next_index()
        except StopIteration:
            return
        for _ in range(self._num_workers):
            number = next(self._turns)
            # If any order is allowed, the next worker with space gets the task.
            if self._active[number] and (self._in_order or self._busy[number] < self._ahead // sum(self._active)):
                break
        else:
            return
        task = self._next_task
        self._next_task += 1
        self._tasks[task] = number, _WAITING
        self._busy[number] += 1
        self._team.workers[number].tasks[task] = index
        self._hand(number, task, index)

    def _hand(self, number: int, task: int, index: Any) -> None:
        """Send a task to its worker."""
        self._team.workers[number].send((_wire.TASK, self._epoch, task, index))

    def _look(self) -> bool:
        """Handle events from other sources before waiting for workers; report whether the wait can be skipped."""
        return False

    def _answered(self, worker: WorkerProcess, epoch: int, task: int) -> None:
        """Learn that a worker has answered a task, maybe one of an epoch before."""

    def _next_data(self) -> Any:
        if self._lost:
            raise RuntimeError(self._lost)
        while True:
            if self._arrived:
                number, data = self._tasks.pop(self._arrived.popleft())
                return self._deliver(number, data)
            # Workers whose dataset has ended do not answer the tasks that they were given ahead.
            while self._wanted < self._next_task:
                found = self._tasks.get(self._wanted)
                if found is not None and (found[1] is not _WAITING or self._active[found[0]]):
                    break
                self._tasks.pop(self._wanted, None)
                self._wanted += 1
            else:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            number, data = self._tasks[self._wanted]
            if data is not _WAITING:
                del self._tasks[self._wanted]
                self._wanted += 1
                return self._deliver(number, data)
            self._wait()

    def _deliver(self, number: int, data: Any) -> Any:
        self._busy[number] -= 1
        self._give()
        if isinstance(data, Future):
            data = data.result()
        if isinstance(data, Failed):
            data.reraise()
        return data

    def _wait(self) -> None:
        """Wait for any worker's answer."""
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        while True:
            if self._look():
                return
            seconds = _LOOK if deadline is None else min(_LOOK, max(0, deadline - time.monotonic()))
            workers, happened = self._team.wait(seconds)
            if sum([self._take(worker) for worker in workers]):
                return
            if not happened and deadline is not None and time.monotonic() >= deadline:
                raise RuntimeError(self._timed_out())

    def _take(self, worker: WorkerProcess) -> bool:
        """Take the messages of a worker, and report whether there were any."""
        found = False
        while True:
            gone = False
            try:
                message = worker.receive()
                if message is None and worker.gone():
                    gone, message = True, worker.receive()  # what it had sent before
            except EOFError:
                gone, message = True, None
            if message is None:
                return self._ended(worker) if gone and self._team.listens(worker) else found
            found = True
            task, epoch, data = message
            if self._pools.renew():
                for each in self._team.workers:
                    each.share(self._pools)
            self._answered(worker, epoch, task)
            if epoch == self._epoch:
                self._arrive(worker, task, data)
                if task == self._wanted and self._pins is None:
                    return True  # what else has come is looked at when the loop is back

    def _arrive(self, worker: WorkerProcess, task: int, data: Any) -> None:
        worker.tasks.pop(task, None)
        if data is _END:
            self._active[worker.number] = False
            self._give()
            return
        if self._pins is not None and not isinstance(data, Failed):
            data = self._pins.submit(_pin, data, self._pin_memory_device, self._device)
        self._tasks[task] = worker.number, data
        if not self._in_order:
            self._arrived.append(task)

    # --- failures ---------------------------------------------------------------------------------------------------

    def _ended(self, worker: WorkerProcess) -> bool:
        """Restart a worker that exited without a request, or raise torch's error."""
        worker.process.join(_LOOK)
        worker.recover(self._epoch, worker.tasks)
        how = worker.how()
        number = worker.number
        if not self._active[number]:
            self._team.listen(without=worker)
            worker.close()
            return False
        task, row = worker.marked
        if task < 0:
            self._lose(f"{how} before its first batch{worker.guard}")
        if task not in worker.tasks:  # it ended before it began with one
            task, row = next(iter(worker.tasks), -1 - number), 0
        index = worker.tasks.get(task)
        self._tries[task, row] += 1
        doing = f" while it made batch {task} ({_record(index, row)})" if task >= 0 else ""
        if self._dataset_kind == _DatasetKind.Iterable:
            self._lose(
                f"{how}{doing and ' while it made batch ' + str(task)}. Where its iterable dataset was is lost "
                "with it. num_workers=0 shows more"
            )
        if self._tries[task, row] > _TRIES:
            self._lose(f"{how}{doing}, also when it was started again {_TRIES} times. num_workers=0 shows more")
        warn(f"{how}{doing}; it is started again with its records", RuntimeWarning)
        tasks = worker.tasks
        worker = self._team.replace(worker, self._start)
        for task, index in tasks.items():
            worker.tasks[task] = index
            self._hand(number, task, index)
        return False

    def _lose(self, why: str) -> NoReturn:
        self._lost = why
        self._shutdown_workers()
        raise RuntimeError(why)

    def _timed_out(self) -> str:
        text = f"DataLoader timed out after {self._timeout} seconds"
        found = self._tasks.get(self._wanted)
        if found is None:
            return text
        worker = self._team.workers[found[0]]
        task, index = next(iter(worker.tasks.items()), (self._wanted, None))
        what = f" (records {index!r:.200})" if self._dataset_kind == _DatasetKind.Map else ""
        return f"{text}; worker {worker.number} (pid {worker.process.pid}) is at batch {task}{what}"

    # --- the end ----------------------------------------------------------------------------------------------------

    def _shutdown_workers(self) -> None:
        """End the workers; torch's name, which frameworks call."""
        if _utils is None or _utils.python_exit_status is not False:
            return  # they end with this process
        if self.__dict__.get("_shut", True) or self._pid != os.getpid():  # workers of a forked child's parent
            return
        self._shut = True
        self._team.close()
        self._pools.close()
        if self._pins is not None:
            self._pins.shutdown(wait=False, cancel_futures=True)
        if isinstance(self._job, Sent):
            self._job.close()
        self._tasks.clear()

    def __del__(self) -> None:
        self._shutdown_workers()


def _record(index: Any, row: int) -> str:
    """Return the record of a batch at which a worker has exited."""
    if isinstance(index, list) and row < len(index):
        return f"at record {index[row]!r:.100} of its {len(index)}"
    return f"records {index!r:.200}"


def _prepare_pinning(device: int) -> None:
    torch.set_num_threads(1)
    torch.multiprocessing._set_thread_name("pt_data_pin")
    torch.accelerator.set_device_index(device)


def _pin(data: Any, device: Any, number: int) -> Any:
    try:
        return _utils.pin_memory.pin_memory(data, device)
    except Exception:
        return Failed(ExceptionWrapper(where=f"in pin memory thread for device {number}"))
