"""The same columns in every container that can hold them get the same kinds, shapes, types, names and values."""

from __future__ import annotations

import csv
import io
import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from support import cli, encoded

Make = Callable[..., stoker.Loader]
N = 12


def png(i: int) -> bytes:
    return encoded(np.full((4, 5, 3), i, np.uint8))


PNGS = [png(i) for i in range(N)]
COLUMNS: dict[str, list[Any]] = {
    "count": [i - 3 for i in range(N)],
    "label": [i % 3 for i in range(N)],
    "score": [i / 4 for i in range(N)],
    "flag": [i % 3 == 0 for i in range(N)],
    "name": [("cat", "dog", "eel")[i % 3] for i in range(N)],
    "blob": [bytes([0xFE, i, 0]) * (1 + i % 2) for i in range(N)],
    "image": PNGS,
    "box": [[i, 1, 2, 3] for i in range(N)],
    "grid": [[[i, 1], [2, 3], [4, 5]] for i in range(N)],
    "ids": [list(range(1 + i % 4)) for i in range(N)],
    "gap": [None if i == 5 else i for i in range(N)],
}
NUMPY: dict[str, Any] = {
    k: np.array(COLUMNS[k], bool if k == "flag" else None) for k in ("count", "label", "score", "flag", "box", "grid")
}
# The kind, the shape and the type of each column if the user states none.
KINDS: dict[str, tuple[str, list[int], str]] = {
    "count": ("int", [], ""),
    "label": ("int", [], ""),
    "score": ("float", [], ""),
    "flag": ("array", [], "bool"),
    "name": ("text", [], ""),
    "blob": ("bytes", [], ""),
    "image": ("image", [], ""),
    "box": ("array", [4], "int64"),
    "grid": ("array", [3, 2], "int64"),
    "ids": ("ragged", [], "int64"),
    "gap": ("float", [], ""),
}


def of(*names: str) -> list[dict[str, Any]]:
    return [{k: COLUMNS[k][i] for k in names} for i in range(N)]


WRITTEN = ("count", "label", "score", "flag", "name", "box", "grid", "ids", "gap")


def write_csv(path: Path, sep: str = ",") -> tuple[str, ...]:
    with path.open("w", newline="") as f:
        out = csv.writer(f, delimiter=sep, lineterminator="\n")
        out.writerow(WRITTEN)
        for row in of(*WRITTEN):
            cells = ["" if v is None else v if isinstance(v, str) else json.dumps(v) for v in row.values()]
            out.writerow(cells)
    return WRITTEN


def write_tsv(path: Path) -> tuple[str, ...]:
    return write_csv(path, "\t")


def write_jsonl(path: Path) -> tuple[str, ...]:
    path.write_text("".join(json.dumps(row) + "\n" for row in of(*WRITTEN)))
    return WRITTEN


def table() -> Any:
    pa: Any = pytest.importorskip("pyarrow")
    return pa.table(COLUMNS)


def write_parquet(path: Path) -> tuple[str, ...]:
    pytest.importorskip("pyarrow.parquet").write_table(table(), path, row_group_size=5)
    return tuple(COLUMNS)


def write_arrow(path: Path) -> tuple[str, ...]:
    pa: Any = pytest.importorskip("pyarrow")
    with pa.ipc.new_file(path, table().schema) as f:
        f.write_table(table(), max_chunksize=5)
    return tuple(COLUMNS)


def write_hdf5(path: Path) -> tuple[str, ...]:
    h5py: Any = pytest.importorskip("h5py")
    with h5py.File(path, "w") as f:
        for k, v in NUMPY.items():
            f[k] = v
        f.create_dataset("name", data=COLUMNS["name"], dtype=h5py.string_dtype())
        for k in ("image", "blob"):
            d = f.create_dataset(k, (N,), h5py.vlen_dtype(np.uint8))
            for i in range(N):
                d[i] = np.frombuffer(COLUMNS[k][i], np.uint8)
        d = f.create_dataset("ids", (N,), h5py.vlen_dtype(np.int64))
        for i in range(N):
            d[i] = COLUMNS["ids"][i]
    return (*NUMPY, "name", "image", "ids")  # it has no type for bytes of any length: a blob is a list of uint8


def write_zarr(path: Path) -> tuple[str, ...]:
    zarr: Any = pytest.importorskip("zarr")
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    for k, v in {**NUMPY, "name": np.array(COLUMNS["name"])}.items():
        group.create_array(k, data=v, chunks=(5, *v.shape[1:]))
    return (*NUMPY, "name")


def write_npz(path: Path) -> tuple[str, ...]:
    np.savez(path, **NUMPY)
    return tuple(NUMPY)


def write_npy(path: Path) -> tuple[str, ...]:
    path.mkdir()
    for k, v in NUMPY.items():
        np.save(path / f"{k}.npy", v)
    return tuple(NUMPY)


