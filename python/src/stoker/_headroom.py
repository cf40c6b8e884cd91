"""``stoker.headroom``: how fast training would be if loading took no time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ._described import whole
from ._errors import ConfigError, public
from ._loader import Loader
from ._measure import Accelerator, Result, Step, bound, describe, drive


@dataclass(repr=False)
class HeadroomResult(Result):
    """The result of ``stoker.headroom``.

    Attributes:
        loader: the loader's description of itself.
        steps_per_second, examples_per_second: with the loader.
        replayed_steps_per_second, replayed_examples_per_second: with batches that are in memory already.
        headroom: the factor between the two: the most that faster loading can gain.
        batches: the number of replayed batches.
    """

    __module__ = "stoker"

    loader: str
    steps_per_second: float
    examples_per_second: float
    replayed_steps_per_second: float
    replayed_examples_per_second: float
    headroom: float
    batches: int
    _kind = "headroom"


@public
def headroom(
    loader: Iterable[Any],
    step: Step,
    *,
    batches: int = 8,
    max_batches: int = 100,
    seconds: float | None = None,
) -> HeadroomResult:
    """Measure the upper bound of training speed: the same step on batches that are in memory already.

    ::

        print(stoker.headroom(loader, train_step))

    First some batches are stored and given to the step again and again. Then the loader is run normally. Both exclude
    their first step. The loader's own work does not compete for cores while batches are replayed, so that no loader can
    exceed the bound.

    Args:
        loader: any iterable of batches, which must stay valid while they are kept (those of ``stoker.Loader``
            are copied).
        step: a function that is called with each batch, or the seconds of a simulated step.
        batches: the number of batches to store.
        max_batches: steps of each of the two runs.
        seconds: longest time of each.

    Raises:
        ConfigError: an argument makes no sense, or the loader gives too few batches.
    """
    accelerator = Accelerator(step, False)
    if accelerator.function is None and not accelerator.seconds:
        raise ConfigError("headroom needs the step: a function of a batch, or its seconds")
    batches = whole("batches", batches, 1, 10_000)
    if iter(loader) is loader:
        raise ConfigError("headroom runs the loader twice; give it an iterable that can be run again, not an iterator")
    most, longest = bound(max_batches, seconds)
    kept: list[Any] = []
    source = iter(loader)
    for batch in source:
        kept.append(batch.copy() if isinstance(loader, Loader) else batch)
        del batch
        if len(kept) == batches:
            break
    close = getattr(source, "close", None)
    if callable(close):
        close()
    del source
    if not kept:
        raise ConfigError("the loader gave no batch")

    class Replay:
        def __iter__(self) -> Iterator[Any]:
            return iter(kept)

    replayed = drive(Replay(), accelerator, most, longest)
    count = len(kept)
    kept.clear()
    real = drive(loader, Accelerator(step, False), most, longest)
    speed, bound_ = len(real.steps) / real.seconds, len(replayed.steps) / replayed.seconds
    return HeadroomResult(
        loader=describe(loader),
        steps_per_second=speed,
        examples_per_second=real.rows / real.seconds,
        replayed_steps_per_second=bound_,
        replayed_examples_per_second=replayed.rows / replayed.seconds,
        headroom=max(bound_ / speed, 1.0),
        batches=count,
    )
