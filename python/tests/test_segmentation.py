"""Pairs of image and mask: a training in the way of torchvision's references, and 10,000 draws."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import transforms as T
from support import CHECKOUT, cli

Make = Callable[..., stoker.Loader]

CLASSES = 5
STEP = 50  # of intensity between classes


def classes(rng: np.random.Generator, h: int, w: int) -> np.ndarray:
    """Return class numbers in six rectangles: corners that are less acute than those of other shapes."""
    first, second = rng.integers(w // 5, 2 * w // 5), rng.integers(3 * w // 5, 4 * w // 5)
    row = (np.arange(h) >= rng.integers(h // 3, 2 * h // 3)).astype(int)
    column = (np.arange(w) >= first).astype(int) + (np.arange(w) >= second)
    return rng.integers(0, CLASSES, (2, 3)).astype(np.uint8)[row[:, None], column]


def write(root: Path, count: int, h: int, w: int, suffix: str = ".png") -> Path:
    """Write images in which each intensity stands for a class, and their masks."""
    rng = np.random.default_rng(7)
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for i in range(count):
        mask = classes(rng, h, w)
        Image.fromarray(np.repeat(mask[..., None] * STEP, 3, axis=2)).save(root / f"images/{i:03}{suffix}", quality=95)
        Image.fromarray(mask).save(root / f"masks/{i:03}.png")
    return root


def unpacked(root: Path, suffix: str = ".png") -> str:
    return f"pairs:{root}?image=images/*{suffix}&mask=masks/*.png"


def guide() -> dict[str, Any]:
    """Run the loop of the guide: the text that users read."""
    page = CHECKOUT / "docs/reference/segmentation.md"
    if not page.is_file():
        pytest.skip("the guide is not in this tree")
    code = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 36
    names: dict[str, Any] = {}
    exec(compile(code, str(page), "exec"), names)
    return names


def test_reference_loop(binary: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the loop is torchvision's")
    pytest.importorskip("torchvision", reason="the loop is torchvision's")
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    root = write(tmp_path / "data", 24, 80, 100, ".jpg")
    fields = ["--field", "image=images/*.jpg", "--field", "mask=masks/*.png"]
    cli(binary, "pack", root, tmp_path / "pack", *fields)
    names = guide()

    with (
        names["pairs"](str(tmp_path / "pack"), size=64) as packed,
        names["pairs"](unpacked(root, ".jpg"), size=64) as files,
    ):
        for a, b in zip(packed, files, strict=True):
            assert (a.image.dtype, a.image.shape) == (torch.float32, (8, 3, 64, 64))
            assert (a.mask.dtype, a.mask.shape) == (torch.uint8, (8, 64, 64))
            assert torch.equal(a.image, b.image)
            assert torch.equal(a.mask, b.mask)

    for data in (str(tmp_path / "pack"), unpacked(root, ".jpg")):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=CLASSES)
        with names["pairs"](data, size=64) as loader:
            epochs = list(names["train"](model, loader, classes=CLASSES, epochs=3))
        losses = [loss for loss, _ in epochs]
        assert losses[-1] < 0.85 * losses[0]
        assert all(0 <= iou <= 1 for _, iou in epochs)


MOVES = {
    "crop": [T.RandomResizedCrop(48, scale=(0.2, 1)), T.RandomHorizontalFlip(), T.RandomVerticalFlip()],
    "rotation": [T.RandomRotation(90), T.RandomCrop(48, padding=6), T.RandomHorizontalFlip()],
    "affine": [
        T.RandomAffine(30, translate=(0.2, 0.2), scale=(0.7, 1.4), shear=10),
        T.RandomResizedCrop((40, 56), scale=(0.5, 1)),
    ],
    "all": [
        T.Resize((70, 64)),
        T.RandomRotation(20, center=(10, 20)),
        T.RandomAffine(0, shear=(-20, 20, -10, 10)),
        T.RandomVerticalFlip(),
        T.RandomCrop((50, 44), padding=(3, 5), pad_if_needed=True),
    ],
}


def flat(mask: np.ndarray, reach: int) -> np.ndarray:
    """Return the pixels whose neighbours all have the same class number."""
    _, h, w = mask.shape
    inner = mask[:, reach : h - reach, reach : w - reach]
    same = np.ones_like(inner, bool)
    for dy in range(2 * reach + 1):
        for dx in range(2 * reach + 1):
            same &= mask[:, dy : h - 2 * reach + dy, dx : w - 2 * reach + dx] == inner
    out = np.zeros(mask.shape, bool)
    out[:, reach : h - reach, reach : w - reach] = same
    return out


@pytest.mark.parametrize("moves", MOVES)
def test_image_and_mask_move_alike(make: Make, tmp_path: Path, moves: str) -> None:
    root = write(tmp_path, 100, 60, 72)
    fields = {"image": MOVES[moves], "mask": MOVES[moves]}
    loader = make(unpacked(root), batch_size=50, shuffle=True, seed=11, transforms=fields)
    draws, seen, inside, apart = 0, set(), 0, 0
    for _ in range(25):
        for image, mask in loader:
            want = mask.astype(int) * STEP  # what is not of the image is 0 in both
            good = flat(mask, 3)
            off = np.abs(image[..., 0].astype(int) - want)
            assert off[good].max() <= 1, (draws, np.argwhere((off > 1) & good)[:3])
            # The agreement is not trivial: with another image's mask it fails.
            other = np.abs(np.roll(image[..., 0], 1, axis=0).astype(int) - want)
            apart += int(((other > 1) & good).any((1, 2)).sum())
            inside += int(good.sum())
            draws += len(mask)
            seen.update(m.tobytes() for m in mask)
    assert draws == 2500  # 10,000 in all
    assert len(seen) > 0.95 * draws
    assert inside > 0.3 * draws * mask[0].size
    assert apart > 0.9 * draws
