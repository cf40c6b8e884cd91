"""The demo of segmentation: pictures with masks, which move alike, and a small model that learns to draw the masks.

`make demo KIND=segmentation` runs it. DATA=folder takes images/*.jpg and masks/*.png of your own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import stoker
from demo import WORK, Watch, bold, dim, made, run, show, start, step
from learn import Confusion, Regression
from PIL import Image, ImageDraw, ImageFilter
from stoker import transforms as T

COUNT, CLASSES, EPOCHS, BATCH, SIZE = 600, 4, 4, 16, 128

Floats = npt.NDArray[np.float32]


class PixelClassifier:
    """Softmax regression on the colours of a pixel and of its surroundings."""

    def __init__(self, classes: int) -> None:
        self.model, self.seen = Regression(28, classes), Confusion(classes)

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

    def learn(self, images: npt.NDArray[np.uint8], masks: npt.NDArray[np.uint8]) -> None:
        """Learn from images, and count the right guesses before that."""
        places = masks[:, ::2, ::2].reshape(-1).astype(np.int64)
        self.seen.add(places, self.model.learn(self.features(images), places, 0.2))


def generate(folder: Path) -> None:
    """Shapes of three colours on a ground, with noise, and their masks."""
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
    folder = own
    if own is None:
        step(1, f"{COUNT} pictures of shapes with their masks, {CLASSES} classes")
        folder = made(WORK / f"segmentation-{COUNT}", generate)
    elif not own.is_dir():
        sys.exit(
            f"demo: {own} is not a folder\n"
            "  hint: make demo KIND=segmentation DATA=folder with images/*.jpg and masks/*.png"
        )
    pack = WORK / f"{folder.name}-pack"

    step(2, "pack pictures and masks together, once")
    run("pack", folder, pack, "--field", "image=images/*.jpg", "--field", "mask=masks/*.png", may=(0, 3))

    step(3, f"train on random crops of {SIZE} x {SIZE}; the mask follows its picture")
    moves = [T.RandomResizedCrop(SIZE, scale=(0.3, 1.0)), T.RandomHorizontalFlip()]
    fields = {
        "image": [*moves, T.ColorJitter(brightness=0.2)],
        "mask": stoker.Field("mask", moves, follow="image"),
    }
    with stoker.Loader(pack, batch_size=BATCH, shuffle=True, seed=0, transforms=fields, drop_last=True) as loader:
        print(dim(f"  {loader.num_records:,} pictures, batches of {BATCH}"))
        print(
            dim(f"  {'epoch':>5}  {'pixels right':>12}  {'mean IoU':>8}  {'pictures/s':>10}  {'waiting for data':>16}")
        )
        model = PixelClassifier(CLASSES if own is None else 256)
        for epoch in range(EPOCHS):
            watch, seen, model.seen = Watch(), 0, Confusion(len(model.seen.counts))
            for batch in watch.over(loader):
                model.learn(batch["image"], batch["mask"])
                seen += len(batch)
                del batch
            right = bold(f"{model.seen.right():12.1%}")
            iou, _ = model.seen.overlap()
            print(f"  {epoch + 1:>5}  {right}  {iou:8.2f}  {watch.figures(seen, 10)}", flush=True)
    print(f"\nThe pack is {show(pack)}; the loader takes the files as they are, too:")
    print(f"  pairs:{show(folder)}/?image=images/*.jpg&mask=masks/*.png")


if __name__ == "__main__":
    start(main)
