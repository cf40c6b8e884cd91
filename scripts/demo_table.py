"""The demo of tables: a CSV of numbers and a class becomes a pack, and a small network learns from it.

`make demo KIND=table` runs it. DATA=file.csv takes a table of your own, whose last column is the class.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import stoker
from demo import WORK, bold, dim, run, show, step

ROWS, NUMBERS, CLASSES, EPOCHS, BATCH, HIDDEN = 400_000, 16, 5, 4, 1024, 64

Floats = npt.NDArray[np.float32]


class Network:
    """Two layers, trained by Adam."""

    def __init__(self, inputs: int, classes: int) -> None:
        rng = np.random.default_rng(0)
        self.parts = [
            rng.standard_normal((inputs + 1, HIDDEN)).astype(np.float32) / np.sqrt(inputs),
            rng.standard_normal((HIDDEN + 1, classes)).astype(np.float32) / np.sqrt(HIDDEN),
        ]
        self.means = [np.zeros_like(p) for p in self.parts]
        self.squares = [np.zeros_like(p) for p in self.parts]
        self.steps = 0

    def guess(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """What goes into both layers, and the chances of the classes."""
        x = np.column_stack([x, np.ones(len(x), np.float32)])
        hidden = np.column_stack([np.maximum(x @ self.parts[0], 0), np.ones(len(x), np.float32)])
        scores = hidden @ self.parts[1]
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        return x, hidden, p / p.sum(axis=1, keepdims=True)

    def learn(self, x: Floats, labels: npt.NDArray[np.int64]) -> int:
        """One step; returns how many guesses were right before it."""
        x, hidden, p = self.guess(x)
        right = int((p.argmax(axis=1) == labels).sum())
        p[np.arange(len(labels)), labels] -= 1
        p /= len(labels)
        back = (p @ self.parts[1][:-1].T) * (hidden[:, :-1] > 0)
        self.steps += 1
        for i, gradient in enumerate((x.T @ back, hidden.T @ p)):
            self.means[i] += 0.1 * (gradient - self.means[i])
            self.squares[i] += 0.01 * (gradient * gradient - self.squares[i])
            scale = np.sqrt(self.squares[i] / (1 - 0.99**self.steps)) + 1e-8
            self.parts[i] -= 0.01 * self.means[i] / (1 - 0.9**self.steps) / scale
        return right


def generate(path: Path) -> None:
    """Rings around some centres: no straight line tells them apart."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, NUMBERS)).astype(np.float32)
    centres = rng.standard_normal((3, NUMBERS)).astype(np.float32)
    distance = np.linalg.norm(x[:, None] - centres, axis=2).min(axis=1)
    ring = np.digitize(distance, np.quantile(distance, np.linspace(0, 1, CLASSES + 1)[1:-1]))
    names = np.array([f"ring-{i}" for i in range(CLASSES)])
    part = path.with_suffix(".part")
    with part.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([*(f"x{i}" for i in range(NUMBERS)), "ring"])
        writer.writerows([*(f"{v:.5g}" for v in row), names[c]] for row, c in zip(x.tolist(), ring, strict=True))
    part.rename(path)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Train from a table.")
    parser.add_argument("--data", type=Path, help="a CSV file of your own: numbers, and last the class")
    own: Path | None = parser.parse_args().data
    WORK.mkdir(exist_ok=True)
    table = own or WORK / f"table-{ROWS}.csv"
    if own is None:
        step(1, f"a table of {ROWS:,} rows: {NUMBERS} numbers and a class")
        if table.exists():
            print(f"  {show(table)} is there already")
        else:
            generate(table)
            print(f"  {show(table)}, {table.stat().st_size / 1e6:.0f} MB")
    elif not own.is_file():
        sys.exit(f"demo: {own} is not a file\n  hint: make demo KIND=table DATA=train.csv")
    with table.open(newline="") as f:
        columns = next(csv.reader(f))
    label = columns[-1]
    pack = WORK / f"{table.stem}-pack"

    step(2, "pack it, once")
    fields = [arg for c in columns[:-1] for arg in ("--field", f"{c}:float={c}")]
    shown = [*fields[:2], "..."]
    print(
        dim(
            "  $ stoker "
            + " ".join(map(str, ["pack", show(table), show(pack), *shown, "--field", f"label:label={label}"]))
        )
    )
    run("pack", table, pack, *fields, "--field", f"label:label={label}", "--allow-bad", quiet=True)

    step(3, "train a small network through stoker.Loader")
    with stoker.Loader(pack, batch_size=BATCH, shuffle=True, seed=0) as loader:
        names = loader.classes
        model = Network(len(columns) - 1, len(names))
        print(dim(f"  {loader.num_records:,} rows, classes {', '.join(names[:6])}; batches of {BATCH}"))
        print(dim(f"  {'epoch':>5}  {'accuracy':>8}  {'rows/s':>10}  {'waiting for data':>16}"))
        for epoch in range(EPOCHS):
            right = seen = 0
            waited, began = 0.0, time.perf_counter()
            mark = began
            for batch in loader:
                waited += time.perf_counter() - mark
                x = np.column_stack([batch[c] for c in columns[:-1]]).astype(np.float32)
                right += model.learn(x, batch["label"])
                seen += batch.rows
                mark = time.perf_counter()
            seconds = time.perf_counter() - began
            figures = f"{seen / seconds:>10,.0f}  {waited / seconds:>16.0%}"
            print(f"  {epoch + 1:>5}  {bold(f'{right / seen:8.1%}')}  {figures}", flush=True)
    print(f"\nThe pack is {show(pack)}; the loader reads the table itself, too: stoker.Loader({show(table)!r}, ...)")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except stoker.StokerError as error:
        sys.exit(f"demo: {error}")
