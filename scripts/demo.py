"""The demo: packs a folder of images, trains a small classifier from it, and compares with a plain reader.

`make demo` runs it. Everything that it shows can be done by hand: the commands are printed as they run.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import stoker
from learn import Regression
from PIL import Image
from stoker import transforms as T

ROOT = Path(__file__).resolve().parent.parent
STOKER = ROOT / "bin/stoker"
WORK = ROOT / "demo-data"
COUNT, CLASSES, EPOCHS, BATCH, SIZE = 2000, 10, 3, 64, 224
MOST = 10_000  # examples per epoch, where the folder is a large one

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Batches = Iterable[tuple[Pixels, Labels]]
_T = TypeVar("_T")


class Classifier:
    """Softmax regression on a histogram of hues: small, but it needs every pixel."""

    BINS = 36

    def __init__(self, classes: int) -> None:
        self.model = Regression(self.BINS + 1, classes)

    def features(self, images: Pixels) -> npt.NDArray[np.float32]:
        """The amount of each hue, with more weight for vivid colours."""
        x = images[:, ::4, ::4].reshape(len(images), -1, 3).astype(np.float32)
        r, g, b = x[..., 0], x[..., 1], x[..., 2]
        top = x.max(axis=2)
        spread = top - x.min(axis=2)
        safe = np.maximum(spread, 1)
        hue = np.where(top == r, (g - b) / safe + 6, np.where(top == g, (b - r) / safe + 2, (r - g) / safe + 4))
        bins = (hue * (self.BINS / 6)).astype(np.int64) % self.BINS + np.arange(len(images))[:, None] * self.BINS
        vivid = spread / (top + 12)
        sums = np.bincount(bins.ravel(), vivid.ravel(), len(images) * self.BINS).reshape(len(images), self.BINS)
        shares = np.sqrt(sums / np.maximum(sums.sum(axis=1, keepdims=True), 1e-6))
        return np.column_stack([shares, np.ones(len(images))]).astype(np.float32)

    def learn(self, images: Pixels, labels: Labels) -> int:
        """Guess the labels, then learn from them. Returns the number of right guesses."""
        return int((self.model.learn(self.features(images), labels, 0.1) == labels).sum())


class PlainReader:
    """The simplest reader without a loader: Pillow opens each file, one after another."""

    def __init__(self, files: list[Path], labels: list[int]) -> None:
        self.files, self.labels = files, labels
        self.random = random.Random(0)

    def __iter__(self) -> Iterator[tuple[Pixels, Labels]]:
        order = list(range(len(self.files)))
        self.random.shuffle(order)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            images = np.stack([self.crop(self.files[i]) for i in chosen])
            yield images, np.array([self.labels[i] for i in chosen])

    def crop(self, path: Path) -> Pixels:
        """RandomResizedCrop and RandomHorizontalFlip as torchvision defines them."""
        with Image.open(path) as file:
            image = file.convert("RGB")
        width, height = image.size
        for _ in range(10):
            area = width * height * self.random.uniform(0.08, 1)
            ratio = math.exp(self.random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                break
        else:
            w = h = min(width, height)
        x, y = self.random.randint(0, width - w), self.random.randint(0, height - h)
        image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
        if self.random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.asarray(image)


def labelled(loader: stoker.Loader) -> Iterator[tuple[Pixels, Labels]]:
    """The batches of one epoch; without classes, some labels to train on all the same."""
    for batch in loader:
        yield batch["image"], batch["label"] if "label" in batch else batch["index"] % CLASSES


def train(batches: Callable[[], Batches], classes: int, meaningful: bool, memory: Callable[[], str]) -> float:
    """Train for EPOCHS epochs; prints a line for each. Returns the examples per second over all of them."""
    model = Classifier(classes)
    print(dim(f"  {'epoch':>5}  {'accuracy':>8}  {'examples/s':>10}  {'waiting for data':>16}  memory"))
    total, total_seconds = 0, 0.0
    for epoch in range(EPOCHS):
        right = seen = 0
        waited = 0.0
        began = mark = time.perf_counter()
        for images, labels in batches():
            waited += time.perf_counter() - mark
            right += model.learn(images, labels)
            seen += len(labels)
            del images, labels  # gives the batch's memory back to the engine before the next one is asked for
            mark = time.perf_counter()
            if seen >= MOST:
                break
        else:
            waited += time.perf_counter() - mark
        seconds = time.perf_counter() - began
        accuracy = f"{right / seen:8.1%}" if meaningful else f"{'-':>8}"
        figures = f"{seen / seconds:>10,.0f}  {waited / seconds:>16.0%}  {memory()}"
        print(f"  {epoch + 1:>5}  {bold(accuracy)}  {figures}", flush=True)
        total, total_seconds = total + seen, total_seconds + seconds
    return total / total_seconds


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Feed a small training loop from a packed folder of images.")
    parser.add_argument("--data", type=Path, help="a folder of images of your own (default: generated ones)")
    own: Path | None = parser.parse_args().data

    WORK.mkdir(exist_ok=True)
    if own is None:
        images, pack = WORK / f"images-{COUNT}", WORK / f"train-{COUNT}"
        step(1, f"{COUNT:,} images that look like photographs to a codec")
        if images.exists():
            print(f"  {show(images)} is there already")
        else:
            run("gen", "images", images, "--count", COUNT, "--classes", CLASSES)
    else:
        images = own.expanduser().resolve()
        if not images.is_dir():
            sys.exit(f"demo: {own} is not a folder\n  hint: make demo DATA=path/to/folder of images")
        pack = WORK / f"own-{hashlib.sha256(os.fsencode(images)).hexdigest()[:12]}"
        step(1, f"your images in {images}")

    step(2, "pack them, once")
    run("pack", images, pack, may=(0, 3))

    step(3, f"train on random crops of {SIZE} x {SIZE} through stoker.Loader")
    began = time.perf_counter()
    loader = stoker.Loader(
        pack,
        batch_size=BATCH,
        shuffle=True,
        seed=0,
        transforms={"image": [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]},
    )
    with loader:
        classes, records = len(loader.classes), loader.num_records
        ready = time.perf_counter() - began
        print(dim(f"  {records:,} images, {classes or 'no'} classes, batches of {BATCH}; ready after {ready:.2f} s"))
        meaningful = 1 < classes < records
        if not meaningful:
            why = "every image is its own class" if 1 < classes == records else "it takes one folder for each class"
            print(f"  The accuracy would mean nothing here ({why}), so it is left out.")
        classes = max(classes, CLASSES)
        fast = train(lambda: labelled(loader), classes, meaningful, lambda: memory(engines()))

    step(4, "the same loop over a plain Pillow + NumPy reader")
    slow = train(lambda: plain, classes, meaningful, lambda: memory([])) if (plain := plain_reader(images)) else 0.0
    if slow:
        cores = len(os.sched_getaffinity(0))
        times = bold(f"{fast / slow:.1f} x")
        print(f"\n{times} the examples per second of the plain reader, which uses one core of {cores}.")
    print(f"The pack is {show(pack)}; look into it with: {show(STOKER)} inspect {show(pack)}")


def plain_reader(folder: Path) -> PlainReader | None:
    """A reader of every file below folder that Pillow can open."""
    files, classes = [], {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with contextlib.suppress(OSError), Image.open(path):
            files.append(path)
    labels = []
    for path in files:
        inner = path.relative_to(folder).parts
        labels.append(classes.setdefault(inner[0], len(classes)) if len(inner) > 1 else len(labels) % CLASSES)
    return PlainReader(files, labels) if files else None


def made(folder: Path, generate: Callable[[Path], None]) -> Path:
    """Generate the demo's data, unless it exists. Unfinished data never has the final name."""
    if folder.exists():
        print(f"  {show(folder)} is there already")
        return folder
    part = folder.with_name(folder.name + "-unfinished")
    shutil.rmtree(part, ignore_errors=True)
    generate(part)
    part.rename(folder)
    print(f"  {show(folder)}")
    return folder


