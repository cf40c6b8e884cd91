"""The demo of volumes: random parts of scans with labels are read, and a small model learns from them.

`make demo KIND=volume` runs it. DATA=folder takes images/*.nii.gz and labels/*.nii.gz of your own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import stoker
from demo import WORK, Watch, bold, dim, made, start, step
from learn import Confusion, Regression

COUNT, CLASSES, EPOCHS, BATCH, SIZE = 48, 3, 24, 8, 48

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.uint8]


class VoxelClassifier:
    """Softmax regression on a voxel, its surroundings at two distances, and their squares and products."""

    def __init__(self, classes: int) -> None:
        self.model, self.seen = Regression(10, classes), Confusion(classes)

    @staticmethod
    def features(volumes: Floats) -> Floats:
        """Values and means around them: [voxels, 10]."""
        x = volumes.astype(np.float32) - 0.5
        near = x
        for axis in (1, 2, 3):
            near = (near + np.roll(near, 1, axis) + np.roll(near, -1, axis)) / 3
        far = near
        for axis in (1, 2, 3):
            far = (far + np.roll(far, 3, axis) + np.roll(far, -3, axis)) / 3
        parts = [a[:, ::2, ::2, ::2].reshape(-1) for a in (x, near, far)]
        pairs = [parts[i] * parts[j] for i in range(3) for j in range(i, 3)]
        return np.stack([*parts, *pairs, np.ones_like(parts[0])], -1)

    def learn(self, volumes: Floats, labels: Labels) -> None:
        """Learn from volumes, and count the right guesses before that."""
        places = labels[:, ::2, ::2, ::2].reshape(-1).astype(np.int64)
        self.seen.add(places, self.model.learn(self.features(volumes), places, 0.3))


def save(path: Path, voxels: npt.NDArray[np.int16] | Labels) -> None:
    """Write a NIfTI-1 file; voxels are [z, y, x]."""
    header = np.zeros(352, np.uint8)
    header[:4] = np.frombuffer(np.int32(348).tobytes(), np.uint8)
    dims = np.ones(8, np.int16)
    dims[0], dims[1:4] = 3, voxels.shape[::-1]
    header[40:56] = np.frombuffer(dims.tobytes(), np.uint8)
    code, bits = (4, 16) if voxels.dtype == np.int16 else (2, 8)
    header[70:74] = np.frombuffer(np.array([code, bits], np.int16).tobytes(), np.uint8)
    header[76:108] = np.frombuffer(np.ones(8, np.float32).tobytes(), np.uint8)
    header[108:116] = np.frombuffer(np.array([352, 1], np.float32).tobytes(), np.uint8)
    header[344:348] = np.frombuffer(b"n+1\0", np.uint8)
    path.write_bytes(header.tobytes() + voxels.tobytes())


def generate(folder: Path) -> None:
    """Bodies with bright and dark balls in them, in noise, and which voxels those are."""
    rng = np.random.default_rng(0)
    for sub in ("images", "labels"):
        (folder / sub).mkdir(parents=True)
    for i in range(COUNT):
        shape = rng.integers(72, 128, 3)
        place = np.meshgrid(*(np.arange(n, dtype=np.float32) for n in shape), indexing="ij", sparse=True)
        values = np.full(shape, -600, np.float32)
        labels = np.zeros(shape, np.uint8)
        body = sum(((p - n / 2) / (n * 0.45)) ** 2 for p, n in zip(place, shape, strict=True)) < 1
        values[body] = 50
        for _ in range(14):
            kind = int(rng.integers(1, CLASSES))
            centre, radius = rng.uniform(0.25, 0.75, 3) * shape, rng.uniform(6, 14)
            ball = sum((p - c) ** 2 for p, c in zip(place, centre, strict=True)) < radius**2
            values[ball], labels[ball] = (320, 1) if kind == 1 else (-180, 2)
        values += rng.normal(0, 110, shape).astype(np.float32)
        save(folder / "images" / f"case{i:03d}.nii", values.clip(-1024, 1500).astype(np.int16))
        save(folder / "labels" / f"case{i:03d}.nii", labels)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Train a segmentation of volumes.")
    parser.add_argument("--data", type=Path, help="a folder of your own with images/*.nii.gz and labels/*.nii.gz")
    own: Path | None = parser.parse_args().data
    WORK.mkdir(exist_ok=True)
    folder = own
    if own is None:
        step(1, f"{COUNT} scans of several sizes, with {CLASSES} classes of voxels")
        folder = made(WORK / f"volumes-{COUNT}", generate)
    elif not own.is_dir():
        sys.exit(
            f"demo: {own} is not a folder\n"
            "  hint: make demo KIND=volume DATA=folder with images/*.nii.gz and labels/*.nii.gz"
        )
    end = "*.nii" if own is None else "*.nii.gz"
    url = f"pairs:{folder}/?image=images/{end}&label=labels/{end}"

    step(
        2, f"train on random parts of {SIZE} x {SIZE} x {SIZE}; the label follows its scan, and no more is read of both"
    )
    moves = [
        stoker.volume.RandSpatialCrop(SIZE),
        stoker.volume.RandFlip(0.5, 2),
        stoker.volume.RandRotate90(0.5, spatial_axes=(1, 2)),
        stoker.volume.ResizeWithPadOrCrop(SIZE),
    ]
    values = [
        stoker.volume.ScaleIntensityRange(-600, 600, 0, 1, clip=True),
        stoker.volume.RandScaleIntensity(0.05, 0.5),
        stoker.volume.RandShiftIntensity(0.02, prob=0.5),
    ]
    fields = {"image": [*moves, *values], "label": moves}
    with stoker.Loader(url, batch_size=BATCH, shuffle=True, seed=0, transforms=fields, drop_last=True) as loader:
        print(dim(f"  {loader.num_records:,} scans, batches of {BATCH}"))
        print(dim(f"  {'epoch':>5}  {'voxels right':>12}  {'mean Dice':>9}  {'parts/s':>8}  {'waiting for data':>16}"))
        model = VoxelClassifier(CLASSES if own is None else 256)
        watch, seen = Watch(), 0
        for epoch in range(EPOCHS):
            for batch in watch.over(loader):
                model.learn(batch["image"], batch["label"])
                seen += len(batch)
                del batch
            if epoch % 4 != 3:
                continue
            right = bold(f"{model.seen.right():12.1%}")
            _, dice = model.seen.overlap()
            print(f"  {epoch + 1:>5}  {right}  {dice:9.2f}  {watch.figures(seen, 8)}", flush=True)
            model.seen, seen = Confusion(len(model.seen.counts)), 0
            watch.reset()
    print("\nThe same, on your own data: make demo KIND=volume DATA=folder, or in a loop of your own:")
    print(f"  stoker.Loader({str(url)!r}, ...)")


if __name__ == "__main__":
    start(main)
