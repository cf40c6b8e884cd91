"""bench, study, profile and headroom, with loaders of all kinds. Times are those of a simulated clock, and exact."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import _bench, _measure, _profile, _step
from stoker import transforms as T

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402


class Clock:
    """Replaces the module time. The clock advances by each sleep, and by a nanosecond when it is read."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        self.ns += 1
        return self.ns

    def perf_counter(self) -> float:
        return self.monotonic_ns() / 1e9

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


CLOCK = Clock()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Measure with CLOCK."""
    log = _step.StepLog(clock=CLOCK.monotonic_ns)
    for module, name, value in (
        (_measure, "time", CLOCK), (_profile, "time", CLOCK), (_step, "_log", log), (_step, "write", log.write),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    yield CLOCK
    monkeypatch.undo()
    log.close()


def near(seconds: float) -> Any:
    """Return a value that equals a time, except for the clock's nanoseconds."""
    return pytest.approx(seconds, abs=1e-6)


class Slow:
    """Gives batches of 4 rows, each after a while."""

    def __init__(self, n: int, seconds: float) -> None:
        self.n, self.seconds = n, seconds

    def __iter__(self) -> Iterator[np.ndarray]:
        for _ in range(self.n):
            CLOCK.sleep(self.seconds)
            yield np.zeros((4, 2))


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> torch.Tensor:
        CLOCK.sleep(0.002)
        return torch.zeros(3)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.zeros(40, 3))


def test_bench_tells_waiting_from_computing(clock: Clock) -> None:
    slow = stoker.bench(Slow(20, 0.01), step=0.002, max_batches=10)
    assert slow.steps == 9
    assert slow.examples == 36
    assert slow.au == pytest.approx(2 / 12, abs=1e-4)
    assert slow.waited == 1.0
    assert slow.wait.p50 == near(0.01)
    assert slow.step.max == near(0.012)
    assert slow.step.p99 == near(0.012)
    assert slow.step.p50 == near(0.012)
    assert slow.examples_per_second == pytest.approx(4 / 0.012, rel=1e-4)
    fast = stoker.bench(Slow(3, 0), step=1e-5, spin=True, max_batches=8)
    assert fast.steps == 7  # the loader was run through again
    assert fast.au > 0.99
    assert "AU" in repr(fast)
    assert json.loads(fast.to_json())["t"] == 1e-5
    loading = stoker.bench(Slow(5, 0.001), max_batches=5)
    assert loading.au == 0
    assert stoker.bench((np.zeros(2) for _ in range(4)), max_batches=10).steps == 3  # a generator, once


