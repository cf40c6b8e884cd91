"""A map-style dataset in PyTorch's DataLoader with two workers: how most references of formats are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def batches(
    dataset: Any, batch: int, shuffle: bool = True, workers: int = 2, collate: Callable[[list[Any]], Any] | None = None
) -> Iterator[int]:
    """Endless batches, each as the number of its records, with persistent workers."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    more = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    loader = DataLoader(
        dataset, batch, shuffle=shuffle, num_workers=workers, collate_fn=collate, drop_last=True, **more
    )
    while True:
        for _ in loader:
            yield batch
