"""Tar and zip files: shards that webdataset writes and reads, and archives of Python's own modules."""

from __future__ import annotations

import gc
import gzip
import io
import json
import subprocess
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import cli, encoded

Make = Callable[..., stoker.Loader]
Image: Any = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(7)


def jpeg(pixels: Any) -> bytes:
    return encoded(pixels, "JPEG", quality=95, subsampling=0)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of shards that webdataset has written."""
    wds: Any = pytest.importorskip("webdataset")
    out = tmp_path_factory.mktemp("shards")
    n = 0
    for shard in range(4):
        with wds.TarWriter(str(out / f"train-{shard:04d}.tar")) as writer:
            for _ in range(9 + shard):
                pixels = RNG.integers(0, 256, (24 + n % 3, 32, 3), dtype=np.uint8)
                sample: dict[str, Any] = {
                    "__key__": f"part{n % 2}/sample{n:05d}",
                    "cls": n % 10,
                    "json": {"n": n, "name": "ü"},
                    "txt": "a text " * (n % 4),
                    "npy": RNG.normal(size=(3, 5)).astype(np.float32),
                    "walk.npy": RNG.integers(0, 99, (n % 5, 2)),
                    "pyd": {"pickled": n},
                    "seg.png": encoded(RNG.integers(0, 5, pixels.shape[:2], dtype=np.uint8)),
                }
                sample["png" if n % 3 else "jpg"] = encoded(pixels) if n % 3 else jpeg(pixels)
                writer.write(sample)
                n += 1
    # Files like those that img2dataset and other tools write next to their shards.
    (out / "train-0000.json").write_text("{}")
    return out


def expected(urls: str) -> list[dict[str, Any]]:
    """Return the samples as webdataset reads them."""
    import webdataset as wds  # type: ignore[import-not-found, import-untyped, unused-ignore]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files to the garbage collector
        samples = list(wds.WebDataset(urls, shardshuffle=False))
        gc.collect()
    return samples


def pixels(sample: dict[str, Any]) -> Any:
    data = sample.get("png", sample.get("jpg"))
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def check(loader: stoker.Loader, want: list[dict[str, Any]], order: list[int] | None = None) -> None:
    seen = []
    for batch in loader:
        for i, number in enumerate(batch.index.tolist()):
            sample = want[number]
            seen.append(number)
            assert batch.label[i] == int(sample["cls"])
            assert json.loads(batch.json[i]) == json.loads(sample["json"])
            assert batch.text[i] == sample["txt"].decode()
            assert np.array_equal(batch.array[i], np.load(io.BytesIO(sample["npy"])))
            assert np.array_equal(batch.walk[i], np.load(io.BytesIO(sample["walk.npy"])))
            assert bytes(batch.pyd[i]) == sample["pyd"]
    assert (sorted(seen) if order is None else seen) == (list(range(len(want))) if order is None else order)


PLAIN = ["label", "json", "text", "array", "walk", "pyd"]


@pytest.mark.parametrize("how", ["folder", "braces", "star", "named"])
def test_webdataset(make: Make, shards: Path, how: str) -> None:
    want = expected(str(shards / "train-{0000..0003}.tar"))
    assert len(want) == 9 + 10 + 11 + 12
    urls = {
        "folder": shards,
        "braces": shards / "train-{0000..0003}.tar",
        "star": shards / "train-*.tar",
        "named": f"tar:{shards}",
    }
    loader = make(stoker.open(urls[how]).select(*PLAIN), batch_size=7)
    assert loader.num_records == len(want)
    check(loader, want, list(range(len(want))))
    check(make(stoker.open(urls[how]).select(*PLAIN), batch_size=7, shuffle=True, seed=3), want)


def test_order_is_that_of_the_braces(make: Make, shards: Path) -> None:
    urls = str(shards / "train-{0003..0001..2}.tar")
    want = expected(urls)
    assert len(want) == 12 + 10
    check(make(stoker.open(urls).select(*PLAIN), batch_size=5), want, list(range(len(want))))


def test_pictures(make: Make, shards: Path) -> None:
    want = expected(str(shards / "train-0002.tar"))
    crop = T.CenterCrop(20)
    loader = make(shards / "train-0002.tar", batch_size=4, transforms={"image": [crop], "seg": [crop]})
    seen = 0
    for batch in loader:
        for i, number in enumerate(batch.index.tolist()):
            whole = pixels(want[number])
            top, left = round((whole.shape[0] - 20) / 2), 6
            assert np.abs(batch.image[i].astype(int) - whole[top : top + 20, left : left + 20]).max() <= 2
            mask = np.asarray(Image.open(io.BytesIO(want[number]["seg.png"])))
            assert np.array_equal(batch.seg[i], mask[top : top + 20, left : left + 20])
            seen += 1
    assert seen == len(want)


def test_pack(make: Make, binary: str, shards: Path, tmp_path: Path) -> None:
    urls = str(shards / "train-{0000..0003}.tar")
    out = tmp_path / "packed"
    cli(binary, "pack", urls, out, "--images", "keep")
    check(make(stoker.open(out).select(*PLAIN), batch_size=7, shuffle=True, seed=1), expected(urls))


def test_samples_that_lack_something(make: Make, binary: str, tmp_path: Path) -> None:
    wds: Any = pytest.importorskip("webdataset")
    path = tmp_path / "x.tar"
    with wds.TarWriter(str(path)) as writer:
        for n in range(10):
            sample: dict[str, Any] = {"__key__": f"{n}", "txt": str(n), "cls": n}
            if n == 4:
                del sample["txt"]
            if n == 6:
                sample["json"] = {}
            writer.write(sample)
    loader = make(path, batch_size=4)
    assert sorted(n for batch in loader for n in batch.label.tolist()) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    run = subprocess.run([binary, "pack", str(path), str(tmp_path / "p")], capture_output=True, text=True, check=False)
    assert run.returncode == 3, run.stderr
    assert "4.cls: its sample has no text" in run.stderr
    assert "*.json: only 1 of 10 samples have it" in run.stderr


def tree() -> dict[str, bytes]:
    """Return files in class folders, some with long names and of some size."""
    files = {"photos/readme.md": b"these are photos"}
    for n in range(30):
        name = f"photos/{['cat', 'dog', 'Zebra'][n % 3]}/{'long name ' * (n % 2 * 12)}{n:03d}.png"
        files[name] = encoded(RNG.integers(0, 256, (16, 16, 3), dtype=np.uint8))
    return files


def write(path: Path, files: dict[str, bytes], kind: str) -> None:
    if kind.startswith("tar"):
        formats = {"tar-gnu": tarfile.GNU_FORMAT, "tar-pax": tarfile.PAX_FORMAT}
        with tarfile.open(path, "w", format=formats[kind]) as tar:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                member.mtime = 1234567890.123  # type: ignore[assignment, unused-ignore]
                tar.addfile(member, io.BytesIO(data))
        return
    method = {"zip-stored": zipfile.ZIP_STORED, "zip-deflated": zipfile.ZIP_DEFLATED}[kind]
    with zipfile.ZipFile(path, "w", method) as z:
        for name, data in files.items():
            z.writestr(name, data)


KINDS = ["tar-gnu", "tar-pax", "zip-stored", "zip-deflated"]


@pytest.mark.parametrize("kind", KINDS)
def test_class_folders(make: Make, tmp_path: Path, kind: str) -> None:
    files = tree()
    path = tmp_path / f"photos.{kind[:3]}"
    write(path, files, kind)
    want = [(name, data) for name, data in files.items() if name.endswith(".png")]
    loader = make(path, batch_size=8, shuffle=True, seed=2, transforms={"image": [T.CenterCrop(16)]})
    assert loader.classes == ["Zebra", "cat", "dog"]
    seen = []
    for batch in loader:
        for i, number in enumerate(batch.index.tolist()):
            name, data = want[number]
            assert loader.classes[batch.label[i]] == name.split("/")[1]
            assert np.array_equal(batch.image[i], np.asarray(Image.open(io.BytesIO(data))))
            seen.append(number)
    assert sorted(seen) == list(range(30))


@pytest.mark.parametrize("kind", KINDS)
def test_any_files(make: Make, tmp_path: Path, kind: str) -> None:
    files = {f"d/{n}.{'bin' if n % 2 else 'dat'}": RNG.bytes(n * 700) for n in range(25)}
    path = tmp_path / f"files.{kind[:3]}"
    write(path, files, kind)
    want = list(files.values())
    seen = [
        (n, bytes(v))
        for batch in make(path, batch_size=6, shuffle=True)
        for n, v in zip(batch.index, batch.data, strict=True)
    ]
    assert sorted(seen) == list(enumerate(want))


def test_zip_of_samples(make: Make, shards: Path, tmp_path: Path) -> None:
    want = expected(str(shards / "train-0001.tar"))
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z, tarfile.open(shards / "train-0001.tar") as tar:
        for member in tar:
            data: Any = tar.extractfile(member)
            with z.open(member.name, "w", force_zip64=True) as f:
                f.write(data.read())
    check(make(stoker.open(path).select(*PLAIN), batch_size=4, shuffle=True), want)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged(make: Make, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"photos.{kind[:3]}"
    write(path, tree(), kind)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(stoker.StokerError, match=f"photos.{kind[:3]}.*(cut off|directory)"):
        make(path, batch_size=4)


def squeeze(path: Path, how: str) -> Path:
    """Compress a file into its own folder."""
    out = path.with_name(path.name + "." + how)
    if how == "gz":
        with gzip.open(out, "wb", compresslevel=1) as f:
            f.write(path.read_bytes())
    else:
        pa: Any = pytest.importorskip("pyarrow")
        with pa.CompressedOutputStream(str(out), "zstd") as f:
            f.write(path.read_bytes())
    return out


@pytest.fixture(scope="module")
def compressed(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the shards. One of them is not compressed."""
    out = tmp_path_factory.mktemp("compressed")
    for n in range(4):
        path = out / f"train-{n:04d}.tar"
        path.write_bytes((shards / path.name).read_bytes())
        if n != 2:
            squeeze(path, "zst" if n == 1 else "gz")
            path.unlink()
    return out


