"""``stoker run``: torch's DataLoader, in an unmodified program, runs in the engine if the engine recognises it.

The hook in ``_hook/sitecustomize.py`` calls ``install`` as soon as torch's module of the DataLoader has run, before
other code can import the class. The class stays the same, and only one of its methods is replaced. So derived classes,
earlier imports and look-ups by name are included.
"""

from __future__ import annotations

import atexit
import collections
import json
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from . import _step

# As internal/cli/run.go sets it.
VARIABLE = "STOKER_RUN"
# A loader is compared only if it has this many times the batches that torch makes first.
_WORTH = 5
# The number of loaders that the report lists.
_MOST = 12


class _Options:
    def __init__(self) -> None:
        given = json.loads(os.environ[VARIABLE])
        self.explain = bool(given.get("explain"))
        self.first = int(given.get("first", 0))


class _Phase:
    """How fast a loader's batches came: by torch, or by the engine."""

    def __init__(self) -> None:
        self.batches = self.rows = 0
        self.seconds = self.waited = 0.0

    @property
    def rate(self) -> float:
        """Samples per second of the loop, steps included."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


class _Seen:
    """The state of one loader."""

    def __init__(self, loader: Any) -> None:
        self.name = type(loader.dataset).__name__
        self.reason = ""
        self.step = ""  # what to type next, where there is a reason
        self.plan: Any = None
        self.first_by = "torch"
        self.first = _Phase()
        self.epochs: list[_Phase] = []  # of the engine: the first and the last one
        self.alone = ""  # why it is not compared with torch
        self.told = ""

    @property
    def rows(self) -> list[Any]:
        """Return the parts of the loader and the place where each runs, at this time."""
        return [] if self.plan is None else list(self.plan.explain())

    @property
    def state(self) -> str:
        """A text for the loader's state: it changes if there is something new to report."""
        return self.reason or ("learns" if self.plan.learns else "known")


class _Takeover:
    """The state of one process."""

    def __init__(self, original: Callable[[Any], Any]) -> None:
        self.original = original
        self.options = _Options()
        self.seen: list[_Seen] = []
        self.of: weakref.WeakKeyDictionary[Any, tuple[_Seen, Any]] = weakref.WeakKeyDictionary()
        self.pid = 0

    def iterator(self, loader: Any) -> Any:
        """Return an iterator over the next epoch of a loader."""
        from .torch import DataLoader

        if isinstance(loader, DataLoader):
            return self.original(loader)  # which has chosen already
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.seen.clear()
            self.of.clear()
            atexit.register(self.report, self.pid)
        seen, plan = self.plan(loader)
        if plan is None:
            return self.original(loader)
        if loader.persistent_workers and loader.num_workers > 0:
            # torch keeps the iterator and begins it again: the engine's can do that.
            seen.alone = "not compared with torch: its workers are persistent"
            return _way(plan).iterator(loader)
        first = 0
        if plan.samples is not None and loader.num_workers > 0:
            # Worker processes have a copy of the dataset from their start: the beginning of an epoch.
            seen.alone = "not compared with torch: worker processes make a part of each record"
        elif seen.first.batches == 0 and not plan.learns:
            first = self.options.first
            seen.alone = _alone(_length(loader), first)
            if _length(loader) < _WORTH * first:
                first = 0
        return _Epoch(loader, self.original, plan, seen, first)

    def plan(self, loader: Any) -> tuple[_Seen, Any]:
        """Return the state of a loader, and its plan, None for none."""
        from .torch import _path, _recognise

        seen, plan = self.of.get(loader, (None, None))
        if seen is None:
            seen = _Seen(loader)
            if len(self.seen) < _MOST:
                self.seen.append(seen)
        if plan is None or not plan.fits(loader):
            answer = _recognise.plan(loader)
            plan, seen.reason, seen.step = answer, "", ""
            if isinstance(answer, str):
                plan, seen.reason, seen.step = None, answer, answer.step
            elif why := _path.refused(loader, answer):
                refusal = _recognise.Refusal.of(why)
                plan, seen.reason, seen.step = None, refusal, refusal.step
            seen.plan = plan
            self.of[loader] = seen, plan
        # A plan that learns says more once it has learned.
        if self.options.explain and seen.told != seen.state and _reports():
            seen.told = seen.state
            rows = seen.rows or [_path.Row("all", "torch", seen.reason, seen.step)]
            print(f"stoker run: {seen.name}\n{_path.table(rows)}", file=sys.stderr, flush=True)
        return seen, plan

    def report(self, pid: int) -> None:
        """Report at the end which loaders were taken over."""
        if os.getpid() == pid and self.seen and _reports():
            print("\n".join(_report(self.seen)), file=sys.stderr, flush=True)


def _reports() -> bool:
    """Whether this process is the one that reports: the first of those that a launcher has started."""
    return os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"


def _way(plan: Any) -> Any:
    from .torch import _path

    return _path.EngineWay(plan)


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except TypeError:
        return 0


def _alone(batches: int, first: int) -> str:
    """Say why a loader is not compared with torch, "" if it is."""
    if first == 0:
        return "not compared with torch: --first 0"
    if batches < _WORTH * first:
        least = f"--first {first} needs {_WORTH * first} batches an epoch, this loader has {batches}"
        more = f"; try --first {batches // _WORTH}" if batches >= 2 * _WORTH else ""
        return f"not compared with torch: {least}{more}"
    return "not compared with torch: --first 2 or more measures its speed" if first == 1 else ""


