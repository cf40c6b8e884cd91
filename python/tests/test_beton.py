"""A file that FFCV's own writer wrote (internal/source/betonsource/testdata), read directly and packed."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import cli

Image = pytest.importorskip("PIL.Image")

Make = Callable[..., stoker.Loader]
DATA = Path(__file__).parents[2] / "internal" / "source" / "betonsource" / "testdata"


@pytest.mark.parametrize("packed", [False, True])
def test_values(make: Make, binary: str, tmp_path: Path, packed: bool) -> None:
    want = json.loads((DATA / "all.json").read_text())
    source = tmp_path / "all.beton"
    source.write_bytes(gzip.decompress((DATA / "all.beton.gz").read_bytes()))
    if packed:
        cli(binary, "pack", source, tmp_path / "out")
        source = tmp_path / "out"
    crop = [T.CenterCrop((20, 20))]
    fields = {"image": crop, "pixels": crop}
    loader = make(source, batch_size=len(want), shuffle=True, seed=4, transforms=fields)
    batch = next(iter(loader)).copy()
    assert batch["array"].shape == (len(want), 2, 3)
    for k, row in enumerate(batch["index"]):
        w = want[row]
        assert batch["label"][k] == w["label"]
        assert batch["weight"][k] == w["weight"]
        assert bytes(batch["blob"][k]).hex() == w["blob"]
        assert json.loads(batch["meta"][k]) == json.loads(w["meta"])
        assert batch["array"][k].tobytes().hex() == w["array"]
        assert batch["tensor"][k].tobytes().hex() == w["tensor"]
        y, x = np.mgrid[0 : w["height"], 0 : w["width"]]
        whole = np.stack([(x * 7 + row * 20) % 256, (y * 9) % 256, (x + y + row) * 3 % 256], -1).astype(np.uint8)
        left, top = round((whole.shape[1] - 20) / 2), round((whole.shape[0] - 20) / 2)
        want_pixels = whole[top : top + 20, left : left + 20]
        assert np.array_equal(batch["pixels"][k], want_pixels)
        assert np.abs(batch["image"][k].astype(int) - want_pixels).mean() < 40  # a JPEG of it, in the right colours


def test_jpegs_are_pillows(make: Make, tmp_path: Path) -> None:
    source = tmp_path / "all.beton"
    data = gzip.decompress((DATA / "all.beton.gz").read_bytes())
    source.write_bytes(data)
    starts = [i for i in range(len(data)) if data.startswith(b"\xff\xd8\xff", i)]
    files = [data[a:].split(b"\xff\xd9")[0] + b"\xff\xd9" for a in starts]
    loader = make(source, batch_size=12, transforms={"image": [T.CenterCrop((20, 20))]})
    for file, image in zip(files, next(iter(loader))["image"], strict=True):
        a = np.asarray(Image.open(io.BytesIO(file)))
        left, top = round((a.shape[1] - 20) / 2), round((a.shape[0] - 20) / 2)
        assert np.array_equal(image, a[top : top + 20, left : left + 20])
