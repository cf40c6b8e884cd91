"""Hostile places, kill -9 and random faults: short forms of ``make test-hostile`` and ``make soak``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.hostile import containers, ground, kills, places, slope, soak


@pytest.fixture(scope="module")
def world() -> Iterator[places.World]:
    with ground.data() as folder:
        yield places.World(folder, torch=False)


# Each of the others takes seconds, or has a test of its own in the engine's or the client's tests.
SHORT = (
    "shm",
    "descriptors",
    "tasks",
    "homes",
    "disks",
    "term",
    "forks",
    "spawn",
    "notebook",
    "stale",
    "packers",
    "address",
)


@pytest.mark.parametrize("name", SHORT)
def test_place(world: places.World, name: str) -> None:
    found = list(places.results(world, name))
    assert found
    for r in found:
        assert r.stoker.startswith(("passes", "one clear error", "not run")), r
    if all(r.stoker.startswith("not run") for r in found):
        pytest.skip(found[0].stoker)


@pytest.mark.parametrize("kill", [kills.kill_engines, kills.kill_trainers])
def test_kill_9(world: places.World, kill: object) -> None:
    result = kill(world.data / "pack", 3, random.Random(1))  # type: ignore[operator]
    assert not result.trouble
    assert not result.left
    assert result.kills == 3


def test_container(tmp_path: Path) -> None:
    """Memory and cores of control groups are respected."""
    check = next(containers.cores(tmp_path / "cores"))
    assert check.text.startswith(("passes", "not run")), check
    try:
        cell = next(containers.matrix(tmp_path / "matrix", long=False))
    except ground.UnavailableError as err:
        pytest.skip(str(err))
    assert not cell.trouble, cell


def test_soak() -> None:
    """Random faults do not change a batch."""
    said: list[str] = []
    assert not soak.soak(6, seed=5, pace=0.5, epochs=2, say=said.append), said


def test_slope() -> None:
    points = [(float(t), 100 + 0.5 * t + (50 if t == 7 else 0)) for t in range(30)]
    assert slope.slope(points) == pytest.approx(0.5)
