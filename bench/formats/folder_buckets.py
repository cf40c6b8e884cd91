"""Planning batches of like proportions: the headers of a folder's JPEGs, from opening it to the first batch."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import runner
from . import Format, torch_side

COUNT = 20_000


def make(folder: Path) -> None:
    command = [runner.ROOT / "bin/stoker", "gen", "images", folder / "photos", "--count", str(COUNT)]
    subprocess.run([*command, "--size", "64x64", "--seed", "1"], check=True, capture_output=True)


def planned(folder: Path, batch: int) -> Iterator[int]:
    """Open the folder in buckets and take a batch, of labels only: no image is decoded."""
    import stoker

    buckets = stoker.Buckets("image", boundaries=[0.8, 1.25])
    with stoker.Loader(
        stoker.open(str(folder / "photos")).select("label"), batch_size=batch, shuffle=True, bucket=buckets
    ) as loader:
        next(iter(loader))
    yield COUNT


class Sizes:
    """Image sizes, for grouping by proportions like in torchvision's references for detection."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> dict[str, Any]:
        from PIL import Image

        with Image.open(self.files[i]) as image:
            return {"ratio": image.width / image.height}


def reference(folder: Path, batch: int) -> Iterator[int]:
    return torch_side.batches(Sizes(folder), batch)


FORMAT = Format(
    name="folder, buckets",
    library="Pillow in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "photos"),
    reference=reference,
    what=f"{COUNT:,} JPEGs opened, sorted by their proportions by their headers, until the first batch",
    whole=False,
    own=planned,
    least=20_000,
)
