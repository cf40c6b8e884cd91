"""Zarr groups as zarr writes them, record by record the same as zarr reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import stoker
from stoker import transforms as T

Make = Callable[..., stoker.Loader]
COUNT = 47
if int(zarr.__version__.split(".")[0]) < 3:
    pytest.skip("files of version 3 take zarr 3", allow_module_level=True)


def test_larger_than_what_is_kept(make: Make, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 9, (600, 100, 100), dtype=np.int32)
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group.create_array("x", shape=rows.shape, dtype="i4", chunks=(50, 100, 100))[:] = rows
    group.create_array("one", shape=rows.shape, dtype="i4", chunks=(1, 100, 100), shards=(50, 100, 100))[:] = rows
    for shuffle in (False, True):
        for batch in make(tmp_path / "x.zarr", batch_size=64, shuffle=shuffle, seed=2):
            np.testing.assert_array_equal(batch.x, rows[batch.index])
            np.testing.assert_array_equal(batch.one, rows[batch.index])


def test_groups_are_splits_and_columns_are_chosen(make: Make, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 9, 8, 3), dtype=np.uint8)
    for split, n in (("train", COUNT), ("test", 5)):
        group = zarr.open_group(tmp_path / "x.zarr", mode="a", path=split)
        group.create_array("image", shape=(n, 9, 8, 3), dtype="u1", chunks=(4, 9, 8, 3))[:] = images[:n]
        group.create_array("label", shape=(n,), dtype="i4", chunks=(30,))[:] = np.arange(n) % 10
    with pytest.raises(stoker.StokerError, match=r'groups "test", "train" with the same arrays: .*\?split=test'):
        make(tmp_path / "x.zarr", batch_size=4)
    assert make(f"{tmp_path}/x.zarr?split=test", batch_size=4).num_records == 5
    url = f"{tmp_path}/x.zarr?picture:image=train/image&label:label=train/label"
    for batch in make(url, batch_size=6, shuffle=True, transforms={"picture": [T.CenterCrop((9, 8))], "label": []}):
        index = np.asarray(batch.index)
        np.testing.assert_array_equal(batch.picture, images[index])
        np.testing.assert_array_equal(batch.label, index % 10)


@pytest.mark.parametrize("version", [2, 3])
def test_values_with_offsets(make: Make, tmp_path: Path, version: int) -> None:
    lengths = np.random.default_rng(5).integers(0, 30, COUNT)
    lengths[:9] = 0  # a chunk of offsets that is not written
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = np.arange(2 * int(offsets[-1]), dtype=np.float32).reshape(-1, 2)
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=version)
    group.create_array("X/data", data=data, chunks=(13, 2))
    group.create_array("X/indptr", data=offsets, chunks=(8,))
    group.create_array("label", data=np.arange(COUNT))
    with make(f"{tmp_path}/x.zarr", batch_size=5, shuffle=True) as loader:
        for batch in loader:
            for k, i in enumerate(int(i) for i in batch.index):
                np.testing.assert_array_equal(batch["X/data"][k], data[offsets[i] : offsets[i + 1]])
                assert batch.label[k] == i


def test_damage_is_one_line(make: Make, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(600, 5000))
    array = zarr.create_array(tmp_path / "x.zarr", shape=rows.shape, dtype="f8", chunks=(1, 5000))
    array[:] = rows
    chunk = tmp_path / "x.zarr/c/7/0"
    chunk.write_bytes(chunk.read_bytes()[:-9])
    with pytest.raises(stoker.StokerError, match=r"chunk 7 \(.*x.zarr/c/7/0, byte 0\): zstd: "):
        for _ in make(tmp_path / "x.zarr", batch_size=100):
            pass
