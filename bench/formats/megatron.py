"""Documents as Megatron-LM has them: sequences of 1,024 out of shuffled documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format, torch_side

COUNT, DOCUMENTS, LENGTH = 100_000_000, 200_000, 1024


def make(folder: Path) -> None:
    np.random.default_rng(0).integers(0, 50257, COUNT, dtype=np.uint16).tofile(folder / "corpus.bin")
    index(folder / "corpus.idx", COUNT, DOCUMENTS)


def index(path: Path, count: int, documents: int) -> None:
    """Write the index of documents of many lengths."""
    lengths = np.random.default_rng(1).lognormal(5.5, 1, documents)
    lengths = np.maximum(lengths * count / lengths.sum() * 0.99, 1).astype("<i4")
    lengths[-1] += count - lengths.sum(dtype=np.int64)
    ends = np.cumsum(lengths, dtype="<i8") * 2
    with open(path, "wb") as f:
        f.write(b"MMIDIDX\x00\x00" + np.array([1], "<u8").tobytes() + bytes([8]))
        np.array([documents, documents + 1], "<u8").tofile(f)
        lengths.tofile(f)
        np.concatenate([[0], ends[:-1]]).astype("<i8").tofile(f)
        np.arange(documents + 1, dtype="<i8").tofile(f)


class Sequences:
    """The work of Megatron's GPTDataset for a sample, with its three indexes: documents, samples, their order."""

    def __init__(self, folder: Path, count: int = COUNT, documents: int = DOCUMENTS) -> None:
        with open(folder / "corpus.idx", "rb") as f:
            f.seek(34)
            self.lengths = np.fromfile(f, "<i4", documents)
            self.pointers = np.fromfile(f, "<i8", documents)
        self.tokens = np.memmap(folder / "corpus.bin", np.uint16, "r")
        self.documents = np.random.default_rng(1).permutation(documents)
        starts = np.concatenate([[0], np.cumsum(self.lengths[self.documents], dtype=np.int64)])
        at = np.arange((count - 1) // LENGTH + 1) * LENGTH
        self.first = np.searchsorted(starts, at, "right") - 1
        self.offset = at - starts[self.first]

    def __len__(self) -> int:
        return len(self.first) - 1

    def __getitem__(self, i: int) -> dict[str, Any]:
        import torch

        parts = []
        for k in range(self.first[i], self.first[i + 1] + 1):
            document = self.documents[k]
            at = self.pointers[document] // 2
            lo = self.offset[i] if k == self.first[i] else 0
            hi = self.offset[i + 1] + 1 if k == self.first[i + 1] else self.lengths[document]
            parts.append(self.tokens[at + lo : at + hi])
        tokens = torch.from_numpy(np.concatenate(parts).astype(np.int64))
        return {
            "tokens": tokens[:-1].contiguous(),
            "labels": tokens[1:].contiguous(),
            "loss_mask": torch.ones(LENGTH),
            "position_ids": torch.arange(LENGTH),
        }


def reference(folder: Path, batch: int) -> Iterator[int]:
    return torch_side.batches(Sequences(folder), batch)


LIBRARY = "what GPTDataset does, in a DataLoader"
LOADER = {"shuffle": True}


def sequences(data: Any) -> Any:
    return data.sequences(LENGTH, dtype="int64", fields=["position_ids", "loss_mask"])


FORMAT = Format(
    name="megatron",
    library=LIBRARY,
    make=make,
    url=lambda folder: str(folder / "corpus.bin"),
    reference=reference,
    loader=LOADER,
    view=sequences,
    what=f"{DOCUMENTS:,} documents, {COUNT // 1_000_000} M tokens of uint16, as sequences of {LENGTH:,}, int64, "
    "with targets, positions and masks",
    whole=False,
    tokens=LENGTH,
)
