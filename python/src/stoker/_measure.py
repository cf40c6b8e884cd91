"""Shared code of bench, study, profile and headroom: timing a loop, and showing the results."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeVar

from . import _step
from ._ask import Observer, ask, built
from ._described import whole
from ._errors import ConfigError, StokerError
from ._loader import Loader

Step = float | Callable[[Any], Any]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Distribution:
    """Durations in seconds: mean, percentiles (nearest rank) and the longest."""

    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    max: float = 0.0


@dataclass
class Stage:
    """A part of the work.

    ``where`` is ``"trainer"`` for the work of the training loop itself, one stage after the other. It is ``"engine"``,
    ``"loading"`` or ``"workers"`` for work in parallel to the loop or during its waits.
    """

    name: str
    where: str
    seconds: float
    """Seconds per step, summed over the workers of the stage."""
    share: float
    """Of the loop's time; for the engine, of the time of the stage's workers."""


@dataclass
class Run:
    """The timings of one pass of a loop, without the first step. Times are in seconds."""

    batches: int = 0
    """How many were taken, the first one as well."""
    waits: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    computed: float = 0.0
    rows: int = 0
    seconds: float = 0.0
    first_batch: float = 0.0
    engine_before: list[dict[str, Any]] = field(default_factory=list)
    engine_after: list[dict[str, Any]] = field(default_factory=list)
    first_record: int = 0

    def told(self, loader: object) -> dict[str, Any]:
        """Return it as an ``Observer`` takes it (internal/steptime/told.go)."""
        return {
            "loader": describe(loader),
            "waits": [round(w * 1e9) for w in self.waits],
            "steps": [round(s * 1e9) for s in self.steps],
            "computed": self.computed,
            "examples": self.rows,
            "seconds": self.seconds,
            "first_batch": self.first_batch,
            "engine_before": self.engine_before,
            "engine_after": self.engine_after,
        }


class Accelerator:
    """The consumer of each batch: a simulated one of so many seconds, or the program's own step."""

    def __init__(self, step: Step | None, spin: bool) -> None:
        """Check ``step``: seconds, or a function of a batch."""
        self.function: Callable[[Any], Any] | None = None
        self.seconds = 0.0
        self.spin = spin
        self.late = 0.0
        self._synchronize: Callable[[], None] | None = None
        if callable(step):
            self.function = step
        elif step is not None:
            if isinstance(step, bool) or not isinstance(step, (int, float)) or not 0 <= step <= 3600:
                raise ConfigError(f"step is {step!r}; it is the seconds of a step (0 to 3600) or a function of a batch")
            self.seconds = float(step)
        if spin and not self.seconds:
            raise ConfigError("spin=True needs the seconds of a step: step=0.087")

    def find_device(self) -> None:
        """See whether the step's work is on a GPU, so that its end can be waited for."""
        import sys

        torch = sys.modules.get("torch")
        if (
            self.function is not None
            and torch is not None
            and torch.cuda.is_available()
            and torch.cuda.is_initialized()
        ):
            self._synchronize = torch.cuda.synchronize

    def compute(self, batch: Any) -> float:
        """Take a batch; return the seconds that count as computing."""
        if self.function is not None:
            start = time.perf_counter()
            self.function(batch)
            if self._synchronize is not None:
                self._synchronize()
            return time.perf_counter() - start
        if self.seconds:
            # A sleep that lasted too long, as sleeps do, is made up for by the next one.
            until = time.perf_counter() + self.seconds - self.late
            if self.spin:
                while time.perf_counter() < until:
                    pass
            else:
                time.sleep(max(until - time.perf_counter(), 0))
            self.late = min(max(time.perf_counter() - until, 0), self.seconds)
        return self.seconds


def bound(max_batches: int | None, seconds: float | None) -> tuple[int, float]:
    """Check the limits of a run."""
    if max_batches is not None:
        max_batches = whole("max_batches", max_batches, 2)  # the first step is not counted
    if seconds is not None and not 0 < seconds < 1e6:
        raise ConfigError(f"seconds is {seconds!r}; it is the longest that a run may last")
    return max_batches or 1 << 62, seconds or 1e9


def batches_of(loader: Iterable[Any], iterate: Callable[[], Iterator[Any]] | None = None) -> Iterator[Any]:
    """Iterate over a loader again and again, as far as it gives anything."""
    while True:
        empty = True
        for batch in iterate() if iterate is not None else loader:
            empty = False
            yield batch
            del batch
        # A generator can be run through once only.
        if empty or iter(loader) is loader:
            return


