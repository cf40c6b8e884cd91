"""Image classification like in PyTorch's ImageNet example, but small.

It has the structure of the example: a folder of images, RandomResizedCrop, flip and normalisation in worker
processes, meters that print the time for data and for the whole batch. There are two differences. The network is
small unless a torchvision architecture is named. `--simulate MS` replaces an accelerator that needs MS milliseconds
for a batch.

    python imagenet_small.py photos/ -j 1 --simulate 60
    python imagenet_small.py train/ --stoker --simulate 60      # the same from a pack
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import Any

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class AverageMeter:
    """The last value and the average of all."""

    def __init__(self, name: str) -> None:
        self.name, self.value, self.sum, self.count = name, 0.0, 0.0, 0

    def update(self, value: float) -> None:
        self.value = value
        self.sum += value
        self.count += 1

    def __str__(self) -> str:
        return f"{self.name} {self.value:.3f} ({self.sum / max(1, self.count):.3f})"


def build_model(name: str) -> nn.Module:
    if name != "small":
        return torchvision.models.get_model(name, weights=None, num_classes=1000)
    layers: list[nn.Module] = []
    for inside, outside in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inside, outside, 3, stride=4, padding=1), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1000))


def torch_loader(args: argparse.Namespace) -> Iterable[Any]:
    dataset = datasets.ImageFolder(
        args.data,
        transforms.Compose(
            [
                transforms.RandomResizedCrop(224),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        ),
    )
    return DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers, pin_memory=False)


def stoker_loader(args: argparse.Namespace) -> Iterable[Any]:
    import stoker
    from stoker import transforms as T

    image = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]
    return stoker.Loader(args.data, args.batch_size, shuffle=True, output="torch", transforms={"image": image})


def train(loader: Iterable[Any], model: nn.Module, args: argparse.Namespace, epoch: int) -> None:
    batch_time, data_time, losses = AverageMeter("Time"), AverageMeter("Data"), AverageMeter("Loss")
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(loader):
        data_time.update(time.time() - end)
        if args.simulate:
            time.sleep(args.simulate / 1000)
        else:
            if images.dtype == torch.uint8:
                images = (images.float() / 255 - mean) / std
            loss = criterion(model(images), target)
            losses.update(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            print(f"Epoch: [{epoch}][{i}]", batch_time, data_time, losses, sep="\t", flush=True)
        if args.steps and i + 1 >= args.steps:
            rate = args.batch_size / (batch_time.sum / batch_time.count)
            print(f"{rate:.0f} images/s, {data_time.sum / batch_time.sum:.0%} of the time waiting for data")
            return


def main() -> None:
    parser = argparse.ArgumentParser(description="train a classifier on a folder of images")
    parser.add_argument("data", help="folder of images, or with --stoker a pack")
    parser.add_argument("-a", "--arch", default="small", help="small, or an architecture of torchvision")
    parser.add_argument("-j", "--workers", default=4, type=int, help="worker processes of the DataLoader")
    parser.add_argument("--epochs", default=90, type=int)
    parser.add_argument("-b", "--batch-size", default=64, type=int)
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("-p", "--print-freq", default=10, type=int)
    parser.add_argument("--steps", default=0, type=int, help="end after so many steps and print the speed")
    parser.add_argument(
        "--simulate", default=0.0, type=float, metavar="MS", help="milliseconds of an accelerator's step"
    )
    parser.add_argument("--stoker", action="store_true", help="load with stoker.Loader")
    args = parser.parse_args()

    model = build_model(args.arch)
    loader = stoker_loader(args) if args.stoker else torch_loader(args)
    for epoch in range(args.epochs):
        train(loader, model, args, epoch)
        if args.steps:
            break


if __name__ == "__main__":
    main()
