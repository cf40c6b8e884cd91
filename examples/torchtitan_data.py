"""torchtitan with Stoker: a data loader with a Config of torchtitan, whose state fits any number of ranks.

python examples/torchtitan_data.py TOKENS.npy     (give `Tokens.Config` to a Trainer.Config as its dataloader)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import stoker
import torch
from torchtitan.components.dataloader import BaseDataLoader


class Tokens(BaseDataLoader):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        dataset: str = "stoker"
        seed: int = 0

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int,
        local_batch_size: int,
        **_: Any,  # the tokenizer: the data has tokens
    ) -> None:
        assert config.dataset_path, "set dataset_path to tokens: a .npy file, a pack, a folder of Megatron"
        self.loader = stoker.Loader(
            stoker.open(config.dataset_path).sequences(seq_len),
            local_batch_size,
            shuffle=True,
            seed=config.seed,
            output="torch",
            ranks=stoker.Ranks(dp_rank, dp_world_size),
        )

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        for batch in self.loader:
            yield {"input": batch["input"].long()}, batch["target"].long()

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self.loader.load_state_dict(state_dict)


config = Tokens.Config(dataset_path=sys.argv[1])
two = [config.build(dp_world_size=2, dp_rank=r, seq_len=64, local_batch_size=4, tokenizer=None) for r in range(2)]
first = [next(iter(loader))[1] for loader in two]  # two ranks begin
four = [config.build(dp_world_size=4, dp_rank=r, seq_len=64, local_batch_size=2, tokenizer=None) for r in range(4)]
for loader in four:  # and four go on
    loader.load_state_dict(two[0].state_dict())
rest = [target for loader in four for _, target in loader]
rows = [tuple(row) for target in first + rest for row in target.tolist()]
print(f"{len(rows)} sequences, {len(set(rows))} different ones")