def shard(items: list[list[bytes]], sized: list[bool]) -> bytes:
    """Return a shard of MDS or LitData: offsets, and records that begin with the sizes of their values."""
    data, at, offsets = b"", 4 * (len(items) + 2), []
    for values in items:
        offsets.append(at + len(data))
        data += b"".join(struct.pack("<I", len(v)) for v, s in zip(values, sized, strict=True) if s) + b"".join(values)
    return struct.pack(f"<{len(items) + 2}I", len(items), *offsets, at + len(data)) + data


def elements(v: Any) -> bytes:
    return np.array(v, np.int64).tobytes()


def write_mds(path: Path) -> tuple[str, ...]:
    path.mkdir()
    encodings = {
        "blob": "bytes",
        "box": "ndarray:int64:4",
        "count": "int",
        "grid": "ndarray:int64:3,2",
        "ids": "ndarray:int64",
        "image": "png",
        "label": "int64",
        "name": "str",
        "score": "float64",
    }
    sizes = {"count": 8, "label": 8, "score": 8, "box": 32, "grid": 48}
    pack: dict[str, Callable[[Any], bytes]] = {
        "blob": bytes,
        "image": bytes,
        "name": str.encode,
        "count": elements,
        "label": elements,
        "box": elements,
        "grid": elements,
        "score": lambda v: struct.pack("<d", v),
        "ids": lambda v: bytes([1 << 2, len(v)]) + elements(v),
    }
    rows = [[pack[k](COLUMNS[k][i]) for k in encodings] for i in range(N)]
    data = shard(rows, [k not in sizes for k in encodings])
    (path / "shard.00000.mds").write_bytes(data)
    one = {
        "column_encodings": list(encodings.values()),
        "column_names": list(encodings),
        "format": "mds",
        "version": 2,
        "column_sizes": [sizes.get(k) for k in encodings],
        "compression": None,
        "hashes": [],
        "samples": N,
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}},
        "size_limit": 1 << 26,
        "zip_data": None,
    }
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": [one]}))
    return tuple(encodings)


def write_litdata(path: Path) -> tuple[str, ...]:
    path.mkdir()
    formats = {
        "blob": "bytes",
        "box": "numpy",
        "count": "int",
        "flag": "bool",
        "grid": "numpy",
        "ids": "no_header_numpy:3",
        "image": "file",
        "label": "int",
        "name": "str",
        "score": "float",
    }

    def numpy(v: Any) -> bytes:
        a = np.array(v, np.int64)
        return struct.pack(f"<{2 + a.ndim}I", 3, a.ndim, *a.shape) + a.tobytes()

    pack: dict[str, Callable[[Any], bytes]] = {
        "blob": bytes,
        "image": bytes,
        "name": str.encode,
        "count": elements,
        "label": elements,
        "ids": elements,
        "box": numpy,
        "grid": numpy,
        "score": lambda v: struct.pack("<d", v),
        "flag": lambda v: bytes([v]),
    }
    data = shard([[pack[k](COLUMNS[k][i]) for k in formats] for i in range(N)], [True] * len(formats))
    (path / "chunk-0-0.bin").write_bytes(data)
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    spec = [1, {"type": "builtins.dict", "context": json.dumps(list(formats)), "children_spec": [leaf] * len(formats)}]
    config = {
        "compression": None,
        "chunk_size": None,
        "chunk_bytes": 1 << 20,
        "data_format": list(formats.values()),
        "data_spec": json.dumps(spec),
        "encryption": None,
        "item_loader": "PyTreeLoader",
    }
    chunk = {"chunk_bytes": len(data), "chunk_size": N, "dim": None, "filename": "chunk-0-0.bin"}
    (path / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))
    return tuple(formats)


def write_tar(path: Path) -> tuple[str, ...]:
    with tarfile.open(path, "w") as f:
        for i in range(N):
            members = {
                "count.id": str(COLUMNS["count"][i]).encode(),
                "name.txt": COLUMNS["name"][i].encode(),
                "png": PNGS[i],
                "blob": COLUMNS["blob"][i],
            }
            for k in ("label", "score", "flag", "box", "grid", "ids"):
                out = io.BytesIO()
                np.save(out, np.array(COLUMNS[k][i]))
                members[f"{k}.npy"] = out.getvalue()
            for suffix, b in members.items():
                info = tarfile.TarInfo(f"{i:04d}.{suffix}")
                info.size = len(b)
                f.addfile(info, io.BytesIO(b))
    return ("count", "name", "image", "blob", "label", "score", "flag", "box", "grid", "ids")


def write_lmdb(path: Path) -> tuple[str, ...]:
    lmdb: Any = pytest.importorskip("lmdb")
    with lmdb.open(str(path), subdir=False, map_size=1 << 24) as env, env.begin(write=True) as txn:
        for i in range(N):
            txn.put(f"{i:04d}".encode(), PNGS[i])
    return ("value",)


