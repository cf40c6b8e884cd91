"""Views of data: parts of a split, records by an expression, fields by name, with the real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import cli

Make = Callable[..., stoker.Loader]
SMALL: Any = {"image": [T.CenterCrop(32)]}
SHORT = ["--seconds", "0.2", "--warmup", "0.1", "--batch", "16"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE_DIR", str(tmp_path / "cache"))


def table(path: Path, n: int = 100) -> Path:
    lines = ["n,cls,patient,text"]
    lines += [f"{i},{['cat', 'dog', 'ant'][i % 3]},p{i % 7},record {i}" for i in range(n)]
    path.write_text("\n".join(lines) + "\n")
    return path


def seen(loader: stoker.Loader, field: str = "n") -> list[int]:
    return [int(v) for batch in loader for v in batch[field]]


@pytest.mark.parametrize("packed", [False, True])
def test_parts_of_a_split(make: Make, binary: str, tmp_path: Path, packed: bool) -> None:
    source = table(tmp_path / "t.csv")
    if packed:
        cli(binary, "pack", source, tmp_path / "p")
        source = tmp_path / "p"
    cut = stoker.open(source).split(0.8, 0.1, "rest", seed=3)
    all_of = {part: seen(make(data, 7)) for part, data in zip(("train", "val", "test"), cut, strict=True)}
    assert {part: len(rows) for part, rows in all_of.items()} == {"train": 80, "val": 10, "test": 10}
    assert sorted(n for rows in all_of.values() for n in rows) == list(range(100))
    assert seen(make(f"{source}#split=train:0.8,val:0.1,test:*&part=val&split_seed=3", 7)) == all_of["val"]
    assert seen(make(stoker.open(source).split(0.8, 0.1, "rest", seed=4)[1], 7)) != all_of["val"]
    # The order of an epoch is shuffled among ranks as that of any other data.
    ranks = [seen(make(cut[0], 7, shuffle=True, ranks=stoker.Ranks(r, 2))) for r in (0, 1)]
    assert sorted(ranks[0] + ranks[1]) == sorted(all_of["train"])
    groups = [set(seen(make(p, 7))) for p in stoker.open(source).split(0.5, 0.5, group="patient")]
    assert not {n % 7 for n in groups[0]} & {n % 7 for n in groups[1]}
    even = seen(make(stoker.open(source).split(0.5, 0.5, stratify="cls")[0], 7))
    assert all(15 <= sum(n % 3 == c for n in even) <= 18 for c in range(3)) and len(even) == 50


def test_where_and_resume(make: Make, tmp_path: Path) -> None:
    source = table(tmp_path / "t.csv")
    view = stoker.open(source).kinds({"cls": "label"}).where('n >= 20 and cls != "dog" and text.length > 3')
    want = [n for n in range(20, 100) if n % 3 != 1]
    loader = make(view, 8)
    assert seen(loader) == want and loader.classes == ["ant", "cat", "dog"]
    a = make(view, 8, shuffle=True)
    rows = [batch.n.tolist() for batch in a]
    it = iter(b := make(view, 8, shuffle=True))
    assert [next(it).n.tolist() for _ in range(3)] == rows[:3]
    state = json.loads(json.dumps(b.state_dict()))
    c = make(view, 8, shuffle=True)
    c.load_state_dict(state)
    assert [batch.n.tolist() for batch in c] == rows[3:]
    # As many other records are other data.
    other = make(stoker.open(source).where(f"n >= {100 - len(want)}"), 8, shuffle=True)
    assert other.num_records == len(want)
    with pytest.raises(stoker.StateMismatch):
        other.load_state_dict(state)


def test_fields(make: Make, tmp_path: Path, photos: Path) -> None:
    source = table(tmp_path / "t.csv")
    loader = make(stoker.open(source).kinds({"cls": "label"}).select("cls", "n").rename({"cls": "label"}), 8)
    assert [a["name"] for a in loader.info["arrays"]] == ["label", "n", "index"]
    labels, _ = next(iter(loader))
    assert labels.tolist() == [1, 2, 0, 1, 2, 0, 1, 2]
    assert next(iter(make(stoker.open(source).drop("text", "patient", "cls"), 8))).keys() == ["n", "index"]
    np.save(tmp_path / "x.npy", np.arange(10 * 4 * 4 * 3, dtype=np.uint8).reshape(10, 4, 4, 3))
    image = make(stoker.open(tmp_path / "x.npy").kinds({"x": "image"}).rename({"x": "image"}), 5)
    assert np.array_equal(next(iter(image)).image, np.load(tmp_path / "x.npy")[:5])
    wide = make(stoker.open(photos).where("width >= 160 and label in (0, 2)"), 8, transforms=SMALL)
    assert set(np.concatenate([b.label for b in wide])) == {0, 2}


def test_refused(make: Make, tmp_path: Path) -> None:
    source = table(tmp_path / "t.csv")
    with pytest.raises(stoker.ConfigError, match=r'no field "m"') as error:
        make(stoker.open(source).where("m < 3"), 8)
    assert "\n  m < 3\n  ^" in str(error.value)
    for bad, text in (
        ("split=a:0.5,b:0.5", "set part to one of a, b"),
        ("split=a:0.5,b:0.5&part=c", "there is no part"),
        ("drop=m", "has no field"),
        ("where=n<0", "holds no records"),
        ("split=train", "split=train:0.9,val:0.1"),
    ):
        with pytest.raises(stoker.ConfigError, match=text):
            make(f"{source}#{bad}", 8)
    with pytest.raises(TypeError, match=r"stoker.open\(path\).where"):
        make(source, 8, where="n < 3")


def test_command_line(make: Make, binary: str, photos: Path, tmp_path: Path) -> None:
    cut = ("--split", "a:0.9,b:0.1", "--stratify", "label")
    said = json.loads(cli(binary, "inspect", str(photos), *cut, "--part", "b", "--json"))
    assert said["records"] == 20 and said["view"]["of"] == 203
    assert said["view"]["parts"] == [{"name": "a", "records": 183}, {"name": "b", "records": 20}]
    assert "where width>=10: 203 records" in cli(binary, "inspect", str(photos), "--where", "width>=10")
    out = tmp_path / "packs"
    cli(binary, "pack", str(photos), str(out), *cut, "--images", "keep")
    for part, data in zip("ab", stoker.open(photos).split(0.9, 0.1, stratify="label"), strict=True):
        whole = make(data, 16, transforms=SMALL)
        packed = make(out / part, 16, transforms=SMALL)
        assert packed.num_records == whole.num_records
        for x, y in zip(packed, whole, strict=True):
            assert np.array_equal(x.image, y.image) and np.array_equal(x.label, y.label)
    again = tmp_path / "again"
    cli(binary, "pack", str(out / "a"), str(again), "--where", "label == 1", "--rename", "label=cls", "--drop", "image")
    assert set(next(iter(make(again, 8))).cls) == {1}
    cli(binary, "bench", "decode", str(photos), "--where", "label == 1", *SHORT)
