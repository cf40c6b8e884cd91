"""The orders that bench.order compares. Ours are those of the loader. Others come from the other loaders' own code if
it is installed (bench/setup.sh). If not, they are reimplemented from publications, and marked as such."""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
WORK = Path(__file__).parent / "work"


@dataclass(frozen=True)
class Data:
    """Records sorted by class, and the number of records in 8 MiB."""

    records: int = 60_000
    classes: int = 100
    chunk: int = 73

    @property
    def labels(self) -> Ids:
        return np.arange(self.records) * self.classes // self.records

    def runs(self, chunks: int) -> list[Ids]:
        """The records in pieces of so many chunks of 8 MiB."""
        size = self.chunk * chunks
        return [np.arange(lo, min(lo + size, self.records)) for lo in range(0, self.records, size)]


Order = Callable[[Data, int, int], Ids]  # of a seed and an epoch


@dataclass(frozen=True)
class Arm:
    title: str
    memory: str  # the amount of 8 MiB chunks in memory
    how: str
    order: Order


def in_order(data: Data, seed: int, epoch: int) -> Ids:
    return np.arange(data.records)


class Stoker:
    """Orders of a loader, over a pack with as many records per chunk as photographs fit into 8 MiB."""

    def __init__(self, data: Data) -> None:
        from stoker._binary import find_binary

        self._dir = tempfile.TemporaryDirectory()
        rows = Path(self._dir.name) / "rows.npy"
        size = (64 << 10) // data.chunk  # 64 KiB is the smallest chunk
        np.save(rows, np.zeros((data.records, size), np.uint8))
        self.pack = Path(self._dir.name) / "pack"
        subprocess.run(
            [find_binary(), "pack", str(rows), str(self.pack), "--chunk-size", "64KiB"], check=True, capture_output=True
        )
        self._kept: dict[tuple[bool | str, int], list[Ids]] = {}

    def order(self, shuffle: bool | str) -> Order:
        def of(data: Data, seed: int, epoch: int) -> Ids:
            import stoker

            kept = self._kept.setdefault((shuffle, seed), [])
            if epoch >= len(kept):
                with stoker.Loader(
                    self.pack, 1024, shuffle=shuffle, seed=seed, limits=stoker.Limits(memory="400MiB"), threads=1
                ) as loader:
                    epochs = range(max(epoch + 1, 4))
                    kept[:] = [np.concatenate([b.index.copy() for b in loader]).astype(np.int64) for _ in epochs]
            return kept[epoch]

        return of

    def close(self) -> None:
        self._dir.cleanup()


def quasi_random(pages: int) -> Order:
    """FFCV's QuasiRandom, restated: a page of those in memory at random, of it the next record of a shuffled list."""

    def of(data: Data, seed: int, epoch: int) -> Ids:
        rng = np.random.default_rng([seed, epoch])
        queue = [rng.permutation(run) for run in data.runs(1)]
        rng.shuffle(queue)  # type: ignore[arg-type]
        open_, used = queue[:pages], [0] * pages
        coming = pages
        out = np.empty(data.records, np.int64)
        for i in range(data.records):
            k = int(rng.integers(len(open_)))
            out[i] = open_[k][used[k]]
            used[k] += 1
            if used[k] == len(open_[k]):
                if coming < len(queue):
                    open_[k], used[k] = queue[coming], 0
                    coming += 1
                else:
                    open_.pop(k)
                    used.pop(k)
        return out

    return of


def buffered(shard: int, buffer: int) -> Order:
    """WebDataset's shuffle: shards in a permuted order, one after another, through its own buffer of records."""

    def of(data: Data, seed: int, epoch: int) -> Ids:
        import random

        from webdataset.filters import _shuffle

        rng = random.Random(seed * 1000 + epoch)
        shards = data.runs(shard)
        rng.shuffle(shards)
        stream = (int(i) for run in shards for i in run)
        size = buffer * data.chunk
        return np.fromiter(_shuffle(stream, bufsize=size, initial=size, rng=rng), np.int64, data.records)

    return of


SEEDS, EPOCHS = 8, 4  # that a foreign order is asked for at a time: its process takes long to start


