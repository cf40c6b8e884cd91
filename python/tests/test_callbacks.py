"""Reports of the waits of a training loop, to trackers and frameworks."""

from __future__ import annotations

import os
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import stoker
from stoker import _connection, _step
from stoker.callbacks import MLflow, TensorBoard, Waiting, WeightsAndBiases


class Clock:
    """A clock that the test sets, in milliseconds."""

    def __init__(self) -> None:
        self.ms = 1000

    def __call__(self) -> int:
        return self.ms * 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Give this process a step log of 64 records, and an engine that says that decoding limits."""
    now = Clock()
    log = _step.StepLog(64, now)
    monkeypatch.setattr(_step, "log", lambda: log)
    monkeypatch.setattr(stoker.callbacks, "time", types.SimpleNamespace(monotonic_ns=now))
    engines = [
        types.SimpleNamespace(closed=False, stats=lambda _: {"batches": 5, "limit": "decode"}),
        types.SimpleNamespace(closed=False, stats=lambda _: {"batches": 900, "limit": "idle"}),
        types.SimpleNamespace(closed=False, stats=lambda _: {}),
        types.SimpleNamespace(closed=True),
    ]
    monkeypatch.setattr(_connection, "_open_connections", engines)
    yield now
    log.close()


def steps(clock: Clock, count: int, wait: int, work: int) -> None:
    """Do some steps of a training loop."""
    log = _step.log()
    assert log is not None
    for _ in range(count):
        log.write(_step.WAIT_BEGIN)
        clock.ms += wait
        log.write(_step.WAIT_END, 8)
        clock.ms += work


def test_waiting(clock: Clock) -> None:
    waiting = Waiting()
    steps(clock, 10, 30, 70)
    report = waiting.report()
    assert (report.waits, report.limit) == (10, "decode")
    assert report.waiting == pytest.approx(0.3)
    assert report.verdict == "the loop waits for data 30% of the time: decode limits"
    steps(clock, 10, 1, 99)
    report = waiting.report()
    assert report.waiting == pytest.approx(0.01)
    assert report.verdict == "the loop waits for data 1% of the time: the training step limits"
    # A wait that is not over counts in both intervals, each its part.
    log = _step.log()
    assert log is not None
    clock.ms += 50
    log.write(_step.WAIT_BEGIN)
    clock.ms += 50
    assert waiting.report().waiting == pytest.approx(0.5)
    clock.ms += 25
    log.write(_step.WAIT_END, 8)
    clock.ms += 75
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert waiting.report().waiting == pytest.approx(0.25)


def test_more_waits_than_the_log_holds(clock: Clock) -> None:
    waiting = Waiting()
    steps(clock, 100, 40, 60)
    report = waiting.report()
    assert report.waits == 32
    assert report.waiting == pytest.approx(0.4)


def test_one_warning_when_the_run_starves(clock: Clock) -> None:
    waiting = Waiting()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps(clock, 10, 90, 10)
        waiting.report()  # the start does not count
    steps(clock, 10, 50, 50)
    hint = rf"waits for data 50% of the time: decode limits\nhint: stoker doctor --pid {os.getpid()}"
    with pytest.warns(RuntimeWarning, match=hint) as caught:
        waiting.report()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps(clock, 10, 50, 50)
        waiting.report()


def test_without_an_engine(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connection, "_open_connections", [])
    waiting = Waiting()
    steps(clock, 4, 50, 50)
    assert waiting.report().limit == "loader"
    monkeypatch.setattr(_step, "log", lambda: None)
    assert Waiting().report().waiting == 0


class Tracker:
    """The documented interfaces of the trackers that are not installed here."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        self.calls.append((tag, scalar_value, global_step))

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        self.calls.append((data, step))

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.calls.append((metrics, step))


def test_trackers(clock: Clock) -> None:
    tracker = Tracker()
    loggers = [TensorBoard(tracker), WeightsAndBiases(tracker), MLflow(tracker)]
    steps(clock, 4, 50, 50)
    for logger in loggers:
        assert logger.log(7).waiting == pytest.approx(0.5)
    assert tracker.calls == [
        ("stoker/waiting", 0.5, 7),
        ({"stoker/waiting": 0.5, "stoker/limit": "decode"}, 7),
        ({"stoker/waiting": 0.5}, 7),
    ]


def test_missing_trackers() -> None:
    for tracker, name in ((WeightsAndBiases, "wandb"), (MLflow, "mlflow")):
        if not _installed(name):
            with pytest.raises(ModuleNotFoundError, match=name):
                tracker()


def test_missing_framework() -> None:
    class Other(stoker.callbacks.Lightning):
        _bases = ("no_such_framework", "Callback")

    with pytest.raises(ModuleNotFoundError, match="Other needs no_such_framework, which is not installed"):
        Other()


def _installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None
