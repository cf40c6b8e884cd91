"""NIfTI volumes in patches, as networks for volumes train on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

COUNT, SIDE, PATCH = 8, 192, 64


def make(folder: Path) -> None:
    import nibabel

    rng = np.random.default_rng(0)
    for i in range(COUNT):
        data = rng.integers(0, 2000, (SIDE, SIDE, SIDE), dtype=np.int16)
        nibabel.save(nibabel.Nifti1Image(data, np.eye(4)), folder / f"{i:02d}.nii")


class Patches:
    """A grid of patches, cut out of mapped volumes."""

    def __init__(self, folder: Path) -> None:
        import nibabel

        self.volumes = [nibabel.load(p).dataobj for p in sorted(folder.glob("*.nii"))]
        steps = range(0, SIDE, PATCH)
        self.places = [(i, x, y, z) for i in range(COUNT) for x in steps for y in steps for z in steps]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, n: int) -> Any:
        i, x, y, z = self.places[n]
        return np.ascontiguousarray(self.volumes[i][x : x + PATCH, y : y + PATCH, z : z + PATCH].T)


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Patches(folder), batch)


FORMAT = Format(
    name="nifti",
    library="nibabel in a DataLoader",
    make=make,
    url=lambda folder: f"{folder}?patch={PATCH}",
    reference=reference,
    loader={"shuffle": True},
    what=f"{COUNT} volumes of {SIDE}^3 int16, patches of {PATCH}^3",
    batch=8,
    whole=False,
)
