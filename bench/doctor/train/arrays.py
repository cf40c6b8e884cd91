"""Trains on the rows of one .npy file [N, H, W, 3], loaded into memory, with torch's DataLoader."""

from __future__ import annotations

from typing import Any

import common
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate


class Rows(Dataset[Any]):
    def __init__(self, path: str, count: int, dtype: torch.dtype) -> None:
        self.rows = np.array(np.load(path, mmap_mode="r")[:count])
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.augment(self.rows[index]), index % 100

    def augment(self, row: Any) -> torch.Tensor:
        image = torch.from_numpy(np.array(row))
        if self.dtype == torch.float32:
            image = (image.permute(2, 0, 1).float() / 255).flip(2)
        return image


def make_dataset(args: Any) -> Rows:
    return Rows(args.data, args.count, getattr(torch, args.dtype))


def collate(items: list[Any]) -> Any:
    return default_collate(items)


def make_loader(dataset: Any, args: Any) -> Any:
    order = torch.Generator().manual_seed(args.seed)
    return DataLoader(
        dataset,
        args.batch,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
        collate_fn=collate,
        persistent_workers=args.workers > 0,
        generator=order,
    )


def main(argv: list[str] | None = None) -> None:
    p = common.parser(__doc__)
    p.add_argument("--count", type=int, default=2400)
    p.add_argument("--dtype", default="uint8", help="of the images that the network gets")
    p.add_argument("--sharing", default="file_descriptor")
    args = p.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    torch.multiprocessing.set_sharing_strategy(args.sharing)
    loader = make_loader(make_dataset(args), args)
    step = common.make_step(args.step)
    progress = common.Progress()
    for _ in range(args.epochs):
        for images, labels in loader:
            progress.data()
            step(images, labels)
            progress.step()


if __name__ == "__main__":
    main()
