"""Mixtures of datasets, with the real engine."""

from __future__ import annotations

import json
import pickle
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker

Make = Callable[..., stoker.Loader]


def table(path: Path, n: int, **more: Any) -> Path:
    path.write_text("".join(json.dumps({"x": i, "of": path.stem, **more}) + "\n" for i in range(n)))
    return path


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return [table(tmp_path / f"{name}.jsonl", n) for name, n in (("a", 40), ("b", 10), ("c", 25))]


def pairs(batch: stoker.Batch) -> list[tuple[str, int]]:
    return [(of, int(x)) for of, x in zip(batch["of"], batch["x"], strict=True)]


def drawn(loader: stoker.Loader, epochs: int = 1) -> list[tuple[str, int]]:
    return [pair for _ in range(epochs) for batch in loader for pair in pairs(batch)]


def within_one(order: list[str], shares: dict[str, float]) -> bool:
    counts: Counter[str] = Counter()
    for i, of in enumerate(order, 1):
        counts[of] += 1
        if any(abs(counts[name] - i * share) >= 1 for name, share in shares.items()):
            return False
    return True


def test_shares_and_rounds(make: Make, parts: list[Path]) -> None:
    a, b, c = map(stoker.open, parts)
    data = stoker.mix({a: 6, b: 3, c: 1})
    assert len(data) == 75
    assert [r["of"] for r in (data[0], data[40], data[74])] == ["a", "b", "c"]
    loader = make(data, 8, shuffle=True, seed=5)
    assert len(loader) == 10
    assert loader.info["mix"] == {
        "from": [0],
        "parts": [
            {"url": str(p), "records": n, "shares": [share]}
            for p, n, share in zip(parts, (40, 10, 25), (0.6, 0.3, 0.1), strict=True)
        ],
    }
    order = drawn(loader, 4)
    assert len(order) == 300
    assert within_one([of for of, _ in order], {"a": 0.6, "b": 0.3, "c": 0.1})
    for name, size in (("a", 40), ("b", 10), ("c", 25)):  # each record once in each round
        mine = [x for of, x in order if of == name]
        rounds = [mine[i : i + size] for i in range(0, len(mine), size)]
        assert all(sorted(r) == list(range(size)) for r in rounds if len(r) == size)
        assert len({tuple(r) for r in rounds}) == len(rounds)
    # Those in batches that wait for the loop are counted, too.
    assert loader.stats()["engine"]["mixed"][0] >= 180
    plain = drawn(make(data, 8), 1)
    assert [x for of, x in plain if of == "b"] == [i % 10 for i in range(sum(of == "b" for of, _ in plain))]


def test_schedule_and_ranks(make: Make, parts: list[Path]) -> None:
    a, b, c = map(str, parts)
    data = stoker.mix({a: 1, b: 1, c: 0}, schedule={100: {a: 0, b: 1, c: 3}}, length=64)
    one = drawn(make(data, 16, shuffle=True, seed=5), 4)
    assert len(one) == 256
    assert {of for of, _ in one[:100]} == {"a", "b"}
    assert within_one([of for of, _ in one[100:]], {"b": 0.25, "c": 0.75})
    loaders = [make(data, 4, shuffle=True, seed=5, ranks=stoker.Ranks(r, 4)) for r in range(4)]
    ranks = [[pairs(batch) for _ in range(4) for batch in loader] for loader in loaders]
    assert [row for step in zip(*ranks, strict=True) for rank in step for row in rank] == one


