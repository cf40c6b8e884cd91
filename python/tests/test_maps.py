"""Depth and optical flow with images: they follow their image, and flow changes with it."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import cli

Image = pytest.importorskip("PIL.Image")

Make = Callable[..., stoker.Loader]
COUNT = 6


def scene(i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """An image whose channels are its columns and rows, and maps with the same values."""
    h, w = 40 + i, 60 - 2 * i
    y, x = np.mgrid[0:h, 0:w]
    image = np.stack([x, y, np.full_like(x, i)], -1).astype(np.uint8)
    flow = np.stack([x, y], -1).astype(np.float32)
    return image, flow, (x * 1000 + y).astype(np.uint16), (x + y / 64).astype(np.float32)


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    (root / "depth").mkdir(parents=True)
    for i in range(COUNT):
        image, flow, depth, disparity = scene(i)
        Image.fromarray(image).save(root / f"{i}.png")
        Image.fromarray(depth).save(root / "depth" / f"{i}.png")
        h, w = depth.shape
        (root / f"{i}.flo").write_bytes(b"PIEH" + np.array([w, h], "<i4").tobytes() + flow.tobytes())
        (root / f"{i}.pfm").write_bytes(f"Pf\n{w} {h}\n-1.0\n".encode() + disparity[::-1].tobytes())
    return root


MOVES = [T.RandomCrop((32, 40)), T.RandomHorizontalFlip(), T.RandomVerticalFlip()]


def check(batch: stoker.Batch) -> None:
    flips = set()
    for k in range(COUNT):
        image, flow = batch["image"][k], batch["flow"][k]
        x, y = image[..., 0].astype(np.float32), image[..., 1].astype(np.float32)
        mirrored = (x[0, 1] < x[0, 0], y[1, 0] < y[0, 0])
        flips.add(mirrored)
        assert np.array_equal(flow[..., 0], -x if mirrored[0] else x)
        assert np.array_equal(flow[..., 1], -y if mirrored[1] else y)
        assert np.array_equal(batch["disparity"][k], x + y / 64)
        if "depth" in batch.keys():  # noqa: SIM118
            assert batch["depth"].dtype == np.uint16
            assert np.array_equal(batch["depth"][k], image[..., 0].astype(np.uint16) * 1000 + image[..., 1])
    assert len(flips) > 1


@pytest.mark.parametrize("packed", [False, True])
def test_pairs(make: Make, binary: str, scenes: Path, tmp_path: Path, packed: bool) -> None:
    source = f"pairs:{scenes}?image=*.png&flow=*.flo&disparity=*.pfm&depth:image16=depth/*.png"
    if packed:
        cli(binary, "pack", source, tmp_path / "out")
        cli(binary, "verify", "--decode", tmp_path / "out")
        source = str(tmp_path / "out")
    fields = dict.fromkeys(("image", "flow", "disparity", "depth"), MOVES)
    loader = make(source, batch_size=COUNT, shuffle=True, seed=5, transforms=fields)
    check(next(iter(loader)))


def test_archive(make: Make, scenes: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for i in range(COUNT):
            for suffix, name in (("png", "image.png"), ("flo", "flow.flo"), ("pfm", "disparity.pfm")):
                tar.add(scenes / f"{i}.{suffix}", f"{i}.{name}")
    fields = dict.fromkeys(("image", "flow", "disparity"), MOVES)
    check(next(iter(make(tmp_path / "x.tar", batch_size=COUNT, seed=5, transforms=fields))))


def test_flow_of_another_size(make: Make, scenes: Path) -> None:
    """As much larger or smaller as the image is."""
    fields = {"image": [T.Resize((20, 30))], "flow": [T.Resize((20, 30))]}
    source = f"pairs:{scenes}?image=*.png&flow=*.flo"
    batch = next(iter(make(source, batch_size=COUNT, transforms=fields)))
    for k, row in enumerate(batch["index"]):
        _, flow, _, _ = scene(row)
        h, w = flow.shape[:2]
        # A plane of slopes keeps them: the scaled position of a pixel.
        x = (np.arange(30) + 0.5) * w / 30 - 0.5
        y = (np.arange(20) + 0.5) * h / 20 - 0.5
        assert np.allclose(batch["flow"][k][4:-4, 4:-4, 0], (x * 30 / w)[None, 4:-4], atol=0.05)
        assert np.allclose(batch["flow"][k][4:-4, 4:-4, 1], (y * 20 / h)[4:-4, None], atol=0.05)


def test_what_flow_does_not_follow(make: Make, scenes: Path) -> None:
    fields = {"flow": [T.RandomRotation(10), T.CenterCrop(20)]}
    with pytest.raises(stoker.StokerError, match="which follows crops without padding, flips and one resize"):
        make(f"pairs:{scenes}?image=*.png&flow=*.flo", batch_size=2, transforms=fields)
