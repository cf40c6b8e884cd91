"""Shared parts of the examples: a dataset as torchvision has it, and a very small model."""

from __future__ import annotations

import torch
from torch import nn
from torchvision import datasets, transforms


def dataset(folder: str) -> datasets.ImageFolder:
    return datasets.ImageFolder(
        folder,
        transforms.Compose(
            [
                transforms.RandomResizedCrop(32),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        ),
    )


def model(classes: int) -> nn.Module:
    torch.set_num_threads(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, classes)
    )
