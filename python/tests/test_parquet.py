"""Parquet files as pyarrow, datasets, pandas, polars and duckdb write them, with the real engine."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from test_arrow import COUNT, FIELDS, check, load, pack, picture, png, row

import stoker

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Make = Callable[..., stoker.Loader]


def features() -> Any:
    datasets = pytest.importorskip("datasets")
    values = datasets.Value
    return datasets.Features(
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


def table() -> Any:
    """Return what datasets stores of the rows, images as bytes with a path."""
    datasets = pytest.importorskip("datasets")
    rows = [{"image": {"bytes": png(i), "path": f"{i}.png"}} | row(i) for i in range(COUNT)]
    data = datasets.Dataset.from_list(rows, features=features())
    return data.data.table.replace_schema_metadata(data.features.arrow_schema.metadata)


DELTA = {
    "score": "BYTE_STREAM_SPLIT",
    "label": "DELTA_BINARY_PACKED",
    "maybe": "DELTA_BINARY_PACKED",
    "caption": "DELTA_BYTE_ARRAY",
    "blob": "DELTA_LENGTH_BYTE_ARRAY",
    "image.bytes": "DELTA_LENGTH_BYTE_ARRAY",
    "at.x": "DELTA_BINARY_PACKED",
}
WRITTEN: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "stored": {"compression": "none", "use_dictionary": False},
    "stored, with dictionaries": {"compression": "none"},
    "gzip": {"compression": "gzip", "row_group_size": 17},
    "zstd": {"compression": "zstd", "row_group_size": 1},
    "lz4": {"compression": "lz4", "data_page_size": 64},
    "snappy, small pages": {"data_page_size": 1, "write_batch_size": 3, "dictionary_pagesize_limit": 100},
    "small pages": {"data_page_size": 1, "write_batch_size": 2, "use_dictionary": False, "compression": "none"},
    "version 2": {"data_page_version": "2.0", "data_page_size": 64, "write_batch_size": 4},
    "version 2, zstd": {"data_page_version": "2.0", "compression": "zstd"},
    "page index": {"write_page_index": True, "data_page_size": 64, "write_batch_size": 4, "row_group_size": 23},
    "page index, stored": {
        "write_page_index": True,
        "data_page_size": 64,
        "write_batch_size": 4,
        "use_dictionary": False,
        "compression": "none",
    },
    "checksums": {"write_page_checksum": True},
    "delta": {"use_dictionary": False, "column_encoding": DELTA},
    "delta, version 2": {
        "use_dictionary": False,
        "column_encoding": DELTA,
        "data_page_version": "2.0",
        "data_page_size": 64,
    },
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_by_pyarrow(make: Make, tmp_path: Path, name: str) -> None:
    pq.write_table(table(), tmp_path / "x.parquet", **WRITTEN[name])
    with load(make, tmp_path / "x.parquet") as loader:
        assert loader.classes == ["cat", "dog", "eel"]
        for _ in range(2):  # from the second epoch on nothing is learnt any more
            check(loader)


def test_written_by_datasets(make: Make, binary: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"image": Image.fromarray(picture(i))} | row(i) for i in range(COUNT)]
    data = datasets.Dataset.from_list(rows, features=features())
    folder = tmp_path / "repo"
    (folder / "data").mkdir(parents=True)
    for k in range(3):
        part = data.shard(3, k, contiguous=True)
        part.to_parquet(folder / "data" / f"train-{k:05}-of-00003.parquet", batch_size=7)
    data.select(range(5)).to_parquet(folder / "data" / "test-00000-of-00001.parquet")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    with pytest.raises(stoker.StokerError, match=r'has the splits "test", "train": .*such as \?split=test'):
        load(make, folder)
    with load(make, f"{folder}?split=train") as loader:
        assert loader.classes == ["cat", "dog", "eel"]
        check(loader)
    with make(f"{folder}?split=test&n:int=label&*", batch_size=5, fields=FIELDS) as loader:
        for batch in loader:
            np.testing.assert_array_equal(batch.n, batch.index % 3)
    with load(make, pack(binary, f"{folder}?split=train", tmp_path / "packed")) as loader:
        check(loader)
    with load(make, folder / "data" / "train-*.parquet") as loader:
        check(loader)


def numbers(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    out = {}
    for t in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"):
        info = np.iinfo(t)
        out[t] = rng.integers(info.min, info.max, n, t, endpoint=True)
        out[t][: n // 3] = info.min
    out["float16"] = rng.normal(size=n).astype(np.float16)
    out["float32"] = rng.normal(size=n).astype(np.float32)
    out["float64"] = rng.normal(size=n)
    return out


def same(make: Make, source: Any, want: dict[str, np.ndarray]) -> None:
    with make(source, batch_size=256, shuffle=True, seed=3, drop_last=False) as loader:
        seen = 0
        for batch in loader:
            seen += len(batch.index)
            for name, values in want.items():
                np.testing.assert_array_equal(batch[name], values[batch.index], name)
        assert seen == len(next(iter(want.values())))


@pytest.mark.parametrize("encoding", ["", "PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_numbers(make: Make, tmp_path: Path, encoding: str, codec: str) -> None:
    data = numbers(5000)
    if encoding == "DELTA_BINARY_PACKED":
        data = {k: v for k, v in data.items() if "int" in k}
    how: dict[str, Any] = {"use_dictionary": False, "column_encoding": encoding} if encoding else {}
    how |= {"compression": codec, "row_group_size": 1700, "data_page_size": 1000}
    pq.write_table(pa.table(data), tmp_path / "x.parquet", **how)
    same(make, tmp_path / "x.parquet", data)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"compression": "none"},
        {"write_page_index": True},
        {"data_page_version": "2.0"},
        {"compression": "zstd", "use_dictionary": False},
    ],
)
def test_arrays(make: Make, tmp_path: Path, how: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    want = {"a": rng.integers(0, 256, (200, 3000), np.uint8), "b": rng.normal(size=(200, 7, 5)).astype(np.float32)}
    lists = pa.list_(pa.list_(pa.float32()))
    data = pa.table({"a": list(want["a"]), "b": pa.array([list(map(list, b)) for b in want["b"]], lists)})
    pq.write_table(data, tmp_path / "x.parquet", row_group_size=90, data_page_size=5000, **how)
    same(make, tmp_path / "x.parquet", want)


def test_pandas_polars_duckdb(make: Make, tmp_path: Path) -> None:
    data = {k: v for k, v in numbers(3000).items() if k != "float16"}
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data)
    frame.to_parquet(tmp_path / "pandas.parquet", index=False)
    same(make, tmp_path / "pandas.parquet", data)
    polars = pytest.importorskip("polars")
    small: dict[str, Any] = {"row_group_size": 500, "data_page_size": 300}
    polars.DataFrame(data).write_parquet(tmp_path / "polars.parquet", compression="zstd", **small)
    same(make, tmp_path / "polars.parquet", data)
    duckdb = pytest.importorskip("duckdb")
    duckdb.sql("SELECT * FROM frame").write_parquet(str(tmp_path / "duckdb.parquet"))
    same(make, tmp_path / "duckdb.parquet", data)


def test_images_by_content(make: Make, tmp_path: Path) -> None:
    """A table of images and captions, as LAION's have: bytes that begin as images do."""
    captions = [f"caption {i}" for i in range(COUNT)]
    rows = {"jpg": [png(i) for i in range(COUNT)], "caption": captions, "width": [12] * COUNT}
    pq.write_table(pa.table(rows), tmp_path / "00000.parquet", row_group_size=25)
    with make(tmp_path, batch_size=8, shuffle=True, fields={"jpg": [stoker.CenterCrop((8, 12))]}) as loader:
        for batch in loader:
            for k, i in enumerate(int(i) for i in batch.index):
                np.testing.assert_array_equal(batch.jpg[k], picture(i))
                assert batch.caption[k] == f"caption {i}"