def same(got: Any, i: int, want: Any) -> bool:
    v = got[i]
    if isinstance(want, bytes):
        return bytes(np.asarray(v).tobytes()) == want
    if isinstance(want, str):
        return bool(v == want)
    if want is None:
        return bool(np.isnan(v))
    return bool(np.array_equal(np.asarray(v), np.asarray(want)))


CONTAINERS: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "x.csv": write_csv,
    "x.tsv": write_tsv,
    "x.jsonl": write_jsonl,
    "x.parquet": write_parquet,
    "x.arrow": write_arrow,
    "x.h5": write_hdf5,
    "x.zarr": write_zarr,
    "x.npz": write_npz,
    "npy": write_npy,
    "mds": write_mds,
    "litdata": write_litdata,
    "x.tar": write_tar,
}


def fields(binary: str, url: Any) -> dict[str, tuple[str, list[int], str, list[str]]]:
    text = cli(binary, "inspect", "--json", url)
    return {
        f["name"]: (f["kind"], f.get("shape") or [], f.get("dtype") or "", f.get("classes") or [])
        for f in json.loads(text)["fields"]
    }


@pytest.mark.parametrize("name", CONTAINERS)
def test_same_columns(make: Make, binary: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    names = CONTAINERS[name](path)
    got = fields(binary, path)
    assert {k: got[k][:3] for k in names} == {k: KINDS[k] for k in names}
    chosen = [n for n in names if n != "image"]
    seen = 0
    for batch in make(stoker.open(path).select(*chosen), batch_size=5):
        for row, i in enumerate(batch.index.tolist()):
            for k in chosen:
                assert same(batch[k], row, COLUMNS[k][i]), (k, i, batch[k][row])
            seen += 1
    assert seen == N


CHOOSES = [n for n in CONTAINERS if n not in ("npy", "x.tar")]


@pytest.mark.parametrize("name", CHOOSES)
def test_stated_kinds(make: Make, binary: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    names = CONTAINERS[name](path)
    ask = "n:label=label&f:float=count&r:ragged=box&m:multilabel=box&t:tokens=box"
    want: dict[str, Any] = {
        "n": ("label", [], "", []),
        "f": ("float", [], "", []),
        "r": ("ragged", [], "int64", []),
        "m": ("multilabel", [], "", []),
    }
    if "name" in names:
        ask, want["c"] = ask + "&c:label=name", ("label", [], "", ["cat", "dog", "eel"])
    if "flag" in names:
        ask, want["b"] = ask + "&b:label=flag", ("label", [], "", ["false", "true"])
    if "image" in names:
        ask, want["p"] = ask + "&p:bytes=image", ("bytes", [], "", [])
    got = fields(binary, f"{path}?{ask}")
    assert got["t"][0] == "tokens"
    assert {k: got[k] for k in want} == want
    for batch in make(f"{path}?{ask}", batch_size=N):
        for row, i in enumerate(batch.index.tolist()):
            assert (batch.n[row], batch.f[row]) == (i % 3, i - 3)
            assert batch.r[row].tolist() == batch.m[row].tolist() == batch.t[row].tolist() == COLUMNS["box"][i]
            assert "c" not in want or batch.c[row] == i % 3
            assert "p" not in want or batch.p[row].tobytes() == PNGS[i]
            assert "b" not in want or batch.b[row] == COLUMNS["flag"][i]
    refused = [
        ("count:tokens", "it has no lists of whole numbers"),
        ("score:label", "its numbers have fractions"),
        ("box:int", "it has no single numbers"),
        ("ids:array", "its lists have 1 to 4 elements"),
    ]
    if not name.endswith(("csv", "tsv", "jsonl")):
        refused.append(("box:text", "it has numbers"))
    for field, why in refused:
        if field.partition(":")[0] not in names:
            continue
        with pytest.raises(
            stoker.ConfigError,
            match=rf'column "{field.partition(":")[0]}"( \(.*\))? cannot be .*: {why}; without :\w+ it is read as',
        ):
            make(f"{path}?{field}", batch_size=2)


def test_tfrecord_and_lmdb(binary: str, tmp_path: Path) -> None:
    # TFRecord has float32 and int64, LMDB one value per record.
    write_jsonl(tmp_path / "x.jsonl")
    ask = f"{tmp_path / 'x.jsonl'}?count&label&score&name&box&ids"
    for target in ("tfrecord", "mds", "parquet", "hdf5", "arrow"):
        cli(binary, "convert", ask, f"{target}:{tmp_path / target}")
        got = fields(binary, tmp_path / target)
        names = ["count", "label", "score", "name", "box"]
        assert {k: got[k][:3] for k in names} == {k: KINDS[k] for k in names}, target
    assert write_lmdb(tmp_path / "x.lmdb") == ("value",)
    assert fields(binary, tmp_path / "x.lmdb")["value"][0] == "image"
