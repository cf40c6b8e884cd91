"""The training data of the scripts: generated, the same on every machine."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..formats import pictures

CLASSES = 10


def _folder(out: Path, count: int) -> None:
    """ImageNet's layout: train and val, a folder for each class."""
    pictures.photographs(out / "train", count, CLASSES)
    pictures.photographs(out / "val", max(CLASSES, count // 10), CLASSES)


def _voc(out: Path, count: int) -> None:
    """Pascal VOC's layout: JPEGs, each with a mask of a few rectangles; a tenth as many, since its steps take long."""
    from PIL import Image

    root = out / "VOCdevkit/VOC2012"
    names = {}
    for part, n in (("train", count // 10), ("val", max(CLASSES, count // 100))):
        files = pictures.photographs(out / part, n, CLASSES)
        names[part] = [f"{part}_{i:06d}" for i in range(len(files))]
        for name, file in zip(names[part], files, strict=True):
            (root / "JPEGImages").mkdir(parents=True, exist_ok=True)
            (root / "SegmentationClass").mkdir(exist_ok=True)
            target = root / "JPEGImages" / f"{name}.jpg"
            os.rename(file, target)
            with Image.open(target) as image:
                width, height = image.size
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            mask = np.zeros((height, width), np.uint8)
            for _ in range(4):
                x, y = int(rng.integers(width)), int(rng.integers(height))
                mask[y : y + height // 3, x : x + width // 3] = rng.integers(21)
            picture = Image.fromarray(mask, "P")
            picture.putpalette([n * 37 % 256 for n in range(768)])
            picture.save(root / "SegmentationClass" / f"{name}.png")
        shutil.rmtree(out / part)
    lists = root / "ImageSets/Segmentation"
    lists.mkdir(parents=True)
    for part, found in names.items():
        (lists / f"{part}.txt").write_text("".join(f"{name}\n" for name in found))


def _mnist(out: Path, _: int) -> None:
    """MNIST in its published form, unpacked, with all 60,000 images, which some scripts expect."""
    _idx(out, 60_000, 10_000)


def _mnist_small(out: Path, count: int) -> None:
    """A few of them, for models that take long."""
    _idx(out, 3 * count, count // 2)


def _idx(out: Path, train: int, test: int) -> None:
    raw = out / "MNIST/raw"
    raw.mkdir(parents=True)
    for name, n in (("train", train), ("t10k", test)):
        rng = np.random.default_rng(n)
        labels = rng.integers(0, 10, n, np.uint8)
        pixels = rng.integers(0, 64, (n, 28, 28), np.uint8)
        pixels[np.arange(n), labels * 2 + 2] = 255  # a line for each digit, so that there is something to learn
        head = struct.pack(">IIII", 2051, n, 28, 28)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, n) + labels.tobytes())


MAKERS: dict[str, Callable[[Path, int], None]] = {
    "folder": _folder,
    "voc": _voc,
    "mnist": _mnist,
    "mnist-small": _mnist_small,
}


def make(name: str, work: Path, count: int, say: Callable[[str], None]) -> Path:
    """Make a data set unless it exists. A finished set is renamed into place."""
    out = work / "run" / f"{name}-{count}"
    if out.exists():
        return out
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    say(f"making {name} of {count:,} images")
    MAKERS[name](part, count)
    part.rename(out)
    return out
