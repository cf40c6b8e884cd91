"""Rows of different lengths as one array, with the real engine."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from support import cli

Make = Callable[..., stoker.Loader]
COUNT = 70


def rows() -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    return [
        {
            "tokens": [int(v) for v in rng.integers(1, 60000, int(rng.integers(0, 3) * rng.integers(0, 40)))],
            "points": [[float(v) for v in rng.integers(0, 9, 2)] for _ in range(int(rng.integers(0, 6)))],
            "caption": "x" * int(rng.integers(0, 50)),
            "n": i,
        }
        for i in range(COUNT)
    ]


@pytest.fixture(scope="module", params=["table", "pack"])
def source(request: Any, binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("pad")
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows()))
    if request.param == "table":
        return path
    cli(binary, "pack", path, folder / "pack")
    return folder / "pack"


def plain(values: list[Any], fill: float, length: int, like: Any) -> Any:
    """Fill up in the plainest way."""
    out = np.full((len(values), length, *like.shape[2:]), fill, like.dtype)
    for to, v in zip(out, values, strict=True):
        v = v[:length]
        if len(v):
            to[: len(v)] = v
    return out


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_padded(make: Make, source: Path, output: str) -> None:
    want = rows()
    pad: Any = {
        "tokens": stoker.Padded(-1, multiple=8, mask=True),
        "points": [stoker.Padded(0.5)],
        "caption": stoker.Padded(32, length=20, truncate=True),
    }
    loader = make(source, 16, transforms=pad, shuffle=True, output=output)
    seen = 0
    for batch in loader:
        mine = [want[i] for i in batch.index.tolist()]
        seen += len(mine)
        a = {name: np.asarray(v) for name, v in batch.items()}
        tokens = [r["tokens"] for r in mine]
        longest = max(map(len, tokens))
        assert a["tokens"].shape == (len(mine), -(-longest // 8) * 8)
        assert np.array_equal(a["tokens"], plain(tokens, -1, a["tokens"].shape[1], a["tokens"]))
        assert a["tokens_length"].tolist() == [len(t) for t in tokens]
        assert a["tokens_mask"].dtype == bool
        assert np.array_equal(a["tokens_mask"], np.arange(a["tokens"].shape[1]) < a["tokens_length"][:, None])
        points = [r["points"] for r in mine]
        assert np.array_equal(a["points"], plain(points, 0.5, max(map(len, points)), a["points"]))
        captions = [np.frombuffer(r["caption"].encode(), np.uint8) for r in mine]
        assert np.array_equal(a["caption"], plain(captions, 32, 20, a["caption"]))
        assert a["caption_length"].tolist() == [min(len(c), 20) for c in captions]
        # An array that describes another array is not listed.
        assert len(list(batch)) == 4 and [
            v is batch[n] for v, n in zip(batch, ("tokens", "points", "caption", "n"), strict=True)
        ]
        again = pickle.loads(pickle.dumps(batch.copy()))
        assert len(list(again)) == 4 and np.array_equal(np.asarray(again.tokens), a["tokens"])
    assert seen == COUNT
    assert "tokens: int64[padded]" in repr(loader) and "tokens_mask: bool[padded]" in repr(loader)


def test_refused(make: Make, source: Path) -> None:
    for pad, text in (
        ({"token": stoker.Padded()}, 'did you mean "tokens"'),
        ({"n": stoker.Padded()}, "not an array of rows of different lengths"),
        ({"caption": stoker.Padded(-1)}, "the value -1 does not fit elements of uint8"),
        ({"tokens": stoker.Padded(length=8, multiple=4)}, "only one of them"),
        ({"tokens": stoker.Padded(truncate=True)}, "there is none"),
        (3, "must be a dict"),
    ):
        with pytest.raises(stoker.ConfigError, match=text):
            make(source, 16, transforms=pad)
    with pytest.raises(stoker.ConfigError, match="must be a number"):
        stoker.Padded("0")  # type: ignore[arg-type]
    with pytest.raises(stoker.ConfigError, match=r"multiple must be a whole number .* not True"):
        stoker.Padded(multiple=True)
    flags = stoker.Padded(0, length=4, truncate=np.True_, mask=np.True_)  # type: ignore[arg-type]
    assert json.loads(json.dumps(flags.to_config()))["truncate"] is True
    with pytest.raises(stoker.RecordError, match="more than the length of 5"):
        list(make(source, 16, transforms={"tokens": stoker.Padded(length=5)}))
    assert (
        repr(stoker.Padded(1, length=4, truncate=True, mask=True))
        == "Padded(value=1, length=4, truncate=True, mask=True)"
    )