def test_resume_and_weights_by_hand(make: Make, parts: list[Path]) -> None:
    a, b, c = map(stoker.open, parts)
    data = stoker.mix({a: 2, b: 1, c: 1}, schedule={70: {a: 1, b: 1, c: 1}})
    whole = drawn(make(data, 6, shuffle=True, seed=1), 2)
    loader = make(data, 6, shuffle=True, seed=1)
    loop = iter(loader)
    start = [pair for _ in range(3) for pair in pairs(next(loop))]
    assert start == whole[:18]
    before = loader.state_dict()
    loader.set_weights({a: 0, b: 1, c: 0})
    after = loader.state_dict()
    assert after["mix"] == [{"from": 18, "weights": [0, 1, 0]}]
    assert len(json.dumps(after)) < 400
    rest = [pair for batch in loop for pair in pairs(batch)]
    assert len(rest) == 57
    assert {of for of, _ in rest} == {"b"}
    other = make(data, 3, shuffle=True, seed=1)  # with another batch size
    other.load_state_dict(json.loads(json.dumps(after)))
    assert drawn(other) == rest
    other.load_state_dict(before)  # without the change
    assert "mix" not in other.state_dict()
    assert drawn(other) == whole[18:75]
    loader.load_state_dict(after)
    loader.set_weights({a: 1, b: 1, c: 0})  # the same position again
    assert loader.state_dict()["mix"] == [{"from": 18, "weights": [1, 1, 0]}]
    with pytest.raises(stoker.StateMismatch):
        make(stoker.mix({a: 3, b: 1, c: 1}), 6, shuffle=True, seed=1).load_state_dict(before)
    with pytest.raises(stoker.StateMismatch, match="mix"):
        other.load_state_dict({**before, "mix": 3})


def test_augmented_differently(make: Make, photos: Path) -> None:
    """A record that comes twice in an epoch has other random numbers."""
    from stoker import transforms as T

    few, many = stoker.open(photos)[:2], stoker.open(photos)[2:20]
    data = stoker.mix({few: 1, many: 1}, length=16)
    seen: dict[int, list[Any]] = {}
    for batch in make(data, 4, transforms={"image": [T.RandomResizedCrop(16)]}):
        for i, image in zip(batch.index.tolist(), batch["image"], strict=True):
            seen.setdefault(i, []).append(image.copy())
    assert len(seen[0]) == 4
    assert not any(np.array_equal(seen[0][0], other) for other in seen[0][1:])


def test_sequences(make: Make, tmp_path: Path) -> None:
    """Each dataset is packed on its own, and weights count sequences."""
    paths = []
    for k in (1, 2):
        rng = np.random.default_rng(k)
        path = tmp_path / f"t{k}"
        rows = [{"tokens": np.full(rng.integers(3, 30), k, np.uint16)} for _ in range(40)]
        stoker.pack(rows, path, progress=False)
        paths.append(path)
    data = stoker.mix({paths[0]: 1, paths[1]: 3}).sequences(16)
    loader = make(data, 4, shuffle=True, seed=2)
    for _ in range(2):
        for batch in loader:
            assert all(len(set(row.tolist())) == 1 for row in batch["input"])
    first = [int(row[0]) for _ in range(2) for batch in loader for row in batch["input"]]
    assert abs(first.count(1) - len(first) / 4) <= 1


def test_bad_records(make: Make, parts: list[Path], photos: Path, tmp_path: Path) -> None:
    """A bad record is replaced by one of its dataset."""
    good, bad = stoker.open(photos)[:5], tmp_path / "bad"
    bad.mkdir()
    for i, source in enumerate(sorted(photos.rglob("*.jpg"))[:3]):
        folder = bad / source.parent.name
        folder.mkdir(exist_ok=True)
        (folder / f"{i}.jpg").write_bytes(b"no image" if i == 1 else source.read_bytes())
    other = stoker.open(bad).kinds({"label": "int"})
    data = stoker.mix({good.kinds({"label": "int"}): 1, other: 1}, length=12)
    from stoker import transforms as T

    loader = make(data, 4, transforms={"image": [T.Resize(8), T.CenterCrop(8)]}, on_error="skip")
    with pytest.warns(stoker.SkippedRecords):
        order = [int(i) for batch in loader for i in batch.index]
    assert len(order) == 12
    assert sum(i >= 5 for i in order) == 6


