"""Arrow files that datasets and pyarrow wrote, read directly and packed, with the real engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import transforms as T
from support import encoded, packed

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")

Make = Callable[..., stoker.Loader]
COUNT = 60


def picture(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (8, 12, 3), np.uint8)


def png(i: int) -> bytes:
    return encoded(picture(i))


def row(i: int) -> dict[str, Any]:
    """Return a row with everything that has a kind, some of it missing."""
    return {
        "label": i % 3,
        "caption": None if i % 9 == 4 else "é" * (i % 5),
        "blob": bytes(range(i % 7)),
        "grid": [[i + 0.5, 1.0, 2.0], [3.0, 4.0, 5.0]],
        "ids": None if i % 11 == 5 else list(range(i % 4)),
        "tags": [i % 2] * (i % 3),
        "at": {"x": -i, "boxes": [[i, 1.0, 2.0, 3.0]] * (i % 3)},
        "score": i / 7,
        "maybe": None if i % 2 else i,
        "ok": i % 3 == 1,
    }


FIELDS = {"image": [T.CenterCrop((8, 12))]}


def check(loader: stoker.Loader) -> None:
    seen = []
    for batch in loader:
        for k, i in enumerate(int(i) for i in batch.index):
            seen.append(i)
            want = row(i)
            np.testing.assert_array_equal(batch.image[k], picture(i))
            assert batch.label[k] == want["label"]
            assert batch.caption[k] == (want["caption"] or "")
            assert bytes(batch.blob[k]) == want["blob"]
            np.testing.assert_array_equal(batch.grid[k], np.array(want["grid"], np.float32))
            np.testing.assert_array_equal(batch.ids[k], np.array(want["ids"] or [], np.int32))
            np.testing.assert_array_equal(batch.tags[k], want["tags"])
            assert batch["at.x"][k] == want["at"]["x"]
            np.testing.assert_array_equal(batch["at.boxes"][k], np.array(want["at"]["boxes"]).reshape(-1, 4))
            assert batch.score[k] == want["score"]
            np.testing.assert_array_equal(batch.maybe[k], np.nan if want["maybe"] is None else want["maybe"])
            assert bool(batch.ok[k]) == want["ok"]
    assert sorted(seen) == list(range(COUNT))
    assert seen != sorted(seen)


def load(make: Make, source: str | Path) -> stoker.Loader:
    return make(source, batch_size=7, shuffle=True, seed=1, transforms=FIELDS)


def save_datasets(path: Path) -> None:
    """Write a folder as Hugging Face's datasets does."""
    datasets = pytest.importorskip("datasets")
    values = datasets.Value
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog", "eel"]),
            "caption": values("string"),
            "blob": values("binary"),
            "grid": datasets.Array2D((2, 3), "float32"),
            "ids": datasets.Sequence(values("int32")),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["p", "q"])),
            "at": {"x": values("int16"), "boxes": datasets.Sequence(datasets.Sequence(values("float32"), length=4))},
            "score": values("float64"),
            "maybe": values("int8"),
            "ok": values("bool"),
        }
    )
    rows = [{"image": Image.fromarray(picture(i))} | row(i) for i in range(COUNT)]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(path, num_shards=3)


def test_saved_by_datasets(make: Make, binary: str, tmp_path: Path) -> None:
    save_datasets(tmp_path / "saved")
    with load(make, tmp_path / "saved") as loader:
        assert loader.classes == ["cat", "dog", "eel"]
        assert loader.info["classes"]["tags"] == ["p", "q"]
        check(loader)
    check(load(make, f"{tmp_path}/saved/data-*.arrow"))
    check(load(make, packed(binary, tmp_path / "saved", tmp_path / "packed")))


