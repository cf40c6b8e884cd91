"""Random histories of a run with ``map=``: engines are killed, and the run is resumed on other numbers of ranks.

The global batches of each history have the SHA-256 of a run that was left alone. ``make histories`` has 1,000 of them;
the histories of the engine without functions are in loader_history_test.go.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import _restarts
from stoker import transforms as T

EPOCHS = 2
RECORDS = 44


def scaled(record: dict[str, Any]) -> dict[str, Any]:
    """Return the image times a random number, and a list of random length."""
    image = record["image"].astype(np.float32) * np.random.rand()
    return {"image": image, "drawn": np.random.rand(random.randrange(1, 4)).tolist(), "label": record["label"]}


def changed(record: dict[str, Any]) -> dict[str, Any]:
    """Change the engine's memory in place."""
    record["image"] += np.uint8(random.randrange(256))
    return record


CASES: dict[str, dict[str, Any]] = {
    "results": {"map": scaled, "shuffle": True},
    "in place": {"map": changed, "shuffle": True, "where": "label != 1"},
    "in order": {"map": scaled},
}


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the sockets of shared engines in a folder of the test, and let engines end as often as they are killed."""
    monkeypatch.setattr(_restarts, "_WINDOW", 0.0)
    with tempfile.TemporaryDirectory(prefix="stk") as folder:
        os.chmod(folder, 0o700)  # noqa: PTH101
        monkeypatch.setenv("STOKER_RUNTIME_DIR", folder)
        yield


class History:
    """A run of two epochs over one set of records."""

    def __init__(self, data: Path, options: dict[str, Any]) -> None:
        options = dict(options)
        where = options.pop("where", None)
        source = stoker.open(data)[:RECORDS]
        self.source = source if where is None else source.where(where)
        self.options: dict[str, Any] = {"seed": 11, "transforms": {"image": [T.RandomResizedCrop(16)]}, "threads": 1}
        self.options |= options
        self.state: dict[str, Any] | None = None
        self.rows: list[bytes] = []
        self.log: list[str] = []
        self.kills = 0

    @property
    def ended(self) -> bool:
        return self.state is not None and int(self.state["epoch"]) >= EPOCHS

    @property
    def sum(self) -> str:
        return hashlib.sha256(b"".join(self.rows)).hexdigest()

    def segment(
        self,
        world: int,
        batch: int,
        steps: int,
        lost: int,
        workers: int = 0,
        kills: tuple[int, ...] = (),
        shared: bool = False,
    ) -> None:
        """Load up to so many global batches. The last ``lost`` of them are forgotten, as by a trainer that is killed.

        ``kills`` are the steps before which the engine of a rank is killed, which is the engine of all if it is shared.
        """  # fmt: skip
        self.log.append(f"{world=} {batch=} {steps=} {lost=} {workers=} {kills=} {shared=}")
        limits = stoker.Limits(memory="32MB", prefetch=2, shared=shared, timeout=120)
        with contextlib.ExitStack() as stack:
            loaders = []
            for rank in range(world):
                loaders.append(
                    stoker.Loader(
                        self.source,
                        batch,
                        ranks=stoker.Ranks(rank, world),
                        limits=limits,
                        workers=workers,
                        **self.options,
                    )
                )
                stack.callback(loaders[-1].close)
                if self.state is not None:
                    loaders[-1].load_state_dict(json.loads(json.dumps(self.state)))
            self.state = self.state or loaders[0].state_dict()
            loops = [iter(loader) for loader in loaders]
            for step in range(steps):
                for _ in range(kills.count(step)):
                    self.kill(loaders[step % world])
                batches = [next(loop, None) for loop in loops]
                if None in batches:
                    assert batches == [None] * world, self.log
                    loops = [iter(loader) for loader in loaders]
                    batches = [next(loop, None) for loop in loops]
                if step >= steps - lost:
                    continue
                for b in batches:
                    self.rows += [digest(b, i) for i in range(len(b))]
                states = [loader.state_dict() for loader in loaders]
                assert states == [states[0]] * world, self.log
                self.state = states[0]
                if self.ended:
                    break

    def kill(self, loader: stoker.Loader) -> None:
        connection = loader._epochs.connection
        if connection is not None and (pid := connection._engine_pid()) > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.kills += 1


def digest(batch: stoker.Batch, row: int) -> bytes:
    """Return the hash of a row of a batch."""
    h = hashlib.sha256()
    for name in sorted(batch.keys()):
        h.update(name.encode() + np.asarray(batch[name][row]).tobytes())
    return h.digest()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::stoker.EngineRestarted")
def test_histories(pack: Path, case: str) -> None:
    whole = History(pack, CASES[case])
    whole.segment(1, 5, 1000, 0)
    assert len(whole.rows) > EPOCHS * RECORDS / 2
    killed = 0
    for number in range(int(os.environ.get("STOKER_HISTORIES", 9))):
        if number % len(CASES) != list(CASES).index(case):
            continue
        rng = random.Random(number)
        history = History(pack, CASES[case])
        while not history.ended:
            steps = rng.randint(1, 6)
            history.segment(
                rng.randint(1, 8), rng.randint(1, 6), steps, rng.randrange(steps) * rng.randrange(2),
                workers=int(rng.random() < 0.1), shared=rng.random() < 0.7,
                kills=tuple(rng.randrange(steps) for _ in range(rng.choice((0, 0, 1, 2)))),
            )  # fmt: skip
        assert history.sum == whole.sum, (number, history.log)
        killed += history.kills
    assert killed
