"""Tokens as nanoGPT has them: sequences of 1,024 out of one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format

COUNT, LENGTH = 100_000_000, 1024


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rng.integers(0, 50257, COUNT, dtype=np.uint16).tofile(folder / "train.bin")


def reference(folder: Path, batch: int) -> Iterator[int]:
    """nanoGPT's get_batch: sequences at random positions of the mapped file, stacked as int64."""
    import torch

    data = np.memmap(folder / "train.bin", dtype=np.uint16, mode="r")
    for _ in range(64):
        at = torch.randint(len(data) - LENGTH, (batch,))
        x = torch.stack([torch.from_numpy(data[i : i + LENGTH].astype(np.int64)) for i in at.tolist()])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + LENGTH].astype(np.int64)) for i in at.tolist()])
        assert x.shape == y.shape
        yield batch


FORMAT = Format(
    name="tokens",
    library="nanoGPT's get_batch",
    make=make,
    url=lambda folder: str(folder / "train.bin"),
    reference=reference,
    loader={"shuffle": True},
    view=lambda data: data.sequences(LENGTH, dtype="int64"),
    what=f"{COUNT // 1_000_000} M tokens of uint16 as sequences of {LENGTH:,}, int64, with targets",
    whole=False,
    tokens=LENGTH,
)
