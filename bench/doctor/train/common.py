"""Common code of the training scripts of this folder: options, a small network, the step and the printed times."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Step = Callable[[Any, Any], None]


def parser(description: str | None) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--data", required=True, help="folder, file or URL of the training data")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--size", type=int, default=224, help="side of the images that the network sees")
    p.add_argument(
        "--step",
        default="sleep:50",
        help="sleep:MS waits as for an accelerator, spin:MS burns a core as a thread that launches kernels does, "
        "cnn trains a small network on the CPU, cnn:N does so on N images of each batch",
    )
    return p


class SmallNet(nn.Module):
    """Four convolutions and a linear layer."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        widths = [3, 8, 16, 32, 32]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classify = nn.Linear(widths[-1], classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(images))


def make_step(spec: str) -> Step:
    kind, _, figure = spec.partition(":")
    if kind == "sleep":
        seconds = float(figure) / 1000
        return lambda images, labels: time.sleep(seconds)
    if kind == "spin":
        seconds = float(figure) / 1000

        def spin(images: Any, labels: Any) -> None:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                pass

        return spin
    if kind != "cnn":
        raise SystemExit(f"no step is called {spec!r}")

    model = SmallNet()
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rows = int(figure) if figure else None

    def train(images: torch.Tensor, labels: torch.Tensor) -> None:
        images = images[:rows]
        if images.dtype == torch.uint8:
            images = images.float().div_(255)
        optimizer.zero_grad()
        loss(model(images), labels[:rows] % 100).backward()
        optimizer.step()

    return train


class Progress:
    """Prints the data time and the total time of each step, like most training scripts."""

    def __init__(self) -> None:
        self.count = 0
        self.end = time.perf_counter()

    def data(self) -> None:
        """A batch has arrived."""
        self.arrived = time.perf_counter()

    def step(self) -> None:
        """A step is done."""
        now = time.perf_counter()
        self.count += 1
        waited, whole = self.arrived - self.end, now - self.end
        print(f"{time.time():.3f} step {self.count} data {waited:.4f} batch {whole:.4f}", flush=True)
        self.end = time.perf_counter()
