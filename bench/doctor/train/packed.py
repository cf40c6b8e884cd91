"""Trains on a pack with stoker.Loader."""

from __future__ import annotations

from typing import Any

import common
import stoker
import torch
from stoker import transforms as T


def make_transforms(size: int) -> list[Any]:
    return [T.RandomResizedCrop(size), T.RandomHorizontalFlip()]


def make_loader(args: Any) -> Any:
    return stoker.Loader(
        args.data,
        batch_size=args.batch,
        shuffle=True,
        seed=args.seed,
        drop_last=True,
        threads=args.workers or None,
        output="torch",
        transforms={"image": make_transforms(args.size)},
    )


def unroll(images: Any, labels: Any, views: int) -> tuple[Any, Any]:
    """The input of the network. With views, each image also passes through Python lists, as in grown code."""
    for _ in range(views):
        rows = [image[:, ::8, ::8].tolist() for image in images]
        labels = torch.tensor([len(row) for row in rows]) * 0 + labels
    return images, labels


def main(argv: list[str] | None = None) -> None:
    p = common.parser(__doc__)
    p.add_argument("--views", type=int, default=0)
    args = p.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    loader = make_loader(args)
    step = common.make_step(args.step)
    progress = common.Progress()
    for _ in range(args.epochs):
        for batch in loader:
            images, labels = unroll(batch["image"], batch["label"], args.views)
            progress.data()
            step(images, labels)
            progress.step()


if __name__ == "__main__":
    main()
