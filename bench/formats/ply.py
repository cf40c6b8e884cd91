"""Point clouds in binary .ply files, and KITTI's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

COUNT, POINTS = 400, 20_000
HEAD = "ply\nformat binary_little_endian 1.0\nelement vertex {}\n"
HEAD += "property float x\nproperty float y\nproperty float z\nend_header\n"


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        points = rng.standard_normal((POINTS + i, 3), np.float32)
        (folder / f"{i:05d}.ply").write_bytes(HEAD.format(len(points)).encode() + points.tobytes())


class Clouds:
    """A hand-written dataset: no library is faster for the plainest files."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.ply"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        data = self.files[i].read_bytes()
        return np.frombuffer(data, np.float32, offset=data.index(b"end_header\n") + 11).reshape(-1, 3).copy()


def together(clouds: list[Any]) -> Any:
    import torch

    lengths = [len(c) for c in clouds]
    return torch.from_numpy(np.concatenate(clouds)), torch.tensor(lengths)


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Clouds(folder), batch, collate=together)


FORMAT = Format(
    name="ply",
    library="NumPy in a DataLoader",
    make=make,
    url=lambda folder: str(folder),
    reference=reference,
    loader={"shuffle": True},
    what=f"{COUNT} clouds of {POINTS:,} points",
    batch=16,
)
