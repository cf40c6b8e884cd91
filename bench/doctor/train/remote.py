"""Trains on images that an HTTP server has: --data is its address, index.txt lists the files."""

from __future__ import annotations

import io
import urllib.request
from typing import Any

import common
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision import transforms


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


class RemoteImages(Dataset[Any]):
    def __init__(self, address: str, transform: Any) -> None:
        self.address = address
        self.names = fetch(f"{address}/index.txt").decode().split()
        self.classes = sorted({name.split("/")[-2] for name in self.names})
        self.transform = transform

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        name = self.names[index]
        image = Image.open(io.BytesIO(fetch(f"{self.address}/{name}"))).convert("RGB")
        return self.transform(image), self.classes.index(name.split("/")[-2])


def make_transform(size: int, blurs: int) -> transforms.Compose:
    blur = [transforms.GaussianBlur(9) for _ in range(blurs)]
    return transforms.Compose(
        [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(), *blur]
    )


def make_dataset(args: Any) -> RemoteImages:
    return RemoteImages(args.data, make_transform(args.size, args.blurs))


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
    p.add_argument("--blurs", type=int, default=0)
    args = p.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
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
