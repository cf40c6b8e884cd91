"""The end of an epoch if records cannot be shared evenly among the ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker

Make = Callable[..., stoker.Loader]
WORLD = 4


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uneven") / "rows.npy"
    np.save(path, np.arange(1001, dtype=np.float32))
    return path


def of_ranks(make: Make, source: Path, uneven: Any, **more: object) -> list[list[stoker.Batch]]:
    out = []
    for rank in range(WORLD):
        loader = make(source, ranks=stoker.Ranks(rank, WORLD, uneven=uneven), threads=1, seed=3, **more)
        batches = [b.copy() for b in loader]
        assert len(batches) == len(loader)
        out.append(batches)
        loader.close()
    return out


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("records", [1001, 1003, 3])
def test_pad(make: Make, tmp_path: Path, records: int, shuffle: bool) -> None:
    source = tmp_path / "rows.npy"
    np.save(source, np.arange(records, dtype=np.float32))
    ranks = of_ranks(make, source, batch_size=32, shuffle=shuffle, uneven="pad")
    first = np.concatenate([b.index[~b.repeated] for batches in ranks for b in batches])
    assert sorted(first) == list(range(records))
    sizes = [[len(b) for b in batches] for batches in ranks]
    assert all(s == sizes[0] and min(s) > 0 for s in sizes)
    again = [b.index[b.repeated] for batches in ranks for b in batches]
    assert sum(map(len, again)) == -records % WORLD
    # As DistributedSampler does, they are those that the epoch began with.
    head = [b.index[0] for b in make(source, batch_size=1, seed=3, shuffle=shuffle)][: -records % WORLD]
    assert list(np.concatenate(again)) == head
    assert all(b.num_repeated == b.repeated.sum() == 0 for batches in ranks for b in batches[:-1])


def test_drop(make: Make, rows: Path) -> None:
    ranks = of_ranks(make, rows, batch_size=32, shuffle=True, uneven="drop")
    sizes = [[len(b) for b in batches] for batches in ranks]
    assert all(s == sizes[0] and sum(s) == 250 for s in sizes)
    assert len({int(i) for batches in ranks for b in batches for i in b.index}) == 1000


def test_resumed_on_another_number_of_ranks(make: Make, rows: Path) -> None:
    whole = make(rows, batch_size=8, ranks=stoker.Ranks(1, 2, uneven="pad"), shuffle=True)
    batches = iter(whole)
    for _ in range(3):
        next(batches)
    state = whole.state_dict()
    seen: list[int] = []
    for rank in range(3):
        loader = make(rows, batch_size=8, ranks=stoker.Ranks(rank, 3, uneven="pad"), shuffle=True)
        loader.load_state_dict(state)
        seen += [int(i) for b in loader for i in b.index[~b.repeated]]
    assert len(seen) == len(set(seen)) == 1001 - 3 * 16


def test_batches_can_be_copied_and_are_tensors(make: Make, rows: Path) -> None:
    torch = pytest.importorskip("torch")
    loader = make(rows, batch_size=400, ranks=stoker.Ranks(1, 2, uneven="pad"), output="torch")
    last = [b.copy() for b in loader][-1]
    assert len(last) == 101
    assert last.repeated.dtype == torch.bool
    assert last.repeated.tolist() == [False] * 100 + [True]


def test_what_is_refused(make: Make, rows: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="uneven"):
        make(rows, ranks=stoker.Ranks(uneven="even"))
    few = rows.parent / "few.npy"
    np.save(few, np.zeros(3, np.float32))
    with pytest.raises(stoker.StokerError, match="pad"):
        make(few, ranks=stoker.Ranks(0, 4, uneven="drop"))


def test_ddp(rows: Path, tmp_path: Path) -> None:
    """Four ranks over gloo: as many steps on each, and the metric of each record once."""
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, torch, torch.distributed as dist, stoker
            torch.set_num_threads(1)
            dist.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
            loader = stoker.Loader(sys.argv[1], batch_size=32, shuffle=True, ranks=stoker.Ranks(uneven="pad"),
                output="torch", threads=1)
            total = torch.zeros(3, dtype=torch.float64)
            for epoch in range(2):
                for batch in loader:
                    x = batch[0].float().reshape(-1, 1)
                    model(x / 1001).sum().backward()      # waits for all ranks: one step more would hang
                    ours = ~batch.repeated
                    total += torch.tensor([ours.sum(), x[ours].double().sum(), 1])
            steps = [torch.zeros(3, dtype=torch.float64) for _ in range(dist.get_world_size())]
            dist.all_gather(steps, total)
            if dist.get_rank() == 0:
                assert len({float(s[2]) for s in steps}) == 1, steps
                print(*sum(steps)[:2].tolist())
            dist.destroy_process_group()
            """
        )
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD}"]
    done = subprocess.run(
        [*command, str(script), str(rows)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2002.0", str(2 * sum(range(1001)) + 0.0)]
