"""Data in a bucket that is kept on a disk of this machine: read once, by all who share it, and never wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_remote import BUCKET, SECRET, s3
from test_web import Web, web

import stoker
from stoker import transforms as T
from support import cli, free_port, same_batches, wait_for

__all__ = ["s3", "web"]
Make = Callable[..., stoker.Loader]
URL = f"s3://{BUCKET}/packs/train"


@pytest.fixture
def pack(binary: str, tmp_path: Path, s3: Path) -> Path:
    """A pack of rows of 4 KiB in the bucket; the same on this machine."""
    rows = np.arange(3000, dtype=np.uint8)[:, None] + np.zeros(4096, np.uint8)
    np.save(tmp_path / "rows.npy", rows)
    for to in (URL, tmp_path / "local"):
        cli(binary, "pack", tmp_path / "rows.npy", to, "--chunk-size", "256KiB")
    return tmp_path / "local"


def network(loader: stoker.Loader) -> int:
    """The number of bytes that the engine has requested from servers."""
    return sum(n["bytes"] for n in loader.stats()["engine"].get("network", []))


@pytest.mark.parametrize("shuffle", [True, "window:8"])
def test_later_epochs_are_local(shuffle: bool | str, pack: Path, make: Make, tmp_path: Path, binary: str) -> None:
    def load(source: object, **options: object) -> stoker.Loader:
        return make(source, batch_size=50, shuffle=shuffle, seed=3, limits=stoker.Limits(memory="256MiB"), **options)

    here = load(pack)
    there = load(URL, cache=stoker.Cache(dir=tmp_path / "nvme", limit="1GB"))
    read = []
    for _ in range(3):
        for a, b in zip(here, there, strict=True):
            assert np.array_equal(a[0], b[0])
        read.append(network(there))
    total = sum(p.stat().st_size for p in pack.glob("*.arrow"))
    disk = there.stats()["engine"]["cache_disk"]
    assert read[0] == read[1] == read[2] <= 1.05 * total
    assert disk["bytes"] > 0.95 * total and disk["hit_bytes"] > 1.9 * total and disk["damaged"] == 0
    there.close()

    # Another job finds it, and damaged parts are read again.
    chunks = sorted((tmp_path / "nvme").rglob("chunks/*/*"))
    assert len(chunks) == disk["chunks"]
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in chunks)
    with chunks[3].open("r+b") as f:
        f.seek(1000)
        f.write(b"damage")
    again = load(URL, cache=stoker.Cache(dir=tmp_path / "nvme"))
    before = network(again)
    for a, b in zip(load(pack), again, strict=True):
        assert np.array_equal(a[0], b[0])
    assert 0 < network(again) - before < 0.1 * total
    assert again.stats()["engine"]["cache_disk"]["damaged"] == 1
    again.close()
    for p in (tmp_path / "nvme").rglob("*"):
        assert p.is_dir() or SECRET.encode() not in p.read_bytes()


def test_commands(pack: Path, make: Make, tmp_path: Path, binary: str) -> None:
    at = ("--cache-dir", tmp_path / "nvme")
    assert "0 of them now" not in cli(binary, "cache", "warm", URL, *at)
    assert "0 of them now" in cli(binary, "cache", "warm", URL, *at)
    (entry,) = json.loads(cli(binary, "cache", "ls", "--json", *at))["data"]
    assert entry["origin"] == URL and entry["chunks"] > 10 and entry["records"] == 0
    assert URL in cli(binary, "cache", "ls", *at)
    loader = make(URL, batch_size=50, shuffle=True, cache=stoker.Cache(dir=tmp_path / "nvme"))
    before = network(loader)
    assert sum(len(b.index) for b in loader) == 3000
    assert network(loader) == before
    assert "a job uses it" in cli(binary, "cache", "rm", URL, *at, code=1)
    loader.close()

    with sorted((tmp_path / "nvme").rglob("chunks/*/*"))[0].open("r+b") as f:
        f.write(b"damage")
    said = cli(binary, "cache", "verify", URL, *at, code=4)
    assert f"{URL}/" in said and "bytes " in said and "damaged" in said
    assert "damaged" not in cli(binary, "cache", "verify", *at)
    assert f"removed {entry['chunks'] - 1} chunks" in cli(binary, "cache", "rm", URL + "/", *at)
    assert json.loads(cli(binary, "cache", "ls", "--json", *at))["data"] == []

    # Nothing passes the limit.
    cli(binary, "cache", "limit", "3MB", *at)
    said = cli(binary, "cache", "warm", URL, *at)
    (entry,) = json.loads(cli(binary, "cache", "ls", "--json", *at))["data"]
    assert 0 < entry["bytes"] <= 3_000_000 and f"{entry['chunks']} of " in said


def test_a_new_version_is_read(pack: Path, make: Make, tmp_path: Path, binary: str, s3: Path) -> None:
    cli(binary, "cache", "warm", URL, "--cache-dir", tmp_path / "nvme")
    rows = np.full((2000, 4096), 7, np.uint8)
    np.save(tmp_path / "rows.npy", rows)
    shutil.rmtree(s3 / "packs/train")
    cli(binary, "pack", tmp_path / "rows.npy", URL, "--chunk-size", "256KiB")
    loader = make(URL, batch_size=50, cache=stoker.Cache(dir=tmp_path / "nvme"))
    batches = [b.copy() for b in loader]
    assert len(batches) == 40 and all((b[0] == 7).all() for b in batches)
    loader.close()
    kept = sum(p.stat().st_size for p in (tmp_path / "nvme").rglob("chunks/*/*"))
    assert kept < 1.2 * 2000 * 4096


def test_no_room_for_a_cache(pack: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="there is no cache"):
        loader = make(URL, batch_size=50, cache=stoker.Cache(dir=tmp_path / "file"))
    assert sum(len(b.index) for b in loader) == 3000


def test_stage(pack: Path, make: Make, tmp_path: Path, binary: str, s3: Path) -> None:
    def load(source: object, **options: object) -> stoker.Loader:
        return make(source, batch_size=50, shuffle=True, seed=3, limits=stoker.Limits(memory="256MiB"), **options)

    scratch = tmp_path / "scratch"
    total = sum(p.stat().st_size for p in pack.glob("*.arrow"))
    loader = load(URL, cache=stoker.Cache(stage=scratch))
    for a, b in zip(load(pack), loader, strict=True):
        assert np.array_equal(a[0], b[0])
    wait_for(lambda: loader.stats()["engine"]["stage"]["whole"])
    assert network(loader) <= 1.05 * total
    (copy,) = scratch.iterdir()
    assert copy.name.startswith("train-") and not copy.name.endswith(".part")
    assert {p.name: p.read_bytes() for p in copy.iterdir()} == {
        p.name: p.read_bytes() for p in (s3 / "packs/train").iterdir()
    }
    assert "is whole" in cli(binary, "verify", copy)
    loader.close()

    again = load(URL, cache=stoker.Cache(stage=scratch))
    before = network(again)
    for a, b in zip(load(pack), again, strict=True):
        assert np.array_equal(a[0], b[0])
    assert network(again) == before and again.stats()["engine"]["stage"]["whole"]
    again.close()

    # If a file of the copy is missing, the object is read.
    next(copy.glob("*.arrow")).unlink()
    again = load(URL, cache=stoker.Cache(stage=scratch))
    assert sum(len(b.index) for b in again) == 3000
    with pytest.raises(stoker.StokerError, match="exclude each other"):
        load(URL, cache=stoker.Cache(dir=tmp_path / "nvme", stage=scratch))
    with pytest.warns(RuntimeWarning, match="stage is for data in other places"):
        load(pack, cache=stoker.Cache(stage=scratch))


def test_peers(pack: Path, make: Make, tmp_path: Path, s3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_PEERS_TOKEN", "a secret of all nodes")
    nodes = []
    for i in (2, 3):  # what is to be two machines
        nodes.append(f"127.0.0.{i}:{free_port(f'127.0.0.{i}')}")

    def load(i: int) -> stoker.Loader:
        options: dict[str, object] = {
            "cache": stoker.Cache(dir=tmp_path / f"nvme{i}", peers=nodes, peers_self=nodes[i]),
            "limits": stoker.Limits(memory="256MiB"),
        }
        return make(URL, batch_size=50, shuffle="window:8", seed=i, **options)

    total = sum(p.stat().st_size for p in pack.glob("*.arrow"))
    rows = np.load(tmp_path / "rows.npy")
    engines = [load(0), load(1)]
    for loader in engines:
        for batch in loader:
            assert np.array_equal(batch[0], rows[batch.index])
    disks = [loader.stats()["engine"]["cache_disk"] for loader in engines]
    # Data that comes too late is read from the bucket, so that no loader waits.
    assert sum(d["miss_bytes"] for d in disks) <= 1.3 * total
    assert all(d["peers"]["hit_bytes"] > 0.1 * total for d in disks)
    assert sum(d["bytes"] for d in disks) <= total
    # The other one is gone: its part is read of the bucket.
    engines[0].close()
    for batch in engines[1]:
        assert np.array_equal(batch[0], rows[batch.index])


@pytest.mark.parametrize("how", ["dir", "stage"])
@pytest.mark.parametrize("form", ["folder", "tar", "zip", "tar.gz", "npy"])
def test_formats(form: str, how: str, photos: Path, make: Make, tmp_path: Path, web: Web) -> None:
    name, fields = f"data.{form}", {"image": [T.CenterCrop(48)]}
    if form == "folder":
        shutil.copytree(photos, web.data / name)
    elif form == "npy":
        np.save(web.data / name, np.arange(300 * 5000, dtype=np.int32).reshape(300, 5000))
        fields = {}
    else:
        shutil.make_archive(str(web.data / "data"), {"tar.gz": "gztar"}.get(form, form), photos)

    def load(source: object, **options: object) -> stoker.Loader:
        return make(source, batch_size=8, shuffle=form != "tar.gz", seed=1, transforms=fields or None, **options)

    used, caches = [], []
    for _ in range(2):
        here, there = load(web.data / name), load(f"{web.url}/{name}", cache=stoker.Cache(**{how: tmp_path / "near"}))
        before = network(there)
        for _ in range(2):
            same_batches(here, there)
        stats = there.stats()["engine"]
        if how == "stage":
            wait_for(lambda: there.stats()["engine"]["stage"]["whole"])  # noqa: B023
        else:
            assert "cache" in stats if form == "folder" else stats["cache_disk"]["hit_bytes"] > 0
        used.append(network(there) - before)
        caches.append(stats.get("cache"))
        here.close()
        there.close()
    if form == "folder" and how == "dir":
        # The amount cached depends on the load of the machine and on the readahead. The second loader finds everything
        # that the first one cached.
        first, second = caches
        assert 0 < first["records"] <= second["records"] - second["kept"]
        assert second["hits"] > 0
    else:
        assert used[1] == 0
    if how == "stage":
        (copy,) = (tmp_path / "near").iterdir()
        files = [p for p in copy.rglob("*") if p.is_file()]
        base = web.data / name
        for p in files:
            assert p.read_bytes() == (base / p.relative_to(copy) if base.is_dir() else base).read_bytes()