class _Order:
    """The order of an epoch whose first batches torch makes. Torch reads ahead of them as usual."""

    def __init__(self, order: Iterator[Any], first: int) -> None:
        self._order, self._first = order, first
        self._kept: collections.deque[Any] = collections.deque()  # what torch has read and does not make
        self._over = False

    def end_first(self) -> None:
        """Return the batches that torch has read and does not make, and the rest."""
        self._over = True

    @property
    def _stoker_rest(self) -> Iterator[Any] | None:
        """The rest of the order, None while the iterator is not at the rest's beginning."""
        return None if self._kept else self._order

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._over:
            return self._kept.popleft() if self._kept else next(self._order)
        batch = next(self._order)
        if self._first > 0:
            self._first -= 1
            return batch
        self._kept.append(batch)
        raise StopIteration


class _Epoch:
    """One epoch: the first batches as torch makes them, the others by the engine."""

    def __init__(self, loader: Any, original: Callable[[Any], Any], plan: Any, seen: _Seen, first: int) -> None:
        self._loader, self._plan, self._seen = loader, plan, seen
        self._length = _length(loader)
        self._torch: Any = None
        # A plan that learns has Python make the epoch.
        self._phase = _Phase()
        if plan.learns:
            self._phase, seen.first_by = seen.first, "Python"
        self._last = 0.0
        if first > 0:
            # The iterator draws the seed, and has read ahead of the sampler. The engine has the batches after that.
            self._moment = plan.moment(loader)
            self._torch = original(loader)
            sent = getattr(self._torch, "_send_idx", 0)
            self._order = _Order(self._torch._sampler_iter, first - sent)
            self._torch._sampler_iter = self._order
            self._seed = self._torch._base_seed
            self._batches: Any = None
        else:
            self._batches = _way(plan).iterator(loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return self._length

    def __next__(self) -> Any:
        before = time.perf_counter()
        rows = _step.NONE
        _step.begin_wait()
        try:
            phase, batch = self._next()
            rows = _step.rows_of(batch)
        finally:
            _step.end_wait(rows)
        now = time.perf_counter()
        if self._last:
            phase.seconds += now - self._last
            phase.waited += now - before
            phase.rows += rows
        phase.batches += 1
        self._last = now
        return batch

    def _next(self) -> tuple[_Phase, Any]:
        if self._torch is not None:
            try:
                return self._seen.first, next(self._torch)
            except StopIteration:
                self._torch = None  # ends its workers
                self._last = 0.0
                self._order.end_first()
                self._batches = _way(self._plan).rest(self._loader, self._seed, self._order, self._moment)
        batch = next(self._batches)
        if not self._phase.batches and self._phase is not self._seen.first:
            self._seen.epochs = [*self._seen.epochs[:1], self._phase]
        return self._phase, batch


def _report(all_seen: list[_Seen]) -> list[str]:
    lines = ["", "stoker run:"]
    for seen in all_seen:
        if seen.reason:
            lines += [f"  {seen.name}: as it was. {seen.reason}", f"    next: {seen.step}"]
            continue
        if seen.plan is None:
            continue  # an interrupt ended the search for its plan
        where = "as it was" if seen.plan.learns else "in the engine"
        lines.append(f"  {seen.name}: {where} ({'; '.join(f'{r.part}: {r.why}' for r in seen.rows[:1])})")
        epochs, first = [e for e in seen.epochs if e.seconds > 0], seen.first
        if epochs:
            last = epochs[-1]
            text = f"    {epochs[0].rate:,.0f} samples/s"
            if len(epochs) > 1:
                text += f" in the first epoch, {last.rate:,.0f} in the last one"
            if first.seconds > 0:
                text += f"; the first {first.batches} batches, made by {seen.first_by}: {first.rate:,.0f} samples/s"
                text += f" ({last.rate / first.rate:.1f} x)"
            elif seen.alone:
                text += f"; {seen.alone}"
            lines.append(text)
            share = last.waited / last.seconds
            lines.append(f"    the loop waited for data {share:.0%} of its time; {_advice(share, seen)}")
        lines.extend(f"    {r.part}: {r.why} (stoker cache ls)" for r in seen.rows if _keeps(r))
        lines.extend(f"    {r.part}: {r.why}; {r.gain}" for r in seen.rows if r.gain)
    return lines


def _keeps(row: Any) -> bool:
    return bool(row.part == "cache" and row.where == "engine")


def _advice(share: float, seen: _Seen) -> str:
    if share < 0.05:
        return "the step is what limits it: nothing is to be gained here"
    if any(map(_keeps, seen.rows)):
        return "the next run begins with what is kept, and stoker plan says what else would be faster here"
    return (
        "stoker plan says what would be faster here, stoker.Loader on a pack (stoker pack) skips the entropy decoding"
    )


def install(module: Any) -> None:
    """Take over the DataLoader of torch's module, which has just run."""
    base = module.DataLoader
    takeover = _Takeover(base._get_iterator)

    def _get_iterator(self: Any) -> Any:
        return takeover.iterator(self)

    base._get_iterator = _get_iterator
