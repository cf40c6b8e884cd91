"""Damaged data: what a loader gives, and where it reads records again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker


def flip(path: Path, at: int) -> None:
    """Flip a bit of a file."""
    with path.open("r+b") as f:
        f.seek(at)
        b = f.read(1)
        f.seek(at)
        f.write(bytes([b[0] ^ 1 << at % 8]))


def values(loader: stoker.Loader) -> list[bytes]:
    return [row.tobytes() for batch in loader for row in np.asarray(batch["image"])]


def resized(**options: Any) -> dict[str, Any]:
    return {"batch_size": 4, "fields": {"image": [stoker.transforms.Resize((32, 32))]}, **options}


@pytest.fixture
def copies(pack: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Make two copies of a pack, and damage an image in the middle of each shard of the first."""
    for name in ("one", "two"):
        shutil.copytree(pack, tmp_path / name)
    for shard in json.loads((pack / "manifest.json").read_text())["shards"]:
        flip(tmp_path / "one" / shard["file"], shard["bytes"] // 2)
    return tmp_path / "one", tmp_path / "two"


def test_repair(copies: tuple[Path, Path]) -> None:
    one, two = copies
    want = values(stoker.Loader(two, **resized()))
    with pytest.raises(stoker.RecordError, match="does not match its checksum"):
        values(stoker.Loader(one, **resized()))
    loader = stoker.Loader(one, **resized(on_error="repair", repair_from=two))
    for _ in range(2):
        assert values(loader) == want
    assert loader.stats()["repaired"]["copy"] >= 1
    assert loader.stats()["repaired"]["store"] == 0
    assert loader.stats()["skipped"] == 0


def test_both_copies_are_damaged(copies: tuple[Path, Path]) -> None:
    one, two = copies
    for shard in json.loads((one / "manifest.json").read_text())["shards"]:
        flip(two / shard["file"], shard["bytes"] // 2)
    loader = stoker.Loader(one, **resized(on_error="repair", repair_from=two))
    with pytest.raises(stoker.RecordError) as e:
        values(loader)
    assert str(one) in str(e.value)
    assert str(two) in str(e.value)


def test_repair_refuses(copies: tuple[Path, Path], photos: Path, tmp_path: Path) -> None:
    one, two = copies
    cases: list[tuple[dict[str, Any], str]] = [
        ({"on_error": "repair"}, "go together"),
        ({"repair_from": two}, "go together"),
        ({"on_error": "repair", "repair_from": photos}, "is not a copy of"),
        ({"on_error": "repair", "repair_from": tmp_path / "none"}, "repair_from"),
    ]
    for options, why in cases:
        with pytest.raises(stoker.ConfigError, match=why):
            stoker.Loader(one, **resized(**options))
    with pytest.raises(stoker.ConfigError, match="is not a pack"):
        stoker.Loader(photos, **resized(on_error="repair", repair_from=two))
