"""stoker convert: its output, read back by each format's own library, row by row."""

from __future__ import annotations

import csv
import gc
import io
import itertools
import json
import signal
import subprocess
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import cli

Image: Any = pytest.importorskip("PIL.Image")
ROWS = 23
CLASSES = ["ant", "bee", "cat"]


class Row:
    """A record as every format should give it back."""

    def __init__(self, n: int, folder: Path, rng: np.random.Generator) -> None:
        self.label = CLASSES[n % 3]
        self.count = n * 10**11 - 7
        self.score = n / 8 - 1
        self.text = ["", "plain", 'with, "quotes"', "ü 漢字", "two\nlines"][n % 5]
        self.vector = rng.integers(-99, 99, 6) / 4
        pixels = rng.integers(0, 256, (20 + n % 4, 24, 3), dtype=np.uint8)
        path = folder / f"{n:03d}.{'png' if n % 2 else 'jpg'}"
        Image.fromarray(pixels).save(path)
        self.path = path.name
        self.image = path.read_bytes()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Row]]:
    """Return a list of rows, and their values."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(5)
    rows = [Row(n, folder, rng) for n in range(ROWS)]
    with (folder / "list.jsonl").open("w", encoding="utf-8") as out:
        for r in rows:
            values = {"image": r.path, "label": r.label, "count": r.count, "score": r.score, "text": r.text}
            out.write(json.dumps({**values, "vector": r.vector.tolist()}) + "\n")
    return f"{folder}/list.jsonl?image:image&label:label&count&score&text&vector:array", rows


@pytest.fixture(scope="module")
def rows(table: tuple[str, list[Row]]) -> list[Row]:
    return table[1]


@pytest.fixture(scope="module")
def source(table: tuple[str, list[Row]], binary: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a pack of the rows."""
    out = tmp_path_factory.mktemp("pack") / "rows"
    cli(binary, "pack", table[0], str(out), "--images", "keep")
    return str(out)


def convert(binary: str, source: str, dst: str | Path, *fields: str, shard: str = "") -> None:
    args = [a for f in fields for a in ("--field", f)]
    cli(binary, "convert", source, str(dst), *args, *(["--shard-size", shard] if shard else []))


def check(rows: list[Row], got: Iterator[dict[str, Any]], *fields: str) -> None:
    """Compare records with the rows, in their order."""
    n = 0
    for n, (want, have) in enumerate(zip(rows, got, strict=True)):
        for f in fields:
            w, h = getattr(want, f), have[f]
            if f == "label" and not isinstance(h, str):
                h = CLASSES[int(h)]
            if f == "vector":
                assert np.array_equal(w, h), (n, f)
            else:
                assert w == h, (n, f)
    assert n == ROWS - 1


def test_folder(rows: list[Row], source: str, binary: str, tmp_path: Path) -> None:
    tv: Any = pytest.importorskip("torchvision")
    convert(binary, source, tmp_path / "out", "image", "label")
    data = tv.datasets.ImageFolder(str(tmp_path / "out"))
    assert data.classes == CLASSES and len(data) == ROWS
    by_name = {r.path: r for r in rows}
    for path, label in data.samples:
        want = by_name.pop(Path(path).name)
        assert want.label == CLASSES[label] and want.image == Path(path).read_bytes()


def test_webdataset(rows: list[Row], source: str, binary: str, tmp_path: Path) -> None:
    wds: Any = pytest.importorskip("webdataset")
    convert(binary, source, f"tar:{tmp_path}/out", shard="16KiB")
    shards = sorted(str(p) for p in (tmp_path / "out").glob("*.tar"))
    assert len(shards) > 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files to the garbage collector
        raw = list(wds.WebDataset(shards, shardshuffle=False))
        decoded = list(wds.WebDataset(shards, shardshuffle=False).decode())
        gc.collect()

    def samples() -> Iterator[dict[str, Any]]:
        for r, s in zip(raw, decoded, strict=True):
            image = r["png" if "png" in r else "jpg"]
            values = {"image": image, "label": s["cls"], "count": s["count.index"], "text": s["txt"]}
            yield {**values, "score": float(s["score.npy"]), "vector": s["vector.npy"]}

    check(rows, samples(), "image", "label", "count", "score", "text", "vector")