def test_paths_of_images(make: Make, tmp_path: Path) -> None:
    """Images whose bytes lie beside the table."""
    for i in range(COUNT):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": png(i) if i % 3 else None, "path": f"{i}.png"} for i in range(COUNT)]
    data = {"image": pa.array(rows, kind), "file": [f"{i}.png" for i in range(COUNT)], "label": list(range(COUNT))}
    pq.write_table(pa.table(data), tmp_path / "x.parquet")
    crop = [stoker.CenterCrop((8, 12))]
    fields = {"image": crop, "file": crop}
    with make(f"{tmp_path}/x.parquet?image&file:image=file&label", batch_size=8, shuffle=True, fields=fields) as loader:
        for batch in loader:
            for k, i in enumerate(int(i) for i in batch.index):
                np.testing.assert_array_equal(batch.image[k], picture(i))
                np.testing.assert_array_equal(batch.file[k], picture(i))
                assert batch.label[k] == i


@pytest.mark.parametrize(
    ("data", "how", "message"),
    [
        ({"d": [decimal.Decimal("1.5")]}, {}, 'column "d" of the type decimal is not read'),
        ({"s": [["x"]], "n": [1]}, {}, r'column "s" of the type list<utf8> is not read: .* such as \?n'),
        ({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))}, {}, 'column "m" of the type map<'),
        ({"n": [1]}, {"compression": "brotli"}, "compressed with Brotli, which is not read"),
        ({"n": pa.array([], pa.int32())}, {}, "x.parquet has no rows"),
    ],
)
def test_not_read(make: Make, tmp_path: Path, data: dict[str, Any], how: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table(data), tmp_path / "x.parquet", **how)
    with pytest.raises(stoker.StokerError, match=message):
        make(tmp_path / "x.parquet", batch_size=1)
