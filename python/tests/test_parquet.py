"""Parquet files as pyarrow, datasets, pandas, polars and duckdb write them, with the real engine."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from test_formats import COUNT, picture, table_columns, table_features, table_row

import stoker
from stoker import transforms as T
from support import cli, encoded, packed, same_records

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Make = Callable[..., stoker.Loader]
FIELDS = {"image": [T.CenterCrop((8, 12))]}


def png(i: int) -> bytes:
    return encoded(picture(i))


def load(make: Make, source: str | Path) -> stoker.Loader:
    return make(source, batch_size=7, shuffle=True, seed=1, transforms=FIELDS)


def test_written_by_datasets(make: Make, binary: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"image": Image.fromarray(picture(i))} | table_row(i) for i in range(COUNT)]
    data = datasets.Dataset.from_list(rows, features=table_features())
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
        same_records(loader, table_columns())
    with make(f"{folder}?split=test&n:int=label&*", batch_size=5, transforms=FIELDS) as loader:
        for batch in loader:
            np.testing.assert_array_equal(batch.n, batch.index % 3)
    with load(make, packed(binary, f"{folder}?split=train", tmp_path / "packed")) as loader:
        same_records(loader, table_columns())
    with load(make, folder / "data" / "train-*.parquet") as loader:
        same_records(loader, table_columns())


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
    with make(tmp_path, batch_size=8, shuffle=True, transforms={"jpg": [T.CenterCrop((8, 12))]}) as loader:
        for batch in loader:
            for k, i in enumerate(int(i) for i in batch.index):
                np.testing.assert_array_equal(batch.jpg[k], picture(i))
                assert batch.caption[k] == f"caption {i}"


def test_paths_of_images(make: Make, tmp_path: Path) -> None:
    """Images whose bytes are in files next to the table."""
    for i in range(COUNT):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": png(i) if i % 3 else None, "path": f"{i}.png"} for i in range(COUNT)]
    data = {"image": pa.array(rows, kind), "file": [f"{i}.png" for i in range(COUNT)], "label": list(range(COUNT))}
    pq.write_table(pa.table(data), tmp_path / "x.parquet")
    crop = [T.CenterCrop((8, 12))]
    fields = {"image": crop, "file": crop}
    with make(
        f"{tmp_path}/x.parquet?image&file:image=file&label", batch_size=8, shuffle=True, transforms=fields
    ) as loader:
        for batch in loader:
            for k, i in enumerate(int(i) for i in batch.index):
                np.testing.assert_array_equal(batch.image[k], picture(i))
                np.testing.assert_array_equal(batch.file[k], picture(i))
                assert batch.label[k] == i


@pytest.mark.parametrize(
    ("data", "how", "message"),
    [
        ({"d": [decimal.Decimal("1.5")]}, {}, 'column "d" of the type decimal is not read'),
        ({"s": [["x"]]}, {}, 'column "s" of the type list<utf8> is not read: '),
        ({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))}, {}, 'column "m" of the type map<'),
        ({"n": pa.array([], pa.int32())}, {}, "x.parquet has no rows"),
    ],
)
def test_not_read(make: Make, tmp_path: Path, data: dict[str, Any], how: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table(data), tmp_path / "x.parquet", **how)
    with pytest.raises(stoker.StokerError, match=message):
        make(tmp_path / "x.parquet", batch_size=1)


def as_parquet_java(path: Path, nullable: bool) -> None:
    """Mark levels that do not exist BIT_PACKED, as parquet-java does."""
    data = path.read_bytes()
    changed = data.replace(b"\x15\x06\x15\x06", b"\x15\x06\x15\x08" if nullable else b"\x15\x08\x15\x08")
    assert changed != data
    path.write_bytes(changed)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("nullable", [True, False])
def test_parquet_java(make: Make, tmp_path: Path, codec: str, nullable: bool) -> None:
    """Pages of parquet-java declare the encoding BIT_PACKED for their levels although there are none."""
    data = {"n": list(range(50)), "f": [i / 3 for i in range(50)], "s": [f"t{i % 7}" for i in range(50)]}
    data["b"] = [png(i) for i in range(50)]
    of = pa.schema([pa.field(k, pa.array(v).type, nullable=nullable) for k, v in data.items()])
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(data, schema=of), path, compression=codec, write_statistics=False)
    as_parquet_java(path, nullable)
    seen = 0
    with make(path, batch_size=50, shuffle=True, transforms={"b": [T.CenterCrop((8, 12))]}) as loader:
        for batch in loader:
            for k, i in enumerate(int(i) for i in batch.index):
                assert (batch.n[k], batch.f[k], batch.s[k]) == (i, i / 3, f"t{i % 7}")
                np.testing.assert_array_equal(batch.b[k], picture(i))
                seen += 1
    assert seen == 50


UNREAD: dict[str, Any] = {
    "decimal": pa.array([decimal.Decimal("1.5")] * 60),
    "wide": pa.array([decimal.Decimal("1.5")] * 60, pa.decimal256(60, 2)),
    "texts": pa.array([["x", "y"]] * 60),
    "map": pa.array([[("k", 1)]] * 60, pa.map_(pa.string(), pa.int32())),
    "structs": pa.array([[{"a": 1}]] * 60),
    "uneven": pa.array([[[1], [1, 2]]] * 60),
    "bools": pa.array([[True]] * 60),
    "null": pa.nulls(60),
    "at": pa.array([{"deep": {"texts": ["x"], "n": i}} for i in range(60)]),
}


@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("version", ["1.0", "2.4", "2.6"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_columns_not_read(
    make: Make, tmp_path: Path, page: str, version: str, dictionary: bool, codec: str, binary: str
) -> None:
    """A column that is not read is left out and named. The others are equal to pyarrow's."""
    rng = np.random.default_rng(5)
    texts = [None if i % 5 == 2 else f"é{i % 13}" for i in range(60)]
    good = numbers(60) | {"missing": np.where(rng.random(60) < 0.3, np.nan, rng.normal(size=60))}
    floats = pa.array([None if np.isnan(x) else x for x in good["missing"]])
    columns = {k: pa.array(v) for k, v in good.items()} | {"missing": floats, "text": pa.array(texts)}
    columns |= UNREAD | {"last": pa.array(range(60), pa.int64())}
    path = tmp_path / "x.parquet"
    how: dict[str, Any] = {"data_page_size": 100, "write_batch_size": 10, "row_group_size": 40}
    pq.write_table(
        pa.table(columns),
        path,
        version=version,
        data_page_version=page,
        use_dictionary=dictionary,
        compression=codec,
        **how,
    )
    same(make, path, good | {"last": np.arange(60), "at.deep.n": np.arange(60)})
    with make(path, batch_size=60) as loader:
        assert [str(x) for x in next(iter(loader)).text] == [t or "" for t in texts]
    shown = cli(binary, "inspect", path)
    for name in [*UNREAD, "at.deep.texts"]:
        if name != "at":
            assert f"{name}: " in shown.partition("No fields")[2], name
    with pytest.raises(stoker.StokerError, match=r'column "texts" of the type list<utf8> is not read: .*choose others'):
        make(f"{path}?texts&last", batch_size=1)