def test_pickle_and_map(make: Make, parts: list[Path]) -> None:
    data = stoker.mix({parts[0]: 1, parts[1]: 1}).map(lambda r: {"y": r["x"] + 1, "of": r["of"]})
    assert {int(y) for batch in make(data, 5, workers=0) for y in batch["y"]} >= set(range(1, 11))
    same = pickle.loads(pickle.dumps(stoker.mix({parts[0]: 1, parts[1]: 2})))
    assert same == stoker.mix({parts[0]: 1, parts[1]: 2}) != stoker.mix({parts[0]: 1, parts[1]: 1})
    assert len(drawn(make(same, 5))) == 50


def test_refused(make: Make, parts: list[Path], tmp_path: Path) -> None:
    a, b, _ = map(stoker.open, parts)
    other = table(tmp_path / "d.jsonl", 5, more=1)
    for match, call in {
        "needs the weights": lambda: stoker.mix({}),
        "0 or more": lambda: stoker.mix({a: -1}),
        "not a number": lambda: stoker.mix({a: "3"}),
        "all weights": lambda: stoker.mix({a: 0}),
        "twice": lambda: stoker.mix({a: 1, str(parts[0]): 1}),
        "not a dataset": lambda: stoker.mix({a: 1}, schedule={9: {a: 1, b: 1}}),
        "lack": lambda: stoker.mix({a: 1, b: 1}, schedule={9: {a: 1}}),
        "position": lambda: stoker.mix({a: 1}, schedule={0: {a: 1}}),
        "is a mixture": lambda: stoker.mix({stoker.mix({a: 1}): 1}),
        "a dataset is a mixture": lambda: stoker.concat([a, stoker.mix({a: 1, b: 1})]),
        "call mix first": lambda: stoker.mix({a.map(dict): 1}),
        "before stoker.mix": lambda: stoker.mix({a: 1, b: 1}).where("x < 3"),
        "no part": lambda: stoker.mix({a: 1, b: 1})[:3],
        'field "more"': lambda: make(stoker.mix({a: 1, other: 1}), 4),
        "bucket": lambda: make(stoker.mix({a: 1, b: 1}), 4, bucket="of"),
        "order of its own": lambda: make(stoker.mix({a: 1, b: 1}), 4, shuffle="window:2"),
        "mixtures": lambda: make(a, 4).set_weights({a: 1}),
        "loaders": lambda: stoker.pack(stoker.mix({a: 1, b: 1}), tmp_path / "p"),
        "its datasets": lambda: stoker.inspect(stoker.mix({a: 1, b: 1})),
        "holds no records": lambda: make(stoker.mix({a: 1, b.where("x < 0"): 1}), 4),
    }.items():
        with pytest.raises(stoker.ConfigError, match=match):
            call()


def test_a_thousand_datasets(make: Make, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """The engine needs at most 32 threads, 256 files and 200 MiB."""
    first = tmp_path / "0" / "pack"
    stoker.pack(table(tmp_path / "t.jsonl", 3), first, progress=False)
    paths = [first]
    for i in range(1, 1000):
        paths.append(tmp_path / str(i) / "pack")
        shutil.copytree(first, paths[-1])
    began = time.monotonic()
    data = stoker.mix({p: 1 / (i + 3) for i, p in enumerate(paths)})
    loader = make(data, 50, shuffle=True, limits=stoker.Limits(memory="64MB"))
    process = loader._epochs.live()._process
    assert process is not None
    seen: list[int] = []
    for step, batch in enumerate(loader):
        if step == 0:
            record_property("seconds to the first batch", time.monotonic() - began)
        seen += (batch.index // 3).tolist()
    status = dict(line.split(":\t") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    assert int(status["Threads"]) <= 32
    assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) <= 256
    assert int(status["VmHWM"].split()[0]) <= 200 << 10
    assert len(seen) == 3000
    total = sum(1 / (i + 3) for i in range(1000))
    counts = np.bincount(seen, minlength=1000)
    assert np.abs(counts - 3000 / (np.arange(1000) + 3) / total).max() < 1.01  # shares are rounded to 2^-20
