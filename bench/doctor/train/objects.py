"""Trains a detector with Python objects as targets: boxes, polygons and words in lists and dictionaries."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import common
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Detection(Dataset[Any]):
    def __init__(self, folder: str, size: int, objects: int) -> None:
        self.files = sorted(str(p) for p in Path(folder).glob("*/*.jpg"))
        self.transform = transforms.Compose([transforms.RandomResizedCrop(size), transforms.ToTensor()])
        draw = random.Random(0)
        self.targets = [
            [
                {
                    "box": [draw.random() for _ in range(4)],
                    "polygon": [(draw.random(), draw.random()) for _ in range(24)],
                    "words": [f"word{draw.randrange(1000)}" for _ in range(4)],
                    "class": draw.randrange(100),
                }
                for _ in range(objects)
            ]
            for _ in range(16)
        ]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = self.transform(Image.open(self.files[index]).convert("RGB"))
        return image, self.targets[index % len(self.targets)]


def make_dataset(args: Any) -> Detection:
    return Detection(args.data, args.size, args.objects)


def collate(items: list[Any]) -> Any:
    """Returns the items unchanged: the targets have no common shape."""
    return items


def unroll(items: list[Any], passes: int) -> tuple[Any, Any]:
    """Makes tensors in the training process: images as one, the targets object by object, once for each head."""
    images = torch.stack([image for image, _ in items])
    labels = torch.tensor([target[0]["class"] for _, target in items])
    for _ in range(passes):
        for _, target in items:
            boxes = [[p[0] * 224 + p[1] * 224 for p in t["polygon"]] for t in target]
            [sum(box) / len(box) for box in boxes]
    return images, labels


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
    p.add_argument("--objects", type=int, default=20, help="objects in each image")
    p.add_argument("--passes", type=int, default=0, help="times that the training process goes through the targets")
    args = p.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    loader = make_loader(make_dataset(args), args)
    step = common.make_step(args.step)
    progress = common.Progress()
    for _ in range(args.epochs):
        for batch in loader:
            images, labels = unroll(batch, args.passes)
            progress.data()
            step(images, labels)
            progress.step()


if __name__ == "__main__":
    main()