def test_codec_not_read(make: Make, tmp_path: Path) -> None:
    """A codec that is not read costs its columns only."""
    path = tmp_path / "x.parquet"
    codec = {"a": "brotli", "b": "snappy"}
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}), path, compression=codec)
    data, named = path.read_bytes(), b"\x19\x18\x01a\x15"  # the path of column "a", then its codec
    assert data.count(named + b"\x08") == 1
    path.write_bytes(data.replace(named + b"\x08", named + b"\x06"))  # Brotli becomes LZO, which pyarrow does not write
    with make(path, batch_size=2) as loader:
        batch = next(iter(loader))
        assert not hasattr(batch, "a")
        np.testing.assert_array_equal(batch.b, [3, 4])
    with pytest.raises(stoker.StokerError, match=r'column "a" of the type int64 is not read: .*LZO'):
        make(f"{path}?a", batch_size=1)


def test_timestamps_of_96_bits(make: Make, tmp_path: Path) -> None:
    """Spark's old timestamps are skipped, and the message gives a remedy."""
    path = tmp_path / "x.parquet"
    times = pa.array([1, 2], pa.timestamp("ns"))
    pq.write_table(pa.table({"t": times, "n": [1, 2]}), path, use_deprecated_int96_timestamps=True)
    same(make, path, {"n": np.array([1, 2])})
    with pytest.raises(stoker.StokerError, match=r'column "t" of the type int96 is not read: .*TIMESTAMP_MICROS'):
        make(f"{path}?t", batch_size=1)
