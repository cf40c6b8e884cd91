"""Folders of Lhotse Shar, written by Lhotse and compared with what Lhotse reads from them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from support import CHECKOUT

pytest.importorskip("lhotse", reason="needs Lhotse, which writes the folders and reads them")
pytest.importorskip("lilcom", reason="Lhotse compresses an array with it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Lhotse, which leaves files open
Make = Callable[..., stoker.Loader]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from lhotse.audio.backend import LibsndfileBackend, set_current_audio_backend

    set_current_audio_backend(LibsndfileBackend())
    spec = importlib.util.spec_from_file_location("shar_fixture", CHECKOUT / "scripts/fixtures/shar.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder: Path = tmp_path_factory.mktemp("shar") / "written"
    module.main(folder)
    return folder


def cuts(folder: Path) -> list[Any]:
    from lhotse import CutSet

    return list(CutSet.from_shar(in_dir=folder))


@pytest.mark.parametrize("folder", ["whole", "parts"])
def test_equal_to_lhotse(make: Make, root: Path, folder: str) -> None:
    expected = {c.id: c for c in cuts(root / folder)}
    seen = []
    fields = "id&text&duration&target&recording&features&codes&vector&segments&quality"
    loader = make(
        f"{root / folder}?{fields}",
        batch_size=5,
        shuffle=True,
        seed=2,
        transforms={"target": [stoker.audio.Decode()], "recording": [stoker.audio.Mono()]},
    )
    for batch in loader:
        for k, name in enumerate(batch["id"]):
            c = expected[name]
            seen.append(name)
            assert batch["text"][k] == " ".join(s.text for s in c.supervisions)
            assert batch["duration"][k] == c.duration
            assert np.array_equal(batch["segments"][k], [[s.start, s.duration] for s in c.supervisions])
            assert np.array_equal(batch["features"][k], c.load_features())
            assert np.array_equal(batch["codes"][k], c.load_codes())
            assert np.array_equal(batch["vector"][k], c.load_vector())
            assert np.array_equal(batch["target"][k].T, c.load_target())
            assert np.allclose(batch["recording"][k], c.load_audio().mean(axis=0), atol=1e-6)
            quality = c.custom.get("quality")
            assert np.isnan(batch["quality"][k]) if quality is None else batch["quality"][k] == quality
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize(("kind", "near"), [("wav", 0.0), ("flac", 0.0), ("mp3", 1e-4), ("opus", 2e-4)])
def test_formats_of_sound(make: Make, root: Path, tmp_path: Path, kind: str, near: float) -> None:
    from lhotse.shar import SharWriter

    rate = 16000 if kind == "opus" else 8000
    with SharWriter(tmp_path, fields={"recording": kind}, shard_size=10, warn_unused_fields=False) as w:
        for c in cuts(root / "whole"):
            if c.num_channels == 1:
                c.features = c.custom = None
                w.write(c.resample(rate))
    expected = cuts(tmp_path)
    loader = make(f"{tmp_path}?recording&id", batch_size=1, transforms={"recording": [stoker.audio.Mono()]})
    rows = [(batch["id"][0], batch["recording"][0]) for batch in loader]
    assert [name for name, _ in rows] == [c.id for c in expected]
    for (_, got), c in zip(rows, expected, strict=True):
        want = c.recording.to_cut().load_audio()[0]
        assert np.abs(got[: len(want)] - want[: len(got)]).max() <= near
        assert abs(len(got) - len(want)) <= (0 if near == 0 else 1)


def test_left_out(make: Make, root: Path) -> None:
    assert stoker.open(root / "parts")[1]["id"] == "spk.1-001"
    with pytest.raises(stoker.StokerError, match=r'write the field with "numpy" instead of "lilcom"'):
        make(f"{root / 'parts'}?squeezed", batch_size=1)
