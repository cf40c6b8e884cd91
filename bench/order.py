"""How well orders shuffle, for their memory: python -m bench.order writes docs/internals/shuffle-quality.md.

Nothing is timed: the figures are the same on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import stored
from .figures import table
from .orders import Arm, Data, Ids, Stoker, buffered, in_order, litdata, mds, quasi_random

BATCH = 256
EPOCHS = 4
PAGE = Path(__file__).parent.parent / "docs/internals/shuffle-quality.md"
RESULTS = Path(__file__).parent / "results" / "order.json"
MEMORY = 64  # chunks of 8 MiB that rivals have, 512 MiB


def arms(data: Data, ours: Stoker, windows: Sequence[int]) -> list[Arm]:
    chunks = -(-data.records // data.chunk)
    out = [
        Arm("in the order of the source", "-", "", in_order),
        Arm("**Stoker**, `shuffle=True`", "a batch", "its loader", ours.order(True)),
    ]
    for n in windows:
        title = f'**Stoker**, `shuffle="window:{n}"`'
        out.append(Arm(title, f"{8 * n:,} MiB", "its loader", ours.order(f"window:{n}")))
    same = f"{8 * MEMORY:,} MiB"
    mds_order, mds_own = mds(8, MEMORY)
    lit_order, lit_own = litdata(8, MEMORY // 8, BATCH)
    own = {True: "its own code", False: "restated"}
    out += [
        Arm(f"FFCV, quasi-random, {MEMORY} pages of 8 MiB", same, "restated", quasi_random(MEMORY)),
        Arm("WebDataset, shards of 256 MiB and a buffer of records", same, "its own code", buffered(32, MEMORY)),
        Arm("MDS, `py1e`, shards of 64 MiB, `shuffle_block_size` as large", same, own[mds_own], mds_order),
        Arm(f"LitData, chunks of 64 MiB, {MEMORY // 8} workers", same, own[lit_own], lit_order),
    ]
    assert chunks > 4 * MEMORY
    return out


def chi_square(labels: Ids, classes: int) -> float:
    """The chi-square statistic of the classes in a batch, as a multiple of its value for a random permutation."""
    n, per = len(labels) // BATCH, BATCH / classes
    found = []
    for batch in labels[: n * BATCH].reshape(n, BATCH):
        counts = np.bincount(batch, minlength=classes)
        found.append(float(((counts - per) ** 2 / per).sum()))
    population = len(labels)
    return statistics.fmean(found) / ((classes - 1) * (population - BATCH) / (population - 1))


def correlation(ids: Ids, lags: Sequence[int]) -> list[float]:
    """The autocorrelation of the source positions of records, at each lag."""
    x = ids - ids.mean()
    return [float((x[:-lag] * x[lag:]).mean() / (x * x).mean()) for lag in lags]


def drift(labels: Ids, classes: int) -> float:
    """The distance of the classes of 16 consecutive batches from those of all, in the same measure as chi_square."""
    n, size = len(labels) // (16 * BATCH), 16 * BATCH
    per = size / classes
    found = [
        float(((np.bincount(part, minlength=classes) - per) ** 2 / per).sum())
        for part in labels[: n * size].reshape(n, size)
    ]
    return statistics.fmean(found) / ((classes - 1) * (len(labels) - size) / (len(labels) - 1))


class Task:
    """Points of many classes, each with several centres, which a small network with batch norm learns."""

    def __init__(self, data: Data, features: int = 32, centres: int = 3, spread: float = 0.82) -> None:
        import torch

        torch.set_num_threads(1)
        rng = np.random.default_rng(12345)
        places = rng.normal(size=(data.classes, centres, features))
        self.labels = torch.from_numpy(data.labels)

        def draw(labels: Ids) -> torch.Tensor:
            which = rng.integers(centres, size=len(labels))
            noise = rng.normal(size=(len(labels), features)) * spread * 1.45
            return torch.from_numpy((places[labels, which] + noise).astype(np.float32))

        self.points = draw(data.labels)
        self.asked = torch.from_numpy(np.arange(10_000) % data.classes)
        self.questions = draw(self.asked.numpy())
        self.classes, self.features = data.classes, features

    def accuracy(self, orders: Sequence[Ids], seed: int) -> float:
        import torch
        from torch import nn

        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(self.features, 256), nn.BatchNorm1d(256), nn.ReLU(),
            nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, self.classes),
        )  # fmt: skip
        steps = sum(len(o) // BATCH for o in orders)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps)
        for order in orders:
            for at in range(0, len(order) - BATCH + 1, BATCH):
                ids = torch.from_numpy(order[at : at + BATCH])
                loss = nn.functional.cross_entropy(model(self.points[ids]), self.labels[ids])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        model.eval()
        with torch.no_grad():
            return float((model(self.questions).argmax(1) == self.asked).double().mean())


def measure(arm: Arm, data: Data, task: Task, seeds: int) -> list[str]:
    chi, slow, lag1, lags, right = [], [], [], [], []
    for seed in range(seeds):
        orders = [arm.order(data, seed, epoch) for epoch in range(EPOCHS)]
        for ids in orders:
            if len(np.unique(ids)) != data.records or len(ids) != data.records:
                raise SystemExit(f"{arm.title}: not each record once")
        labels = data.labels[orders[0]]
        chi.append(chi_square(labels, data.classes))
        slow.append(drift(labels, data.classes))
        r = correlation(orders[0], range(1, BATCH + 1))
        lag1.append(r[0])
        lags.append(statistics.fmean(r))
        right.append(task.accuracy(orders, seed))
    mean = statistics.fmean
    figures = [f"{mean(chi):.2f}", f"{mean(slow):.2f}", f"{mean(lag1):+.3f}", f"{mean(lags):+.3f}"]
    return [
        arm.title,
        arm.memory,
        arm.how,
        *figures,
        f"{100 * mean(right):.1f} ± {100 * statistics.stdev(right):.1f}",
    ]


TEXT = """# How well an epoch is shuffled, and what memory that takes