def timed(
    loader: Iterable[Any],
    run: Run,
    max_batches: int,
    seconds: float = 1e9,
    iterate: Callable[[], Iterator[Any]] | None = None,
    counting: Callable[[], None] = lambda: None,
    observer: Observer | None = None,
) -> Generator[Any]:
    """Give the loader's batches and time the loop that takes them. The loop's body is the step.

    The waits and steps go into the step log as well. ``counting`` is called after the first step, from which on times
    count. ``observer`` is called then and at the end.
    """
    batches = batches_of(loader, iterate)
    start = 0.0
    left_out = 1
    try:
        while run.batches < max_batches + left_out - 1 and run.seconds < seconds:
            asked = time.perf_counter()
            try:
                batch, rows = _step.wait_for(batches.__next__)
            except StopIteration:
                break
            ready = time.perf_counter()
            run.batches += 1
            yield batch
            del batch  # its memory is for the next one
            _step.step()
            end = time.perf_counter()
            if run.batches == 1:
                run.first_batch = ready - asked
                left_out += ahead(loader)
            if run.batches <= left_out:
                # The first step is not counted: it opens files, starts workers, compiles. Steps whose batches may have
                # been built ahead are not counted either.
                if run.batches < left_out:
                    continue
                run.engine_before = engine_stages(loader)
                if observer is not None:
                    observer.begin()
                log = _step.log()
                run.first_record = log.head if log is not None else 0
                counting()
                start = time.perf_counter()
                continue
            run.waits.append(ready - asked)
            run.steps.append(end - asked)
            run.rows += rows
            run.seconds = max(end - start, 1e-9)
    finally:
        if run.steps:
            if observer is not None:
                observer.end()
            run.engine_after = engine_stages(loader)
        closing = getattr(batches, "close", None)
        if closing is not None:
            closing()


def drive(
    loader: Iterable[Any],
    accelerator: Accelerator,
    max_batches: int,
    seconds: float,
    iterate: Callable[[], Iterator[Any]] | None = None,
    counting: Callable[[], None] = lambda: None,
    observer: Observer | None = None,
) -> Run:
    """Run the loop of an accelerator and time it, as ``timed`` does."""
    run = Run()

    def begin() -> None:
        accelerator.find_device()
        accelerator.late = run.computed = 0.0
        counting()

    with contextlib.closing(timed(loader, run, max_batches, seconds, iterate, begin, observer)) as batches:
        for batch in batches:
            run.computed += accelerator.compute(batch)
            del batch
    if run.batches == 0:
        raise ConfigError("the loader gave no batch")
    if not run.steps:
        more = f", nor are the {ahead(loader)} that it makes ahead" if ahead(loader) else ""
        gave = "a single batch" if run.batches == 1 else f"{run.batches} batches"
        raise ConfigError(f"the loader gave {gave}, and the first step is not counted{more}; give it more data")
    run.seconds = max(run.seconds - accelerator.late, 1e-9)
    return run


def ahead(loader: object) -> int:
    """Return the number of batches that a loader builds ahead, 0 if it is not known."""
    if isinstance(loader, Loader):
        connection = loader._epochs.connection
        return connection.slots if connection is not None else 0
    workers, factor = getattr(loader, "num_workers", 0), getattr(loader, "prefetch_factor", 0)
    return workers * factor if isinstance(workers, int) and isinstance(factor, int) else 0


def engine_stages(loader: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the engine's stages and their work so far, if the loader has an engine."""
    if not isinstance(loader, Loader):
        return []
    stages = loader.stats()["engine"].get("stages") or []
    return [{key: stage[key] for key in ("name", "busy_ns", "workers")} for stage in stages]


def describe(loader: object) -> str:
    """Describe a loader in one line."""
    text = repr(loader)
    workers = getattr(loader, "num_workers", None)
    if text.startswith("<") and workers is not None:
        return f"{type(loader).__name__}(batch_size={getattr(loader, 'batch_size', None)}, num_workers={workers})"
    return text if len(text) <= 200 and "\n" not in text else type(loader).__name__


class Result:
    """The base of results, which are dataclasses: their JSON, and their text, which the binary writes."""

    _kind: ClassVar[str]

    def to_json(self) -> str:
        """Return all figures as JSON."""
        return json.dumps(asdict(self), indent=2)  # type: ignore[call-overload]

    def __repr__(self) -> str:
        try:
            return ask(["loop", "text", self._kind], self.to_json()).rstrip("\n")
        except StokerError as error:
            return f"<{type(self).__name__}, to_json() has its figures; {str(error).splitlines()[0]}>"


def reported(cls: type[_T], report: Mapping[str, Any], **more: Any) -> _T:
    """Return a result that has distributions and stages, from its JSON."""
    step, wait = Distribution(**report["step"]), Distribution(**report["wait"])
    return built(cls, report, step=step, wait=wait, stages=[Stage(**s) for s in report["stages"]], **more)
