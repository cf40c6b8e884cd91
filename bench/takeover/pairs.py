"""Pairs of dataset and transform: torch's loader compared with ours, with the same number of workers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import procs

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 64
SIDES = ("torch", "stoker")


def _train() -> Any:
    from torchvision import transforms as v1

    return v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)])


def _evaluation() -> Any:
    from torchvision import transforms as v1

    return v1.Compose([v1.Resize(256), v1.CenterCrop(224), v1.ToTensor(), v1.Normalize(MEAN, STD)])


def _train_v2() -> Any:
    import torch
    from torchvision.transforms import v2

    parts = [v2.ToImage(), v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    return v2.Compose([*parts, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])


def _bytes_v2() -> Any:
    from torchvision.transforms import v2

    return v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor()])


def _jitter() -> Any:
    from torchvision import transforms as v1

    parts = [v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ColorJitter(0.4, 0.4, 0.4)]
    return v1.Compose([*parts, v1.ToTensor(), v1.Normalize(MEAN, STD)])


def _timm() -> Any:
    from timm.data import create_transform

    return create_transform(224, is_training=True, interpolation="bilinear", color_jitter=None)


def _small() -> Any:
    from torchvision import transforms as v1

    crop = [v1.RandomCrop(32, 4), v1.RandomHorizontalFlip()]
    return v1.Compose([*crop, v1.ToTensor(), v1.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))])


def _gray() -> Any:
    from torchvision import transforms as v1

    return v1.Compose([v1.ToTensor(), v1.Normalize((0.1307,), (0.3081,))])


def _image_folder(data: Path, transform: Any) -> Any:
    from torchvision.datasets import ImageFolder

    return ImageFolder(str(data / "train"), transform)


def _own(data: Path, transform: Any) -> Any:
    """Return a dataset that nothing is known of; its first epoch is Python's."""
    from PIL import Image
    from torch.utils.data import Dataset

    class Photos(Dataset[Any]):
        def __init__(self) -> None:
            self.samples, self.transform = _image_folder(data, None).samples, transform

        def __len__(self) -> int:
            return len(self.samples)

        def __getitem__(self, i: int) -> Any:
            path, label = self.samples[i]
            return self.transform(Image.open(path).convert("RGB")), label

    return Photos()


def _subset(data: Path, transform: Any) -> Any:
    from torch.utils.data import Subset

    whole = _image_folder(data, transform)
    return Subset(whole, range(0, len(whole), 2))


def _concat(data: Path, transform: Any) -> Any:
    from torch.utils.data import ConcatDataset
    from torchvision.datasets import ImageFolder

    return ConcatDataset([ImageFolder(str(data / part), transform) for part in ("train", "val")])


def _cifar(_: Path, transform: Any) -> Any:
    """CIFAR10 of generated pixels, without its files."""
    import numpy as np
    from torchvision.datasets import CIFAR10

    dataset = CIFAR10.__new__(CIFAR10)
    pixels = np.random.default_rng(1).integers(0, 255, (50_000, 32, 32, 3), np.uint8)
    dataset.__dict__ |= {"root": "", "transform": transform, "target_transform": None, "transforms": None}
    dataset.__dict__ |= {"data": pixels, "targets": [i % 10 for i in range(50_000)]}
    return dataset


def _mnist(data: Path, transform: Any) -> Any:
    from torchvision.datasets import MNIST

    return MNIST(str(data.parent / next(p.name for p in data.parent.glob("mnist-[0-9]*"))), transform=transform)


def _table(_: Path, __: Any) -> Any:
    import numpy as np

    from datasets import Dataset

    rows = np.random.default_rng(1).standard_normal((100_000, 64), dtype=np.float32)
    return Dataset.from_dict({"x": rows, "y": np.arange(100_000)}).with_format("torch")


def _nothing() -> Any:
    return None


# name: dataset, transform
PAIRS: dict[str, tuple[Callable[[Path, Any], Any], Callable[[], Any]]] = {
    "ImageFolder, crop, flip, v1": (_image_folder, _train),
    "ImageFolder, resize, centre, v1": (_image_folder, _evaluation),
    "ImageFolder, crop, flip, v2 on tensors": (_image_folder, _train_v2),
    "ImageFolder, crop, flip, bytes": (_image_folder, _bytes_v2),
    "ImageFolder, crop, flip, colours": (_image_folder, _jitter),
    "ImageFolder, timm's": (_image_folder, _timm),
    "own Dataset with Pillow, crop, flip": (_own, _train),
    "Subset of it": (_subset, _train),
    "ConcatDataset of two": (_concat, _train),
    "CIFAR10, crop, flip": (_cifar, _small),
    "MNIST": (_mnist, _gray),
    "Hugging Face table, 64 floats": (_table, _nothing),
}


def one(name: str, side: str, data: Path, workers: int, epochs: int) -> None:
    """Measure one side of a pair in this process; prints a line of JSON."""
    import torch
    import torch.utils.data

    torch.set_num_threads(1)
    make, transform = PAIRS[name]
    dataset = make(data, transform())
    kind: Any = torch.utils.data.DataLoader
    if side == "stoker":
        from stoker.torch import DataLoader as kind  # noqa: N813
    loader = kind(dataset, BATCH, shuffle=True, num_workers=workers)
    found, cpu, memory = [], procs.cpu_seconds(os.getpid()), 0.0
    for _ in range(epochs):
        begin, rows, first = time.perf_counter(), 0, 0.0
        for number, batch in enumerate(loader):
            images = batch["x"] if isinstance(batch, dict) else batch[0]
            first = first or time.perf_counter() - begin
            rows += len(images)
            images.view(-1)[::4096].sum()  # each page is looked at
            if number == len(loader) - 3 * max(1, workers):
                memory = max(memory, procs.memory(os.getpid())["pss"])
        seconds = time.perf_counter() - begin
        found.append({"rows": rows, "seconds": seconds, "first_s": first, "rate": rows / seconds})
    got: dict[str, Any] = {
        "epochs": found, "cpu_s": procs.cpu_seconds(os.getpid()) - cpu,
        "memory_mib": memory or procs.memory(os.getpid())["pss"],
    }  # fmt: skip
    if side == "stoker":
        got["where"] = loader._way().rows(loader)[0].where
    print(json.dumps(got), flush=True)