def test_compressed(make: Make, binary: str, shards: Path, compressed: Path, tmp_path: Path) -> None:
    want = expected(str(shards / "train-{0000..0003}.tar"))
    loader = make(stoker.open(compressed).select(*PLAIN), batch_size=7, shuffle=False)
    assert loader.num_records == len(want)
    check(loader, want, list(range(len(want))))
    # webdataset reads .gz itself.
    one = str(compressed / "train-0003.tar.gz")
    gz = expected(one)
    assert len(gz) == 12
    check(make(stoker.open(one).select(*PLAIN), batch_size=5, shuffle=False), gz, list(range(12)))
    # A restart continues with the next batch.
    loader = make(stoker.open(compressed).select(*PLAIN), batch_size=5, shuffle=False)
    it = iter(loader)
    head = [batch.index.tolist() for _, batch in zip(range(3), it, strict=False)]
    state = loader.state_dict()
    again = make(stoker.open(compressed).select(*PLAIN), batch_size=5, shuffle=False)
    again.load_state_dict(state)
    tail = [n for batch in again for n in batch.index.tolist()]
    assert [n for part in head for n in part] + tail == list(range(len(want)))
    with pytest.raises(stoker.StokerError, match="in order"):
        make(compressed, batch_size=5, shuffle=True)
    out = tmp_path / "packed"
    cli(binary, "pack", compressed, out, "--images", "keep")
    check(make(stoker.open(out).select(*PLAIN), batch_size=7, shuffle=True, seed=1), want)


