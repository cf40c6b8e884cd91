"""HDF5 files as h5py writes them, record by record the same as h5py reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import cli

Make = Callable[..., stoker.Loader]
COUNT = 53


def test_larger_than_what_is_kept(make: Make, tmp_path: Path) -> None:
    """Chunks of many rows, more than are decoded when a file is opened."""
    path = tmp_path / "x.h5"
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 9, (600, 100, 100), dtype=np.int32)
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=rows, chunks=(50, 100, 100), compression="lzf", shuffle=True)
        f.create_dataset("one", data=rows, chunks=(1, 100, 100), compression="lzf", shuffle=True)
    for shuffle in (False, True):
        for batch in make(path, batch_size=64, shuffle=shuffle, seed=2):
            np.testing.assert_array_equal(batch.x, rows[batch.index])
            np.testing.assert_array_equal(batch.one, rows[batch.index])


def test_images_labels_and_splits(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 9, 8, 3), dtype=np.uint8)
    with h5py.File(path, "w") as f:
        for split in ("train", "test"):
            f[f"{split}/image"] = images if split == "train" else images[:5]
            f[f"{split}/planes"] = np.ascontiguousarray(f[f"{split}/image"][:].transpose(0, 3, 1, 2))
            f[f"{split}/label"] = np.arange(len(f[f"{split}/image"])) % 10
    with pytest.raises(stoker.StokerError, match=r'groups "test", "train" with the same arrays: .*\?split=test'):
        make(path, batch_size=4)
    assert make(f"{path}?split=test", batch_size=4).num_records == 5
    url = f"{path}?split=train&image:image&turned:image=planes&label:label"
    fields = {"image": [T.CenterCrop((9, 8))], "turned": [T.CenterCrop((9, 8))]}
    for batch in make(url, batch_size=6, shuffle=True, transforms=fields):
        index = np.asarray(batch.index)
        np.testing.assert_array_equal(batch.image, images[index])
        np.testing.assert_array_equal(batch.turned, images[index])
        np.testing.assert_array_equal(batch.label, index % 10)
    for batch in make(f"{path}?x=/train/image&y=/train/label", batch_size=6):
        np.testing.assert_array_equal(batch.x, images[batch.index])


def test_any_length(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    lists = [np.arange(i % 7, dtype=np.float32) * i for i in range(COUNT)]
    texts = ["größe " * (i % 5) for i in range(COUNT)]
    with h5py.File(path, "w", libver="latest") as f:
        ds = f.create_dataset("lists", (COUNT,), dtype=h5py.vlen_dtype(np.float32), chunks=(10,))
        for i, row in enumerate(lists):
            ds[i] = row
        f.create_dataset("text", data=texts, dtype=h5py.string_dtype())
        f.create_dataset("word", data=np.array([f"w{i}" for i in range(COUNT)], dtype="S6"))
        record = np.zeros(COUNT, dtype=[("id", ">i4"), ("at", "<f8", (3,))])
        record["id"], record["at"] = np.arange(COUNT), np.arange(3 * COUNT).reshape(-1, 3)
        f.create_dataset("record", data=record, chunks=(9,), compression="gzip")
        f.create_dataset("kind", data=np.arange(COUNT) % 2, dtype=h5py.enum_dtype({"off": 0, "on": 1}))
    with make(path, batch_size=5, shuffle=True) as loader:
        assert loader.info["classes"]["kind"] == ["off", "on"]
        for batch in loader:
            for k, i in enumerate(int(i) for i in batch.index):
                np.testing.assert_array_equal(batch.lists[k], lists[i])
                assert batch.text[k] == texts[i]
                assert batch.word[k] == f"w{i}"
                assert batch["record.id"][k] == i
                np.testing.assert_array_equal(batch["record.at"][k], [3 * i, 3 * i + 1, 3 * i + 2])
                assert batch.kind[k] == i % 2


PAIRS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunked": {"chunks": (16,)},
    "gzip": {"chunks": (50,), "compression": "gzip", "shuffle": True},
    "grows": {"chunks": (7,), "maxshape": (None,), "compression": "lzf"},
}


@pytest.mark.parametrize("way", PAIRS)
def test_values_with_offsets(make: Make, tmp_path: Path, way: str) -> None:
    path = tmp_path / "x.h5"
    lengths = np.random.default_rng(3).integers(0, 40, COUNT)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    with h5py.File(path, "w") as f:
        f.create_dataset("X/data", data=np.arange(n, dtype="<f4") / 3, **PAIRS[way])  # a CSR matrix, as AnnData has it
        f.create_dataset("X/indices", data=np.arange(n, dtype="<i4") * 7 % 1000, **PAIRS[way])
        f.create_dataset("X/indptr", data=offsets.astype("<i4"), **PAIRS[way])
        f.create_dataset("points", data=np.arange(3 * n, dtype=">f8").reshape(n, 3))
        f.create_dataset("points_lengths", data=lengths)
        f.create_dataset("obs/cell_type", data=np.arange(COUNT) % 4)
        f.create_dataset("ids", data=np.arange(n, dtype="<u4"), **PAIRS[way])
        f.create_dataset("begins", data=offsets.astype("<u8"))
    names = {"X/data": "X/data", "X/indices": "X/indices", "points": "points", "tokens": "ids"}
    columns = "X/data&X/indices&points&label:label=obs/cell_type&tokens:tokens=ids@begins"
    with h5py.File(path) as f, make(f"{path}?{columns}", batch_size=5, shuffle=True) as loader:
        for batch in loader:
            for k, i in enumerate(int(i) for i in batch.index):
                row = slice(offsets[i], offsets[i + 1])
                for name, of in names.items():
                    np.testing.assert_array_equal(batch[name][k], f[of][row], err_msg=f"{name} of row {i}")
                assert batch.label[k] == i % 4


def test_offsets_that_make_no_sense(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    offsets = np.array([0, 4, 9, 7, 20])
    with h5py.File(path, "w") as f:
        f["values"] = np.arange(20)
        f["offsets"] = offsets
    with pytest.raises(stoker.StokerError, match=r'x.h5.*"offsets", whose element 3 is 7, less than the one before it'):
        make(path)
    with h5py.File(path, "a") as f:
        f["offsets"][:] = [0, 4, 9, 17, 21]
    with pytest.raises(stoker.StokerError, match=r'x.h5.*"offsets", whose element 4 is 21, beyond the 20 rows'):
        make(f"{path}?x=values@offsets")


def test_inspect_says_what_is_no_field(binary: str, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f["x"] = np.zeros((COUNT, 3))
        f["y"] = np.zeros(COUNT)
        f["mean"] = np.zeros(3)
        f["about"] = "text"
        f.create_dataset("pairs", data=[["a", "b"]] * COUNT, dtype=h5py.string_dtype())
        one = f.create_dataset("one", (COUNT, 1), dtype=h5py.vlen_dtype("<i2"))
        for i in range(COUNT):
            one[i, 0] = np.arange(i % 4)
        f["complex"] = np.zeros(COUNT, dtype="datetime64[s]").astype("i8").view("V8")
        f.create_dataset("nbit", data=np.zeros(COUNT, "i4"), chunks=(8,), scaleoffset=4)
    out = cli(binary, "inspect", path, "--json")
    said = json.loads(out)
    assert [f["name"] for f in said["fields"]] == ["complex", "one", "x", "y"]
    why = {e["path"]: e["reason"] for e in said["no_fields"]}
    assert why["mean"] == f"its first axis has 3 elements, that of the fields {COUNT}"
    assert "single value" in why["about"]
    assert "several values of text in a row, of the shape [2]" in why["pairs"]
    assert "filter 6" in why["nbit"]
    text = cli(binary, "inspect", path)
    assert "No fields" in text and "mean: its first axis" in text


def test_damage_is_one_line(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        rows = np.random.default_rng(0).normal(size=(600, 5000))
        f.create_dataset("x", data=rows, chunks=(1, 5000), compression="gzip")
        at = f["x"].id.get_chunk_info(7).byte_offset
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    with pytest.raises(stoker.StokerError, match=rf'x.h5, row 7, field "x": data set "x", chunk 7 \(byte {at}\): gzip'):
        for _ in make(path, batch_size=100):
            pass
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(stoker.StokerError, match=r"x.h5: the file is cut off"):
        make(path, batch_size=100)
