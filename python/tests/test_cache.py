"""The cache of folders that are read without packing."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T

Make = Callable[..., stoker.Loader]


def test_epochs_are_the_same(make: Make, photos: Path, tmp_path: Path) -> None:
    def load(**more: object) -> stoker.Loader:
        crop = [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]
        return make(photos, batch_size=16, shuffle=True, seed=4, transforms={"image": crop}, **more)

    plain, cached = load(cache=False), load(cache=stoker.Cache(dir=tmp_path / "cache"))
    for _ in range(12):  # what is read ahead of so small a folder are several epochs
        for a, b in zip(plain, cached, strict=True):
            assert np.array_equal(a["image"], b["image"])
            assert np.array_equal(a["index"], b["index"])
    assert "cache" not in plain.stats()["engine"]
    stats = cached.stats()["engine"]["cache"]
    assert stats["hits"] > 0 and stats["misses"] > 0
    assert stats["damaged"] == 0
    assert Path(stats["folder"]).is_relative_to(tmp_path / "cache")


def test_another_loader_finds_it(make: Make, photos: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with make(
            photos, batch_size=16, transforms={"image": [T.Resize((32, 32))]}, cache=stoker.Cache(dir=tmp_path)
        ) as loader:
            for _ in range(8):
                for _batch in loader:
                    pass
            stats = loader.stats()["engine"]["cache"]
    assert stats["hits"] > 0


def test_unwritable(make: Make, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="there is no cache"):
        loader = make(
            photos, batch_size=16, transforms={"image": [T.Resize((32, 32))]}, cache=stoker.Cache(dir=tmp_path / "file")
        )
    assert sum(len(batch["label"]) for batch in loader) == 203


def test_nothing_is_said_if_nobody_wanted_a_cache(
    make: Make, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STOKER_CACHE_DIR", str(tmp_path / "file"))
    crop = {"image": [T.Resize((32, 32))]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(photos, batch_size=16, transforms=crop)
    with pytest.warns(RuntimeWarning, match="there is no cache") as warned:
        make(photos, batch_size=16, transforms=crop, cache=True)
    assert "/stoker/" not in warned[0].filename, "a warning is about the user's line"


def test_by_default(make: Make, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are cached by default. Other sources are not, and nothing is cached in memory."""
    crop = {"image": [T.Resize((32, 32))]}

    def cached(source: object, **more: object) -> bool:
        with make(source, batch_size=16, transforms=crop, **more) as loader:
            for _batch in loader:
                pass
            return "cache" in loader.stats()["engine"]

    assert not cached(photos)  # as the environment of the tests says
    monkeypatch.delenv("STOKER_CACHE")
    monkeypatch.setenv("STOKER_CACHE_DIR", str(tmp_path / "cache"))
    kept = cached(photos)
    if not kept:
        pytest.skip("the folder of the tests is no disk")
    assert cached(photos, cache="auto") and cached(photos, cache=True)
    assert not cached(photos, cache=False)
    monkeypatch.setenv("STOKER_CACHE", "off")
    assert not cached(photos) and cached(photos, cache=True) and cached(photos, cache=stoker.Cache(limit="1GB"))
    monkeypatch.setenv("STOKER_CACHE", "of")
    with pytest.raises(stoker.ConfigError, match=r"STOKER_CACHE='of' in the environment"):
        cached(photos)


@pytest.mark.parametrize("cache", ["always", 3])
def test_refused(cache: Any) -> None:
    with pytest.raises(stoker.ConfigError, match=r"cache must be a stoker.Cache\(...\), True, False or \"auto\", not"):
        stoker.Loader("nowhere", batch_size=1, cache=cache)


@pytest.mark.parametrize("options", [{"limit": "much"}, {"limit": 0}, {"memory": "x"}, {"peers": 3}])
def test_a_cache_that_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(stoker.ConfigError, match=next(iter(options))):
        stoker.Cache(**options)


def test_of_torchs_loader(photos: Path, tmp_path: Path) -> None:
    """The arguments are those of Loader. The pixels are the same, also from the cache."""
    torch = pytest.importorskip("torch")
    tv = pytest.importorskip("torchvision")
    from stoker.torch import DataLoader

    transform = tv.transforms.Compose([tv.transforms.Resize((32, 32)), tv.transforms.PILToTensor()])
    data = tv.datasets.ImageFolder(str(photos), transform)

    def epoch(loader: Any) -> Any:
        return torch.cat([images for images, _ in loader])

    plain = DataLoader(data, 16, cache=False)
    assert "it is off" in plain.explain()
    want, folder = epoch(plain), tmp_path / "cache"
    loader = DataLoader(data, 16, cache=stoker.Cache(True, dir=folder, limit="1GB"))
    if str(folder) not in loader.explain():
        pytest.skip("the folder of the tests is no disk")
    deadline = time.monotonic() + 60  # what is kept is written behind the loop
    while not any(f.stat().st_size for f in folder.rglob("*") if f.is_file()):
        assert time.monotonic() < deadline
        assert torch.equal(epoch(loader), want)
    assert torch.equal(epoch(loader), want)
    # A loader that is made again uses the same cache, and explain() reports what cannot be cached.
    again = DataLoader(data, 16, cache=loader.cache)
    assert str(folder) in again.explain() and torch.equal(epoch(again), want)
    assert str(folder) in pickle.loads(pickle.dumps(loader)).explain()
    assert "nothing is kept" in DataLoader([1, 2, 3], 2, cache=True).explain()
    assert not hasattr(DataLoader(data, 16), "cache")
    with pytest.raises(stoker.ConfigError):
        DataLoader(data, 16, cache="always")  # type: ignore[arg-type]
