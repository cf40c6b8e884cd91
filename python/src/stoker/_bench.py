"""``stoker.bench`` and ``stoker.study``: how fast a loader feeds an accelerator, and when more workers stop helping."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ._ask import Observer, ask, run
from ._described import whole
from ._errors import ConfigError, StokerError, public
from ._measure import Accelerator, Distribution, Result, Stage, Step, bound, drive, reported


@dataclass(repr=False)
class BenchResult(Result):
    """The result of ``stoker.bench``, without the first step. Times are in seconds.

    Attributes:
        loader: the loader's description of itself.
        steps, examples, seconds: the amount measured. ``examples`` is 0 if the size of batches is not known.
        examples_per_second, steps_per_second: the speed.
        au: accelerator utilisation, compute time over total time.
        step, wait: distributions of the time of a step and of the wait for its batch.
        waited: share of the steps that waited longer than a hundredth of a step and 0.1 ms.
        first_batch: the time until the first batch, including the start of workers.
        stages: the engine's work per step (for ``stoker.Loader``).
        cpu: CPU seconds of this process and all its children, the step included.
        block_bytes, read_bytes: bytes read from storage, and by ``read()`` from anywhere.
        pss: memory of all processes at the end, in bytes; shared memory counts once.
        processes: their number.
        limit: ``accelerator``, ``cpu``, or empty if the figures do not show it (``stoker doctor`` measures more).
    """

    __module__ = "stoker"

    loader: str
    t: float
    steps: int
    examples: int
    seconds: float
    examples_per_second: float
    steps_per_second: float
    au: float
    step: Distribution
    wait: Distribution
    waited: float
    first_batch: float
    cpu: float
    block_bytes: int
    read_bytes: int
    pss: int
    processes: int
    cores: int
    limit: str
    stages: list[Stage] = field(default_factory=list)
    _kind = "bench"


@public
def bench(
    loader: Iterable[Any],
    step: Step | None = None,
    *,
    max_batches: int | None = 200,
    seconds: float | None = None,
    spin: bool = False,
) -> BenchResult:
    """Measure how well any loader feeds an accelerator.

    ::

        print(stoker.bench(loader, step=0.087))              # simulated: sleeps 87 ms per batch
        print(stoker.bench(loader, step=train_step))         # the real step, on a GPU when it uses one

    The loader is any iterable of batches: ``stoker.Loader``, a PyTorch ``DataLoader``, a generator. If it ends before
    ``max_batches``, it is run again, except for generators. Each step on a GPU is awaited, so that computing and
    waiting do not overlap. Otherwise asynchronous work would count as waiting.

    Args:
        loader: the source of the batches.
        step: seconds that the simulated accelerator takes for a batch, or a function that is called with each batch.
            Default: no step, which measures the speed of loading.
        max_batches: end after this many, None for no limit.
        seconds: end after this many seconds, None for no limit.
        spin: burn a core during a simulated step, as the launching thread of a framework does, instead of sleeping.

    Raises:
        ConfigError: an argument makes no sense, or there was no batch.
    """
    accelerator = Accelerator(step, spin)
    most, longest = bound(max_batches, seconds)
    if max_batches is None and seconds is None:
        raise ConfigError("max_batches and seconds are both None: the run would never end")
    with Observer("bench") as observer:
        timed = drive(loader, accelerator, most, longest, observer=observer)
        computes = accelerator.function is not None or accelerator.seconds > 0
        told = {**timed.told(loader), "computes": computes, "step": accelerator.seconds, "spin": spin}
        return reported(BenchResult, observer.last(told))


@dataclass
class StudyCell:
    """One point of a study: medians over the repeats, and the extremes of the time per step."""

    x: int
    seconds: float
    low: float
    high: float
    examples_per_second: float
    au: float
    cpu: float
    pss: int
    limit: str


@dataclass(repr=False)
class StudyResult(Result):
    """The curve of a study.

    Attributes:
        axis: the name of the varied number; ``unit``: the unit of work that the times refer to.
        cells: the points in order.
        knee: the value of the last point that was at least 10% faster than the last one before it that was.
        verdict: the result in a sentence.
    """

    __module__ = "stoker"

    axis: str
    unit: str
    cells: list[StudyCell]
    knee: int
    verdict: str
    _kind = "study"

    def chart(self) -> str:
        """Return the curve drawn for a terminal."""
        return self._draw("-")

    def save_svg(self, path: str | os.PathLike[str]) -> None:
        """Draw the curve into an SVG file."""
        self._draw(os.path.abspath(os.fspath(path)))

    def _draw(self, svg: str) -> str:
        cells = [{"values": {self.axis: str(c.x)}, **asdict(c)} for c in self.cells]
        text = json.dumps({"x": self.axis, "unit": self.unit, "cells": cells})
        try:
            return ask(["bench", "draw", "--svg", svg], text)
        except StokerError as error:
            raise StokerError(f"the curve could not be drawn: {error}") from None


@public
def study(
    make_loader: Callable[[int], Iterable[Any]],
    workers: Sequence[int] = (0, 1, 2, 4),
    step: Step | None = None,
    *,
    max_batches: int | None = 50,
    seconds: float | None = None,
    repeats: int = 3,
    spin: bool = False,
    axis: str = "workers",
) -> StudyResult:
    """Measure a loader for several numbers of workers, and find the knee, from which more workers do not help.

    ::

        result = stoker.study(lambda w: DataLoader(data, batch_size=64, num_workers=w), workers=[0, 1, 2, 4])
        print(result)                   # a table and a sentence
        print(result.chart())           # the curve
        result.save_svg("knee.svg")

    Each number gets a new loader, ``repeats`` times, in turns and in a new order each time, so that changes on the
    machine affect all numbers alike. The time to start workers does not count: the first step is excluded.

    Args:
        make_loader: makes a loader from the number of workers, or from any other number.
        workers: the numbers to try.
        step: as for ``stoker.bench``.
        max_batches: steps of each run.
        seconds: longest time of each run.
        spin: as for ``stoker.bench``.
        repeats: runs of each.
        axis: the meaning of the numbers, for the report.
    """
    if not callable(make_loader):
        raise ConfigError(
            "make_loader is a function from the number of workers to a loader: "
            "stoker.study(lambda w: DataLoader(data, num_workers=w))"
        )
    numbers = sorted({whole("workers", w, 0) for w in workers})
    if not numbers:
        raise ConfigError("workers is empty; it is a list of numbers from 0")
    repeats = whole("repeats", repeats, 1, 100)
    runs: dict[int, list[BenchResult]] = {w: [] for w in numbers}
    order = random.Random(7)
    for _ in range(repeats):
        for w in order.sample(numbers, len(numbers)):
            loader = make_loader(w)
            try:
                runs[w].append(bench(loader, step, max_batches=max_batches, seconds=seconds, spin=spin))
            finally:
                close = getattr(loader, "close", None)
                if callable(close):
                    close()
                del loader
    told = [
        {
            "x": w,
            "seconds": r.seconds / r.steps,
            "examples_per_second": r.examples_per_second,
            "au": r.au,
            "cpu": r.cpu / r.steps,
            "pss": r.pss,
            "limit": r.limit,
        }
        for w, results in runs.items()
        for r in results
    ]
    unit = "seconds per step"
    curve = run(["loop", "study"], json.dumps({"axis": axis, "unit": unit, "runs": told}))
    return StudyResult(axis, unit, [StudyCell(**c) for c in curve["cells"]], curve["knee"], curve["verdict"])
