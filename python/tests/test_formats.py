"""A table of formats: files of each format's own library. Their records are equal when read directly and packed.

What holds for every format is tested in source/formats_table_test.go. These rows are about the libraries, and about
the arrays of the client.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker import transforms as T
from support import Make, encoded, packed, same_records

Columns = dict[str, Any]
COUNT = 53
RNG = np.random.default_rng(7)

# Functions that write files below a folder, and return the URL and the values of each field.
TABLE: dict[str, Callable[[Path], tuple[str, Columns]]] = {}


def write_lmdb(database: str, path: Path) -> tuple[str, Columns]:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), map_size=1 << 28, max_dbs=4) as env:
        db = env.open_db(database.encode() or None)
        with env.begin(write=True, db=db) as txn:
            for i in RNG.permutation(3000).tolist():
                txn.put(f"key {i}".encode(), b"\x00" + RNG.bytes(int(RNG.integers(0, 9000 if i % 50 == 0 else 60))))
            for i in range(0, 3000, 7):
                txn.delete(f"key {i}".encode())
        with env.begin(db=db) as txn:
            keys, values = zip(*txn.cursor(), strict=True)
    url = f"{path}?split={database}" if database else str(path)
    return url, {"key": [k.decode() for k in keys], "value": values}


def write_lmdb_arrays(path: Path) -> tuple[str, Columns]:
    lmdb = pytest.importorskip("lmdb")
    want = RNG.normal(size=(20, 3, 4)).astype(np.float32)
    with lmdb.open(f"{path}.lmdb", subdir=False, map_size=1 << 24) as env, env.begin(write=True) as txn:
        for i, array in enumerate(want):
            out = io.BytesIO()
            np.save(out, array)
            txn.put(f"{i:04d}".encode(), out.getvalue())
    return f"{path}.lmdb", {"value": want}


TABLE["lmdb"] = partial(write_lmdb, "")
TABLE["lmdb, a named database"] = partial(write_lmdb, "other")
TABLE["lmdb, arrays"] = write_lmdb_arrays


def write_flow(extension: str, shape: tuple[int, ...], order: str, path: Path) -> tuple[str, Columns]:
    """As Middlebury's own writer does."""
    values = RNG.standard_normal((20, *shape)).astype(np.float32)
    values[0].flat[:3] = [np.inf, -0.0, 1e-40]
    path.mkdir()
    for i, a in enumerate(values):
        if extension == "flo":
            head = np.float32(202021.25).tobytes() + np.array([shape[1], shape[0]], "<i4").tobytes()
            body = a.astype("<f4").tobytes()
        else:
            kind, scale = "PF" if a.ndim == 3 else "Pf", "-1.0" if order == "<" else "1.0"
            head = f"{kind}\n{shape[1]} {shape[0]}\n{scale}\n".encode()
            body = np.flipud(a).astype(f"{order}f4").tobytes()
        (path / f"{i:02}.{extension}").write_bytes(head + body)
    return str(path), {"flow" if extension == "flo" else "data": values}


TABLE["flo"] = partial(write_flow, "flo", (7, 9, 2), "<")
for order in "<>":
    TABLE[f"pfm, {order}"] = partial(write_flow, "pfm", (7, 9), order)
    TABLE[f"pfm, colours, {order}"] = partial(write_flow, "pfm", (7, 9, 3), order)


def write_ply(as_text: bool, path: Path) -> tuple[str, Columns]:
    path.mkdir()
    points = [RNG.standard_normal((n, 3), np.float32) for n in range(3, 43)]
    colors = [RNG.integers(0, 256, (n, 3), np.uint8) for n in range(3, 43)]
    names = [*(f"property float {n}" for n in "xyz"), *(f"property uchar {n}" for n in ("red", "green", "blue"))]
    kind = "ascii" if as_text else "binary_little_endian"
    for i, (p, c) in enumerate(zip(points, colors, strict=True)):
        head = "\n".join(["ply", f"format {kind} 1.0", f"element vertex {len(p)}", *names, "end_header", ""]).encode()
        table = np.zeros(len(p), [("p", "<f4", 3), ("c", "u1", 3)])
        table["p"], table["c"] = p, c
        lines = (f"{a[0]:.9g} {a[1]:.9g} {a[2]:.9g} {b[0]} {b[1]} {b[2]}" for a, b in zip(p, c, strict=True))
        (path / f"{i:03d}.ply").write_bytes(head + ("\n".join(lines).encode() if as_text else table.tobytes()))
    return str(path), {"points": points, "colors": colors}


