"""Features of tf.train.Examples, as TensorFlow has written them and reads them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import cli

Make = Callable[..., stoker.Loader]
Image: Any = pytest.importorskip("PIL.Image")
FILES = Path(__file__).parents[2] / "internal/source/tfrecordsource/testdata"


def test_features(make: Make, binary: str, tmp_path: Path) -> None:
    want = json.loads((FILES / "expected.json").read_text())["examples"]
    chosen = (
        "?image:bytes=image/encoded&label=image/class/label&text=image/class/text&tokens:tokens&box&boxes&score&words"
    )
    pack = tmp_path / "pack"
    fields = [arg for field in chosen[1:].split("&") for arg in ("--field", field)]
    file = str(FILES / "examples.tfrecord")
    cli(binary, "pack", file, pack, *fields)
    for source in (f"{FILES}/examples.tfrecord{chosen}", f"{FILES}/examples.tfrecord.gz{chosen}", str(pack)):
        loader = make(source, batch_size=10)
        seen = 0
        for batch in loader:
            for k, i in enumerate(batch.index):
                record = want[i]
                assert batch.label[k] == record["image/class/label"][0]
                assert batch.text[k] == f"class {i % 5} — ß"
                assert batch.tokens[k].tolist() == record["tokens"]
                assert batch.box[k].tolist() == record["box"]
                assert batch.boxes[k].tolist() == record["boxes"]
                assert batch.score[k] == record["score"][0] if "score" in record else np.isnan(batch.score[k])
                assert json.loads(batch.words[k]) == ["one", f'tw"o {i}\n']
                assert f"{len(batch.image[k])}:" == record["image/encoded"][0].partition(":")[0] + ":"
                seen += 1
        assert seen == len(want) == 24


def test_images(make: Make) -> None:
    raw = make(f"{FILES}/examples.tfrecord?image:bytes=image/encoded", batch_size=24)
    files = next(iter(raw)).image
    loader = make(
        f"{FILES}/examples.tfrecord?image=image/encoded&label=image/class/label",
        batch_size=24,
        transforms={"image": [T.Resize((8, 8))]},
    )
    batch = next(iter(loader))
    assert batch.label.tolist() == [i % 5 for i in range(24)]
    for k in (8, 20):  # PNGs of 8 x 8
        want = np.asarray(Image.open(io.BytesIO(files[k].tobytes())).convert("RGB"))
        np.testing.assert_array_equal(batch.image[k], want)


def test_errors(make: Make) -> None:
    with pytest.raises(stoker.ConfigError, match=r'examples.tfrecord: there is no column "x": the columns are "box"'):
        make(f"{FILES}/examples.tfrecord?x", batch_size=2)
    with pytest.raises(
        stoker.ConfigError, match=r'column "negative" cannot be image: it has numbers; without :image it is read as int'
    ):
        make(f"{FILES}/examples.tfrecord?negative:image", batch_size=2)
