"""The demo of tables: a CSV of numbers and a class becomes a pack, and a small network learns from it.

`make demo KIND=table` runs it. DATA=file.csv takes a table of your own, whose last column is the class.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import stoker
from demo import WORK, Watch, bold, dim, made, run, show, start, step
from learn import Network

ROWS, NUMBERS, CLASSES, EPOCHS, BATCH, HIDDEN = 400_000, 16, 5, 4, 1024, 64

Floats = npt.NDArray[np.float32]


def generate(path: Path) -> None:
    """Rings around some centres: no straight line tells them apart."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, NUMBERS)).astype(np.float32)
    centres = rng.standard_normal((3, NUMBERS)).astype(np.float32)
    distance = np.linalg.norm(x[:, None] - centres, axis=2).min(axis=1)
    ring = np.digitize(distance, np.quantile(distance, np.linspace(0, 1, CLASSES + 1)[1:-1]))
    names = np.array([f"ring-{i}" for i in range(CLASSES)])
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([*(f"x{i}" for i in range(NUMBERS)), "ring"])
        writer.writerows([*(f"{v:.5g}" for v in row), names[c]] for row, c in zip(x.tolist(), ring, strict=True))


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Train from a table.")
    parser.add_argument("--data", type=Path, help="a CSV file of your own: numbers, and last the class")
    own: Path | None = parser.parse_args().data
    WORK.mkdir(exist_ok=True)
    table = own
    if own is None:
        step(1, f"a table of {ROWS:,} rows: {NUMBERS} numbers and a class")
        table = made(WORK / f"table-{ROWS}.csv", generate)
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
        model = Network(len(columns) - 1, len(names), HIDDEN)
        print(dim(f"  {loader.num_records:,} rows, classes {', '.join(names[:6])}; batches of {BATCH}"))
        print(dim(f"  {'epoch':>5}  {'accuracy':>8}  {'rows/s':>10}  {'waiting for data':>16}"))
        for epoch in range(EPOCHS):
            right = seen = 0
            watch = Watch()
            for batch in watch.over(loader):
                x = np.column_stack([batch[c] for c in columns[:-1]]).astype(np.float32)
                right += model.learn(x, batch["label"], 0.01, shrink=0)
                seen += len(batch)
            print(f"  {epoch + 1:>5}  {bold(f'{right / seen:8.1%}')}  {watch.figures(seen, 10)}", flush=True)
    print(f"\nThe pack is {show(pack)}; the loader reads the table itself, too: stoker.Loader({show(table)!r}, ...)")


if __name__ == "__main__":
    start(main)
