"""The commands of ``stoker`` as functions of Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import stoker
from stoker import cache


def test_inspect(photos: Path, pack: Path, tmp_path: Path) -> None:
    found = stoker.inspect(photos)
    assert (found.format, found.records, found.random_access) == ("folder", 203, True)
    assert found.source == str(photos)
    assert found.fields["label"]["classes"] == [f"class-{i}" for i in range(4)]
    assert found.code.startswith("stoker.")
    assert "raw" not in repr(found)
    packed = stoker.inspect(pack)
    assert (packed.format, packed.records) == ("pack", 203)
    assert packed.fields["image"]["stats"]["count"] == 203
    assert stoker.inspect(stoker.open(photos).where("label == 0")[:10]).records == 10
    with pytest.raises(stoker.StokerError, match="missing"):
        stoker.inspect(tmp_path / "missing")
    with pytest.raises(stoker.ConfigError, match=r"has a function \(map\)"):
        stoker.inspect(stoker.open(photos).map(dict))


def test_verify(pack: Path, photos: Path, binary: str, tmp_path: Path) -> None:
    whole = stoker.verify(pack, decode=True, threads=2, memory="1GB")
    assert whole
    assert (whole.records, whole.problems, whole.unsupported) == (203, (), ())
    stoker.pack(photos, tmp_path / "damaged")
    (shard, *_) = sorted((tmp_path / "damaged").glob("*.arrow"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 255
    shard.chmod(0o644)
    shard.write_bytes(content)
    found = stoker.verify(tmp_path / "damaged")
    assert not found
    assert found.problems[0].shard == shard.name
    assert found.problems[0].first_record >= 0
    assert found.problems[0].reason
    with pytest.raises(stoker.StokerError, match="is not a pack"):
        stoker.verify(photos)


def test_convert(photos: Path, pack: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    made = stoker.convert(stoker.open(photos).where("label != 2")[:20], out)
    assert (made.format, made.records, made.files, made.skipped) == ("parquet", 20, 1, ())
    assert made.fields == ("image", "label")
    back = stoker.open(out)
    assert [r["label"] for r in back] == [r["label"] for r in stoker.open(photos).where("label != 2")[:20]]
    with pytest.raises(stoker.StokerError, match="exists"):
        stoker.convert(photos, out)
    again = stoker.convert(pack, tmp_path / "raw", images="raw", resize="32x32")
    assert (again.format, again.records) == ("pack", 203)
    assert stoker.open(tmp_path / "raw")[3]["image"].shape == (32, 32, 3)
    one = next((photos / "class-0").iterdir())
    (tmp_path / "list.csv").write_text(f"path,n\n{one},1\n{tmp_path}/1.jpg,2\n")
    with pytest.warns(stoker.SkippedRecords, match="1 of the records were left out: .*list.csv, row 1"):
        partly = stoker.convert(f"{tmp_path / 'list.csv'}?image:image=path&n", tmp_path / "partly.parquet")
    assert partly.records == 1
    assert len(partly.skipped) == 1
    with pytest.raises(stoker.ConfigError, match="is not a format that can be written"):
        stoker.convert(photos, tmp_path / "x", to="nothing")


def test_cache(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert cache.ls(folder=folder).data == ()
    warmed = cache.warm(photos, folder=folder)
    assert (warmed.total, warmed.cached, warmed.new) == (203, 203, 203)
    assert cache.warm(photos, folder=folder).new == 0
    (entry,) = cache.ls(folder=folder).data
    assert (entry.origin, entry.records, entry.in_use) == (str(photos), 203, False)
    assert entry.bytes > 0
    assert cache.limit(folder=folder).origin.startswith("automatic")
    assert cache.limit("2GB", folder=folder).bytes == 2_000_000_000
    assert cache.limit(folder=folder).origin == "set"
    assert cache.limit("auto", folder=folder).origin.startswith("automatic")
    found = cache.verify(folder=folder)
    assert found
    assert found.data[0].records == 203
    (segment, *_) = (p for p in folder.rglob("*") if p.is_file() and p.stat().st_size > 1 << 20)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 255
    segment.write_bytes(content)
    found = cache.verify(photos, folder=folder)
    assert not found
    assert found.damaged[0].reason
    assert cache.rm(photos, folder=folder).data[0].origin == str(photos)
    assert cache.ls(folder=folder).data == ()
    with pytest.raises(stoker.StokerError, match="nothing is cached of"):
        cache.rm(photos, folder=folder)
    with pytest.raises(stoker.ConfigError, match="rm needs the data"):
        cache.rm()


def test_pack(photos: Path, tmp_path: Path) -> None:
    data = stoker.open(photos)
    view = stoker.concat([data.where("label == 1"), data[[7, 5]]])
    assert stoker.pack(view, tmp_path / "views").records == len(view)
    packed = stoker.open(tmp_path / "views")
    assert [r["label"] for r in packed] == [r["label"] for r in view]
    assert (packed[3]["image"] == view[3]["image"]).all()
    mapped = data[:6].map(lambda r: {"label": r["label"] + 1})
    assert stoker.pack(mapped, tmp_path / "mapped", workers=0).records == 6
    assert [r["label"] for r in stoker.open(tmp_path / "mapped")] == [r["label"] + 1 for r in data[:6]]


def test_resolutions(photos: Path, binary: str, tmp_path: Path) -> None:
    out = tmp_path / "sizes"
    made = [binary, "pack", str(photos), str(out), "--images", "raw", "--resize", "32,48"]
    subprocess.run(made, check=True, capture_output=True)
    data = stoker.open(out)
    assert min(data[0]["image"].shape[:2]) == 48
    assert min(data.resolution(32)[0]["image"].shape[:2]) == 32
    assert min(data[10:].where("label >= 0").resolution(32)[0]["image"].shape[:2]) == 32
