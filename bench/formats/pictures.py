"""Synthetic photographs for codecs, and the usual transforms of torchvision's users."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

from .. import runner

SIZE = 224


def photographs(folder: Path, count: int = 1500, classes: int = 10) -> list[Path]:
    """`stoker gen images`: the same bytes on every machine, a folder for each class."""
    command = [runner.ROOT / "bin/stoker", "gen", "images", folder, "--count", str(count), "--classes", str(classes)]
    subprocess.run([*command, "--seed", "1", "--force"], check=True, capture_output=True)
    return sorted(p for p in folder.rglob("*.jpg"))


def augment(image: Any) -> Any:
    """RandomResizedCrop, flip, u8: torchvision's v2 on a PIL image, the fastest order for it."""
    import torch
    from torchvision.transforms import v2

    global _augment
    if _augment is None:
        torch.set_num_threads(1)
        _augment = v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), v2.PILToTensor()])
    return _augment(image)


_augment: Any = None


def decoded(data: bytes) -> Any:
    from PIL import Image

    return augment(Image.open(io.BytesIO(data)).convert("RGB"))


def fields() -> dict[str, Any]:
    """The same, for stoker.Loader."""

    from stoker import transforms as T

    return {"image": [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]}
