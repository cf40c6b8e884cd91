"""Other tools open the unmodified shards of a pack: pyarrow, DuckDB, Polars, Hugging Face datasets."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from support import cli

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "pack" / "testdata" / "golden"
RECORDS, CLASSES = 60, 3


def binary() -> str:
    """The program: STOKER_BINARY, or bin/stoker of the checkout."""
    path = os.environ.get("STOKER_BINARY", str(ROOT / "bin" / "stoker"))
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not there: go build -o bin/stoker ./cmd/stoker")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/ and packs of it, in many small shards and chunks."""
    base = tmp_path_factory.mktemp("interop")
    photos = base / "photos"
    kind = ["--count", str(RECORDS), "--classes", str(CLASSES), "--seed", "5", "--size", "120x90"]
    cli(binary(), "gen", "images", str(photos), *kind)
    small = ["--chunk-size", "64KiB", "--shard-size", "128KiB"]
    cli(binary(), "pack", str(photos), str(base / "keep"), "--images", "keep", "--metadata", *small)
    cli(binary(), "pack", str(photos), str(base / "raw"), "--images", "raw", "--resize", "32x24", *small)
    cli(binary(), "pack", str(photos), str(base / "dct"), "--images", "dct", "--metadata", *small)
    return base


def files(photos: Path) -> list[Path]:
    """The files in the order of the records."""
    return sorted(photos.glob("*/*"), key=lambda p: (p.parent.name, p.name))


def shards(pack: Path) -> list[str]:
    manifest = json.loads((pack / "manifest.json").read_text())
    names = [str(pack / s["file"]) for s in manifest["shards"]]
    assert names == sorted(map(str, pack.glob("*.arrow")))
    return names


def check_rows(rows: list[dict[str, Any]], photos: Path) -> None:
    """Compares rows of the pack "keep" with their files."""
    want = files(photos)
    assert len(rows) == len(want) == RECORDS
    for row, path in zip(rows, want, strict=True):
        assert row["image"]["path"] == f"{path.parent.name}/{path.name}"
        assert row["label"] == int(path.parent.name.removeprefix("class-"))
        assert row["image_codec"] == 1
        assert bytes(row["image"]["bytes"]) == path.read_bytes()


BESIDE = ["codec", "width", "height", "channels", "depth", "orientation"]
COLUMNS = ["image", *(f"image_{name}" for name in BESIDE), "image_xxh3", "label"]


def buffers(column: Any) -> list[Any]:
    return [b for b in column.buffers() if b is not None]


