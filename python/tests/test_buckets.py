"""Batches of records that are alike, with the real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import transforms as T
from support import cli

Make = Callable[..., stoker.Loader]
COUNT = 300
LENGTHS = [int(n) for n in np.random.default_rng(5).gamma(2, 30, COUNT)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module", params=["table", "pack"])
def source(request: Any, binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("buckets")
    path = folder / "rows.jsonl"
    rows = [{"tokens": list(range(i, i + n)), "n": i} for i, n in enumerate(LENGTHS)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    if request.param == "table":
        return path
    cli(binary, "pack", path, folder / "pack")
    return folder / "pack"


@pytest.mark.parametrize("shuffle", [False, True])
def test_by_length(make: Make, source: Path, shuffle: bool) -> None:
    bounds = [20, 50, 100]
    options: dict[str, Any] = {
        "shuffle": shuffle,
        "seed": 3,
        "bucket": stoker.Buckets("tokens", boundaries=bounds),
        "transforms": {"tokens": stoker.Padded(-1, multiple=4)},
    }
    loader = make(source, 8, **options)
    epochs = []
    for _ in range(2):
        batches = [(b.index.tolist(), b.tokens.copy(), b.tokens_length.tolist()) for b in loader]
        assert len(batches) == len(loader)
        assert sorted(i for ids, _, _ in batches for i in ids) == list(range(COUNT))
        for ids, tokens, lengths in batches:
            assert lengths == [LENGTHS[i] for i in ids]
            assert len({int(np.searchsorted(bounds, n)) for n in lengths}) == 1
            assert all(
                row[:n].tolist() == list(range(i, i + n)) for i, row, n in zip(ids, tokens, lengths, strict=True)
            )
            assert tokens.shape[1] == -(-max(lengths) // 4) * 4
        epochs.append([ids for ids, _, _ in batches])
    assert (epochs[0] != epochs[1]) == shuffle
    # A state leads to the very next batch, and all ranks together give each record once.
    it = iter(again := make(source, 8, **options))
    assert [next(it).index.tolist() for _ in range(5)] == epochs[0][:5]
    other = make(source, 8, **options)
    other.load_state_dict(json.loads(json.dumps(again.state_dict())))
    assert [b.index.tolist() for b in other] == epochs[0][5:]
    with pytest.raises(stoker.StateMismatch, match="other settings of bucket, sequences"):
        make(source, 9, **options).load_state_dict(again.state_dict())
    # Three ranks continue in the order that one began with.
    moved = [make(source, 8, ranks=stoker.Ranks(r, 3), **options) for r in range(3)]
    for rank in moved:
        rank.load_state_dict(again.state_dict())
        assert rank.state_dict() == again.state_dict() and rank.info["buckets"]["ranks"] == 1
    rest = [[b.index.tolist() for b in rank] for rank in moved]
    assert [ids for step in zip(*rest, strict=True) for ids in step if ids] == epochs[0][5:]
    assert [b.index.tolist() for b in moved[0]] == epochs[1][::3], "also in the epochs after it"
    ranks = [make(source, 8, ranks=stoker.Ranks(r, 3), **options) for r in range(3)]
    assert len({len(r) for r in ranks}) == 1
    seen = [[b.index.tolist() for b in r] for r in ranks]
    assert sorted(i for r in seen for ids in r for i in ids) == list(range(COUNT))
    assert all(len(r) == len(ranks[0]) for r in seen)


def test_max_tokens(make: Make, source: Path) -> None:
    loader = make(
        source,
        64,
        shuffle=True,
        bucket=stoker.Buckets("tokens", max_tokens=1024),
        transforms={"tokens": stoker.Padded()},
    )
    seen, used, room = [], 0, 0
    for batch in loader:
        rows, longest = batch.tokens.shape
        assert rows * longest <= 1024 and rows <= 64
        seen += batch.index.tolist()
        used += int(batch.tokens_length.sum())
        room += rows * longest
    assert sorted(seen) == list(range(COUNT))
    assert used / room > 0.8
    info = loader.info["buckets"]
    assert sum(info["records"]) == COUNT and max(info["largest"]) == max(LENGTHS)
    # The ring is not larger than needed for that.
    tokens = next(a for a in loader.info["arrays"] if a["name"] == "tokens")
    assert tokens["capacity"] <= 1024 * 8
    with pytest.raises(
        stoker.ConfigError, match=r'more than max_tokens, which is 100: leave it out \(where="tokens.length'
    ):
        make(source, 64, bucket=stoker.Buckets("tokens", max_tokens=100), transforms={"tokens": stoker.Padded()})
    short = make(
        stoker.open(source).where("tokens.length <= 100"),
        64,
        bucket=stoker.Buckets("tokens", max_tokens=100),
        transforms={"tokens": stoker.Padded()},
    )
    assert sorted(i for b in short for i in b.n.tolist()) == [i for i, n in enumerate(LENGTHS) if n <= 100]
    cut = stoker.Padded(length=50, truncate=True)
    assert all(
        b.tokens.shape == (len(b), 50) and len(b) <= 2
        for b in make(source, 64, bucket=stoker.Buckets("tokens", max_tokens=100), transforms={"tokens": cut})
    )


@pytest.mark.parametrize("packed", [False, True])
def test_by_proportions(make: Make, binary: str, tmp_path: Path, packed: bool) -> None:
    sizes = [(60 + 7 * (i % 11), 60 + 11 * (i % 7)) for i in range(80)]
    for i, size in enumerate(sizes):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.new("RGB", size, (i, 0, 0)).save(tmp_path / "photos" / f"{i:03}.{'jpg' if i % 2 else 'png'}")
    source = tmp_path / "photos"
    if packed:
        cli(binary, "pack", source, tmp_path / "p")
        source = tmp_path / "p"
    fields: Any = {"image": [T.CenterCrop(32)]}
    bounds = [0.8, 1.0, 1.25]
    loader = make(source, 8, shuffle=True, transforms=fields, bucket=stoker.Buckets("image", boundaries=bounds))
    seen = []
    for batch in loader:
        ratios = [sizes[i][0] / sizes[i][1] for i in batch.index]
        assert len({int(np.searchsorted(bounds, r)) for r in ratios}) == 1
        seen += batch.index.tolist()
    assert sorted(seen) == list(range(80))
    (tmp_path / "photos" / "000.png").write_bytes(b"no image")
    if not packed:
        bad = make(source, 8, transforms=fields, bucket="image", on_error="skip")
        with pytest.warns(stoker.SkippedRecords):
            assert sum(len(b) for b in bad) == 80


def test_refused(make: Make, source: Path) -> None:
    for bucket, text in (
        ("token", 'did you mean "tokens"'),
        ("n", "have no length"),
        (stoker.Buckets("tokens", boundaries=[3, 2]), "must be more than 0 and rise"),
        (stoker.Buckets("tokens", boundaries=[3], count=2), "exclude each other"),
    ):
        with pytest.raises(stoker.ConfigError, match=text):
            make(source, 8, bucket=bucket)
    assert repr(stoker.Buckets("tokens", count=3, max_tokens=9)) == "Buckets('tokens', count=3, max_tokens=9)"
    assert len(make(source, 8, bucket="tokens", drop_last=True)) <= COUNT // 8