@pytest.mark.parametrize("how", ["gz", "zst"])
def test_compressed_pictures(make: Make, shards: Path, tmp_path: Path, how: str) -> None:
    plain = tmp_path / "x.tar"
    plain.write_bytes((shards / "train-0002.tar").read_bytes())
    crop = T.CenterCrop(20)
    fields: Any = {"image": [crop], "seg": [crop], "label": []}
    pair = [make(path, batch_size=4, shuffle=False, transforms=fields) for path in (plain, squeeze(plain, how))]
    seen = 0
    for a, b in zip(*pair, strict=True):
        assert np.array_equal(a.image, b.image) and np.array_equal(a.seg, b.seg) and np.array_equal(a.label, b.label)
        seen += len(a.index)
    assert seen == 11


def test_compressed_class_folders(make: Make, tmp_path: Path) -> None:
    files = tree()
    path = tmp_path / "photos.tgz"
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    want = [(name, data) for name, data in files.items() if name.endswith(".png")]
    loader = make(path, batch_size=8, shuffle=False, transforms={"image": [T.CenterCrop(16)], "label": []})
    seen = 0
    for batch in loader:
        for i, number in enumerate(batch.index.tolist()):
            assert number == seen
            assert loader.classes is not None and loader.classes[batch.label[i]] == want[number][0].split("/")[1]
            assert np.array_equal(batch.image[i], np.asarray(Image.open(io.BytesIO(want[number][1]))))
            seen += 1
    assert seen == 30


def test_damaged_compressed(make: Make, compressed: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    whole = (compressed / "train-0000.tar.gz").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(stoker.StokerError, match=r"x.tar.gz.*cut off \(at byte \d+ of the file\)"):
        make(path, batch_size=4, shuffle=False)
    path = tmp_path / "x.tar.bz2"
    with tarfile.open(path, "w:bz2") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))
    with pytest.raises(stoker.StokerError, match="compression with bzip2 is not supported: unpack it with bunzip2"):
        make(path, batch_size=4)
