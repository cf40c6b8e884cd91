"""The choice of the way in which a loader's epochs are made."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch.multiprocessing
from torch.utils.data import IterDataPipe, MapDataPipe, default_collate

from ._iterator import Waiting, WorkerIterator
from ._job import Job, Sent
from ._split import SplitIterator, epoch_seed, next_seed

# The module of plan(), imported with the first loader that is iterated.
_RECOGNISE = "stoker.torch._recognise"


@dataclass(frozen=True)
class Row:
    """One row of ``DataLoader.explain()``."""

    part: str  # what of the loader: "dataset", "transform", "collate", "hand-off", ...
    where: str  # "engine", "workers", "torch" or "this process"
    why: str  # one sentence
    gain: str = ""  # what to type next, and what it gains; "" if there is nothing to gain


class Plan(Protocol):
    """A loader that has been recognised: the engine can make the same batches.

    ``stoker.torch._recognise.plan(loader) -> Plan | None`` makes one for the whole loader, or none: parts that are not
    proven to be equal are left to Python. It may also return a text, the reason for no plan, which ``explain()`` shows.
    """

    def fits(self, loader: Any) -> bool:
        """Report before each epoch, quickly, whether the loader still matches the plan.

        People set ``dataset.transform`` or ``loader.collate_fn`` between epochs. If False, ``plan`` is called again.
        """

    def moment(self, loader: Any) -> Any:
        """Return the data that an epoch beginning now reads of the dataset. ``fits`` was called just before.

        That of persistent workers is kept for all their epochs.
        """

    def iterate(self, loader: Any, seed: int, order: Iterator[Any], moment: Any = None) -> Iterator[Any]:
        """Return an iterator over the batches of one epoch, as torch's loader would yield them.

        Args:
            loader: the DataLoader.
            seed: the number that torch draws for each iterator from ``generator`` or the global random numbers. It has
                been drawn already, and nothing else may be drawn. It differs in each epoch of persistent workers.
            order: the iterator of ``loader.batch_sampler`` (``loader.sampler`` if ``batch_size=None``). Read it only
                when needed: it may draw random numbers of the user's.
            moment: the result of ``moment``, None for the current one.

        An iterator with a ``close()`` is closed when the loop has ended.
        """

    def explain(self) -> Sequence[Row]:
        """Return the rows of ``DataLoader.explain()``."""

    @property
    def samples(self) -> Any:
        """An object that makes samples from the engine's batches if Python handles each record, else None.

        With ``num_workers`` above 0, worker processes of a ``SplitIterator`` do that.
        """

    @property
    def learns(self) -> bool:
        """Whether Python makes all batches of the next epoch, from which the plan learns."""

    def close(self) -> None:
        """Stop the plan's processes: it will not be used."""


class Way(Protocol):
    """One of the three ways."""

    def fits(self, loader: Any) -> bool:
        """Say whether it is still the right one."""

    def iterator(self, loader: Any) -> Iterator[Any]:
        """Return torch's kind of iterator over one epoch."""

    def rows(self, loader: Any) -> Sequence[Row]:
        """Return the place where each part runs."""


class EngineWay:
    """A recognised loader: the engine runs all of it, or its beginning, followed by the rest in Python."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def fits(self, loader: Any) -> bool:
        """Ask the plan."""
        return self.plan.fits(loader)

    def iterator(self, loader: Any) -> Iterator[Any]:
        """Run the plan."""
        if self._split(loader):
            loader.check_worker_number_rationality()
            return SplitIterator(loader, _job(loader, self.plan.samples), self.plan)
        return _EngineIterator(loader, self.plan)

    def rest(self, loader: Any, seed: int, order: Iterator[Any], moment: Any) -> Iterator[Any]:
        """Return an iterator over the rest of an epoch that another iterator has begun, with its seed and order."""
        if self._split(loader):
            return SplitIterator(loader, _job(loader, self.plan.samples), self.plan, (order, seed))
        return self.plan.iterate(loader, seed, order, moment)

    def _split(self, loader: Any) -> bool:
        return self.plan.samples is not None and loader.num_workers > 0

    def rows(self, loader: Any) -> Sequence[Row]:
        """Ask the plan."""
        return self.plan.explain()


class TorchWay:
    """torch's own: the loader's ``super()``."""

    def __init__(self, why: str, gain: str = "") -> None:
        self.why, self.gain = why, gain

    def fits(self, loader: Any) -> bool:
        """Choose again each time: the reasons against the other ways may be gone."""
        return False

    def iterator(self, loader: Any) -> Iterator[Any]:
        """Not called: only the loader has its ``super()``."""
        raise NotImplementedError

    def rows(self, loader: Any) -> Sequence[Row]:
        """Say why."""
        return [Row("all", "torch", self.why, self.gain)]


class WorkerWay:
    """Worker processes of our own."""

    def __init__(self, why: str, job: Job | Sent, gain: str = "") -> None:
        self.why, self._job, self.gain = why, job, gain

    def fits(self, loader: Any) -> bool:
        """Choose again each time: the workers of an epoch get the loader's current state."""
        return False

    def iterator(self, loader: Any) -> Iterator[Any]:
        """Start them."""
        loader.check_worker_number_rationality()
        return WorkerIterator(loader, self._job)

    def rows(self, loader: Any) -> Sequence[Row]:
        """Describe the work of the workers."""
        workers = f"{loader.num_workers} workers"
        stack, gain = "stacks are made in shared memory", ""
        if loader.collate_fn is not default_collate:
            stack, gain = "your function; its tensors are copied once", "default_collate() in it stacks without a copy"
        return [
            Row("dataset", workers, self.why or "any Python", self.gain),
            Row("collate", workers, stack, gain),
            Row("hand-off", "shared memory", "no pickling of arrays, no files; memory is used again"),
        ]