<!-- Written by `python -m bench.order`; edit bench/order.py instead. -->

{records:,} records sorted by class, {classes} classes, {chunk} records in each 8 MiB (photographs of 110 KB):
{chunks} chunks, {gib:.1f} GiB. Batches of {batch}, {seeds} seeds. Other loaders have the memory of {rivals} chunks.
`make bench SUITES=order` repeats it. Nothing is timed.

{rows}

- **Chi-square** of the classes in a batch, and in 16 batches in a row, as multiples of the value of a permutation of
  all records: 1 is as good as a permutation.
- **Correlation** of the source positions of records that follow each other, and the mean for records that are 1 to
  {batch} apart. Stoker's windows take a record of each chunk in turn, so records of one chunk have a fixed distance:
  the number of chunks. FFCV's have random distances. A batch has as many of them in both cases.
- **Accuracy** of a small network with batch norm (two hidden layers of 256) on points of {classes} classes, after
  {epochs} epochs in that order: mean and standard deviation. Data sorted by class, as in class folders, is the worst
  case. If the records of a class are spread over the data, small windows are as good. MDS, LitData and WebDataset
  expect data that was shuffled before it was packed.
- *Its loader* and *its own code*: the order that the software gives. *Restated*: our own code of the published
  algorithm.
"""


def report(results: dict[str, Any]) -> None:
    """Write the page."""
    data = Data()
    head = ["order", "memory", "how", "chi-square of a batch", "of 16", "correlation", "mean", "accuracy, %"]
    text = TEXT.format(
        records=data.records,
        classes=data.classes,
        chunk=data.chunk,
        chunks=-(-data.records // data.chunk),
        gib=data.records * 110e3 / 2**30,
        batch=BATCH,
        rivals=MEMORY,
        rows=table(head, results["rows"], range(3, 8)),
        epochs=EPOCHS,
        seeds=results["seeds"],
    )
    PAGE.write_text(text)
    print(f"wrote {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.order", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each order (5)")
    parser.add_argument("--windows", default="4,16,32,64,128,256", help="chunks of the windows (4,16,32,64,128,256)")
    parser.add_argument("--only", default="", help="a part of the title of the orders to look at; nothing is written")
    parser.add_argument("--report", action="store_true", help="write the page anew from what was measured")
    args = parser.parse_args()
    if args.report:
        report(json.loads(RESULTS.read_text()))
        return
    data = Data()
    ours = Stoker(data)
    try:
        task = Task(data)
        rows = []
        for arm in arms(data, ours, [int(n) for n in args.windows.split(",")]):
            if args.only in arm.title:
                rows.append(measure(arm, data, task, args.seeds))
                print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    finally:
        ours.close()
    if args.only:
        return
    results = {"seeds": args.seeds, "rows": rows}
    stored.save(RESULTS, results)
    report(results)


if __name__ == "__main__":
    main()
