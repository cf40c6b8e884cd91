"""Epochs and states of the loader against a fake engine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

import stoker
from support import rows

pytestmark = pytest.mark.usefixtures("fake")
Make = Callable[..., stoker.Loader]


def test_epochs_advance(make: Make) -> None:
    loader = make("fake:len=4", batch_size=2)
    assert len(loader) == 2
    assert rows(loader) == [[0, 1], [2, 3]]
    assert rows(loader) == [[1, 2], [3, 0]]
    assert loader.epoch == 2
    loader.set_epoch(0)
    assert rows(loader) == [[0, 1], [2, 3]]
    assert loader.stats()["engine"]["gen"] == 2, "the stream went on over the first epoch boundary by itself"


@pytest.mark.parametrize("after", [0, 1, 2])
def test_break_then_next_epoch(make: Make, after: int) -> None:
    loader = make("fake:len=6", batch_size=2)
    it = iter(loader)
    for _ in range(after + 1):
        next(it)
    assert rows(loader) == [[1, 2], [3, 4], [5, 0]]
    assert rows(loader) == [[2, 3], [4, 5], [0, 1]]


def test_iterator_ends_once(make: Make) -> None:
    it = iter(make("fake:len=2", batch_size=2))
    next(it)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(it)


def test_two_loops_at_once_are_refused(make: Make) -> None:
    loader = make("fake:len=6", batch_size=2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    with pytest.raises(stoker.StokerError, match="one loop at a time"):
        next(first)
    assert next(second).epoch == 1


def test_empty_epoch(make: Make) -> None:
    loader = make("fake:steps=0", batch_size=2)
    assert rows(loader) == []


def test_state_counts_what_was_delivered(make: Make) -> None:
    loader = make("fake:len=40&slots=8", batch_size=2, seed=3)
    assert loader.state_dict()["position"] == 0
    it = iter(loader)
    for _ in range(3):
        next(it)
    time.sleep(0.05)  # the engine is ahead by now
    state = loader.state_dict()
    assert (state["epoch"], state["position"], state["seed"]) == (0, 6, 3)
    text = json.dumps(state)
    assert len(text) <= 256
    rest = rows_of(it)
    other = make("fake:len=40&slots=2", batch_size=2, seed=3)
    other.load_state_dict(json.loads(text))
    assert other.state_dict() == state
    assert rows(other) == rest
    assert rows(other)[0] == [1, 2], "then the next epoch"


def rows_of(it: object) -> list[list[int]]:
    return [b.index.tolist() for b in it]  # type: ignore[attr-defined]


def test_state_with_another_batch_size(make: Make) -> None:
    loader = make("fake:len=12", batch_size=4)
    next(iter(loader))
    other = make("fake:len=12", batch_size=2)
    other.load_state_dict(loader.state_dict())
    assert rows(other) == [[4, 5], [6, 7], [8, 9], [10, 11]]


def test_state_at_the_end_of_an_epoch(make: Make) -> None:
    loader = make("fake:len=4", batch_size=2)
    it = iter(loader)
    next(it)
    next(it)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)
    loader.load_state_dict(state)
    with pytest.raises(stoker.StokerError, match="state was loaded"):
        next(it)
    assert rows(loader)[0] == [1, 2]


def test_set_epoch_after_loading_a_state_keeps_the_position(make: Make) -> None:
    loader = make("fake:len=6", batch_size=2)
    state = {**loader.state_dict(), "epoch": 5, "position": 4}
    loader.load_state_dict(state)
    loader.set_epoch(5)
    assert rows(loader) == [[3, 4]]
    loader.load_state_dict(state)
    loader.set_epoch(6)
    assert len(rows(loader)) == 3


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"seed": 1}, "seed=1"),
        ({"manifest": "beef"}, "another manifest .beef, here f00d"),
        ({"version": 1}, "version 1"),
        ({"order": "1:full"}, "another pipeline: it was saved with shuffle=True, this loader has shuffle=False"),
        ({"order": "2:source"}, r"order version 2, this version of stoker has 1; .*loader.set_epoch.1."),
        ({"pipeline": "00000001-00000003"}, "another pipeline: it was saved with other settings of transforms, fields"),
        ({"pipeline": "00000009-00000002"}, "other settings of bucket, sequences, mix, drop_last or uneven; make the"),
        ({"pipeline": "00000001-00000002-00000003"}, "other settings of map, batch_map or device"),
        ({"position": -1}, "position is -1"),
        ({"epoch": "one"}, "epoch is 'one'"),
        ({"seed": None}, "seed is None"),
    ],
)
def test_state_of_something_else(make: Make, change: dict, error: str) -> None:
    loader = make("fake:len=6", batch_size=2)
    with pytest.raises(stoker.StateMismatch, match=error):
        loader.load_state_dict({**loader.state_dict(), **change})
    with pytest.raises(stoker.StateMismatch, match="lacks"):
        loader.load_state_dict({"epoch": 1})
    assert len(rows(loader)) == 3
