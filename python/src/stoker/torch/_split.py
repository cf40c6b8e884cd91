"""One epoch in which the engine makes the beginning of each batch, and our worker processes the rest."""

from __future__ import annotations

import collections
from typing import Any

from .._work import _wire
from ._iterator import WorkerIterator, WorkerProcess
from ._job import Job, Sent

_MIX = 0x9E3779B97F4A7C15  # an odd number whose multiples are far from each other


def next_seed(order: Any, base: int, before: tuple[int, int] | None) -> tuple[int, int]:
    """Return the parts of the engine's seed of an epoch: a number that torch has drawn, and a count.

    Torch draws one number for all epochs of persistent workers.

    Args:
        order: the source of the batches; in a resumed epoch it has the seed.
        base: the number that torch has drawn for this iterator.
        before: the seed of the epoch before, None for the first epoch.
    """
    resumed = getattr(order, "_stoker_seed", None)
    if resumed is not None:
        return int(resumed[0]), int(resumed[1])
    return (base, 0) if before is None else (before[0], before[1] + 1)


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the engine's seed of an epoch."""
    return (seed + epoch * _MIX) & 0x7FFFFFFFFFFFFFFF


def rows_of(batch: Any) -> int:
    """Return the number of indices in a batch, 0 if it has no length, like a slice."""
    return len(batch) if hasattr(batch, "__len__") else 0


class SplitIterator(WorkerIterator):
    """Workers that get their records out of the engine's ring, as far as the engine can make them.

    A task goes to the engine first, and to its worker when its slot is ready. Workers only read the ring, so that the
    batch of a worker that has exited goes unchanged to the next worker. A batch that the engine cannot make goes to the
    worker immediately, which makes it from the dataset.
    """

    def __init__(self, loader: Any, job: Job | Sent, plan: Any, follows: tuple[Any, int] | None = None) -> None:
        """Start engine and workers; ``follows`` is the WorkerIterator's."""
        self._plan = plan
        self._stream: Any = None
        self._asked: collections.deque[tuple[int, int]] = collections.deque()  # tasks that the engine has: worker, task
        # The slots of the ring that workers have, by epoch and task.
        self._slots: dict[tuple[int, int], tuple[WorkerProcess, Any]] = {}
        self._rings: dict[int, tuple[WorkerProcess, Any]] = {}  # which ring each of the workers has
        self._stoker_seed: tuple[int, int] | None = None
        super().__init__(loader, job, follows)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        # Torch's workers make all batches that they were given, also if the loop has left the epoch. Their later random
        # numbers depend on that, so ours get the batches that the engine still has.
        while self._asked and self._stream is not None and not self._lost:
            self._wait()
        self._asked.clear()
        self._placed, self._place = 0, -1  # the task that is new, and how many records of the epoch are before it
        self._stoker_seed = next_seed(self._index_sampler, int(self._base_seed), self._stoker_seed)
        self._stream, self._numbers = self._plan.next_stream(self._stream), self._plan.numbers()
        if self._stream is not None:
            self._stream.start(epoch_seed(*self._stoker_seed))
        super()._reset(loader, first_iter)

    def _hand(self, number: int, task: int, index: Any) -> None:
        # If its worker was restarted, the engine has made the batch already, or will.
        found = self._slots.get((self._epoch, task))
        if found is not None:
            self._send(number, task, index, found[1])
            return
        if (number, task) in self._asked:
            return
        place = self._place if self._place >= 0 else getattr(self._sampler_iter, "_stoker_skipped", 0)
        if task == self._placed:
            self._placed, self._place = task + 1, place + rows_of(index)
        records = self._numbers(index)
        stream = None if records is None else self._plan.roomy(self._stream, len(records))
        if stream is None:
            super()._hand(number, task, index)
            return
        self._stream = stream
        self._asked.append((number, task))
        self._stream.ask(records, place)

    def _next_data(self) -> Any:
        self._look()
        return super()._next_data()

    def _look(self) -> bool:
        """Give workers the engine's finished batches, and wait for both from now on."""
        if self._stream is None:
            return False
        # Finished batches of workers free slots.
        found = sum([self._take(worker) for worker in self._team.wait(0)[0]]) > 0
        while (slot := self._stream.poll()) is not None:
            number, task = self._asked.popleft()
            index = self._team.workers[number].tasks.get(task)
            if index is not None:
                self._send(number, task, index, slot)
        self._team.watch(self._stream.waiters())
        return found

    def _send(self, number: int, task: int, index: Any, slot: Any) -> None:
        worker = self._team.workers[number]
        self._slots[self._epoch, task] = worker, slot
        if self._rings.get(number) != (worker, slot.ring):
            ring = slot.ring
            about = ring.size, ring.stride, ring.slot_bytes, ring.specs
            worker.send((_wire.RING, *about), [ring.fd])
            self._rings[number] = worker, ring
        beside = self._plan.beside(index)
        worker.send((_wire.TASK, self._epoch, task, index, slot.number, slot.rows, beside))

    def _answered(self, worker: WorkerProcess, epoch: int, task: int) -> None:
        self._slots.pop((epoch, task), None)  # nothing of what has come lies in it

    def _ended(self, worker: WorkerProcess) -> bool:
        for key in [k for k, (who, _) in self._slots.items() if who is worker and k[0] != self._epoch]:
            del self._slots[key]  # of an epoch that nobody waits for
        return super()._ended(worker)

    def _timed_out(self) -> str:
        if any(task == self._wanted for _, task in self._asked):
            return f"DataLoader timed out after {self._timeout} seconds; the engine is at batch {self._wanted}"
        return super()._timed_out()

    def _shutdown_workers(self) -> None:
        stream, self._stream = self.__dict__.get("_stream"), None
        super()._shutdown_workers()
        if stream is not None:
            self._slots.clear()
            self._plan.give_back(stream)
