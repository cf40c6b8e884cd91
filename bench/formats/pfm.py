"""Portable float maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

COUNT, HEIGHT, WIDTH = 400, 192, 256


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        head = f"Pf\n{WIDTH} {HEIGHT}\n-1.0\n".encode()
        (folder / f"{i:05d}.pfm").write_bytes(head + rng.standard_normal((HEIGHT, WIDTH), np.float32).tobytes())


class Maps:
    def __init__(self, folder: Path) -> None:
        self.files = [str(p) for p in sorted(folder.glob("*.pfm"))]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        from torchvision.datasets._stereo_matching import _read_pfm_file

        return _read_pfm_file(self.files[i])[0].copy()


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Maps(folder), batch)


FORMAT = Format(
    name="pfm",
    library="torchvision's reader in a DataLoader",
    make=make,
    url=lambda folder: str(folder),
    reference=reference,
    loader={"shuffle": True},
    what=f"{COUNT} maps of {WIDTH} x {HEIGHT}",
    batch=16,
)
