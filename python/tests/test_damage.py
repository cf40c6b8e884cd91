"""Damaged data: the loader's results, and the reads that it repeats."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import cli, encoded


def flip(path: Path, at: int) -> None:
    """Flip a bit of a file."""
    with path.open("r+b") as f:
        f.seek(at)
        b = f.read(1)
        f.seek(at)
        f.write(bytes([b[0] ^ 1 << at % 8]))


def values(loader: stoker.Loader) -> list[bytes]:
    return [row.tobytes() for batch in loader for row in np.asarray(batch["image"])]


def resized(**options: Any) -> dict[str, Any]:
    return {"batch_size": 4, "transforms": {"image": [T.Resize((32, 32))]}, **options}


@pytest.fixture
def copies(pack: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Make two copies of a pack, and damage an image in the middle of each shard of the first."""
    for name in ("one", "two"):
        shutil.copytree(pack, tmp_path / name)
    for shard in json.loads((pack / "manifest.json").read_text())["shards"]:
        flip(tmp_path / "one" / shard["file"], shard["bytes"] // 2)
    return tmp_path / "one", tmp_path / "two"


def test_repair(copies: tuple[Path, Path]) -> None:
    one, two = copies
    want = values(stoker.Loader(two, **resized()))
    with pytest.raises(stoker.RecordError, match="does not match its checksum"):
        values(stoker.Loader(one, **resized()))
    loader = stoker.Loader(one, **resized(on_error=stoker.OnError("repair", repair_from=two)))
    for _ in range(2):
        assert values(loader) == want
    assert loader.stats()["repaired"]["copy"] >= 1
    assert loader.stats()["repaired"]["store"] == 0
    assert loader.stats()["skipped"] == 0


def test_both_copies_are_damaged(copies: tuple[Path, Path]) -> None:
    one, two = copies
    for shard in json.loads((one / "manifest.json").read_text())["shards"]:
        flip(two / shard["file"], shard["bytes"] // 2)
    loader = stoker.Loader(one, **resized(on_error=stoker.OnError("repair", repair_from=two)))
    with pytest.raises(stoker.RecordError) as e:
        values(loader)
    assert str(one) in str(e.value)
    assert str(two) in str(e.value)


def test_repair_refuses(copies: tuple[Path, Path], photos: Path, tmp_path: Path) -> None:
    one, two = copies
    cases: list[tuple[dict[str, Any], str]] = [
        ({"max_bad": 3}, 'max_bad and quarantine are for on_error="skip"'),
        ({"quarantine": "bad.jsonl"}, 'max_bad and quarantine are for on_error="skip"'),
        *(({"action": "skip", "max_bad": bad}, "expected a number of records") for bad in (-1, 1.5, "many")),
        ({"action": "repair"}, "go together"),
        ({"repair_from": two}, "go together"),
        ({"action": "repair", "repair_from": photos}, "is not a copy of"),
        ({"action": "repair", "repair_from": tmp_path / "none"}, "repair_from"),
    ]
    for options, why in cases:
        with pytest.raises(stoker.ConfigError, match=why):
            stoker.Loader(one, **resized(on_error=stoker.OnError(**options)))
    with pytest.raises(stoker.ConfigError, match="is not a pack"):
        stoker.Loader(photos, **resized(on_error=stoker.OnError("repair", repair_from=two)))


# --- formats with checksums ------------------------------------------------------

RNG = np.random.default_rng(3)
X, Y = RNG.integers(0, 1000, (64, 200)).astype(np.int32), np.arange(64)
SMALL: dict[str, Any] = {"transforms": {"image": [T.Resize((16, 16))]}}


def picture(kind: str = "JPEG") -> bytes:
    return encoded(RNG.integers(0, 255, (24, 24, 3), np.uint8), kind)


def zipped(out: Path, how: int) -> Path:
    with zipfile.ZipFile(out / "x.zip", "w", how) as f:
        for i in range(6):
            f.writestr(f"{'ab'[i % 2]}/{i}.jpg", picture())
    return out / "x.zip"


def tarred(out: Path) -> Path:
    with tarfile.open(out / "x.tar.gz", "w:gz") as f:
        for i in range(6):
            about = tarfile.TarInfo(f"{i}.jpg")
            b = picture()
            about.size = len(b)
            f.addfile(about, io.BytesIO(b))
    return out / "x.tar.gz"


def npz(out: Path, save: Callable[..., None]) -> Path:
    save(out / "x.npz", x=X, y=Y)
    return out / "x.npz"


def lines(out: Path) -> Path:
    with gzip.open(out / "x.jsonl.gz", "wt") as f:
        f.writelines(json.dumps({"a": int(i), "s": "abc" * int(i)}) + "\n" for i in Y)
    return out / "x.jsonl.gz"


def parquet(out: Path, **options: Any) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 200), "y": Y, "s": [f"text {i}" for i in Y]}
    options = {"use_dictionary": ["s"], "row_group_size": 20, **options}
    pq.write_table(pa.table(columns), out / "x.parquet", write_page_checksum=True, **options)
    return out / "x.parquet"


