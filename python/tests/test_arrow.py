"""Arrow files that datasets and pyarrow wrote: splits, columns and errors. Values are tested in test_formats.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_formats import COUNT, plain_table, table_row, write_saved

import stoker
from stoker import transforms as T
from support import same_records

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")

Make = Callable[..., stoker.Loader]


def test_saved_by_datasets(make: Make, tmp_path: Path) -> None:
    url, columns = write_saved(tmp_path / "saved")
    for source in (url, f"{url}/data-*.arrow"):
        with make(source, batch_size=7, shuffle=True, seed=1, transforms={"image": [T.CenterCrop((8, 12))]}) as loader:
            assert loader.classes == ["cat", "dog", "eel"]
            assert loader.info["classes"]["tags"] == ["p", "q"]
            same_records(loader, columns)


def test_splits_have_to_be_chosen(make: Make, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    part = datasets.Dataset.from_dict({"x": [1, 2]})
    datasets.DatasetDict({"train": part, "test": part}).save_to_disk(tmp_path / "both")
    with pytest.raises(stoker.StokerError, match=r'has the splits "train", "test": choose one, such as .*/both/train'):
        make(tmp_path / "both", batch_size=2)
    assert make(tmp_path / "both" / "test", batch_size=2).num_records == 2


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_polars(make: Make, tmp_path: Path, codec: str) -> None:
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": range(300), "b": [str(i) for i in range(300)]}).write_ipc(
        tmp_path / "p.arrow", compression=codec, compat_level=polars.CompatLevel.oldest()
    )
    with make(tmp_path / "p.arrow", batch_size=100, shuffle=True) as loader:
        for batch in loader:
            assert list(batch.b) == [str(i) for i in batch.a]


def test_columns(make: Make, tmp_path: Path) -> None:
    feather.write_feather(plain_table(), tmp_path / "x.feather", compression="uncompressed")
    loader = make(f"{tmp_path}/x.feather?class:label=label&t:tokens=ids&x=at.x", batch_size=COUNT)
    batch = next(iter(loader))
    assert batch["class"].tolist() == [i % 3 for i in range(COUNT)]
    assert [t.tolist() for t in batch.t] == [table_row(i)["ids"] or [] for i in range(COUNT)]
    assert batch.t[1].dtype == np.uint32
    assert batch.x.tolist() == [-i for i in range(COUNT)]


def test_errors(make: Make, tmp_path: Path) -> None:
    feather.write_feather(plain_table(), tmp_path / "y.feather", compression="uncompressed")
    data = (tmp_path / "y.feather").read_bytes()
    (tmp_path / "cut.feather").write_bytes(data[:-100])
    with pytest.raises(stoker.StokerError, match=r"cut\.feather: .*cut off"):
        make(tmp_path / "cut.feather", batch_size=2)
    with pytest.raises(stoker.ConfigError, match='there is no column "c"'):
        make(f"{tmp_path}/y.feather?c", batch_size=2)
