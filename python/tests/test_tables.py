"""Tables of text that pandas wrote: lists of images, and errors. Their values are tested in test_formats.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import transforms as T

pd = pytest.importorskip("pandas")

Make = Callable[..., stoker.Loader]


def test_list_of_images(make: Make, tmp_path: Path) -> None:
    """Read a list of paths, labels, boxes and captions without packing."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (20, 8, 12, 3), np.uint8)
    masks = rng.integers(0, 3, (20, 8, 12), np.uint8)
    for i in range(20):
        Image.fromarray(images[i]).save(tmp_path / f"{i}.png")
        Image.fromarray(masks[i]).save(tmp_path / f"{i}.mask.png")
    frame = pd.DataFrame(
        {
            "image": [f"{i}.png" for i in range(20)],
            "mask": [str(tmp_path / f"{i}.mask.png") for i in range(20)],
            "caption": [f"number {i}" for i in range(20)],
        }
    )
    frame.to_csv(tmp_path / "list.csv", index=False)
    seen = 0
    fields = {"image": [T.CenterCrop((8, 12))], "mask": [T.CenterCrop((8, 12))]}
    for batch in make(tmp_path / "list.csv", batch_size=6, shuffle=True, transforms=fields):
        for row, i in enumerate(batch.index):
            np.testing.assert_array_equal(batch.image[row], images[i])
            np.testing.assert_array_equal(batch.mask[row], masks[i])
            assert batch.caption[row] == f"number {i}"
            seen += 1
    assert seen == 20


def test_errors(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3\n")
    loader = make(path, batch_size=2)
    with pytest.raises(stoker.StokerError, match=r"x\.csv, row 1 \(byte 8\): the row has 1 cells, the first row has 2"):
        list(loader)
    with pytest.raises(stoker.ConfigError, match='there is no column "c"'):
        make(f"{path}?c")
