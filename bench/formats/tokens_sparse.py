"""A billion tokens in documents, packed into sequences of 1,024; the file is sparse, so that it takes no disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format, megatron, torch_side

COUNT, DOCUMENTS = 1_000_000_000, 2_000_000


def make(folder: Path) -> None:
    megatron.index(folder / "corpus.idx", COUNT, DOCUMENTS)
    with open(folder / "corpus.bin", "wb") as f:
        f.truncate(COUNT * np.dtype(np.uint16).itemsize)


def reference(folder: Path, batch: int) -> Iterator[int]:
    return torch_side.batches(megatron.Sequences(folder, COUNT, DOCUMENTS), batch)


FORMAT = Format(
    name="tokens, sparse",
    library=megatron.LIBRARY,
    make=make,
    url=lambda folder: str(folder / "corpus.bin"),
    reference=reference,
    loader=megatron.LOADER,
    view=megatron.sequences,
    what=f"{DOCUMENTS:,} documents, {COUNT // 1_000_000_000} G tokens of uint16 in a sparse file, as sequences of "
    f"{megatron.LENGTH:,}, int64, with targets, positions and masks",
    whole=False,
    tokens=megatron.LENGTH,
    tokens_s=50e6,
    first_batch_s=1.0,
)
