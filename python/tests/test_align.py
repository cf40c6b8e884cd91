"""``align=``: in each step all ranks have records with a value in a field, or none has."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import CHECKOUT

Make = Callable[..., stoker.Loader]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Return a table of 103 rows, about a third of them with an image."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    lines = []
    for i in range(103):
        name = None
        if rng.random() < 0.3:
            name = f"{i}.png"
            out = io.BytesIO()
            image.fromarray(np.full((9, 8, 3), i + 1, np.uint8)).save(out, "PNG")
            (tmp_path / name).write_bytes(out.getvalue())
        lines.append(json.dumps({"image": name, "text": "x" * (i % 5), "n": i}))
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("world", [1, 4])
def test_images(make: Make, mixed: Path, world: int) -> None:
    ops = {"image": [T.Resize(8), T.CenterCrop(8)]}
    loaders = [
        make(mixed, 4, shuffle=True, align="image", transforms=ops, ranks=stoker.Ranks(r, world)) for r in range(world)
    ]
    for _ in range(2):
        seen: list[int] = []
        kinds: list[bool] = []
        for step in zip(*loaders, strict=True):
            kinds.append(bool(step[0]["has_image"][0]))
            for batch in step:
                assert len(batch) >= 1
                assert batch["has_image"].dtype == bool
                assert (batch["has_image"] == kinds[-1]).all()
                for n, pixels in zip(batch["n"].tolist(), batch["image"], strict=True):
                    assert (pixels == (n + 1 if kinds[-1] else 0)).all()
                seen += batch["n"].tolist()
        assert sorted(seen) == list(range(103))
        share = sum(kinds) / len(kinds)
        assert all(abs(sum(kinds[:i]) - i * share) <= 1 for i in range(len(kinds)))
    state = loaders[0].state_dict()
    loop = iter(loaders[0])
    first = [next(loop)["n"].tolist() for _ in range(3)]
    other = make(mixed, 4, shuffle=True, align="image", transforms=ops, ranks=stoker.Ranks(0, world))
    other.load_state_dict(state)
    loop = iter(other)
    assert [next(loop)["n"].tolist() for _ in range(3)] == first


def test_rows_of_any_length(make: Make, mixed: Path) -> None:
    for batch in make(stoker.open(mixed).drop("image"), 8, align="text"):
        assert [bool(t) for t in batch["text"]] == batch["has_text"].tolist() == [batch["has_text"][0]] * len(batch)


@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize("tokens", [None, 8])
def test_buckets(make: Make, mixed: Path, world: int, tokens: int | None) -> None:
    """In each step the ranks have images or none, and texts of one bucket. The order is that of seed and position."""
    bucket = stoker.Buckets("text", boundaries=[2], max_tokens=tokens)
    options: dict[str, Any] = {"shuffle": True, "align": "image", "bucket": bucket, "seed": 5}
    options |= {"transforms": {"image": [T.Resize(8), T.CenterCrop(8)]}}
    uneven: Literal["exact", "pad"] = "pad" if world > 5 else "exact"  # too few images in a bucket for so many
    loaders = [make(mixed, 4, **options, ranks=stoker.Ranks(r, world, uneven=uneven)) for r in range(world)]
    steps = []
    for _ in range(2):
        seen: list[int] = []
        for step in zip(*loaders, strict=True):
            kinds = set()
            for batch in step:
                assert len(batch) >= 1
                kinds |= set(zip(batch["has_image"].tolist(), [len(t) > 2 for t in batch["text"]], strict=True))
                for n, pixels, has in zip(batch["n"].tolist(), batch["image"], batch["has_image"], strict=True):
                    assert (pixels == (n + 1 if has else 0)).all()
                seen += batch["n"][~batch.repeated].tolist()
            assert len(kinds) == 1
            steps.append([batch["n"].tolist() for batch in step])
        assert sorted(seen) == list(range(103))
    first, other = (make(mixed, 4, **options, ranks=stoker.Ranks(world - 1, world, uneven=uneven)) for _ in range(2))
    loop = iter(first)
    begun = [next(loop)["n"].tolist() for _ in range(3)]
    other.load_state_dict(first.state_dict())
    assert begun + [batch["n"].tolist() for batch in other] == [step[-1] for step in steps[: len(steps) // 2]]


def test_other_ranks(make: Make, mixed: Path) -> None:
    """A run continues on fewer ranks, if they share its steps evenly."""
    data = stoker.open(mixed).drop("image")
    state = make(data, 4, shuffle=True, align="text", ranks=stoker.Ranks(0, 4)).state_dict()
    loaders = [make(data, 4, shuffle=True, align="text", ranks=stoker.Ranks(r, 2)) for r in range(2)]
    seen: list[int] = []
    for loader in loaders:
        loader.load_state_dict(state)
    for step in zip(*loaders, strict=True):
        assert len({bool(b["has_text"][0]) for b in step}) == 1
        seen += [n for b in step for n in b["n"].tolist()]
    assert sorted(seen) == list(range(103))
    with pytest.raises(stoker.ConfigError, match="divides 4"):
        make(data, 4, shuffle=True, align="text", ranks=stoker.Ranks(0, 3)).load_state_dict(state)


def test_example() -> None:
    """Four ranks with a barrier for images. Without align they hang: examples/align_ranks.py --no-align."""
    pytest.importorskip("torch.distributed")
    command = [sys.executable, str(CHECKOUT / "examples/align_ranks.py"), "--steps", "30", "--wait", "300"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "none waited in vain" in ran.stdout


def test_refused(make: Make, mixed: Path) -> None:
    data = stoker.open(mixed).drop("image")
    refused: dict[str, dict[str, Any]] = {
        'no field "imag"': {"align": "imag"},
        "each record has a value": {"align": "n"},
        "use one of them": {"align": "text", "shuffle": "window:2"},
        "uneven": {"align": "text", "ranks": stoker.Ranks(0, 64)},
    }
    for match, options in refused.items():
        with pytest.raises(stoker.ConfigError, match=match):
            make(data, 4, **options)