def write_kitti(numbers: int, path: Path) -> tuple[str, Columns]:
    folder = path / "velodyne"
    folder.mkdir(parents=True)
    clouds = [RNG.standard_normal((100 + i, 4), np.float32) for i in range(20)]
    for i, cloud in enumerate(clouds):
        cloud.tofile(folder / f"{i:06d}.bin")
    url = str(folder) if numbers == 4 else f"kitti:{folder}?numbers={numbers}"
    return url, {"points": [cloud.reshape(-1, numbers) for cloud in clouds]}


TABLE["ply"] = partial(write_ply, False)
TABLE["ply, text"] = partial(write_ply, True)
TABLE["kitti"] = partial(write_kitti, 4)
TABLE["kitti, 2 numbers"] = partial(write_kitti, 2)


def idx(a: np.ndarray) -> bytes:
    """Return an array as an IDX file."""
    kind = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}[a.dtype.name]
    head = struct.pack(f">HBB{a.ndim}I", 0, kind, a.ndim, *a.shape)
    return head + a.astype(a.dtype.newbyteorder(">")).tobytes()


def write_idx(dtype: str, shape: tuple[int, ...], path: Path) -> tuple[str, Columns]:
    want = RNG.integers(0, 100, shape).astype(dtype)
    path.with_suffix(".idx").write_bytes(idx(want))
    return f"{path}.idx", {"data": want if len(shape) > 1 or dtype[0] == "f" else want.astype(np.int64)}


for dtype in ("uint8", "int8", "int16", "int32", "float32", "float64"):
    for shape in ((20,), (20, 3), (20, 3, 2), (20, 2, 3, 4)):
        TABLE[f"idx, {dtype}, {len(shape)} axes"] = partial(write_idx, dtype, shape)


def write_tfrecord(path: Path) -> tuple[str, Columns]:
    tf: Any = pytest.importorskip("tensorflow")
    columns: Columns = {
        "n": RNG.integers(-(2**62), 2**62, COUNT),
        "list": [RNG.random(i % 4).astype(np.float32) for i in range(COUNT)],
        "raw": [RNG.bytes(i) for i in range(COUNT)],
    }
    with tf.io.TFRecordWriter(f"{path}.tfrecord") as out:
        for n, floats, raw in zip(*columns.values(), strict=True):
            values = {
                "n": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(n)])),
                "list": tf.train.Feature(float_list=tf.train.FloatList(value=floats.tolist())),
                "raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[raw])),
            }
            out.write(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())
    return f"{path}.tfrecord", columns


TABLE["tfrecord"] = write_tfrecord

# HDF5: the options that a data set may be written with, all of shape [COUNT, 6, 5].
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunked": {"chunks": (8, 4, 5)},
    "rows": {"chunks": (1, 6, 5), "compression": "gzip", "shuffle": True},
    "gzip": {"chunks": (8, 6, 5), "compression": "gzip", "compression_opts": 9},
    "lzf": {"chunks": (16, 3, 2), "compression": "lzf", "shuffle": True},
    "sums": {"chunks": (8, 6, 5), "fletcher32": True},
    "all": {"chunks": (5, 6, 5), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "grows": {"chunks": (8, 6, 5), "maxshape": (None, 6, 5), "compression": "gzip"},
    "grows_both": {"chunks": (3, 2, 5), "maxshape": (None, None, 5)},
    "room": {"chunks": (3, 6, 5), "maxshape": (500, 6, 5)},
}
TYPES = ["|b1", "|u1", "|i1", "<u2", ">i2", ">u4", "<i4", "<i8", ">u8", "<f2", ">f4", "<f4", ">f8", "<f8"]