class Watch:
    """Runs epochs and reports their duration, and the share of it that was spent waiting for data."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset the counters."""
        self.began, self.waited = time.perf_counter(), 0.0

    def over(self, batches: Iterable[_T]) -> Iterator[_T]:
        """Hand on batches."""
        mark = time.perf_counter()
        for batch in batches:
            self.waited += time.perf_counter() - mark
            yield batch
            del batch  # its memory is the loader's again
            mark = time.perf_counter()

    def figures(self, seen: float, width: int) -> str:
        """The number of records per second, and the share of the time spent waiting."""
        seconds = time.perf_counter() - self.began
        return f"{seen / seconds:>{width},.0f}  {self.waited / seconds:>16.0%}"


def start(main: Callable[[], None]) -> None:
    """Run a demo; an error is one line."""
    if shutil.which(STOKER) is None:
        sys.exit(f"demo: {show(STOKER)} is missing\n  hint: run make demo, which builds it")
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except stoker.StokerError as error:
        sys.exit(f"demo: {error}")


def run(*args: object, may: tuple[int, ...] = (0,), quiet: bool = False) -> None:
    """Run a stoker command, showing it unless quiet."""
    command = [show(a) if isinstance(a, Path) else str(a) for a in [STOKER, *args]]
    if not quiet:
        print(dim("  $ " + " ".join(command)), flush=True)
    code = subprocess.run(command, check=False).returncode
    if code not in may:
        sys.exit(code)


def engines() -> list[int]:
    """The processes that this one has started."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return [int(pid) for pid in pids.read_text().split()]
    except OSError:
        return []


def memory(pids: list[int]) -> str:
    """Memory of the engine and of this process without cached files. Shared memory counts half for each."""
    trainer = f"trainer {pss('self')} MB"
    return f"engine {sum(map(pss, pids))} MB, {trainer}" if pids else trainer


def pss(pid: int | str) -> int:
    """The proportional set size of a process in MB, without the system's cache of files."""
    kb = {"Pss": 0, "Pss_File": 0}
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in kb:
                kb[name] = int(rest.split()[0])
    except OSError:
        pass
    return round((kb["Pss"] - kb["Pss_File"]) * 1024 / 1e6)


def step(number: int, text: str) -> None:
    """Print a heading."""
    print(f"\n{bold(f'{number}. {text}')}", flush=True)


def show(path: Path) -> str:
    """A path as one would type it here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def bold(text: str) -> str:
    """Text that stands out on a terminal."""
    return f"\x1b[1m{text}\x1b[0m" if COLOURS else text


def dim(text: str) -> str:
    """Text that does not."""
    return f"\x1b[2m{text}\x1b[0m" if COLOURS else text


COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ

if __name__ == "__main__":
    start(main)
