"""The checks that a loader must pass before its figure counts (bench/gates.py)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import stoker
from stoker import transforms as T

from bench import gates
from bench.arms import augment, harness

# Sizes for which rounding leaves an offset to draw, and sizes for which it does not.
SIZES = [(380, 379), (379, 380), (380, 380), (381, 379), (33, 32), (5, 4), (2, 1), (1, 1), (90, 30)]


def test_the_centred_square_leaves_nothing_to_draw() -> None:
    job = harness.Job("", geometry="centre")
    for w, h in SIZES + [(n, n + 1) for n in range(1, 500)]:
        side = min(w, h)
        want = (w - side) // 2, (h - side) // 2, side, side
        for seed in range(20):
            assert augment.crop_box(w, h, job, random.Random(seed)) == want


def test_arms_that_crop_by_torchvisions_rule_give_the_centred_square(
    make: Callable[..., stoker.Loader], tmp_path: Path
) -> None:
    from PIL import Image

    job = harness.Job("", geometry="centre", size=24)
    rng = np.random.default_rng(1)
    files = [tmp_path / "images" / "a" / f"{i}.png" for i in range(len(SIZES))]
    files[0].parent.mkdir(parents=True)
    for file, (w, h) in zip(files, SIZES, strict=True):
        Image.fromarray(rng.integers(0, 256, (h, w, 3), np.uint8)).save(file)
    want = gates.reference(files, job.size).astype(np.int16)

    crop = T.RandomResizedCrop(job.size, scale=job.scale, ratio=job.ratio)
    loader = make(tmp_path / "images", batch_size=len(files), transforms={"image": [crop]})
    for _ in range(8):
        (batch,) = loader
        assert abs(batch.image - want[batch.index]).max() <= 1

    v2 = pytest.importorskip("torchvision.transforms.v2")
    theirs = v2.RandomResizedCrop(job.size, job.scale, job.ratio, antialias=True)
    for file, picture in zip(files, want, strict=True):
        for _ in range(8):
            assert abs(np.asarray(theirs(Image.open(file))) - picture).max() <= 1
