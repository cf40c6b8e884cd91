"""Trains on a folder of images, one folder per class, with torch's DataLoader."""

from __future__ import annotations

from typing import Any

import common
import torch
from torch.utils.data import DataLoader, default_collate
from torchvision import transforms
from torchvision.datasets import ImageFolder


def make_transform(size: int, blurs: int) -> transforms.Compose:
    """RandomResizedCrop and flip, and the requested number of Gaussian blurs: an augmentation that is too
    expensive."""
    blur = [transforms.GaussianBlur(9) for _ in range(blurs)]
    return transforms.Compose(
        [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(), *blur]
    )


def make_dataset(args: Any) -> ImageFolder:
    return ImageFolder(args.data, make_transform(args.size, args.blurs))


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
        prefetch_factor=args.prefetch if args.workers else None,
        generator=order,
    )


def main(argv: list[str] | None = None) -> None:
    p = common.parser(__doc__)
    p.add_argument("--blurs", type=int, default=0)
    p.add_argument("--prefetch", type=int, default=2)
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
