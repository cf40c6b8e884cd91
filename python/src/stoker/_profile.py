"""``stoker.profile``: a bounded run of a training loop, told apart stage by stage."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from . import _step
from ._ask import Observer, ask
from ._errors import ConfigError, StokerError, public
from ._loader import Loader
from ._measure import Accelerator, Distribution, Result, Run, Stage, Step, bound, drive, reported, timed

_FORMAT = "stoker profile"
_VERSION = 1


@dataclass(repr=False)
class ProfileResult(Result):
    """The result of ``stoker.profile``, without the first step. Times are in seconds.

    Attributes:
        loader: the loader's description of itself.
        steps, examples, seconds, examples_per_second: the amount measured, and the speed.
        au: the share of the time in which the loop did not wait for a batch.
        step, wait: distributions of the time of a step and of the wait for its batch.
        stages: the time of each stage. Those of ``where="trainer"`` follow one another and add up to the whole. Stages
            inside the wait (``"loading"``) or parallel to the loop (``"engine"``, ``"workers"``) come last.
        cpu: CPU seconds of this process and its children.
        notes: stages that could not be told apart, and the reasons.
    """

    __module__ = "stoker"

    loader: str
    steps: int
    examples: int
    seconds: float
    examples_per_second: float
    au: float
    step: Distribution
    wait: Distribution
    stages: list[Stage]
    cpu: float
    notes: list[str] = field(default_factory=list)
    _log: dict[str, Any] = field(default_factory=dict, compare=False)
    _kind = "profile"

    def to_json(self) -> str:
        """Return all figures as JSON, in the form that ``save`` writes."""
        data = asdict(replace(self, _log={}))
        del data["_log"]
        return json.dumps({"format": _FORMAT, "version": _VERSION, **data}, indent=2)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Keep the figures in a file, for ``compare`` or ``stoker profile --compare``."""
        Path(path).write_text(self.to_json() + "\n")

    @staticmethod
    def load(path: str | os.PathLike[str]) -> ProfileResult:
        """Return the profile that ``save`` (or ``stoker profile --save``) has written."""
        try:
            data = json.loads(Path(path).read_text())
            if data["format"] != _FORMAT:
                raise KeyError("format")
            version = data["version"]
            if version != _VERSION:
                raise StokerError(f"{path} is a profile of version {version}, this package reads version {_VERSION}")
            return reported(ProfileResult, data)
        except OSError as error:
            raise StokerError(f"{path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise StokerError(f"{path} is not a profile that stoker has saved ({error})") from None

    def compare(self, before: ProfileResult | str | os.PathLike[str]) -> str:
        """Return a table that compares this profile with an earlier one (or the file of one)."""
        old = before if isinstance(before, ProfileResult) else ProfileResult.load(before)
        return ask(["profile", "compare", "-", "-"], old.to_json() + self.to_json())

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write the steps as a Chrome trace, which opens in Perfetto (ui.perfetto.dev) and chrome://tracing."""
        log = {"title": self.loader, "pid": os.getpid(), **self._log}
        Path(path).write_text(ask(["loop", "trace"], json.dumps(log)))


class _Timed:
    """A dataset, as a fetcher sees it, that times its items. The user's own object stays unchanged."""

    def __init__(self, dataset: Any, spans: _Spans) -> None:
        self._dataset = dataset
        self._spans = spans
        if hasattr(dataset, "__getitems__"):
            self.__getitems__ = self._getitems

    def __getitem__(self, index: Any) -> Any:
        with self._spans.span("getitem"):
            return self._dataset[index]

    def _getitems(self, indices: Any) -> Any:
        with self._spans.span("getitem"):
            return self._dataset.__getitems__(indices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class _Spans:
    """Times of the work inside the wait, in nanoseconds on the clock of the step log."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.events: list[dict[str, Any]] = []
        self.counting = False

    def count(self) -> None:
        """Count from now on."""
        self.counting = True

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        start = time.monotonic_ns()
        try:
            yield
        finally:
            end = time.monotonic_ns()
            if self.counting:
                self.seconds[name] = self.seconds.get(name, 0.0) + (end - start) / 1e9
                if len(self.events) < 200_000:
                    self.events.append({"name": name, "from": start, "to": end})

    def function(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.span(name):
                return function(*args, **kwargs)

        return timed


def _torch_iterator(loader: Any, spans: _Spans) -> Iterator[Any] | None:
    """Return an iterator of a torch DataLoader without workers that times its parts; None for anything else.

    Only the iterator's own fetcher is changed, never the loader, its dataset or its functions.
    """
    if type(loader).__module__.partition(".")[0] != "torch" and "torch" not in {
        c.__module__.partition(".")[0] for c in type(loader).__mro__
    }:
        return None
    if getattr(loader, "num_workers", None) != 0:
        return None
    iterator: Iterator[Any] = iter(loader)
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is None:
        return iterator  # another version of torch: its parts cannot be told apart
    if hasattr(fetcher, "dataset_iter"):
        items = fetcher.dataset_iter

        class Items:
            def __iter__(self) -> Any:
                return self

            def __next__(self) -> Any:
                with spans.span("getitem"):
                    return next(items)

        fetcher.dataset_iter = Items()
    elif hasattr(fetcher, "dataset"):
        fetcher.dataset = _Timed(fetcher.dataset, spans)
    if callable(getattr(fetcher, "collate_fn", None)):
        fetcher.collate_fn = spans.function("collate", fetcher.collate_fn)
    return iterator


class Profiler:
    """Profiles a loop that the program runs itself, for a bounded number of batches.

    ::

        profiler = stoker.Profiler(loader, max_batches=200)
        for images, labels in profiler:                 # ends after 200 batches
            with stoker.stage("forward"): loss = criterion(model(images), labels)
            with stoker.stage("backward"): loss.backward()
            with stoker.stage("optimiser"): optimiser.step()
        print(profiler.result())

    A program with a switch for it can use one line: ``if args.profiling: loader = stoker.Profiler(loader)``.

    Args:
        loader: any iterable of batches.
        max_batches: the loop ends after this many, and those that the loader makes ahead: these do not count.
    """

    __module__ = "stoker"

    def __init__(self, loader: Iterable[Any], max_batches: int = 200) -> None:
        self._loader = loader
        self._most, _ = bound(max_batches, None)
        self._result: ProfileResult | None = None

    def __len__(self) -> int:
        """Return the largest number of batches."""
        with contextlib.suppress(TypeError):
            return min(self._most, len(self._loader))  # type: ignore[arg-type]
        return self._most

    def __iter__(self) -> Iterator[Any]:
        """Give the loader's batches, and profile the loop that takes them."""
        spans, run = _Spans(), Run()
        with Observer("profile") as observer:
            loop = timed(
                self._loader,
                run,
                self._most,
                iterate=_iterate(self._loader, spans),
                counting=spans.count,
                observer=observer,
            )
            try:
                yield from loop
            finally:
                loop.close()
                if run.steps:
                    self._result = _result(self._loader, run, spans, [], observer)

    def result(self) -> ProfileResult:
        """Return the profile, once the loop is over."""
        if self._result is None:
            raise StokerError("there is no profile yet: run the loop, for two batches at least")
        return self._result


def _iterate(loader: Any, spans: _Spans) -> Callable[[], Iterator[Any]] | None:
    if isinstance(loader, Loader) or getattr(loader, "num_workers", None) != 0 or "torch" not in sys.modules:
        return None

    def iterate() -> Iterator[Any]:
        timed = _torch_iterator(loader, spans)
        return iter(loader) if timed is None else timed

    return iterate


@public
def profile(
    loader: Iterable[Any],
    step: Step | None = None,
    *,
    max_batches: int = 200,
    seconds: float | None = None,
    torch_events: bool = False,
) -> ProfileResult:
    """Run a bounded number of steps and report the time of each stage.

    ::

        print(stoker.profile(loader, train_step))            # a function of a batch
        print(stoker.profile(loader, max_batches=200))       # loading alone

    The profile separates waiting from computing for any loader. For ``stoker.Loader`` it lists the engine's stages
    (read, decode, transform, collate). For a PyTorch ``DataLoader`` without workers it lists the items of its dataset
    and its collate function. Parts of the step that the program marks with ``stoker.stage`` have lines of their own.
    For a loop of your own see ``stoker.Profiler``. The user's objects are not changed.

    Args:
        loader: any iterable of batches.
        step: a function that is called with each batch, or seconds to sleep for each. Default: none.
        max_batches: end after this many. Batches that the loader built ahead come first and do not count.
        seconds: end after this many seconds.
        torch_events: tell forward, backward, the optimiser and copies apart by torch's own profiler; its
            overhead makes the steps longer.

    Raises:
        ConfigError: an argument makes no sense, or there was no batch.
    """
    accelerator = Accelerator(step, False)
    most, longest = bound(max_batches, seconds)
    spans = _Spans()
    notes: list[str] = []
    if torch_events and accelerator.function is None:
        raise ConfigError("torch_events=True needs the step as a function of a batch")
    watcher = _torch_profiler() if torch_events else None
    if torch_events and watcher is None:
        notes.append("torch_events: PyTorch is not installed")

    with Observer("profile") as observer:
        with watcher if watcher is not None else contextlib.nullcontext():
            run = drive(loader, accelerator, most, longest, _iterate(loader, spans), spans.count, observer)
        extra = _torch_parts(watcher, len(run.steps) + 1, notes) if watcher is not None else {}
        return _result(loader, run, spans, notes, observer, extra)


def _torch_profiler() -> Any:
    try:
        from torch import cuda
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as torch_profile
    except ImportError:
        return None
    activities = [ProfilerActivity.CPU]
    if cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    return torch_profile(activities=activities)


def _torch_parts(watcher: Any, steps: int, notes: list[str]) -> dict[str, float]:
    """Return seconds per step of the parts that torch's events tell apart."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for event in watcher.events():
        name = event.name
        if name.startswith("autograd::engine::evaluate_function"):
            part = "backward"
        elif name.startswith("Optimizer.step"):
            part = "optimiser"
        elif name.startswith("Memcpy HtoD"):
            part = "copy"
        elif name.startswith("Memcpy DtoH"):
            part = "copy back"
        else:
            continue
        spans.setdefault(part, []).append((event.time_range.start, event.time_range.end))
    if not spans:
        notes.append("torch_events: no event of a backward pass, an optimiser or a copy was seen")
    return {part: _union(found) / 1e6 / max(steps, 1) for part, found in spans.items()}


def _union(spans: list[tuple[int, int]]) -> float:
    """Return the length of the union of the spans."""
    total, end = 0, -1
    for a, b in sorted(spans):
        if b > end:
            total += b - max(a, end)
            end = b
    return total


def _result(
    loader: Any,
    run: Run,
    spans: _Spans,
    notes: list[str],
    observer: Observer,
    parts: dict[str, float] | None = None,
) -> ProfileResult:
    """Let the profile be put together."""
    workers = getattr(loader, "num_workers", 0) if not run.engine_after else 0
    if isinstance(workers, int) and workers > 0:
        notes.append(f"what {workers} worker processes do cannot be told apart from here; num_workers=0 shows it")
    log = _log_of(run)
    told = {**run.told(loader), "inside": spans.seconds, "parts": parts or {}, "log": log, "notes": notes}
    return reported(ProfileResult, observer.last(told), _log={**log, "spans": spans.events})


def _log_of(run: Run) -> dict[str, Any]:
    """Return this run's part of the step log."""
    log = _step.log()
    if log is None:
        return {}
    records = log.read(run.first_record)
    names = {str(number): name for number, name in log.names().items()}
    return {"records": records, "names": names, "lost": log.head - run.first_record > len(records)}
