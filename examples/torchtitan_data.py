"""torchtitan with Stoker: a data loader whose state fits any number of ranks.

python examples/torchtitan_data.py TOKENS.npy     (give what `build` returns to a TrainSpec as its dataloader)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import stoker
import torch
from torchtitan.components.dataloader import BaseDataLoader


class Tokens(BaseDataLoader):
    def __init__(self, source: str, batch_size: int, length: int, rank: int, world_size: int) -> None:
        self.loader = stoker.Loader(
            stoker.open(source).sequences(length),
            batch_size,
            shuffle=True,
            output="torch",
            ranks=stoker.Ranks(rank, world_size),
        )

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        for batch in self.loader:
            yield {"input": batch["input"].long()}, batch["target"].long()

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self.loader.load_state_dict(state_dict)


def build(dp_world_size: int, dp_rank: int, source: str, batch_size: int = 4, length: int = 64) -> Tokens:
    return Tokens(source, batch_size, length, dp_rank, dp_world_size)


two = [build(2, rank, sys.argv[1]) for rank in range(2)]  # two ranks begin
first = [next(iter(loader))[1] for loader in two]
four = [build(4, rank, sys.argv[1], batch_size=2) for rank in range(4)]  # and four go on
for loader in four:
    loader.load_state_dict(two[0].state_dict())
rest = [target for loader in four for _, target in loader]
rows = [tuple(row) for target in first + rest for row in target.tolist()]
print(f"{len(rows)} sequences, {len(set(rows))} different ones")
