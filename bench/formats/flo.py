"""Middlebury's optical flow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

COUNT, HEIGHT, WIDTH = 200, 192, 256


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        head = b"PIEH" + np.array([WIDTH, HEIGHT], "<i4").tobytes()
        flow = rng.standard_normal((HEIGHT, WIDTH, 2), np.float32)
        (folder / f"{i:05d}.flo").write_bytes(head + flow.tobytes())


class Flows:
    def __init__(self, folder: Path) -> None:
        self.files = [str(p) for p in sorted(folder.glob("*.flo"))]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        from torchvision.datasets._optical_flow import _read_flo

        return _read_flo(self.files[i])


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Flows(folder), batch)


FORMAT = Format(
    name="flo",
    library="torchvision's reader in a DataLoader",
    make=make,
    url=lambda folder: str(folder),
    reference=reference,
    loader={"shuffle": True},
    what=f"{COUNT} flows of {WIDTH} x {HEIGHT}",
    batch=16,
)