def test_splits_have_to_be_chosen(make: Make, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    part = datasets.Dataset.from_dict({"x": [1, 2]})
    datasets.DatasetDict({"train": part, "test": part}).save_to_disk(tmp_path / "both")
    with pytest.raises(stoker.StokerError, match=r'has the splits "train", "test": choose one, such as .*/both/train'):
        make(tmp_path / "both", batch_size=2)
    assert make(tmp_path / "both" / "test", batch_size=2).num_records == 2


def table() -> Any:
    """Return the same as a table of pyarrow, image files as plain bytes."""
    numbers = pa.list_(pa.int32())
    schema = pa.schema(
        [
            ("image", pa.binary()),
            ("label", pa.uint8()),
            ("caption", pa.large_string()),
            ("blob", pa.large_binary()),
            ("grid", pa.list_(pa.list_(pa.float32(), 3), 2)),
            ("ids", numbers),
            ("tags", pa.large_list(pa.int64())),
            ("at", pa.struct([("x", pa.int64()), ("boxes", pa.list_(pa.list_(pa.float64())))])),
            ("score", pa.float64()),
            ("maybe", pa.uint32()),
            ("ok", pa.bool_()),
        ]
    )
    return pa.Table.from_pylist([{"image": png(i)} | row(i) for i in range(COUNT)], schema=schema)


@pytest.mark.parametrize("name", ["x.arrow", "x.feather", "stream.arrow", "many"])
def test_pyarrow(make: Make, binary: str, tmp_path: Path, name: str) -> None:
    path, whole = tmp_path / name, table()
    if name == "x.feather":
        feather.write_feather(whole, path, compression="uncompressed", chunksize=17)
    elif name == "many":
        path.mkdir()
        for k in range(4):
            # Slices with offsets that do not begin at 0.
            with pa.OSFile(f"{path}/{k}.arrow", "wb") as f, pa.ipc.new_file(f, whole.schema) as w:
                w.write_table(whole.slice(k * 15, 15), max_chunksize=4)
    else:
        new = pa.ipc.new_stream if name.startswith("stream") else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as f, new(f, whole.schema) as w:
            w.write_table(whole, max_chunksize=23)
    check(load(make, path))
    check(load(make, packed(binary, path, tmp_path / "packed")))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed(make: Make, binary: str, tmp_path: Path, codec: str) -> None:
    feather.write_feather(table(), tmp_path / "x.feather", compression=codec, chunksize=17)
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": range(300), "b": [str(i) for i in range(300)]}).write_ipc(
        tmp_path / "p.arrow", compression=codec, compat_level=polars.CompatLevel.oldest()
    )
    with load(make, tmp_path / "x.feather") as loader:
        check(loader)
    check(load(make, packed(binary, tmp_path / "x.feather", tmp_path / "packed")))
    with make(tmp_path / "p.arrow", batch_size=100, shuffle=True) as loader:
        for batch in loader:
            assert list(batch.b) == [str(i) for i in batch.a]


def test_columns(make: Make, tmp_path: Path) -> None:
    feather.write_feather(table(), tmp_path / "x.feather", compression="uncompressed")
    loader = make(f"{tmp_path}/x.feather?class:label=label&t:tokens=ids&x=at.x", batch_size=COUNT)
    batch = next(iter(loader))
    assert batch["class"].tolist() == [i % 3 for i in range(COUNT)]
    assert [t.tolist() for t in batch.t] == [row(i)["ids"] or [] for i in range(COUNT)]
    assert batch.t[1].dtype == np.uint32
    assert batch.x.tolist() == [-i for i in range(COUNT)]


def test_errors(make: Make, tmp_path: Path) -> None:
    feather.write_feather(table(), tmp_path / "y.feather", compression="uncompressed")
    data = (tmp_path / "y.feather").read_bytes()
    (tmp_path / "cut.feather").write_bytes(data[:-100])
    with pytest.raises(stoker.StokerError, match=r"cut\.feather: .*cut off"):
        make(tmp_path / "cut.feather", batch_size=2)
    with pytest.raises(stoker.ConfigError, match='there is no column "c"'):
        make(f"{tmp_path}/y.feather?c", batch_size=2)
