"""Other tools open the shards of a pack as they are: pyarrow, DuckDB, Hugging Face datasets."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS, CLASSES = 60, 3


def binary() -> str:
    """The program: STOKER_BINARY, or bin/stoker of the checkout."""
    path = os.environ.get("STOKER_BINARY", str(ROOT / "bin" / "stoker"))
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not there: go build -o bin/stoker ./cmd/stoker")
    return path


def run(*args: str) -> None:
    subprocess.run([binary(), *args], check=True, capture_output=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/ and packs of it, in many small shards and chunks."""
    base = tmp_path_factory.mktemp("interop")
    photos = base / "photos"
    kind = ["--count", str(RECORDS), "--classes", str(CLASSES), "--seed", "5", "--size", "120x90"]
    run("gen", "images", str(photos), *kind)
    small = ["--chunk-size", "64KiB", "--shard-size", "128KiB"]
    run("pack", str(photos), str(base / "keep"), "--images", "keep", "--metadata", *small)
    run("pack", str(photos), str(base / "raw"), "--images", "raw", "--resize", "32x24", *small)
    run("pack", str(photos), str(base / "dct"), "--images", "dct", "--metadata", *small)
    return base


def files(photos: Path) -> list[Path]:
    """The files in the order of the records."""
    return sorted(photos.glob("*/*"), key=lambda p: (p.parent.name, p.name))


def shards(pack: Path) -> list[str]:
    manifest = json.loads((pack / "manifest.json").read_text())
    names = [str(pack / s["file"]) for s in manifest["shards"]]
    assert names == sorted(map(str, pack.glob("*.arrow")))
    assert len(names) > 1
    return names


def check_rows(rows: list[dict[str, Any]], photos: Path) -> None:
    """Compares rows of the pack "keep" with the files they were made of."""
    want = files(photos)
    assert len(rows) == len(want) == RECORDS
    for row, path in zip(rows, want, strict=True):
        assert row["path"] == f"{path.parent.name}/{path.name}"
        assert row["label"] == int(path.parent.name.removeprefix("class-"))
        assert row["codec"] == 1
        assert bytes(row["image"]) == path.read_bytes()


def test_pyarrow(data: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    rows: list[dict[str, Any]] = []
    for name in shards(data / "keep"):
        with pa.memory_map(name) as source:
            reader = pa.ipc.open_file(source)
            assert reader.schema.names == ["path", "label", "width", "height", "orientation", "codec", "image"]
            assert reader.schema.metadata == {b"stoker.pack.version": b"1"}
            for i in range(reader.num_record_batches):
                batch = reader.get_batch(i)
                batch.validate(full=True)
                for column in batch.columns:
                    assert column.null_count == 0
                    for buffer in column.buffers():
                        assert buffer is None or buffer.address % 64 == 0
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
        assert {len(v) for v in table["image"].to_pylist()} == {32 * 24 * 3}
        assert set(table["codec"].to_pylist()) == {16}
    if name == "dct":
        assert table.schema.names[-2:] == ["exif", "icc"]


def test_duckdb(data: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    import pyarrow.dataset as ds

    with duckdb.connect() as db:
        db.register("records", ds.dataset(shards(data / "keep"), format="arrow"))
        counts = db.sql("SELECT label, count(*), min(width) > 0 FROM records GROUP BY label ORDER BY label").fetchall()
        assert counts == [(k, RECORDS // CLASSES, True) for k in range(CLASSES)]
        names = ["path", "label", "codec", "image"]
        found = db.sql("SELECT path, label, codec, image FROM records ORDER BY path").fetchall()
    check_rows([dict(zip(names, row, strict=True)) for row in found], data / "photos")


def test_hugging_face(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    rows = datasets.load_dataset("arrow", data_files=shards(data / "keep"), cache_dir=str(tmp_path))["train"]
    check_rows(list(rows), data / "photos")

    pillow = pytest.importorskip("PIL.Image")
    pictures = rows.cast_column("image", datasets.Image())
    want = files(data / "photos")
    for i in (0, RECORDS // 2, RECORDS - 1):
        picture = pictures[i]["image"]
        assert picture.size == (rows[i]["width"], rows[i]["height"])
        original = pillow.open(io.BytesIO(want[i].read_bytes()))
        assert picture.convert("RGB").tobytes() == original.convert("RGB").tobytes()