def values(dtype: str) -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return np.round(RNG.normal(size=(COUNT, 6, 5)) * 8).astype(dtype)
    return RNG.integers(0, 2 if np.dtype(dtype).kind == "b" else 100, (COUNT, 6, 5)).astype(dtype)


def write_hdf5(libver: str, userblock: int, path: Path) -> tuple[str, Columns]:
    import h5py

    columns = {}
    with h5py.File(f"{path}.h5", "w", libver=libver, userblock_size=userblock) as f:
        for w, (way, options) in enumerate(WAYS.items()):
            for t, dtype in enumerate(TYPES):
                if (w + t) % 3 == 0 or (libver == "latest" and t == w):
                    name = f"{way}/{np.dtype(dtype).str[1:]}_{'big' if dtype[0] == '>' else 'little'}"
                    columns[name] = values(dtype)
                    f.create_dataset(name, data=columns[name], **options)
    return f"{path}.h5", columns


for libver in ("earliest", "latest"):
    for userblock in (0, 1024):
        TABLE[f"hdf5, {libver}, {userblock} bytes before it"] = partial(write_hdf5, libver, userblock)


def zarr_ways(version: int) -> list[dict[str, Any]]:
    import numcodecs
    from zarr import codecs

    if version == 2:
        return [
            {"chunks": (8, 6, 5), "compressors": None},
            {"chunks": (8, 4, 3), "compressors": numcodecs.Blosc("lz4", shuffle=1)},
            {"chunks": (1, 6, 5), "compressors": numcodecs.Zstd(), "order": "F"},
            {"chunks": (50, 2, 5), "compressors": numcodecs.Zlib()},
        ]
    return [
        {"chunks": (8, 6, 5), "compressors": None},
        {"chunks": (8, 4, 3)},
        {"chunks": (4, 3, 5), "shards": (16, 6, 5)},
        {"chunks": (7, 5, 5), "filters": [codecs.TransposeCodec(order=(1, 2, 0))], "compressors": codecs.GzipCodec()},
        {"chunks": (9, 6, 5), "serializer": codecs.BytesCodec(endian="big"), "compressors": codecs.BloscCodec()},
    ]


def write_zarr(version: int, zipped: bool, path: Path) -> tuple[str, Columns]:
    import zarr

    if int(zarr.__version__.split(".")[0]) < 3:
        pytest.skip("files of version 3 take zarr 3")
    url = f"{path}.zip" if zipped else f"{path}.zarr"
    store = zarr.storage.ZipStore(url, mode="w") if zipped else url
    group = zarr.open_group(store, mode="w", zarr_format=version)
    columns = {}
    for w, way in enumerate(zarr_ways(version)):
        for t, dtype in enumerate(TYPES):
            if dtype[0] != ">" and ((w + t) % 2 == 0 or dtype == "<f4"):
                name = f"{np.dtype(dtype).name}_{w}"
                columns[name] = values(dtype)
                group.create_array(name, shape=columns[name].shape, dtype=np.dtype(dtype).name, **way)[:] = columns[
                    name
                ]
    if zipped:
        store.close()
    return url, columns


for version in (2, 3):
    TABLE[f"zarr, version {version}"] = partial(write_zarr, version, False)
    TABLE[f"zarr, version {version}, in a zip file"] = partial(write_zarr, version, True)


