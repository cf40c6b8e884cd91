"""Optical flow (.flo) and portable float maps (.pfm) that NumPy wrote, read directly and packed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stoker
from support import cli

Make = Callable[..., stoker.Loader]


def write_flo(path: Path, flow: np.ndarray) -> None:
    """As Middlebury's own writer does."""
    with open(path, "wb") as f:
        np.float32(202021.25).tofile(f)
        np.array([flow.shape[1], flow.shape[0]], "<i4").tofile(f)
        flow.astype("<f4").tofile(f)


def write_pfm(path: Path, pixels: np.ndarray, order: str) -> None:
    kind = "PF" if pixels.ndim == 3 else "Pf"
    scale = "-1.0" if order == "<" else "1.0"
    head = f"{kind}\n{pixels.shape[1]} {pixels.shape[0]}\n{scale}\n".encode()
    path.write_bytes(head + np.flipud(pixels).astype(f"{order}f4").tobytes())


@pytest.mark.parametrize(
    ("extension", "shape", "order"),
    [
        ("flo", (7, 9, 2), "<"),
        ("pfm", (7, 9), "<"),
        ("pfm", (7, 9), ">"),
        ("pfm", (7, 9, 3), "<"),
        ("pfm", (7, 9, 3), ">"),
    ],
)
def test_values(make: Make, binary: str, tmp_path: Path, extension: str, shape: tuple[int, ...], order: str) -> None:
    rng = np.random.default_rng(5)
    values = rng.standard_normal((20, *shape)).astype(np.float32)
    values[0].flat[:3] = [np.inf, -0.0, 1e-40]
    folder = tmp_path / "in"
    folder.mkdir()
    for i, value in enumerate(values):
        if extension == "flo":
            write_flo(folder / f"{i:02}.flo", value)
        else:
            write_pfm(folder / f"{i:02}.pfm", value, order)
    pack = tmp_path / "pack"
    cli(binary, "pack", folder, pack)
    name = "flow" if extension == "flo" else "data"
    for source in (folder, pack):
        seen = 0
        for batch in make(str(source), batch_size=6, shuffle=True, seed=3):
            got = getattr(batch, name)
            assert got.dtype == np.float32
            assert got.tobytes() == values[np.asarray(batch.index)].tobytes()
            seen += len(got)
        assert seen == len(values)
