"""The step log: its bytes, which the engine's tests read as well, its cost, and its writers."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import stoker
from stoker import _step
from support import CHECKOUT, open_files

GOLDEN = CHECKOUT / "internal" / "doctor" / "steplog" / "testdata" / "golden.bin"


def written(monkeypatch: pytest.MonkeyPatch) -> _step.StepLog:
    clock = itertools.count(5_000_000, 1000)
    monkeypatch.setattr(os, "getpid", lambda: 4242)
    log = _step.StepLog(8, lambda: next(clock))
    for kind, arg in [
        (_step.WAIT_BEGIN, 0),
        (_step.WAIT_END, 32),
        (_step.STAGE_BEGIN, log.number("forward")),
        (_step.STAGE_BEGIN, log.number("augment")),
        (_step.STAGE_END, log.number("forward")),
        (_step.STAGE_BEGIN, log.number("augment")),
        (_step.STAGE_END, log.number("augment")),
        (_step.STEP, 0),
        (_step.WAIT_BEGIN, 0),
        (_step.WAIT_END, 7),
        (_step.WAIT_BEGIN, 0),
    ]:
        log.write(kind, arg)
    return log


def test_golden(monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(monkeypatch)
    if os.environ.get("STOKER_WRITE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_bytes(log.memory)
    assert log.memory == GOLDEN.read_bytes()
    assert [r.ns for r in log.read()] == [5_000_000 + 1000 * i for i in range(4, 12)]
    assert log.read(9)[1] == _step.Record(5_011_000, _step.WAIT_BEGIN, 0)
    assert log.names()[_step.FIRST_NAME] == "augment"
    log.close()


def test_names_of_stages() -> None:
    log = _step.StepLog(8)
    assert log.number("optimizer") == log.number("optimiser") == 3
    long = log.number("é" * 40)
    assert long == _step.FIRST_NAME
    for i in range(63):
        log.number(f"stage {i}")
    assert log.number("one too many") == 0
    assert log.number("é" * 40) == long
    log.close()
    with pytest.raises(stoker.ConfigError, match="must be a name"):
        stoker.stage("")
    with pytest.raises(stoker.ConfigError, match="must be a name"):
        stoker.stage(3)  # type: ignore[arg-type]


def test_step_and_stage() -> None:
    stoker.step()
    log = _step.log()
    assert log is not None
    first = log.head
    with stoker.stage("forward"):
        pass
    with pytest.raises(ZeroDivisionError), stoker.stage("backward"):
        raise ZeroDivisionError
    stoker.step()
    kinds = [(r.kind, r.arg) for r in log.read(first)]
    assert kinds == [(4, 1), (5, 1), (4, 2), (5, 2), (3, 0)]
    assert sum(f"/memfd:{_step.NAME} " in link for link in open_files()) == 1


def test_threads_lose_nothing() -> None:
    log = _step.StepLog(1 << 14)

    def work() -> None:
        for _ in range(2000):
            log.write(_step.STEP, 0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = [r.ns for r in log.read()]
    assert log.head == len(times) == 8000
    assert times == sorted(times)
    log.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_has_its_own() -> None:
    stoker.step()
    parent = _step.log()
    assert parent is not None
    head = parent.head
    child = os.fork()
    if child == 0:
        stoker.step()
        own = _step.log()
        os._exit(0 if own is not None and own is not parent and own.head == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert parent.head == head


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (np.zeros((5, 2)), 5),
        ((np.zeros((3, 2)), np.zeros(3)), 3),
        ({"image": np.zeros((4, 1))}, 4),
        ([{"x": np.zeros(6)}], 6),
        (7, 0),
        ([], 0),
        (np.float32(1), 0),
    ],
)
def test_rows(batch: object, rows: int) -> None:
    assert _step.rows_of(batch) == rows


def test_watch() -> None:
    stoker.step()
    log = _step.log()
    assert log is not None
    first = log.head
    assert [b.shape for b in stoker.watch([np.zeros((2, 1)), np.zeros((1, 1))])] == [(2, 1), (1, 1)]
    assert [(r.kind, r.arg) for r in log.read(first)] == [(1, 0), (2, 2), (1, 0), (2, 1), (1, 0), (2, _step.NONE)]


class Around:
    """Takes batches from an iterator, and writes its own waits, as loaders around loaders do."""

    def __init__(self, inner: object) -> None:
        self._inner = iter(inner)  # type: ignore[call-overload]

    def __iter__(self) -> Around:
        return self

    def __next__(self) -> object:
        return _step.wait_for(self._inner.__next__)[0]


def test_wait_that_an_interrupt_ended() -> None:
    """Later waits are written."""
    log = _step.log()
    assert log is not None

    def interrupted() -> None:
        _step.begin_wait()  # and never end_wait

    interrupted()
    first = log.head
    assert len(list(stoker.watch([1, 2]))) == 2
    assert [(r.kind, r.arg) for r in log.read(first)][::2] == [(_step.WAIT_BEGIN, 0)] * 3


def test_waits_in_waits_count_once() -> None:
    """However many layers write the wait for a batch, the log has it once, also after an exception."""
    stoker.step()
    log = _step.log()
    assert log is not None
    for depth in range(4):
        loader: object = [np.zeros((3, 1)), np.zeros((2, 1))]
        for _ in range(depth):
            loader = Around(loader)
        first = log.head
        assert len(list(stoker.watch(loader))) == 2  # type: ignore[arg-type]
        assert [(r.kind, r.arg) for r in log.read(first)] == [(1, 0), (2, 3), (1, 0), (2, 2), (1, 0), (2, _step.NONE)]

    def fails() -> Iterator[object]:
        yield 1
        raise ValueError

    first = log.head
    with pytest.raises(ValueError):
        list(stoker.watch(Around(fails())))
    assert [(r.kind, r.arg) for r in log.read(first)] == [(1, 0), (2, 0), (1, 0), (2, _step.NONE)]
    # Threads have waits of their own.
    first = log.head
    thread = threading.Thread(target=lambda: list(stoker.watch([np.zeros((1, 1))])))
    _step.begin_wait()
    thread.start()
    thread.join()
    _step.end_wait(5)
    assert [(r.kind, r.arg) for r in log.read(first)] == [(1, 0), (1, 0), (2, 1), (1, 0), (2, _step.NONE), (2, 5)]


def test_loader_writes_its_waits(fake: None, make: Callable[..., stoker.Loader]) -> None:
    stoker.step()
    log = _step.log()
    assert log is not None
    loader = make("data", batch_size=4)
    first = log.head
    rows = [len(batch) for batch in stoker.watch(loader)]
    records = [(r.kind, r.arg) for r in log.read(first)]
    assert records == [r for n in [*rows, _step.NONE] for r in ((1, 0), (2, n))]