def test_tfrecord(rows: list[Row], source: str, binary: str, tmp_path: Path) -> None:
    tf: Any = pytest.importorskip("tensorflow")
    convert(binary, source, f"tfrecord:{tmp_path}/out", shard="16KiB")
    files = sorted(str(p) for p in (tmp_path / "out").glob("*.tfrecord"))
    assert len(files) > 1

    def records() -> Iterator[dict[str, Any]]:
        spec = {
            "image": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
            "count": tf.io.FixedLenFeature([], tf.int64),
            "score": tf.io.FixedLenFeature([], tf.float32),
            "text": tf.io.FixedLenFeature([], tf.string),
            "vector": tf.io.FixedLenFeature([6], tf.float32),
        }
        for one in tf.data.TFRecordDataset(files):
            got = {k: v.numpy() for k, v in tf.io.parse_single_example(one, spec).items()}
            yield {**got, "text": got["text"].decode(), "score": float(got["score"])}

    check(rows, records(), "image", "label", "count", "score", "text", "vector")


def test_numpy(rows: list[Row], source: str, binary: str, tmp_path: Path) -> None:
    fields = ["label", "count", "score", "vector"]
    convert(binary, source, tmp_path / "all.npz", *fields)
    convert(binary, source, f"npy:{tmp_path}/all", *fields)
    convert(binary, source, tmp_path / "v.npy", "vector")
    zipped = np.load(tmp_path / "all.npz")
    assert sorted(zipped.files) == sorted(fields)
    for load in (lambda f: zipped[f], lambda f: np.load(tmp_path / "all" / f"{f}.npy")):
        columns = {f: load(f) for f in fields}
        assert columns["vector"].shape == (ROWS, 6) and columns["vector"].dtype == np.float64
        check(rows, ({f: c[i] for f, c in columns.items()} for i in range(ROWS)), *fields)
    assert np.array_equal(np.load(tmp_path / "v.npy", mmap_mode="r"), zipped["vector"])


def test_tables(rows: list[Row], source: str, binary: str, tmp_path: Path) -> None:
    pd: Any = pytest.importorskip("pandas")
    fields = ["image", "label", "count", "score", "text", "vector"]
    for name in ("csv", "tsv", "jsonl"):
        convert(binary, source, f"{name}:{tmp_path}/{name}")
        path = tmp_path / name / f"shard-00000.{name}"
        if name == "jsonl":
            table = pd.read_json(path, lines=True)
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        else:
            comma = "," if name == "csv" else "\t"
            table = pd.read_csv(path, sep=comma, keep_default_na=False)
            with path.open(encoding="utf-8", newline="") as f:
                lines = list(csv.DictReader(f, delimiter=comma))
        for some in (table.to_dict("records"), lines):
            got = (
                {
                    "image": (tmp_path / name / str(r["image"])).read_bytes(),
                    "label": r["label"],
                    "count": int(r["count"]),
                    "score": float(r["score"]),
                    "text": r["text"],
                    "vector": np.array(json.loads(r["vector"]) if name != "jsonl" else r["vector"]),
                }
                for r in some
            )
            check(rows, got, *fields)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_arrow(rows: list[Row], source: str, binary: str, tmp_path: Path, form: str) -> None:
    pa: Any = pytest.importorskip("pyarrow")
    convert(binary, source, f"{form}:{tmp_path}/out", shard="16KiB")
    files = sorted(str(p) for p in (tmp_path / "out").iterdir())
    assert len(files) > 1
    if form == "parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        tables = [pq.read_table(f, page_checksum_verification=True) for f in files]
        chunk = pq.ParquetFile(files[0]).metadata.row_group(0)
        bounds = {chunk.column(i).path_in_schema: chunk.column(i).statistics for i in range(chunk.num_columns)}
        assert bounds["count"].min == rows[0].count and bounds["score"].max > bounds["score"].min == -1
        assert chunk.column(0).has_offset_index and all(c.has_column_index for c in [chunk.column(3)])
    else:
        tables = [pa.ipc.open_file(f).read_all() for f in files]
    table = pa.concat_tables(tables)
    table.validate(full=True)
    assert table.schema.field("vector").type == pa.list_(pa.float64(), 6)
    got = table.to_pylist()
    assert [Path(r["image"]["path"]).name for r in got] == [r.path for r in rows]
    check(
        rows, ({**r, "image": r["image"]["bytes"]} for r in got), "image", "label", "count", "score", "text", "vector"
    )


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_datasets(rows: list[Row], source: str, binary: str, tmp_path: Path, form: str) -> None:
    datasets: Any = pytest.importorskip("datasets")
    convert(binary, source, f"{form}:{tmp_path}/out", shard="16KiB")
    files = sorted(str(p) for p in (tmp_path / "out").iterdir())
    data = datasets.load_dataset(form, data_files=files, cache_dir=str(tmp_path / "cache"))["train"]
    assert isinstance(data.features["image"], datasets.Image)
    assert data.features["label"].names == CLASSES
    for r, got in zip(rows, data, strict=True):
        assert np.array_equal(np.asarray(got["image"]), np.asarray(Image.open(io.BytesIO(r.image))))
    plain = data.cast_column("image", datasets.Image(decode=False))
    check(
        rows, ({**r, "image": r["image"]["bytes"]} for r in plain), "image", "label", "count", "score", "text", "vector"
    )


