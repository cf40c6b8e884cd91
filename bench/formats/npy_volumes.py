"""Volumes in .npy files, of which training takes random parts, flipped, turned and scaled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

COUNT, SIDE, PART = 16, 160, 64


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        np.save(folder / f"{i:02d}.npy", rng.integers(-1000, 1000, (SIDE, SIDE, SIDE), dtype=np.int16))


class Parts:
    """MONAI's transforms, on crops of mapped volumes."""

    def __init__(self, folder: Path) -> None:
        import monai.transforms as m

        self.volumes = [np.load(p, mmap_mode="r") for p in sorted(folder.glob("*.npy"))]
        self.transform = m.Compose([
            m.RandFlip(0.5, 0), m.RandRotate90(0.5, spatial_axes=(1, 2)),
            m.ScaleIntensityRange(-1000, 1000, 0, 1, clip=True), m.RandShiftIntensity(0.1, prob=0.5),
        ])  # fmt: skip

    def __len__(self) -> int:
        return len(self.volumes) * 16

    def __getitem__(self, n: int) -> Any:
        z, y, x = np.random.randint(0, SIDE - PART + 1, 3)
        part = self.volumes[n // 16][z : z + PART, y : y + PART, x : x + PART]
        return self.transform(part[None].astype(np.float32)).as_tensor()[0]


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Parts(folder), batch)


def fields() -> dict[str, Any]:
    import stoker

    return {
        "volume": [
            stoker.volume.RandSpatialCrop(PART),
            stoker.volume.RandFlip(0.5, 0),
            stoker.volume.RandRotate90(0.5, spatial_axes=(1, 2)),
            stoker.volume.ScaleIntensityRange(-1000, 1000, 0, 1, clip=True),
            stoker.volume.RandShiftIntensity(0.1, prob=0.5),
        ]
    }


FORMAT = Format(
    name="volumes npy",
    library="MONAI in a DataLoader",
    make=make,
    url=lambda folder: f"volumes:{folder}",
    reference=reference,
    loader={"shuffle": True, "transforms": fields},
    what=f"{COUNT} volumes of {SIDE}^3 int16, random parts of {PART}^3, flipped, turned, scaled, as float32",
    batch=4,
    whole=False,
)
