"""Arrays and bytes of any length, from files and from packs, with the real engine."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import packed

Make = Callable[..., stoker.Loader]
COUNT = 50


def value(i: int) -> bytes:
    """Return the bytes of record i: sizes from 0 on, all different."""
    return bytes((i * 7 + k) % 251 for k in range(i * i))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens.npy"
    np.save(path, np.random.default_rng(0).integers(0, 50257, 64 * COUNT + 17).astype(np.uint16))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for i in range(COUNT):
        (folder / f"{i:03d}.bin").write_bytes(value(i))
    return folder


@pytest.fixture(scope="module")
def tfrecord(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two TFRecord files, written by the format's definition."""
    folder = tmp_path_factory.mktemp("tfrecord")
    table = []
    for n in range(256):
        c = n
        for _ in range(8):
            c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
        table.append(c)

    def masked(data: bytes) -> bytes:
        c = 0xFFFFFFFF
        for byte in data:
            c = table[(c ^ byte) & 255] ^ (c >> 8)
        c ^= 0xFFFFFFFF
        return struct.pack("<I", ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    for part in range(2):
        with open(folder / f"train.tfrecord-{part:05d}-of-00002", "wb") as f:
            for i in range(part * COUNT // 2, (part + 1) * COUNT // 2):
                length = struct.pack("<Q", len(value(i)))
                f.write(length + masked(length) + value(i) + masked(value(i)))
    return folder


def test_tokens(make: Make, binary: str, tokens: Path, tmp_path: Path) -> None:
    want = np.load(tokens)[: 64 * COUNT].reshape(COUNT, 64)
    pack = packed(binary, str(tokens), tmp_path / "pack", "--window", "64")
    orders = []
    for source in (f"{tokens}?window=64", str(pack)):
        loader = make(source, batch_size=8, shuffle=True, seed=3)
        assert len(loader) == 7
        assert loader.num_records == COUNT
        seen: list[int] = []
        for batch in loader:
            assert batch.tokens.dtype == np.uint16
            assert batch.tokens.shape == (len(batch), 64)
            assert (batch.tokens == want[batch.index]).all()
            seen += batch.index.tolist()
        assert sorted(seen) == list(range(COUNT))
        orders.append(seen)
    assert orders[0] == orders[1]


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_every_type(make: Make, binary: str, tmp_path: Path, dtype: str) -> None:
    want = (np.random.default_rng(1).random((9, 2, 3)) * 200 - 50).astype(dtype)
    np.save(tmp_path / "x.npy", want)
    pack = packed(binary, str(tmp_path / "x.npy"), tmp_path / "pack")
    for source in (tmp_path / "x.npy", pack):
        (batch,) = make(source, batch_size=9)
        assert batch["x"].dtype == want.dtype
        assert (batch["x"] == want).all()


def test_several_files_are_fields(make: Make, tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.arange(20 * 12, dtype=np.uint8).reshape(20, 2, 2, 3))
    np.save(tmp_path / "labels.npy", np.arange(20))
    for images, labels in make(tmp_path, batch_size=5):
        assert images.shape == (5, 2, 2, 3)
        assert (images[:, 0, 0, 0] == (labels * 12) % 256).all()


@pytest.mark.parametrize("compressed", [False, True])
def test_npz(make: Make, binary: str, tmp_path: Path, compressed: bool) -> None:
    save = np.savez_compressed if compressed else np.savez
    (tmp_path / "npz").mkdir()
    for i in range(12):
        save(tmp_path / "npz" / f"{i:02d}.npz", x=np.full((3, 4), i, np.float32), y=np.int64(-i))
    for source in (tmp_path / "npz", packed(binary, str(tmp_path / "npz"), tmp_path / "pack")):
        for batch in make(source, batch_size=5, shuffle=True):
            assert batch.x.shape == (len(batch), 3, 4)
            assert (batch.x[:, 0, 0] == batch.index).all()
            assert (batch.y == -batch.index).all()


def check_bytes(loader: stoker.Loader) -> list[int]:
    seen = []
    for batch in loader:
        data = batch.data
        assert isinstance(data, stoker.Ragged)
        assert len(data) == len(batch)
        assert data.offsets[0] == 0
        assert int(data.offsets[-1]) == len(data.values)
        for i, item in zip(batch.index, data, strict=True):
            assert item.tobytes() == value(int(i))
        seen += batch.index.tolist()
    return seen


def test_bytes(make: Make, binary: str, files: Path, tfrecord: Path, tmp_path: Path) -> None:
    orders = []
    for source in (
        f"files:{files}",
        str(tfrecord),
        str(packed(binary, f"files:{files}", tmp_path / "a")),
        str(packed(binary, str(tfrecord), tmp_path / "b")),
    ):
        orders.append(check_bytes(make(source, batch_size=7, shuffle=True, seed=5)))
        assert sorted(orders[-1]) == list(range(COUNT))
    assert all(o == orders[0] for o in orders)


def test_ragged(make: Make, files: Path) -> None:
    batch = next(iter(make(f"files:{files}", batch_size=10)))
    data = batch["data"]
    assert data.lengths.tolist() == [i * i for i in range(10)]
    assert bytes(data[3]) == value(3)
    assert bytes(data[-1]) == value(9)
    part = data[2:5]
    assert [bytes(v) for v in part] == [value(i) for i in (2, 3, 4)]
    assert len(data[5:2]) == 0
    with pytest.raises(IndexError, match="row 10 of 10"):
        data[10]
    with pytest.raises(IndexError, match="step 1"):
        data[::2]
    copied = batch.copy().data
    assert copied.values.base is None
    assert (copied.values == data.values).all()
    again = pickle.loads(pickle.dumps(data))
    assert (again.offsets == data.offsets).all()
    assert repr(data) == "Ragged(10 rows, 285 elements of uint8)"
    assert "data: Ragged(10 rows" in repr(batch)


def test_torch(make: Make, files: Path, tokens: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    batch = next(iter(make(f"files:{files}", batch_size=10, output="torch")))
    assert batch.data.values.dtype == torch.uint8
    assert batch.data.offsets.dtype == torch.int64
    assert bytes(batch.data[4].tolist()) == value(4)
    assert batch.data.copy().values.data_ptr() != batch.data.values.data_ptr()
    tokens_batch = next(iter(make(f"{tokens}?window=64", batch_size=4, output="torch")))
    assert tokens_batch.tokens.dtype == torch.uint16
    assert tuple(tokens_batch.tokens.shape) == (4, 64)


def test_resume(make: Make, files: Path) -> None:
    loader = make(f"files:{files}", batch_size=6, shuffle=True, seed=9)
    it = iter(loader)
    for _ in range(3):
        next(it)
    state = loader.state_dict()
    rest = [b.index.tolist() for b in it]
    other = make(f"files:{files}", batch_size=6, shuffle=True, seed=9)
    other.load_state_dict(state)
    assert [b.index.tolist() for b in other] == rest


def test_bad_records(make: Make, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for i in range(20):
        (folder / f"{i:03d}.bin").write_bytes(value(i))
    skipping = make(f"files:{folder}", batch_size=20, on_error="skip")
    raising = make(f"files:{folder}", batch_size=20)
    (folder / "007.bin").unlink()
    with pytest.warns(stoker.SkippedRecords, match=r"007.bin: it has changed since .*it is gone"):
        batches = list(skipping)
    data = batches[0].data
    assert [bytes(v) for v in data] == [value(8 if i == 7 else i) for i in range(20)]
    with pytest.raises(stoker.RecordError, match=r"007.bin"):
        list(raising)


def test_damaged_tfrecord(make: Make, tfrecord: Path, tmp_path: Path) -> None:
    raw = bytearray((tfrecord / "train.tfrecord-00000-of-00002").read_bytes())
    raw[-10] ^= 1
    (tmp_path / "x.tfrecord").write_bytes(raw)
    with pytest.raises(stoker.RecordError, match=r"x.tfrecord, bytes \d+ to \d+: the record is damaged"):
        list(make(tmp_path / "x.tfrecord", batch_size=25))
    (tmp_path / "x.tfrecord").write_bytes(raw[:-1])
    with pytest.raises(stoker.ConfigError, match=r"x.tfrecord, byte \d+: .* it is cut off"):
        make(tmp_path / "x.tfrecord", batch_size=5)


def test_refused(make: Make, files: Path, tokens: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="operations work on images"):
        make(f"files:{files}", batch_size=5, transforms={"data": [T.CenterCrop(5)]})
    with pytest.raises(stoker.ConfigError, match="set memory to that or more, or lower batch_size"):
        make(f"{tokens}?window=64", batch_size=1 << 20, limits=stoker.Limits(memory="64MB"))
    with pytest.raises(stoker.ConfigError, match="window"):
        make(f"{tokens}?window=zero", batch_size=5)
    assert "data: uint8[ragged]" in repr(make(stoker.open(f"files:{files}").select("data"), batch_size=5))
    assert "raw: uint8[ragged]" in repr(make(f"files:{files}", batch_size=5, transforms={"raw": stoker.Field("data")}))
