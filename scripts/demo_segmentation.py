"""The demo of segmentation: pictures with masks, which move alike, and a small model that learns to draw the masks.

`make demo KIND=segmentation` runs it. DATA=folder takes images/*.jpg and masks/*.png of your own.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import stoker
from demo import WORK, bold, dim, run, show, step
from PIL import Image, ImageDraw, ImageFilter

COUNT, CLASSES, EPOCHS, BATCH, SIZE = 600, 4, 4, 16, 128

Floats = npt.NDArray[np.float32]


class PixelClassifier:
    """Softmax regression on the colours of a pixel and of what lies around it."""

    def __init__(self, classes: int) -> None:
        self.weights = np.zeros((28, classes), np.float32)
        self.mean = np.zeros_like(self.weights)
        self.square = np.zeros_like(self.weights)
        self.steps = 0

    @staticmethod
    def features(images: npt.NDArray[np.uint8]) -> Floats:
        """Colours, their means around, squares and products: [pixels, 28]."""
        x = images[:, ::2, ::2].astype(np.float32) / 255 - 0.5
        around = x.copy()
        for axis in (1, 2):
            around = (around + np.roll(around, 2, axis) + np.roll(around, -2, axis)) / 3
        both = np.concatenate([x, around], axis=-1)
        pairs = [both[..., i] * both[..., j] for i in range(6) for j in range(i, 6)]
        return np.concatenate([both, np.stack(pairs, -1), np.ones_like(x[..., :1])], -1).reshape(-1, 28)

    def learn(self, images: npt.NDArray[np.uint8], masks: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """One step of Adam; returns how often each class was taken for each before it."""
        x, y = self.features(images), masks[:, ::2, ::2].reshape(-1).astype(np.int64)
        scores = x @ self.weights
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        classes = self.weights.shape[1]
        counts = np.bincount(y * classes + p.argmax(axis=1), minlength=classes**2).reshape(classes, classes)
        p[np.arange(len(y)), y] -= 1
        gradient = x.T @ p / len(y)
        self.steps += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.01 * (gradient * gradient - self.square)
        scale = np.sqrt(self.square / (1 - 0.99**self.steps)) + 1e-8
        self.weights -= 0.2 * self.mean / (1 - 0.9**self.steps) / scale
        return counts


def generate(folder: Path) -> None:
    """Shapes of three colours on a ground, with noise, and which is where."""
    rng = np.random.default_rng(0)
    colours = [(90, 110, 90), (190, 70, 60), (70, 90, 190), (200, 190, 80)]
    for sub in ("images", "masks"):
        (folder / sub).mkdir(parents=True)
    for i in range(COUNT):
        width, height = rng.integers(140, 260, 2).tolist()
        image, mask = Image.new("RGB", (width, height), colours[0]), Image.new("L", (width, height))
        for _ in range(6):
            x, y = rng.integers(-20, width), rng.integers(-20, height)
            box = [x, y, x + rng.integers(30, 90), y + rng.integers(30, 90)]
            kind = int(rng.integers(1, CLASSES))
            for canvas, fill in ((image, colours[kind]), (mask, kind)):
                draw = ImageDraw.Draw(canvas)
                (draw.ellipse if kind == 1 else draw.rectangle)(box, fill=fill)
        pixels = np.asarray(image.filter(ImageFilter.GaussianBlur(1)), np.float32)
        pixels = pixels * rng.uniform(0.8, 1.2) + rng.normal(0, 14, pixels.shape)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / "images" / f"{i:04d}.jpg", quality=90)
        mask.save(folder / "masks" / f"{i:04d}.png")


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Train a segmentation model.")
    parser.add_argument("--data", type=Path, help="a folder of your own with images/*.jpg and masks/*.png")
    own: Path | None = parser.parse_args().data
    WORK.mkdir(exist_ok=True)
    folder = own or WORK / f"segmentation-{COUNT}"
    if own is None:
        step(1, f"{COUNT} pictures of shapes with their masks, {CLASSES} classes")
        if folder.exists():
            print(f"  {show(folder)} is there already")
        else:
            part = folder.with_suffix(".part")
            generate(part)
            part.rename(folder)
            print(f"  {show(folder)}")
    elif not own.is_dir():
        sys.exit(
            f"demo: {own} is not a folder\n"
            "  hint: make demo KIND=segmentation DATA=folder with images/*.jpg and masks/*.png"
        )
    pack = WORK / f"{folder.name}-pack"

    step(2, "pack pictures and masks together, once")
    run("pack", folder, pack, "--field", "image=images/*.jpg", "--field", "mask=masks/*.png", may=(0, 3))

    step(3, f"train on random crops of {SIZE} x {SIZE}; the mask follows its picture")
    moves = [stoker.RandomResizedCrop(SIZE, scale=(0.3, 1.0)), stoker.RandomHorizontalFlip()]
    fields = {
        "image": [*moves, stoker.ColorJitter(brightness=0.2)],
        "mask": stoker.Field("mask", moves, follow="image"),
    }
    with stoker.Loader(pack, batch_size=BATCH, shuffle=True, seed=0, fields=fields, drop_last=True) as loader:
        print(dim(f"  {loader.num_records:,} pictures, batches of {BATCH}"))
        print(
            dim(f"  {'epoch':>5}  {'pixels right':>12}  {'mean IoU':>8}  {'pictures/s':>10}  {'waiting for data':>16}")
        )
        model: PixelClassifier | None = None
        for epoch in range(EPOCHS):
            counts: npt.NDArray[np.int64] | int = 0
            seen, waited, began = 0, 0.0, time.perf_counter()
            mark = began
            for batch in loader:
                waited += time.perf_counter() - mark
                if model is None:
                    model = PixelClassifier(CLASSES if own is None else 256)
                counts = counts + model.learn(batch["image"], batch["mask"])
                seen += batch.rows
                del batch
                mark = time.perf_counter()
            seconds = time.perf_counter() - began
            table = np.asarray(counts)
            there = table.sum(axis=1) > 0
            iou = (np.diag(table) / np.maximum(table.sum(axis=0) + table.sum(axis=1) - np.diag(table), 1))[there].mean()
            right = bold(f"{np.trace(table) / table.sum():12.1%}")
            print(
                f"  {epoch + 1:>5}  {right}  {iou:8.2f}  {seen / seconds:>10,.0f}  {waited / seconds:>16.0%}",
                flush=True,
            )
    print(f"\nThe pack is {show(pack)}; the loader takes the files as they are, too:")
    print(f"  pairs:{show(folder)}/?image=images/*.jpg&mask=masks/*.png")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except stoker.StokerError as error:
        sys.exit(f"demo: {error}")