def choose(loader: Any) -> Way:
    """Choose how epochs of a loader are made."""
    found, why = _recognised(loader)
    step = getattr(why, "step", "")
    if found is not None:
        return _against(loader, found) or EngineWay(found)
    if loader.num_workers == 0:
        steps = [*([step] if step else []), "num_workers=N: N cores"]
        return TorchWay(f"num_workers=0: everything runs in this process. {why}".strip(), "; or ".join(steps))
    if isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
        return TorchWay("DataPipes are sharded and seeded by torch", step)
    if not loader.prefetch_factor:
        return TorchWay("prefetch_factor=0", "prefetch_factor=2")
    try:
        return WorkerWay(why, _job(loader), step)
    except Exception as error:
        return _unsent(loader, error)


def refused(loader: Any, plan: Plan) -> str:
    """Return why our workers cannot run the parts left to Python; the plan is then closed."""
    way = _against(loader, plan)
    return "" if way is None else way.why


def _against(loader: Any, plan: Plan) -> TorchWay | None:
    """Return torch's way if our workers cannot run the parts left to Python."""
    if plan.samples is None or loader.num_workers == 0:
        return None
    try:
        job = _job(loader, plan.samples)
    except Exception as error:
        plan.close()
        return _unsent(loader, error)
    if isinstance(job, Sent):
        job.close()
    return None


def _job(loader: Any, samples: Any = None) -> Job | Sent:
    """Return the work of the workers in the form that they get. Pickle's errors are raised if they are not forked."""
    job = Job.of(loader, samples)
    return job if start_method(loader) == "fork" else Sent(job)


def start_method(loader: Any) -> str:
    """Return how a loader's worker processes start."""
    return str((loader.multiprocessing_context or torch.multiprocessing).get_start_method())


def _unsent(loader: Any, error: Exception) -> TorchWay:
    gain = 'multiprocessing_context="fork": nothing is sent'
    if importlib.util.find_spec("cloudpickle") is None:
        gain += "; or pip install cloudpickle: more can be sent"
    return TorchWay(f"start method {start_method(loader)}, and it cannot be sent to our workers: {error}", gain)


def _recognised(loader: Any) -> tuple[Plan | None, str]:
    """Return the plan of a loader that the engine can run, or why there is none."""
    if importlib.util.find_spec(_RECOGNISE) is None:
        return None, ""
    answer = importlib.import_module(_RECOGNISE).plan(loader)
    return (None, answer) if isinstance(answer, str) else (answer, "")


class _EngineIterator(Waiting):
    """One epoch of a plan, like torch's iterators: it draws the same numbers, and has the same warnings and limits."""

    def __init__(self, loader: Any, plan: Plan) -> None:
        super().__init__(loader)
        self._plan, self._moment = plan, plan.moment(loader)
        if loader.num_workers > 0:  # then torch begins the order twice, which a sampler may show
            super()._reset(loader, True)
        self._stoker_seed: tuple[int, int] | None = None
        self._batches = self._iterate(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        # The next epoch of persistent workers: torch draws nothing then, and its workers' random numbers continue.
        super()._reset(loader, first_iter)
        self._end()
        self._batches = self._iterate(loader)

    def _iterate(self, loader: Any) -> Iterator[Any]:
        self._stoker_seed = next_seed(self._index_sampler, self._base_seed, self._stoker_seed)
        return self._plan.iterate(loader, epoch_seed(*self._stoker_seed), self._sampler_iter, self._moment)

    def _next_data(self) -> Any:
        return next(self._batches)

    def _end(self) -> None:
        close = getattr(self.__dict__.get("_batches"), "close", None)
        if close is not None:
            close()

    def __del__(self) -> None:
        self._end()


def table(rows: Sequence[Row]) -> str:
    """Write rows as a table."""
    head = ("part", "runs in", "why", "to gain")
    cells = [head, *((r.part, r.where, r.why, r.gain or "-") for r in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