def test_bench_with_a_function_and_with_time(clock: Clock) -> None:
    seen: list[tuple[int, ...]] = []
    result = stoker.bench(Slow(50, 0), lambda batch: seen.append(batch.shape), max_batches=6)
    assert seen == [(4, 2)] * 6
    assert result.t == 0
    assert stoker.bench(Slow(1000, 0.002), max_batches=None, seconds=0.05).steps == 25


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"step": "87ms"}, "seconds of a step"),
        ({"step": -1}, "seconds of a step"),
        ({"step": True}, "seconds of a step"),
        ({"spin": True}, "spin=True needs"),
        ({"max_batches": 1}, "max_batches must be a whole number of at least 2, not 1"),
        ({"max_batches": None}, "would never end"),
        ({"seconds": 0}, "seconds is 0"),
    ],
)
def test_bench_refuses(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(stoker.ConfigError, match=says):
        stoker.bench(Slow(3, 0), **arguments)


def test_bench_of_no_batches() -> None:
    with pytest.raises(stoker.ConfigError, match="gave no batch"):
        stoker.bench([])
    with pytest.raises(stoker.ConfigError, match="a single batch"):
        stoker.bench(iter([1]))


def test_bench_of_the_engine(photos: Path, make: Callable[..., stoker.Loader]) -> None:
    loader = make(photos, batch_size=16, transforms={"image": [T.RandomResizedCrop(32)]})
    result = stoker.bench(loader, step=0.001, max_batches=20)
    assert result.steps == 19
    assert {s.name for s in result.stages} >= {"read", "decode", "transform", "collate"}
    assert result.processes >= 2
    assert result.pss > 0
    profile = stoker.profile(loader, max_batches=8)
    assert next(s.name for s in profile.stages if s.where == "trainer") == "wait"
    assert "decode" in {s.name for s in profile.stages if s.where == "engine"}
    bound = stoker.headroom(loader, step=0.002, batches=3, max_batches=6)
    assert bound.headroom >= 1
    assert bound.batches == 3


class Ahead(Slow):
    """Makes two batches for each of two workers before they are asked for."""

    num_workers, prefetch_factor = 2, 2


class Once:
    """Gives four batches, once."""

    num_workers, prefetch_factor = 2, 2

    def __init__(self) -> None:
        self.batches = iter([np.zeros(2)] * 4)

    def __iter__(self) -> Once:
        return self

    def __next__(self) -> np.ndarray:
        return next(self.batches)


def test_batches_made_ahead_do_not_count(clock: Clock, photos: Path, make: Callable[..., stoker.Loader]) -> None:
    """Batches that were ready in a ring do not count: a short profile measures the same speed as a long one."""
    assert stoker.profile(Ahead(50, 0.01), max_batches=10).steps == 9
    assert stoker.bench(Ahead(3, 0.01), max_batches=10).steps == 9  # several epochs
    with pytest.raises(stoker.ConfigError, match=r"gave 4 batches.*nor are the 4 that it makes ahead"):
        stoker.profile(Once(), max_batches=10)
    taken = 0

    def step(batch: stoker.Batch) -> None:
        nonlocal taken
        taken += 1

    loader = make(photos, batch_size=4, transforms={"image": [T.RandomResizedCrop(32)]})
    profile = stoker.profile(loader, step, max_batches=10)
    assert profile.steps == 9
    assert taken > 10


def test_study(clock: Clock) -> None:
    closed: list[int] = []

    class Loader(Slow):
        def close(self) -> None:
            closed.append(1)

    times = {0: 0.04, 1: 0.02, 2: 0.004, 4: 0.004}
    result = stoker.study(lambda w: Loader(5, times[w]), [4, 0, 1, 2], step=0.0005, max_batches=4, repeats=2)
    assert [c.x for c in result.cells] == [0, 1, 2, 4]
    assert len(closed) == 8
    assert [c.seconds for c in result.cells] == [near(s + 0.0005) for s in (0.04, 0.02, 0.004, 0.004)]
    assert result.knee == 2
    assert "knee" in repr(result)
    json.loads(result.to_json())
    with pytest.raises(stoker.ConfigError, match="a function from"):
        stoker.study(Slow(3, 0))  # type: ignore[arg-type]
    with pytest.raises(stoker.ConfigError, match="workers must be a whole number of at least 0, not -1"):
        stoker.study(lambda w: Slow(3, 0), [-1])


def test_study_is_drawn(binary: str, tmp_path: Path) -> None:
    cells = [
        _bench.StudyCell(w, s, s, s, 100 / s, 0.5, 0.1, 1000, "cpu") for w, s in ((1, 260.0), (2, 150.0), (7, 96.0))
    ]
    result = stoker.StudyResult("workers", "seconds per epoch", cells, 7, "knee")
    assert "●" in result.chart()
    result.save_svg(tmp_path / "knee.svg")
    assert (tmp_path / "knee.svg").read_text().startswith("<svg ")
    cells[0].seconds = float("nan")
    with pytest.raises(stoker.StokerError, match="could not be drawn"):
        result.chart()


def test_profile_of_a_loader_without_workers(clock: Clock) -> None:
    data = Items()
    loader = DataLoader(data, batch_size=8)
    collate = loader.collate_fn

    def step(batch: torch.Tensor) -> None:
        with stoker.stage("forward"):
            clock.sleep(0.004)
        with stoker.stage("optimiser"):
            clock.sleep(0.001)

    profile = stoker.profile(loader, step, max_batches=7)
    assert loader.dataset is data
    assert loader.collate_fn is collate
    assert type(data) is Items
    stages = {(s.where, s.name): s for s in profile.stages}
    assert stages["trainer", "wait"].seconds == near(0.016)
    assert stages["loading", "getitem"].seconds == near(0.016)
    assert stages["loading", "collate"].seconds == near(0)
    assert stages["trainer", "forward"].seconds == near(0.004)
    assert stages["trainer", "optimiser"].seconds == near(0.001)
    assert [s.name for s in profile.stages][:3] == ["wait", "forward", "optimiser"]
    total = sum(s.share for s in profile.stages if s.where == "trainer")
    assert total == pytest.approx(1, abs=0.01)
    assert profile.steps == 6


def test_profile_of_a_stream_and_of_workers() -> None:
    profile = stoker.profile(DataLoader(Stream(), batch_size=8), max_batches=4)
    assert {s.name for s in profile.stages} >= {"wait", "getitem", "collate"}
    profile = stoker.profile(DataLoader(Items(), batch_size=8, num_workers=1), 0.001, max_batches=4)
    assert "num_workers=0 shows it" in " ".join(repr(profile).split())


def test_profiler_in_a_loop(clock: Clock) -> None:
    profiler = stoker.Profiler(Slow(100, 0.001), max_batches=6)
    assert len(profiler) == 6
    with pytest.raises(stoker.StokerError, match="no profile yet"):
        profiler.result()
    for batch in profiler:
        with stoker.stage("backward"):
            clock.sleep(0.002)
        assert batch.shape == (4, 2)
    profile = profiler.result()
    assert profile.steps == 5
    assert {s.name: s for s in profile.stages}["backward"].seconds == near(0.002)
    assert profile.wait.p50 == near(0.001)
    for i, _ in enumerate(profiler):  # left early
        if i == 3:
            break
    assert profiler.result().steps >= 1


def test_profile_with_events_of_torch() -> None:
    model = torch.nn.Linear(64, 64)
    optimiser = torch.optim.SGD(model.parameters(), 0.1)

    def step(batch: torch.Tensor) -> None:
        optimiser.zero_grad()
        model(torch.zeros(8, 64)).sum().backward()
        optimiser.step()

    profile = stoker.profile(Slow(6, 0), step, max_batches=5, torch_events=True)
    names = {s.name for s in profile.stages if s.where == "trainer"}
    assert names >= {"wait", "forward", "backward", "optimiser"}
    with pytest.raises(stoker.ConfigError, match="needs the step"):
        stoker.profile(Slow(6, 0), torch_events=True)


def test_saved_compared_and_traced(clock: Clock, tmp_path: Path) -> None:
    before = stoker.profile(Slow(9, 0.004), 0.001, max_batches=6)
    after = stoker.profile(Slow(9, 0.0), 0.001, max_batches=6)
    before.save(tmp_path / "before.json")
    table = after.compare(tmp_path / "before.json")
    assert "trainer: wait" in table
    assert table == after.compare(before)
    assert repr(stoker.ProfileResult.load(tmp_path / "before.json")) == repr(before)
    (tmp_path / "bad.json").write_text('{"format": "other"}')
    with pytest.raises(stoker.StokerError, match="not a profile"):
        after.compare(tmp_path / "bad.json")
    with pytest.raises(stoker.StokerError, match="No such file"):
        after.compare(tmp_path / "none.json")
    before.trace(tmp_path / "trace.json")
    check_trace(json.loads((tmp_path / "trace.json").read_text()), {"wait", "step"})


def check_trace(trace: dict[str, Any], names: set[str]) -> None:
    """Check the rules of the trace event format for complete events and for metadata."""
    assert isinstance(trace["traceEvents"], list)
    seen = set()
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            continue
        assert event["ph"] == "X"
        assert event["ts"] > 0
        assert event["dur"] >= 0
        seen.add(event["name"])
    assert seen >= names


def test_headroom(clock: Clock) -> None:
    result = stoker.headroom(Slow(30, 0.01), step=0.002, batches=3, max_batches=8)
    assert result.headroom == pytest.approx(6, rel=0.01)
    assert "times as fast" in repr(result)
    assert json.loads(result.to_json())["batches"] == 3
    with pytest.raises(stoker.ConfigError, match="needs the step"):
        stoker.headroom(Slow(3, 0), None)  # type: ignore[arg-type]
    with pytest.raises(stoker.ConfigError, match="runs the loader twice"):
        stoker.headroom(iter([1, 2]), 0.1)


def test_text_without_a_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The binary formats a result. Without the binary the figures are still printed."""
    result = stoker.bench([[1], [2], [3]], max_batches=3)
    assert "steps/s" in repr(result)
    monkeypatch.setenv("STOKER_BINARY", "/nonexistent/stoker")
    assert repr(result).startswith(
        "<BenchResult, to_json() has its figures; STOKER_BINARY is set to /nonexistent/stoker"
    )
    assert json.loads(result.to_json())["steps"] == 2
