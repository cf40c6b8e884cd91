"""The demo of detection: a COCO dataset of shapes, packed, and a small detector that learns to find them.

`make demo KIND=detection` runs it. The detector sees cells of 4 x 4 pixels and learns from the loader's boxes which
colours belong to which class. It draws boxes around the objects that it finds. Their accuracy is measured on other
images.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import stoker
from demo import STOKER, WORK, bold, dim, made, run, show, start, step
from PIL import Image, ImageDraw
from stoker import transforms as st

TRAIN, VAL, EPOCHS, BATCH, SIZE, CELL = 600, 150, 4, 16, 192, 4
NAMES = ["disc", "block", "wedge"]
COLOURS = [(205, 60, 50), (50, 170, 70), (60, 80, 205)]

Floats = npt.NDArray[np.float32]
Box = tuple[int, float, float, float, float]


def scene(rng: np.random.Generator) -> tuple[Image.Image, list[Box]]:
    """Draw one to four shapes that do not touch, on gray texture; give their classes and corners."""
    w, h = (int(v) for v in rng.integers(160, 340, 2))
    noise = rng.integers(60, 150, (h // 4 + 1, w // 4 + 1, 1)) + rng.integers(-8, 8, (h // 4 + 1, w // 4 + 1, 3))
    image = Image.fromarray(noise.clip(0, 255).astype(np.uint8)).resize((w, h), Image.Resampling.BICUBIC)
    draw, boxes = ImageDraw.Draw(image), list[Box]()
    for _ in range(int(rng.integers(1, 5))):
        c, (bw, bh) = int(rng.integers(0, 3)), (int(v) for v in rng.integers(26, 80, 2))
        x, y = int(rng.integers(2, w - bw - 2)), int(rng.integers(2, h - bh - 2))
        if any(x < b[3] + 10 and b[1] < x + bw + 10 and y < b[4] + 10 and b[2] < y + bh + 10 for b in boxes):
            continue
        colour = tuple(int(v) for v in (np.array(COLOURS[c]) + rng.integers(-35, 36, 3)).clip(0, 255))
        if c == 0:
            draw.ellipse((x, y, x + bw, y + bh), fill=colour)
        elif c == 1:
            draw.rectangle((x, y, x + bw, y + bh), fill=colour)
        else:
            draw.polygon([(x, y + bh), (x + bw, y + bh), (x + bw // 2, y)], fill=colour)
        boxes.append((c, x, y, x + bw, y + bh))
    return image, boxes


def generate(root: Path) -> None:
    """Write a dataset as COCO has it."""
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    for split, count, seed in (("train", TRAIN, 0), ("val", VAL, 1)):
        (root / split).mkdir(exist_ok=True)
        rng, images, annotations = np.random.default_rng(seed), [], []
        for i in range(count):
            image, boxes = scene(rng)
            image.save(root / split / f"{i:05}.jpg", quality=92)
            images.append({"id": i, "file_name": f"{i:05}.jpg", "width": image.width, "height": image.height})
            for c, x0, y0, x1, y1 in boxes:
                box = {"bbox": [x0, y0, x1 - x0, y1 - y0], "area": (x1 - x0) * (y1 - y0), "iscrowd": 0}
                annotations.append({"id": len(annotations) + 1, "image_id": i, "category_id": c + 1, **box})
        categories = [{"id": k + 1, "name": name} for k, name in enumerate(NAMES)]
        whole = {"images": images, "annotations": annotations, "categories": categories}
        (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(whole))


class Detector:
    """Softmax regression on the colours of cells; connected cells of one class are an object."""

    def __init__(self, classes: int) -> None:
        self.weights = np.zeros((10, classes + 1), np.float32)
        self.mean, self.square, self.steps = np.zeros_like(self.weights), np.zeros_like(self.weights), 0

    def features(self, images: npt.NDArray[np.uint8]) -> Floats:
        """The mean colour of each cell, its squares and products."""
        n, h, w, _ = images.shape
        cells = images.reshape(n, h // CELL, CELL, w // CELL, CELL, 3).mean(axis=(2, 4), dtype=np.float32) / 128 - 1
        r, g, b = cells[..., 0], cells[..., 1], cells[..., 2]
        return np.stack([r, g, b, r * r, g * g, b * b, r * g, g * b, r * b, np.ones_like(r)], axis=-1)

    def scores(self, x: Floats) -> Floats:
        s = x @ self.weights
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        return np.asarray(p / p.sum(axis=-1, keepdims=True), np.float32)

    def learn(self, images: npt.NDArray[np.uint8], boxes: stoker.Ragged, labels: stoker.Ragged) -> float:
        """Take one step of Adam towards the boxes; gives the loss."""
        x = self.features(images)
        target = np.zeros(x.shape[:3], np.int64)  # 0 is the background
        for i in range(len(images)):
            for box, label in zip(boxes[i], labels[i], strict=True):
                x0, y0, x1, y1 = (round(float(v) / CELL) for v in box)
                target[i, y0:y1, x0:x1] = label + 1
        p = self.scores(x)
        right = np.take_along_axis(p, target[..., None], axis=-1)
        loss = float(-np.log(np.maximum(right, 1e-9)).mean())
        np.put_along_axis(p, target[..., None], right - 1, axis=-1)
        flat = x.reshape(-1, 10)
        gradient = flat.T @ p.reshape(len(flat), -1) / len(flat)
        self.steps += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.01 * (gradient * gradient - self.square)
        step = self.mean / (1 - 0.9**self.steps) / (np.sqrt(self.square / (1 - 0.99**self.steps)) + 1e-8)
        self.weights -= 0.1 * step
        return loss

    def find(self, images: npt.NDArray[np.uint8]) -> list[list[Box]]:
        """The objects of each image: class and corners."""
        return [objects(m) for m in self.scores(self.features(images)).argmax(axis=-1)]


def objects(cells: npt.NDArray[np.int64]) -> list[Box]:
    """The boxes around connected cells of one class, of a dozen cells or more."""
    left, found = cells.copy(), []
    for y, x in zip(*np.nonzero(cells), strict=True):
        c = left[y, x]
        if c == 0:
            continue
        todo, seen = [(int(y), int(x))], []
        left[y, x] = 0
        while todo:
            a, b = todo.pop()
            seen.append((a, b))
            for i, j in ((a - 1, b), (a + 1, b), (a, b - 1), (a, b + 1)):
                if 0 <= i < left.shape[0] and 0 <= j < left.shape[1] and left[i, j] == c:
                    left[i, j] = 0
                    todo.append((i, j))
        if len(seen) >= 12:
            (y0, x0), (y1, x1) = np.min(seen, axis=0), np.max(seen, axis=0) + 1
            found.append((int(c) - 1, float(x0 * CELL), float(y0 * CELL), float(x1 * CELL), float(y1 * CELL)))
    return found


def overlap(a: Box, b: Box) -> float:
    """The share of two boxes that both have (IoU); 0 for different classes."""
    w, h = min(a[3], b[3]) - max(a[1], b[1]), min(a[4], b[4]) - max(a[2], b[2])
    if a[0] != b[0] or w <= 0 or h <= 0:
        return 0.0
    both = w * h
    return both / ((a[3] - a[1]) * (a[4] - a[2]) + (b[3] - b[1]) * (b[4] - b[2]) - both)


def judge(model: Detector, loader: stoker.Loader) -> tuple[float, float, float]:
    """Precision and recall of boxes that overlap by half, and the mean overlap of those."""
    hits, found, there = list[float](), 0, 0
    for batch in loader:
        for i, guesses in enumerate(model.find(batch.image)):
            corners = zip(batch.labels[i], batch.boxes[i], strict=True)
            truth: list[Box] = [(int(c), *(float(v) for v in box)) for c, box in corners]  # type: ignore[misc]
            found, there = found + len(guesses), there + len(truth)
            for guess in guesses:
                best = max(truth, key=lambda t: overlap(guess, t), default=None)
                if best is not None and (share := overlap(guess, best)) >= 0.5:
                    hits.append(share)
                    truth.remove(best)
    return len(hits) / max(found, 1), len(hits) / max(there, 1), float(np.mean(hits)) if hits else 0.0


def main() -> None:
    """Run the demo."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    WORK.mkdir(exist_ok=True)
    root, pack = WORK / "shapes", WORK / "shapes-pack"
    step(1, f"{TRAIN + VAL} images of shapes with their boxes, as COCO has them")
    made(root, generate)
    step(2, "pack those to learn from, once; the others are read as they are")
    run("pack", root / "annotations/instances_train.json", pack)

    step(3, f"learn from images fitted into {SIZE} x {SIZE}, flipped and with other colours: boxes follow")
    fit = [st.LetterBox(SIZE), st.ConvertBoundingBoxFormat("XYXY")]
    moves = [st.RandomHorizontalFlip(), st.RandomHSV(0.01, 0.3, 0.3), *fit, st.SanitizeBoundingBoxes(4)]
    model = Detector(len(NAMES))
    with (
        stoker.Loader(pack, BATCH, shuffle=True, seed=0, transforms={"image": moves}) as loader,
        stoker.Loader(root / "annotations/instances_val.json", BATCH, transforms={"image": fit}) as others,
    ):
        print(
            dim(f"  {loader.num_records} images, classes {', '.join(loader.classes)}, boxes {loader.formats['boxes']}")
        )
        print(dim(f"  {'epoch':>5}  {'loss':>6}  {'precision':>9}  {'recall':>6}  {'overlap':>7}  images/s"))
        for epoch in range(EPOCHS):
            began = time.perf_counter()
            losses = [model.learn(batch.image, batch.boxes, batch.labels) for batch in loader]
            rate = len(losses) * BATCH / (time.perf_counter() - began)
            precision, recall, shared = judge(model, others)
            figures = f"{precision:>9.1%}  {recall:>6.1%}  {shared:>7.1%}"
            print(f"  {epoch + 1:>5}  {np.mean(losses):>6.3f}  {bold(figures)}  {rate:>8,.0f}", flush=True)
    print(f"\nOf {VAL} other images, boxes that overlap by half or more count. The same from your own data:")
    print(f"  {show(STOKER)} inspect annotations/instances_train2017.json, a VOC folder or a data.yaml of YOLO")


if __name__ == "__main__":
    start(main)
