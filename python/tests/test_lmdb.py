"""LMDB databases that lmdb writes, record by record."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker

Make = Callable[..., stoker.Loader]
lmdb: Any = pytest.importorskip("lmdb")
RNG = np.random.default_rng(7)


def test_records(make: Make, tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 28, max_dbs=4) as env:
        for name in (None, b"other"):
            db = env.open_db(name)
            with env.begin(write=True, db=db) as txn:
                for i in RNG.permutation(3000).tolist():
                    txn.put(f"key {i}".encode(), b"\x00" + RNG.bytes(int(RNG.integers(0, 9000 if i % 50 == 0 else 60))))
                for i in range(0, 3000, 7):
                    txn.delete(f"key {i}".encode())
        for name in ("", "?split=other"):
            with env.begin(db=env.open_db(name.partition("=")[2].encode() or None)) as txn:
                want = [(k.decode(), v) for k, v in txn.cursor() if k != b"other"]
            loader = make(f"{tmp_path / 'db'}{name}", batch_size=64, shuffle=True, seed=1)
            assert loader.num_records == len(want)
            seen = 0
            for batch in loader:
                for k, i in enumerate(batch.index):
                    assert (batch.key[k], batch.value[k].tobytes()) == want[i]
                    seen += 1
            assert seen == len(want)


def test_arrays(make: Make, tmp_path: Path) -> None:
    want = RNG.normal(size=(20, 3, 4)).astype(np.float32)
    with lmdb.open(str(tmp_path / "x.lmdb"), subdir=False, map_size=1 << 24) as env, env.begin(write=True) as txn:
        for i, array in enumerate(want):
            out = io.BytesIO()
            np.save(out, array)
            txn.put(f"{i:04d}".encode(), out.getvalue())
    batch = next(iter(make(tmp_path / "x.lmdb", batch_size=20)))
    np.testing.assert_array_equal(batch.value, want)


def test_errors(make: Make, tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 24) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"1" * 9000)
    data = (tmp_path / "db/data.mdb").read_bytes()
    (tmp_path / "db/data.mdb").write_bytes(data[:8192])
    with pytest.raises(stoker.ConfigError, match=r"data.mdb: it has 2 pages of 4096 bytes, .* it is cut off"):
        make(tmp_path / "db", batch_size=1)