def hdf5(out: Path, **options: Any) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(out / "x.h5", "w", libver="latest") as f:
        f.create_dataset("x", data=X, chunks=(8, 200), fletcher32=True, **options)
        f.create_dataset("y", data=Y, chunks=(8,), fletcher32=True, **options)
    return out / "x.h5"


def zarr(out: Path, shards: Any) -> Path:
    z = pytest.importorskip("zarr", minversion="3")
    codecs = pytest.importorskip("zarr.codecs")
    group = z.open_group(out / "x.zarr", mode="w")
    a = group.create_array(
        "x", shape=X.shape, dtype="i4", chunks=(8, 200), shards=shards, compressors=[codecs.Crc32cCodec()]
    )
    a[:] = X
    return out / "x.zarr"


def tfrecord(out: Path, binary: str) -> Path:
    cli(binary, "convert", parquet(out), f"tfrecord:{out / 'x'}")
    return out / "x"


def folder(out: Path, kind: str) -> Path:
    for i in range(3):
        (out / "x" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        if kind == "png":
            (out / "x" / "ab"[i % 2] / f"{i}.png").write_bytes(picture("PNG"))
            continue
        sound = pytest.importorskip("soundfile")
        wave = np.sin(np.arange(8000) * 0.05 * (i + 1)).astype(np.float32) / 2
        sound.write(out / "x" / "ab"[i % 2] / f"{i}.{kind}", wave, 16000)
    return out / "x"


def scans(out: Path) -> Path:
    nib = pytest.importorskip("nibabel")
    (out / "x").mkdir()
    for i in range(2):
        nib.save(nib.Nifti1Image(RNG.integers(0, 99, (12, 12, 12)).astype("i2"), np.eye(4)), out / "x" / f"{i}.nii.gz")
    return out / "x"


SOUND: dict[str, Any] = {"transforms": {"audio": [stoker.audio.Decode()]}}
CONTAINERS: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "zip stored": (lambda out: zipped(out, zipfile.ZIP_STORED), SMALL),
    "zip deflated": (lambda out: zipped(out, zipfile.ZIP_DEFLATED), SMALL),
    "tar.gz": (tarred, SMALL),
    "npz stored": (lambda out: npz(out, np.savez), {}),
    "npz deflated": (lambda out: npz(out, np.savez_compressed), {}),
    "jsonl.gz": (lines, {}),
    "parquet 1": (lambda out: parquet(out, compression="none", data_page_version="1.0"), {}),
    "parquet 2": (lambda out: parquet(out, compression="snappy", data_page_version="2.0"), {}),
    "hdf5": (hdf5, {}),
    "hdf5 gzip": (lambda out: hdf5(out, compression="gzip", shuffle=True), {}),
    "zarr": (lambda out: zarr(out, None), {}),
    "zarr shards": (lambda out: zarr(out, (32, 200)), {}),
    "png": (lambda out: folder(out, "png"), {}),
    "flac": (lambda out: folder(out, "flac"), SOUND),
    "ogg": (lambda out: folder(out, "ogg"), SOUND),
    "nifti": (scans, {}),
}


def everything(url: Path, options: dict[str, Any]) -> list[Any]:
    """Read all values of all records."""
    with stoker.Loader(url, batch_size=1, **options) as loader:
        rows = []
        for batch in loader:
            row = {name: batch[name] for name in list(batch.keys())}
            rows.append({k: list(v) if type(v).__name__ == "Strings" else _bytes(v) for k, v in row.items()})
        return rows


def _bytes(v: Any) -> bytes:
    return np.asarray(getattr(v, "values", v)).tobytes()


def flipped(url: Path, options: dict[str, Any], parts: int) -> None:
    """Flip bits in the largest file. Each load must give the original values, or an error that names the file."""
    want = everything(url, options)
    files = [p for p in ([url] if url.is_file() else url.rglob("*")) if p.is_file()]
    file = max(files, key=lambda p: p.stat().st_size)
    size = file.stat().st_size
    failed = 0
    for k in range(parts):
        at = min(int((k + 0.5) / parts * size), size - 1)
        flip(file, at)
        try:
            assert everything(url, options) == want, f"{file.name} gives other values with a flipped bit at {at}"
        except stoker.StokerError as e:
            failed += 1
            assert file.name in str(e), f"the error does not name {file.name}: {e}"
        flip(file, at)
    assert failed > parts // 2


@pytest.mark.parametrize("name", CONTAINERS)
def test_flipped_bits(name: str, tmp_path: Path) -> None:
    make, options = CONTAINERS[name]
    flipped(make(tmp_path), options, 7)


def test_flipped_bits_of_records(binary: str, tmp_path: Path) -> None:
    flipped(tfrecord(tmp_path, binary), {}, 7)


def test_flipped_names(tmp_path: Path) -> None:
    """A member whose name differs between the directory and the local header does not get another class."""
    file = zipped(tmp_path, zipfile.ZIP_STORED)
    want = everything(file, SMALL)
    at = file.read_bytes().rindex(b"a/4.jpg")
    for k in (0, 2):  # the class and the number; a member without .jpg is left out
        flip(file, at + k)
        with pytest.raises(stoker.StokerError, match=r"x\.zip"):
            everything(file, SMALL)
        flip(file, at + k)
    assert everything(file, SMALL) == want