def text_table() -> Columns:
    """Return columns of all types; text with everything that has to be quoted."""
    texts = ["plain", 'a "quote"', "two\nlines", "comma, tab\t", "", "\\ 😀 é"]
    return {
        "n": [i * 37 - 500 for i in range(COUNT)],
        "x": [None if i % 7 == 3 else i / 8 for i in range(COUNT)],
        "ok": [i % 3 == 0 for i in range(COUNT)],
        "name": [["dog", "cat", "Äsop"][i % 3] for i in range(COUNT)],
        "text": [texts[i % 6] * (i % 4 + 1) for i in range(COUNT)],
        "boxes": [[[float(k), i + 0.5, 3.0, 4.0] for k in range(i % 4)] for i in range(COUNT)],
        "pair": [[i, -i] for i in range(COUNT)],
    }


def write_csv(path: str, data: Columns) -> None:
    pytest.importorskip("pandas").DataFrame(data).to_csv(path, index=False)


def write_tsv(path: str, data: Columns) -> None:
    pytest.importorskip("pandas").DataFrame(data).to_csv(path, index=False, sep="\t", quoting=csv.QUOTE_ALL)


def write_pandas_lines(path: str, data: Columns) -> None:
    pytest.importorskip("pandas").DataFrame(data).to_json(path, orient="records", lines=True)


def write_json_lines(path: str, data: Columns) -> None:
    lines = (json.dumps({k: v[i] for k, v in data.items()}, ensure_ascii=i % 2 == 0) for i in range(COUNT))
    Path(path).write_bytes(
        (gzip.compress if path.endswith(".gz") else bytes)("".join(f"{x}\n" for x in lines).encode())
    )


def write_text(write: Callable[[str, Columns], None], extension: str, path: Path) -> tuple[str, Columns]:
    data = text_table()
    write(f"{path}{extension}", data)
    boxes = [np.array(b, float).reshape(-1, 4) for b in data["boxes"]]
    x = [np.nan if v is None else v for v in data["x"]]
    kind = [["cat", "dog", "Äsop"].index(name) for name in data.pop("name")]
    return f"{path}{extension}?kind:label=name&*", data | {"kind": kind, "x": x, "boxes": boxes}


for text_writer, extensions in {
    write_csv: [".csv", ".csv.gz"],
    write_tsv: [".tsv", ".tsv.gz"],
    write_pandas_lines: [".jsonl", ".jsonl.gz"],
    write_json_lines: [".ndjson", ".json", ".ndjson.gz"],
}.items():
    for extension in extensions:
        TABLE[f"{text_writer.__name__[6:]}, {extension}"] = partial(write_text, text_writer, extension)


# Tables of Arrow and Parquet: a row has everything that has a kind, some of it missing.
def picture(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (8, 12, 3), np.uint8)


def table_row(i: int) -> dict[str, Any]:
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


def table_columns() -> Columns:
    """Return the values of the rows as a loader has them."""
    rows = [table_row(i) for i in range(COUNT)]
    columns: Columns = {name: [r[name] for r in rows] for name in ("label", "blob", "grid", "tags", "score", "ok")}
    return columns | {
        "image": [picture(i) for i in range(COUNT)],
        "caption": [r["caption"] or "" for r in rows],
        "ids": [np.array(r["ids"] or [], np.int32) for r in rows],
        "at.x": [r["at"]["x"] for r in rows],
        "at.boxes": [np.array(r["at"]["boxes"], float).reshape(-1, 4) for r in rows],
        "maybe": [np.nan if r["maybe"] is None else r["maybe"] for r in rows],
    }


def table_features() -> Any:
    datasets = pytest.importorskip("datasets")
    value = datasets.Value
    return datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog", "eel"]),
            "caption": value("string"),
            "blob": value("binary"),
            "grid": datasets.Array2D((2, 3), "float32"),
            "ids": datasets.Sequence(value("int32")),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["p", "q"])),
            "at": {"x": value("int16"), "boxes": datasets.Sequence(datasets.Sequence(value("float32"), length=4))},
            "score": value("float64"),
            "maybe": value("int8"),
            "ok": value("bool"),
        }
    )


