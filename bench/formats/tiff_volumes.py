"""TIFF stacks of microscopes: pages in deflated strips with differences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

COUNT, SHAPE = 16, (48, 320, 320)


def make(folder: Path) -> None:
    import tifffile

    rng = np.random.default_rng(0)
    ground = np.linspace(0, 900, SHAPE[2])[None, None] + np.linspace(0, 400, SHAPE[1])[None, :, None]
    for i in range(COUNT):
        data = (ground + rng.normal(0, 6, SHAPE)).clip(0, 4095).astype(np.uint16)
        tifffile.imwrite(
            folder / f"{i:02d}.tif", data, compression="zlib", predictor=True, photometric="minisblack", rowsperstrip=32
        )


class Stacks:
    """Each file as tifffile reads it."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.tif"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, n: int) -> Any:
        import tifffile

        return tifffile.imread(self.paths[n], maxworkers=1)


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Stacks(folder), batch)


FORMAT = Format(
    name="volumes tiff",
    library="tifffile in a DataLoader",
    make=make,
    url=lambda folder: f"volumes:{folder}",
    reference=reference,
    loader={"shuffle": True},
    what=f"{COUNT} stacks of {SHAPE[0]} pages of {SHAPE[1]} x {SHAPE[2]} uint16, deflated with differences",
    batch=4,
)