ELEMENTS = [
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
    "bool",
]


@pytest.fixture(scope="module")
def arrays(binary: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Return a folder of arrays of all element types, and lists of them."""
    out = tmp_path_factory.mktemp("arrays")
    (out / "npy").mkdir()
    rng = np.random.default_rng(3)
    columns = {}
    for name in ELEMENTS:
        columns[name] = rng.integers(0, 100, (ROWS, 2, 3, 2)).astype(name)
        if name.startswith("u") or name in ("int64", "int8"):
            columns[name][0, 0, 0] = np.iinfo(name).max if name != "uint64" else 2**63 - 1
        np.save(out / "npy" / f"{name}.npy", columns[name])
    return str(out / "npy"), columns


@pytest.mark.parametrize("compress", ["zstd", "snappy", "none"])
def test_parquet_arrays(arrays: tuple[str, dict[str, Any]], binary: str, tmp_path: Path, compress: str) -> None:
    pq: Any = pytest.importorskip("pyarrow.parquet")
    source, columns = arrays
    dst = tmp_path / "a.parquet"
    cli(binary, "convert", source, str(dst), "--compress", compress)
    got = pq.read_table(dst)
    for name in ELEMENTS:
        assert np.array_equal(np.array(got[name].to_pylist(), dtype=name), columns[name]), name
        leaf = got.schema.field(name).type
        while hasattr(leaf, "value_type"):
            leaf = leaf.value_type
        wanted = {"float16": "halffloat", "float32": "float", "float64": "double", "bool": "uint8"}.get(name, name)
        assert str(leaf) == wanted, name


def test_parquet_lists(binary: str, tmp_path: Path) -> None:
    pq: Any = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(9)
    lists = [rng.integers(0, 9, (n % 5, 3)).tolist() for n in range(3000)]
    tags = [[["a", "b", "c"][k] for k in range(n % 4)] for n in range(3000)]
    with (tmp_path / "t.jsonl").open("w") as out:
        for a, b in zip(lists, tags, strict=True):
            out.write(json.dumps({"boxes": a, "tags": b, "empty": []}) + "\n")
    src = f"{tmp_path}/t.jsonl?boxes:ragged&tags:multilabel"
    for name in ("t.parquet", "t.arrow"):
        cli(binary, "convert", src, str(tmp_path / name))
    got = pq.read_table(tmp_path / "t.parquet")
    import pyarrow as pa  # type: ignore[import-not-found, import-untyped, unused-ignore]

    for table in (got, pa.ipc.open_file(tmp_path / "t.arrow").read_all()):
        assert table["boxes"].to_pylist() == lists
        assert [["abc"[k] for k in r] for r in table["tags"].to_pylist()] == tags


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves files open
@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_mds(rows: list[Row], source: str, binary: str, tmp_path: Path, compress: str) -> None:
    streaming: Any = pytest.importorskip("streaming")
    cli(binary, "convert", source, f"mds:{tmp_path}/out", "--shard-size", "16KiB", "--compress", compress)
    assert len(list((tmp_path / "out").glob("shard.*"))) > 1
    data = streaming.LocalDataset(str(tmp_path / "out")) if compress == "none" else None
    if data is None:
        local = str(tmp_path / "local")
        data = streaming.StreamingDataset(remote=str(tmp_path / "out"), local=local, shuffle=False, batch_size=1)
    read = [data[i] for i in range(len(data))]
    for r, got in zip(rows, read, strict=True):
        assert np.array_equal(np.asarray(got["image"]), np.asarray(Image.open(io.BytesIO(r.image))))
    check(rows, iter(read), "label", "count", "score", "text", "vector")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mds_arrays(arrays: tuple[str, dict[str, Any]], binary: str, tmp_path: Path) -> None:
    streaming: Any = pytest.importorskip("streaming")
    source, columns = arrays
    cli(binary, "convert", source, f"mds:{tmp_path}/out")
    data = streaming.LocalDataset(str(tmp_path / "out"))
    for i in range(ROWS):
        got = data[i]
        for name in ELEMENTS:
            assert np.array_equal(got[name], columns[name][i]), name
            assert got[name].dtype == ("uint8" if name == "bool" else name)
    lists = [list(range(n % 300 + 1)) for n in range(600)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"t": v}) + "\n" for v in lists))
    cli(binary, "convert", f"{tmp_path}/t.jsonl?t:ragged", f"mds:{tmp_path}/lists")
    data = streaming.LocalDataset(str(tmp_path / "lists"))
    assert [data[i]["t"].tolist() for i in range(600)] == lists


def test_lmdb(rows: list[Row], source: str, binary: str, tmp_path: Path) -> None:
    lmdb: Any = pytest.importorskip("lmdb")
    convert(binary, source, tmp_path / "all.lmdb")
    with lmdb.open(str(tmp_path / "all.lmdb"), readonly=True) as env, env.begin() as t:

        def records() -> Iterator[dict[str, Any]]:
            for n, r in enumerate(rows):
                key = f"{n:09d}"
                image = t.get(f"{key}.{r.path.rpartition('.')[2]}".encode())
                score = np.load(io.BytesIO(t.get(f"{key}.score.npy".encode())))
                vector = np.load(io.BytesIO(t.get(f"{key}.vector.npy".encode())))
                text = t.get(f"{key}.txt".encode()).decode()
                label, count = (int(t.get(f"{key}{end}".encode())) for end in (".cls", ".count.index"))
                yield {"image": image, "label": label, "count": count, "score": score, "text": text, "vector": vector}

        check(rows, records(), "image", "label", "count", "score", "text", "vector")
        assert env.stat()["entries"] == 6 * ROWS == sum(1 for _ in t.cursor())


def test_lmdb_is_a_tree(binary: str, tmp_path: Path) -> None:
    """Many small values, some large ones: three levels, and LMDB itself can write to it."""
    lmdb: Any = pytest.importorskip("lmdb")
    values = [b"x" * (n % 90) if n % 1000 else bytes([n // 1000]) * (5000 + n) for n in range(40000)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": v.decode("latin1")}) + "\n" for v in values))
    cli(binary, "convert", str(tmp_path / "t.jsonl"), str(tmp_path / "t.lmdb"))
    wanted = {f"{n:09d}".encode(): v.decode("latin1").encode() for n, v in enumerate(values)}
    with lmdb.open(str(tmp_path / "t.lmdb"), map_size=1 << 28) as env:
        assert env.stat()["depth"] == 3
        with env.begin() as t:
            assert dict(t.cursor()) == wanted
            for n in range(0, 40000, 777):
                assert t.get(f"{n:09d}".encode()) == wanted[f"{n:09d}".encode()]
        with env.begin(write=True) as t:
            for n in range(0, 40000, 3):
                t.delete(f"{n:09d}".encode())
            for n in range(1, 40000, 99):
                t.put(f"{n:09d}a".encode(), b"new" * n)
        with env.begin() as t:
            kept = {k: v for k, v in t.cursor() if len(k) == 9}
        assert kept == {k: v for n, (k, v) in enumerate(wanted.items()) if n % 3}
        env.copy(str(tmp_path), compact=True)


def test_lmdb_datum(rows: list[Row], source: str, binary: str, tmp_path: Path) -> None:
    lmdb: Any = pytest.importorskip("lmdb")
    convert(binary, source, tmp_path / "d.lmdb", "image", "label")
    with lmdb.open(str(tmp_path / "d.lmdb"), readonly=True) as env, env.begin() as t:
        for r, (_, value) in zip(rows, t.cursor(), strict=True):
            label = CLASSES.index(r.label)
            assert value.endswith(r.image) and value[:4] == bytes([5 << 3, label, 7 << 3, 1])


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_hdf5(
    rows: list[Row], arrays: tuple[str, dict[str, Any]], source: str, binary: str, tmp_path: Path, compress: str
) -> None:
    h5py: Any = pytest.importorskip("h5py")
    cli(binary, "convert", source, str(tmp_path / "rows.h5"), "--compress", compress)
    with h5py.File(tmp_path / "rows.h5") as f:
        assert sorted(f) == ["count", "image", "label", "score", "text", "vector"]
        classes = [c.decode() for c in f["label"].attrs["classes"]]
        assert classes == CLASSES and f["vector"].shape == (ROWS, 6) and f["vector"].dtype == np.float64
        columns = {name: f[name][()] for name in f}
        assert f["vector"].compression == (None if compress == "none" else "gzip")
        got = ({name: c[i] for name, c in columns.items()} for i in range(ROWS))
        decoded = ({**r, "image": r["image"].tobytes(), "text": r["text"].decode()} for r in got)
        check(rows, decoded, "image", "label", "count", "score", "text", "vector")
    cli(binary, "convert", arrays[0], str(tmp_path / "a.h5"), "--compress", compress)
    with h5py.File(tmp_path / "a.h5") as f:
        assert sorted(f) == sorted(ELEMENTS)
        for name, a in arrays[1].items():
            assert f[name].dtype == name and np.array_equal(f[name][()], a), name


def test_hdf5_is_long(binary: str, tmp_path: Path) -> None:
    """Chunks of two levels of their tree, lists of all lengths, and h5py can write to the file."""
    h5py: Any = pytest.importorskip("h5py")
    rng = np.random.default_rng(1)
    (tmp_path / "n").mkdir()
    many = rng.integers(0, 9, (150, 70000), dtype=np.uint8)
    np.save(tmp_path / "n" / "a.npy", many)
    np.save(tmp_path / "n" / "b.npy", np.arange(150))
    cli(binary, "convert", str(tmp_path / "n"), str(tmp_path / "n.h5"), "--compress", "gzip")
    with h5py.File(tmp_path / "n.h5", "a") as f:
        assert np.array_equal(f["a"][()], many) and np.array_equal(f["a"][149], many[149])
        assert np.array_equal(f["b"][()], np.arange(150))
        f["new"] = np.arange(5)
        del f["b"]
    with h5py.File(tmp_path / "n.h5") as f:
        assert sorted(f) == ["a", "new"] and np.array_equal(f["a"][70:80], many[70:80])
    lists = [rng.integers(0, 9, (n % 40, 3)).tolist() for n in range(3000)]
    texts = ["é" * (n % 50) if n % 500 else "x" * 100000 for n in range(3000)]
    with (tmp_path / "t.jsonl").open("w") as out:
        for a, b in zip(lists, texts, strict=True):
            out.write(json.dumps({"a": a, "b": b, "tags": ["u", "v"][: len(a) % 3]}) + "\n")
    cli(binary, "convert", f"{tmp_path}/t.jsonl?a:ragged&b&tags:multilabel", str(tmp_path / "t.h5"))
    with h5py.File(tmp_path / "t.h5") as f:
        assert f["a"].attrs["shape"].tolist() == [-1, 3]
        assert [v.reshape(-1, 3).tolist() for v in f["a"]] == lists
        assert [v.decode() for v in f["b"]] == texts
        assert [v.tolist() for v in f["tags"]] == [[0, 1][: len(a) % 3] for a in lists]


def test_chunks_of_many_nodes(binary: str, tmp_path: Path) -> None:
    h5py: Any = pytest.importorskip("h5py")
    wide = np.arange(1100, dtype=np.float64)[:, None] + np.zeros(4096)
    np.save(tmp_path / "w.npy", wide)
    cli(binary, "convert", str(tmp_path / "w.npy"), str(tmp_path / "w.h5"), "--compress", "gzip")
    with h5py.File(tmp_path / "w.h5") as f:
        (only,) = f.values()
        assert np.array_equal(only[()], wide) and only.id.get_num_chunks() > 2 * 64


def test_bin(binary: str, tmp_path: Path) -> None:
    tokens = np.random.default_rng(2).integers(0, 65536, 4000).astype(np.uint16)
    np.save(tmp_path / "t.npy", tokens)
    cli(binary, "convert", f"{tmp_path}/t.npy?window=100", str(tmp_path / "train.bin"))
    assert np.array_equal(np.memmap(tmp_path / "train.bin", dtype=np.uint16, mode="r"), tokens)


def test_dct_becomes_jpeg(binary: str, photos: Path, tmp_path: Path) -> None:
    cli(binary, "pack", str(photos), str(tmp_path / "dct"))
    convert(binary, str(tmp_path / "dct"), tmp_path / "out")
    names = sorted(p.relative_to(photos) for p in photos.rglob("*.jpg"))
    assert names == sorted(p.relative_to(tmp_path / "out") for p in (tmp_path / "out").rglob("*") if p.is_file())
    for name in names[::20]:
        was, now = (Image.open(io.BytesIO((root / name).read_bytes())) for root in (photos, tmp_path / "out"))
        assert now.format == "JPEG" and np.array_equal(np.asarray(was), np.asarray(now))


def test_metadata_comes_back(binary: str, tmp_path: Path) -> None:
    """Metadata that a pack made with --metadata stores next to dct is in the JPEG again."""
    (tmp_path / "in").mkdir()
    exif = Image.Exif()
    exif[0x010E] = "a description"
    pixels = np.random.default_rng(4).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "in" / "a.jpg", exif=exif, icc_profile=b"a profile" * 20)
    cli(binary, "pack", str(tmp_path / "in"), str(tmp_path / "pack"), "--metadata")
    assert "1 dct" in cli(binary, "convert", str(tmp_path / "pack"), str(tmp_path / "raw"), "--images", "dct")
    convert(binary, str(tmp_path / "pack"), tmp_path / "out")
    with Image.open(tmp_path / "in" / "a.jpg") as was, Image.open(tmp_path / "out" / "a.jpg") as now:
        assert now.getexif()[0x010E] == "a description" and now.info["icc_profile"] == was.info["icc_profile"]
        assert np.array_equal(np.asarray(now), np.asarray(was))


def test_an_interrupted_run_leaves_nothing(binary: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((40000, 1024), np.float32))
    args = [binary, "convert", str(tmp_path / "a.npy"), str(tmp_path / "out.parquet")]
    with subprocess.Popen(args, stderr=subprocess.PIPE, text=True) as p:
        while p.poll() is None and not (tmp_path / "out.parquet.partial").exists():
            pass
        p.send_signal(signal.SIGINT)
        _, err = p.communicate()
    if p.returncode:  # it may have been quicker
        assert p.returncode == 130 and "nothing was kept in" in err
        assert sorted(f.name for f in tmp_path.iterdir()) == ["a.npy"]
    cli(*args) if p.returncode else None
    assert not (tmp_path / "out.parquet.partial").exists() and (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["npz", "h5", "parquet", "arrow", "tar", "mds"])
def test_masks(binary: str, tmp_path: Path, form: str, packed: bool) -> None:
    """A mask for each object comes back from every form that holds arrays, together with its shape."""
    sizes = [(20 + i, 30 - i) for i in range(5)]
    (tmp_path / "y/images").mkdir(parents=True)
    (tmp_path / "y/labels").mkdir()
    want = []
    for i, (w, h) in enumerate(sizes):
        Image.fromarray(np.zeros((h, w, 3), np.uint8)).save(tmp_path / f"y/images/{i}.png")
        masks = np.zeros((i, h, w), np.uint8)
        lines = []
        for k in range(i):  # boxes of whole pixels are masks without doubt
            x, y, bw, bh = k, 2 * k, 5 + k, 4
            masks[k, y : y + bh, x : x + bw] = 1
            lines.append(f"0 {(x + bw / 2) / w:.9f} {(y + bh / 2) / h:.9f} {bw / w:.9f} {bh / h:.9f}")
        (tmp_path / f"y/labels/{i}.txt").write_text("\n".join(lines))
        want.append(masks)
    source = f"yolo:{tmp_path / 'y'}?masks=stack"
    if packed:
        cli(binary, "pack", source, str(tmp_path / "p"))
        source = str(tmp_path / "p")
    out = tmp_path / ("out" if form in ("tar", "mds") else f"out.{form}")
    convert(binary, source, f"{form}:{out}" if form in ("tar", "mds") else out, "masks", "boxes")
    flat: list[Any]
    if form == "npz":
        with np.load(out) as data:
            ends, shapes = data["masks_offsets"], list(data["masks_shape"])
            flat = [data["masks"][a:b] for a, b in itertools.pairwise(ends)]
            assert np.diff(data["boxes_offsets"]).tolist() == list(range(5)) and data["boxes"].shape == (10, 4)
    elif form == "h5":
        h5py: Any = pytest.importorskip("h5py")
        with h5py.File(out) as file:
            flat, shapes = list(file["masks"]), list(file["masks_shape"])
    elif form in ("parquet", "arrow"):
        pa: Any = pytest.importorskip("pyarrow")
        pq: Any = pytest.importorskip("pyarrow.parquet")
        table = pq.read_table(out) if form == "parquet" else pa.ipc.open_file(out).read_all()
        flat = [np.array(v, np.uint8) for v in table["masks"].to_pylist()]
        shapes = table["masks_shape"].to_pylist()
    elif form == "tar":
        with tarfile.open(next(out.glob("*.tar"))) as file:
            read = {m.name: np.load(io.BytesIO(file.extractfile(m).read())) for m in file.getmembers()}  # type: ignore[union-attr]
        flat, shapes = ([read[f"{i:09}.{name}.npy"] for i in range(5)] for name in ("masks", "masks_shape"))
    else:
        streaming: Any = pytest.importorskip("streaming")
        data = streaming.LocalDataset(str(out))
        flat, shapes = [data[i]["masks"] for i in range(5)], [data[i]["masks_shape"] for i in range(5)]
    for masks, got, shape in zip(want, flat, shapes, strict=True):
        assert np.array_equal(np.asarray(got, np.uint8).reshape(shape), masks.reshape(shape))
        assert tuple(shape) == masks.shape or len(masks) == 0
    refused = subprocess.run(
        [binary, "convert", source, f"csv:{tmp_path / 'table'}"], check=False, capture_output=True, text=True
    )
    assert refused.returncode == 1 and 'a table cannot hold field "masks"' in refused.stderr
