"""Logs of delivered records, and what ``stoker audit`` says of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoker

Make = Callable[..., stoker.Loader]
COUNT = 100


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("n\n" + "".join(f"{i}\n" for i in range(COUNT)))
    return path


def take(loader: stoker.Loader, batches: int) -> None:
    it = iter(loader)
    for _ in range(batches):
        next(it)


@pytest.fixture
def audit(binary: str) -> Callable[..., Any]:
    def run(*logs: Path, code: int = 0) -> Any:
        done = subprocess.run([binary, "audit", "--json", *map(str, logs)], capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


def ranks(make: Make, source: Path, logs: Path, world: int, size: int, state: Any = None, **more: Any) -> list[Any]:
    made = []
    for rank in range(world):
        options = stoker.Ranks(rank, world, audit=logs / "run.{rank}.log")
        made.append(make(source, size, shuffle=True, ranks=options, **more))
        if state is not None:
            made[-1].load_state_dict(state)
    return made


@pytest.mark.parametrize("more", [{}, {"output": "torch"}, {"map": dict, "workers": 0}], ids=["", "torch", "map"])
def test_runs_before_and_after_a_resume(
    make: Make, source: Path, audit: Callable[..., Any], tmp_path: Path, more: dict[str, Any]
) -> None:
    if more.get("output") == "torch":
        pytest.importorskip("torch")
    before = ranks(make, source, tmp_path, 2, 8, **more)
    for loader in before:
        take(loader, 3)
    state = before[0].state_dict()
    for loader in before:  # batches after the state, which the next run has again
        take_more(loader, 1)
        loader.close()
    for loader in ranks(make, source, tmp_path, 3, 5, state, **more):
        for _ in loader:
            pass
        take(loader, 1)
        loader.close()
    logs = sorted(tmp_path.glob("run.*.log"))
    assert len(logs) == 3
    found = audit(*logs)
    assert found["again"] == 16 and found["missing_logs"] == [] and found["dropped_bytes"] == {}
    first, second = found["epochs"]
    assert (first["complete"], first["once"], first["twice"], first["never"]) == (True, COUNT, 0, 0)
    assert (second["complete"], second["once"]) == (False, 15)
    assert sum(p.stat().st_size for p in logs) <= 8 * (COUNT + 16 + 15) + 5 * 96 + 3 * 8
    # A log that is missing is named, and its records were never seen.
    found = audit(*logs[1:], code=4)
    assert found["missing_logs"][0].startswith("rank 0 of 2")
    assert found["epochs"][0]["never"] > 20


def take_more(loader: stoker.Loader, batches: int) -> None:
    """Continue the epoch."""
    loader.load_state_dict(loader.state_dict())
    take(loader, batches)


def test_a_cut_tail(make: Make, source: Path, audit: Callable[..., Any], tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    options: dict[str, Any] = {"ranks": stoker.Ranks(audit=log)}
    with make(source, 10, **options) as loader:
        take(loader, 4)
        with pytest.raises(stoker.ConfigError, match=r"another loader writes .*; give each rank its own log"):
            make(source, 10, **options)
    whole = log.read_bytes()
    for cut in (1, 8, 13):
        log.write_bytes(whole[:-cut])
        found = audit(log)
        assert found["epochs"][0]["once"] == 40 - -(-cut // 8)
        assert found["dropped_bytes"] == ({str(log): -cut % 8} if cut % 8 else {})
    log.write_bytes(whole[:-16] + bytes(13))  # a power failure may leave zeros
    assert audit(log)["epochs"][0]["once"] in (38, 39)
    state = {**loader.state_dict()}
    log.write_bytes(whole[:-13])
    with make(source, 10, **options) as again:  # which continues the file
        again.load_state_dict(state)
        for _ in again:
            pass
    found = audit(log, code=4)
    assert found["epochs"][0]["never_records"] == [38, 39]
    (tmp_path / "b.log").write_text("something else")
    with pytest.raises(stoker.ConfigError, match="is not an audit log"):
        make(source, 10, ranks=stoker.Ranks(audit=tmp_path / "b.log"))


def test_text(make: Make, source: Path, binary: str, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with make(source, 30, drop_last=True, ranks=stoker.Ranks(audit=log)) as loader:
        for _ in loader:
            pass
    done = subprocess.run([binary, "audit", str(log)], capture_output=True, text=True)
    assert done.returncode == 4
    assert done.stdout == (
        "epoch 0: 90 records seen once, 0 twice, 10 never\n  never: 90, 91, 92, 93, 94, 95, 96, 97, 98, 99\n"
    )
    assert "not every record was seen exactly once" in done.stderr
