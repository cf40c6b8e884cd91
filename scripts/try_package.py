"""Use an installed package on a machine without its checkout: try_package.py PHOTOS PACK, a folder and a pack of it."""

from __future__ import annotations

import platform
import sys

import numpy as np
import stoker
from stoker import transforms as T


def epoch(path: str) -> tuple[list[int], int]:
    """Return the labels of an epoch and the sum of its pixels."""
    labels, total = [], 0
    with stoker.Loader(path, batch_size=3, seed=0, transforms={"image": [T.Resize((32, 32))]}) as loader:
        for images, classes in loader:
            if images.dtype != np.uint8 or images.shape[1:3] != (32, 32):
                sys.exit(f"try_package: a batch of {path} has shape {images.shape} and dtype {images.dtype}")
            labels += classes.tolist()
            total += int(images.sum())
    return sorted(labels), total


def main() -> None:
    """Read a record, an epoch of the folder and one of the pack, and compare them."""
    photos, pack = sys.argv[1:]
    data = stoker.open(photos)
    shape = data[len(data) - 1]["image"].shape
    read, packed = epoch(photos), epoch(pack)
    if len(read[0]) != len(data) or read[0] != packed[0]:
        sys.exit(f"try_package: labels {read[0]} of the folder, {packed[0]} of the pack, {len(data)} records")
    if abs(read[1] - packed[1]) > read[1] / 100:
        sys.exit(f"try_package: pixels of the folder and of the pack differ: their sums are {read[1]} and {packed[1]}")
    where = f"Python {platform.python_version()} on {platform.machine()}"
    print(f"try_package: {where}: {len(data)} records, {shape}, equal")


if __name__ == "__main__":
    main()
