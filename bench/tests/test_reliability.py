"""Generated files of each kind equal the reference's reading. bench/reliability.py also measures collections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import stoker
from stoker import transforms as T

from bench import reliability

Make = Callable[..., stoker.Loader]


def test_generated_pictures(make: Make, tmp_path: Path) -> None:
    """Every mode, compression and orientation that Pillow writes gives the pixels of Pillow."""
    want = {}
    for name, data in reliability.pictures():
        (tmp_path / name).write_bytes(data)
        want[name] = reliability.picture_theirs(tmp_path / name)
    loader = make(str(tmp_path), batch_size=len(want), transforms={"image": [T.CenterCrop((63, 63))]})
    images = next(iter(loader)).image
    for got, name in zip(images, sorted(want), strict=True):
        h, w = want[name].shape[:2]
        top, left = (63 - h) // 2, (63 - w) // 2
        expected = np.zeros((63, 63, 3), np.int16)
        expected[top : top + h, left : left + w] = want[name]
        lossy = Path(name).suffix in reliability.KINDS[0].lossy
        assert np.abs(got - expected).max() <= (reliability.KINDS[0].tolerance if lossy else 0), name


@pytest.mark.parametrize("kind", reliability.KINDS, ids=lambda k: k.name)
def test_classes(tmp_path: Path, kind: reliability.Kind, monkeypatch: pytest.MonkeyPatch, binary: str) -> None:
    """One file of a kind is equal, and a damaged one is refused by both sides."""
    monkeypatch.setenv("STOKER_BINARY", binary)
    make = {"pictures": reliability.pictures, "recordings": reliability.sounds, "tables": reliability.tables}
    name, data = next(iter(make.get(kind.name, reliability.videos)()))
    (tmp_path / name).write_bytes(data)
    (tmp_path / f"cut-{name}").write_bytes(data[:20])
    result = reliability.measure(tmp_path, "test", kind.name)[0]
    assert result.counts["equal"] + result.counts["close"] == 1, vars(result)
    assert result.counts["both"] == 1, vars(result)