def foreign(env: str, program: str, restated: Order, **params: int) -> tuple[Order, bool]:
    """An order of a library in its own environment, and whether that exists; otherwise the reimplemented one.

    The program has its parameters in ``a`` and defines ``order(seed, epoch)``.
    """
    python = WORK / "venv" / env / "bin" / "python"
    kept: dict[tuple[Data, int], NDArray[np.int64]] = {}

    def of(data: Data, seed: int, epoch: int) -> Ids:
        key = data, seed // SEEDS
        if key not in kept:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "orders.npy"
                args = {"records": data.records, "chunk": data.chunk, **params}
                seeds = range(key[1] * SEEDS, (key[1] + 1) * SEEDS)
                code = (
                    _HEAD
                    + program
                    + f"np.save({str(out)!r}, [[order(s, e) for e in range({EPOCHS})] for s in {seeds}])"
                )
                command = [python, "-c", code, json.dumps(args)]
                subprocess.run(command, check=True, capture_output=True, timeout=600)
                kept[key] = np.load(out).astype(np.int64)
        return kept[key][seed % SEEDS, epoch]

    try:
        of(Data(records=1000, chunk=10), 0, 0)
    except (OSError, subprocess.SubprocessError):
        return restated, False
    return of, True


_HEAD = "import json, sys; import numpy as np; a = json.loads(sys.argv[1])\n"
_MDS = """
from streaming.base.shuffle import get_shuffle
size = a["chunk"] * a["shard"]
sizes = np.array([min(size, a["records"] - lo) for lo in range(0, a["records"], size)])
def order(seed, epoch):
    return get_shuffle("py1e", sizes, 1, seed, epoch, a["chunk"] * a["block"])
"""


def mds(shard: int, block: int) -> tuple[Order, bool]:
    """MosaicML Streaming's default, py1e: records of shards moved within a block around their position."""

    def restated(data: Data, seed: int, epoch: int) -> Ids:
        rng = np.random.default_rng([seed, epoch])
        shards = [rng.permutation(run) for run in data.runs(shard)]
        rng.shuffle(shards)  # type: ignore[arg-type]
        at, keys = 0, []
        for run in shards:
            wide = rng.integers(block * data.chunk * 3 // 4, block * data.chunk * 5 // 4)
            half = max((wide - len(run)) / 2, 0)
            low, high = max(-half, -at), min(half, data.records - at - len(run))
            keys.append(np.arange(at, at + len(run)) + rng.uniform(low, high, len(run)))
            at += len(run)
        return np.concatenate(shards)[np.argsort(np.concatenate(keys), kind="stable")]

    return foreign("mds", _MDS, restated, shard=shard, block=block)


_LITDATA = """
from types import SimpleNamespace
from litdata.streaming.shuffle import FullShuffle
from litdata.utilities.env import _DistributedEnv
size = a["chunk"] * a["shard"]
runs = [(lo, min(lo + size, a["records"])) for lo in range(0, a["records"], size)]
from litdata.streaming.item_loader import Interval
intervals = [Interval(lo, lo, hi, hi) for lo, hi in runs]
cache = SimpleNamespace(_reader=SimpleNamespace(), get_chunk_intervals=lambda: intervals)
env = _DistributedEnv(world_size=1, global_rank=0, num_nodes=1)
def order(seed, epoch):
    s = FullShuffle(cache, seed, False)
    chunks, intervals = s.get_chunks_and_intervals_per_workers(env, a["workers"], a["batch"], epoch + 1)
    streams = []
    for mine, theirs in zip(chunks, intervals):
        ids = []
        for chunk, interval in zip(mine, theirs):
            ids += s(np.arange(interval[1], interval[2]), len(mine), epoch + 1, int(chunk))
        streams.append(ids)
    out, at = [], 0
    while any(at < len(ids) for ids in streams):
        for ids in streams:
            out += ids[at:at + a["batch"]]
        at += a["batch"]
    return np.array(out)
"""


def litdata(shard: int, workers: int, batch: int) -> tuple[Order, bool]:
    """LitData's order: chunks in a permuted order, distributed to workers and shuffled within each. The workers'
    batches alternate."""

    def restated(data: Data, seed: int, epoch: int) -> Ids:
        rng = np.random.default_rng([seed, epoch])
        runs = data.runs(shard)
        sequence = [runs[i] for i in rng.permutation(len(runs))]
        cut = np.linspace(0, data.records, workers + 1).astype(int)
        whole = np.concatenate(sequence)
        owner = np.concatenate([np.full(len(run), i) for i, run in enumerate(sequence)])
        streams = []
        for lo, hi in itertools.pairwise(cut):
            parts = [whole[lo:hi][owner[lo:hi] == i] for i in np.unique(owner[lo:hi])]
            streams.append(np.concatenate([rng.permutation(p) for p in parts]))
        out = []
        for at in range(0, max(map(len, streams)), batch):
            out += [s[at : at + batch] for s in streams]
        return np.concatenate(out)

    return foreign("side", _LITDATA, restated, shard=shard, workers=workers, batch=batch)
