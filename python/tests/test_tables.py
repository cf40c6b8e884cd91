"""Tables of text that pandas and json wrote, read directly and packed, with the real engine."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import transforms as T

pd = pytest.importorskip("pandas")

Make = Callable[..., stoker.Loader]
COUNT = 60


def rows() -> dict[str, list[Any]]:
    """Return columns of all types; text with everything that has to be quoted."""
    return {
        "n": [i * 37 - 500 for i in range(COUNT)],
        "x": [None if i % 7 == 3 else i / 8 for i in range(COUNT)],
        "ok": [i % 3 == 0 for i in range(COUNT)],
        "name": [["dog", "cat", "Äsop"][i % 3] for i in range(COUNT)],
        "text": [
            ["plain", 'a "quote"', "two\nlines", "comma, tab\t", "", "\\ 😀 é"][i % 6] * (i % 4 + 1)
            for i in range(COUNT)
        ],
        "boxes": [[[float(k), i + 0.5, 3.0, 4.0] for k in range(i % 4)] for i in range(COUNT)],
        "pair": [[i, -i] for i in range(COUNT)],
    }


def write_csv(path: Path) -> None:
    pd.DataFrame(rows()).to_csv(path, index=False)


def write_tsv(path: Path) -> None:
    pd.DataFrame(rows()).to_csv(path, index=False, sep="\t", quoting=csv.QUOTE_ALL)


def write_pandas_lines(path: Path) -> None:
    pd.DataFrame(rows()).to_json(path, orient="records", lines=True)


def write_json_lines(path: Path) -> None:
    data = rows()
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(
            json.dumps({k: v[i] for k, v in data.items()}, ensure_ascii=i % 2 == 0) + "\n" for i in range(COUNT)
        )


WRITERS = {
    "x.csv": write_csv,
    "x.tsv": write_tsv,
    "x.jsonl": write_pandas_lines,
    "y.jsonl": write_json_lines,
    "lines.json": write_json_lines,
    "x.csv.gz": write_csv,
    "x.tsv.gz": write_tsv,
    "x.jsonl.gz": write_pandas_lines,
}


def check(loader: stoker.Loader) -> None:
    data = rows()
    seen = []
    for batch in loader:
        for row, i in enumerate(batch.index):
            seen.append(int(i))
            assert batch.n[row] == data["n"][i]
            want = np.nan if data["x"][i] is None else data["x"][i]
            np.testing.assert_array_equal(batch.x[row], want)
            assert bool(batch.ok[row]) == data["ok"][i]
            assert ["cat", "dog", "Äsop"][batch.kind[row]] == data["name"][i]
            assert batch.text[row] == data["text"][i]
            np.testing.assert_array_equal(batch.boxes[row], np.array(data["boxes"][i]).reshape(-1, 4))
            np.testing.assert_array_equal(batch.pair[row], data["pair"][i])
    assert sorted(seen) == list(range(COUNT))
    assert seen != sorted(seen)
    assert loader.info["classes"]["kind"] == ["cat", "dog", "Äsop"]


@pytest.mark.parametrize("name", WRITERS)
def test_every_row(make: Make, binary: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    loader = make(f"{path}?kind:label=name&*", batch_size=7, shuffle=True, seed=1)
    assert loader.num_records == COUNT
    check(loader)
    out = tmp_path / "pack"
    subprocess.run(
        [binary, "pack", str(path), str(out), "--field", "kind:label=name", "--field", "*"],
        check=True,
        capture_output=True,
    )
    check(make(out, batch_size=7, shuffle=True, seed=1))


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