def test_pyarrow(data: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    rows: list[dict[str, Any]] = []
    assert len(shards(data / "keep")) > 1
    for name in shards(data / "keep"):
        with pa.memory_map(name) as source:
            reader = pa.ipc.open_file(source)
            assert reader.schema.names == COLUMNS
            assert reader.schema.metadata[b"stoker.pack.version"] == b"5"
            for i in range(reader.num_record_batches):
                batch = reader.get_batch(i)
                batch.validate(full=True)
                for column in batch.columns:
                    assert column.null_count == 0
                    assert all(b.address % 64 == 0 for b in buffers(column))
            rows += reader.read_all().to_pylist()
    check_rows(rows, data / "photos")


@pytest.mark.parametrize("name", ["keep", "raw", "dct"])
def test_pyarrow_dataset(data: Path, name: str) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.dataset as ds

    whole = ds.dataset(shards(data / name), format="arrow")
    assert whole.count_rows() == RECORDS
    assert whole.count_rows(filter=ds.field("label") == 1) == RECORDS // CLASSES
    table = whole.to_table()
    table.validate(full=True)
    if name == "raw":
        assert {len(v["bytes"]) for v in table["image"].to_pylist()} == {32 * 24 * 3}
        assert set(table["image_codec"].to_pylist()) == {16}
    if name == "dct":
        assert table.schema.names == [*COLUMNS[:-2], "image_exif", "image_icc", "image_xxh3", "label"]


def test_duckdb(data: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    import pyarrow.dataset as ds

    with duckdb.connect() as db:
        db.register("records", ds.dataset(shards(data / "keep"), format="arrow"))
        query = "SELECT label, count(*), min(image_width) > 0 FROM records GROUP BY label ORDER BY label"
        counts = db.sql(query).fetchall()
        assert counts == [(k, RECORDS // CLASSES, True) for k in range(CLASSES)]
        names = ["image", "label", "image_codec"]
        found = db.sql("SELECT image, label, image_codec FROM records ORDER BY image.path").fetchall()
    check_rows([dict(zip(names, row, strict=True)) for row in found], data / "photos")


def test_polars(data: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.scan_ipc(shards(data / "keep")).collect()
    assert frame.columns == COLUMNS
    check_rows(frame.to_dicts(), data / "photos")
    sizes = frame.group_by("label").agg(pl.len(), pl.col("image_width").min()).sort("label")
    assert sizes["len"].to_list() == [RECORDS // CLASSES] * CLASSES


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("datasets")


def test_hugging_face(data: Path, tmp_path: Path, hub: Any) -> None:
    """A pack of kept images is a data set of pictures and named classes, without a cast."""
    pillow = pytest.importorskip("PIL.Image")
    rows = hub.load_dataset("arrow", data_files=shards(data / "keep"), cache_dir=str(tmp_path))["train"]
    assert isinstance(rows.features["image"], hub.Image)
    assert rows.features["label"].names == [f"class-{k}" for k in range(CLASSES)]
    want = files(data / "photos")
    for i in (0, RECORDS // 2, RECORDS - 1):
        picture = rows[i]["image"]
        assert picture.size == (rows[i]["image_width"], rows[i]["image_height"])
        original = pillow.open(io.BytesIO(want[i].read_bytes()))
        assert picture.convert("RGB").tobytes() == original.convert("RGB").tobytes()
    check_rows(list(rows.cast_column("image", hub.Image(decode=False))), data / "photos")


def test_hugging_face_with_what_is_no_file(data: Path, tmp_path: Path, hub: Any) -> None:
    rows = hub.load_dataset("arrow", data_files=shards(data / "dct"), cache_dir=str(tmp_path))["train"]
    assert not isinstance(rows.features["image"], hub.Image)
    assert rows[0]["image"]["bytes"][:3] == b"dct"


def golden_values(row: int) -> dict[str, Any]:
    """Return Stoker's values of a record of the golden pack of every kind."""
    values: dict[str, Any] = json.loads(cli(binary(), "inspect", str(GOLDEN / "kinds"), "--row", str(row), "--json"))[
        "values"
    ]
    return values


# Names and types of fields of the golden pack of every kind.
FILE = "struct<bytes: binary, path: string>"
KINDS = {
    "blob": "large_binary", "label": "int64", "caption": "large_string", "score": "float", "count": "int64",
    "weight": "double", "grid": "fixed_size_list<item: fixed_size_list<item: uint16>[3]>[2]", "left": FILE,
    "mask": FILE, "tags": "large_list<item: int64>", "boxes": "large_list<item: fixed_size_list<item: float>[4]>",
    "walk": "large_list<item: int16>", "sound": FILE, "document": "large_list<item: uint32>",
    "flags": "fixed_size_list<item: uint8>[5]",
}  # fmt: skip


def check_golden(rows: list[dict[str, Any]]) -> None:
    """Compares rows, as Python sees them, with Stoker's own values."""
    np = pytest.importorskip("numpy")
    assert len(rows) == 9
    for i, row in enumerate(rows):
        want = golden_values(i)
        assert row["label"] == want["label"]["label"] == i % 3
        assert row["caption"] == want["caption"] == f"record {i} äöü"
        assert row["count"] == want["count"] == -i
        assert row["weight"] == want["weight"] == i / 8
        assert np.array(row["grid"]).tolist() == (np.arange(6).reshape(2, 3) + 7 * i).tolist()
        assert np.array(row["flags"]).tolist() == [i >> k & 1 for k in range(5)]
        assert (row["left_width"], row["left_height"]) == (want["left"]["width"], want["left"]["height"])
        assert row["left"]["path"] == want["left"]["path"] == f"left/{i}.bin"
        assert len(row["mask"]["bytes"]) == want["mask"]["bytes"]
        facts = row["facts"]
        assert (json.loads(facts) if isinstance(facts, str) else facts) == want["facts"]


def test_golden_pyarrow() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.ipc.open_file(shards(GOLDEN / "kinds")[0]).read_all()
    table.validate(full=True)
    types = {f.name: str(f.type) for f in table.schema}
    assert {name: types[name] for name in KINDS} == KINDS
    assert types["facts"] == "extension<arrow.json>"
    check_golden(table.to_pylist())


def test_golden_duckdb() -> None:
    duckdb = pytest.importorskip("duckdb")
    pa = pytest.importorskip("pyarrow")
    table = pa.ipc.open_file(shards(GOLDEN / "kinds")[0]).read_all()
    with duckdb.connect() as db:
        db.register("t", table)
        found = db.sql("SELECT * FROM t")
        names = found.columns
        assert dict(zip(names, map(str, found.types), strict=True))["grid"] == "USMALLINT[3][2]"
        check_golden([dict(zip(names, row, strict=True)) for row in found.fetchall()])


def test_golden_polars() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.read_ipc(shards(GOLDEN / "kinds")[0])
    assert frame["grid"].to_numpy().shape == (9, 2, 3)
    check_golden(frame.to_dicts())


def test_golden_hugging_face(tmp_path: Path, hub: Any) -> None:
    rows = hub.load_dataset("arrow", data_files=shards(GOLDEN / "kinds"), cache_dir=str(tmp_path))["train"]
    features = rows.features
    assert features["tags"].feature.names == ["sky", "road", "tree"]
    assert isinstance(features["sound"], hub.Audio)
    # Decoding sound needs a library of its own.
    check_golden(list(rows.cast_column("sound", hub.Audio(decode=False))))