def datasets_table() -> Any:
    """Return the rows as datasets stores them, with images as bytes with a path."""
    datasets = pytest.importorskip("datasets")
    rows = [{"image": {"bytes": encoded(picture(i)), "path": f"{i}.png"}} | table_row(i) for i in range(COUNT)]
    data = datasets.Dataset.from_list(rows, features=table_features())
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
    "brotli": {"compression": "brotli", "row_group_size": 30},
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


def write_parquet(options: dict[str, Any], path: Path) -> tuple[str, Columns]:
    pytest.importorskip("pyarrow.parquet").write_table(datasets_table(), f"{path}.parquet", **options)
    return f"{path}.parquet", table_columns()


for written, options in WRITTEN.items():
    TABLE[f"parquet, {written}"] = partial(write_parquet, options)


def plain_table() -> Any:
    """Return the rows as a table of pyarrow, image files as plain bytes."""
    pa = pytest.importorskip("pyarrow")
    schema = pa.schema(
        [
            ("image", pa.binary()),
            ("label", pa.uint8()),
            ("caption", pa.large_string()),
            ("blob", pa.large_binary()),
            ("grid", pa.list_(pa.list_(pa.float32(), 3), 2)),
            ("ids", pa.list_(pa.int32())),
            ("tags", pa.large_list(pa.int64())),
            ("at", pa.struct([("x", pa.int64()), ("boxes", pa.list_(pa.list_(pa.float64())))])),
            ("score", pa.float64()),
            ("maybe", pa.uint32()),
            ("ok", pa.bool_()),
        ]
    )
    return pa.Table.from_pylist([{"image": encoded(picture(i))} | table_row(i) for i in range(COUNT)], schema=schema)


def write_feather(compression: str, path: Path) -> tuple[str, Columns]:
    feather = pytest.importorskip("pyarrow.feather")
    feather.write_feather(plain_table(), f"{path}.feather", compression=compression, chunksize=17)
    return f"{path}.feather", table_columns()


def write_arrow(how: str, path: Path) -> tuple[str, Columns]:
    pa, whole = pytest.importorskip("pyarrow"), plain_table()
    if how == "many":
        path.mkdir()
        for k in range(4):  # slices with offsets that do not begin at 0
            with pa.OSFile(f"{path}/{k}.arrow", "wb") as f, pa.ipc.new_file(f, whole.schema) as w:
                w.write_table(whole.slice(k * 14, 14), max_chunksize=4)
        return str(path), table_columns()
    new = pa.ipc.new_stream if how == "stream" else pa.ipc.new_file
    with pa.OSFile(f"{path}.arrow", "wb") as f, new(f, whole.schema) as w:
        w.write_table(whole, max_chunksize=23)
    return f"{path}.arrow", table_columns()


def write_saved(path: Path) -> tuple[str, Columns]:
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    rows = [{"image": image.fromarray(picture(i))} | table_row(i) for i in range(COUNT)]
    datasets.Dataset.from_list(rows, features=table_features()).save_to_disk(path, num_shards=3)
    return str(path), table_columns()


for compression in ("uncompressed", "lz4", "zstd"):
    TABLE[f"arrow, feather, {compression}"] = partial(write_feather, compression)
for how in ("file", "stream", "many"):
    TABLE[f"arrow, {how}"] = partial(write_arrow, how)
TABLE["arrow, save_to_disk"] = write_saved


@pytest.mark.parametrize("name", TABLE)
def test_records(make: Make, binary: str, tmp_path: Path, name: str) -> None:
    """Every record of two shuffled epochs is the one that was written, and so is every record of a pack."""
    (tmp_path / "in").mkdir()
    url, columns = TABLE[name](tmp_path / "in" / "data")
    operations: Any = {"image": [T.CenterCrop((8, 12))]} if "image" in columns else {}
    for source in (url, packed(binary, url, tmp_path / "pack")):
        with make(source, batch_size=7, shuffle=True, seed=1, transforms=operations) as loader:
            for _ in range(2):  # from the second epoch on nothing is learnt any more
                same_records(loader, columns)
