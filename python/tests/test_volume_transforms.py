"""Transforms of volumes, compared with MONAI's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

import stoker
from stoker import transforms as st
from stoker import volume as V
from support import cli


class Monai:
    """The classes of monai.transforms, imported by the first test: the import loads all of MONAI, SciPy and others."""

    def __getattr__(self, name: str) -> Any:
        if not name[0].isupper():  # pytest looks for marks and fixtures
            raise AttributeError(name)
        return getattr(importlib.import_module("monai.transforms"), name)


monai = Monai()


def write(folder: Path, shapes: list[tuple[int, ...]], kind: str = "int16") -> list[np.ndarray]:
    made = []
    for i, shape in enumerate(shapes):
        rng = np.random.default_rng(i)
        a = rng.integers(-500 if kind != "uint8" else 0, 1500 if kind != "uint8" else 256, shape)
        a[rng.random(shape) < 0.3] = 0
        made.append(a.astype(kind))
        np.save(folder / f"{i}.npy", made[-1])
    return made


def load(url: object, ops: list[st.Transform], **options: Any) -> np.ndarray:
    loader = stoker.Loader(str(url), batch_size=4, transforms={"volume": ops}, **options)
    return np.concatenate([batch.volume.copy() for batch in loader])


SAME: list[tuple[st.Transform, Callable[[], Any]]] = [
    (V.CenterSpatialCrop((3, 4, 5)), lambda: monai.CenterSpatialCrop((3, 4, 5))),
    (V.CenterSpatialCrop((-1, 4, 99)), lambda: monai.CenterSpatialCrop((-1, 4, 99))),
    (
        V.RandSpatialCrop(5, random_center=False),
        lambda: monai.RandSpatialCrop(5, random_center=False, random_size=False),
    ),
    (V.SpatialPad((12, 9, 20), value=3), lambda: monai.SpatialPad((12, 9, 20), value=3)),
    (V.SpatialPad(16, method="end"), lambda: monai.SpatialPad(16, method="end")),
    (V.ResizeWithPadOrCrop((5, 14, 9)), lambda: monai.ResizeWithPadOrCrop((5, 14, 9))),
    (V.RandFlip(1.0), lambda: monai.RandFlip(1.0)),
    (V.RandFlip(1.0, 1), lambda: monai.RandFlip(1.0, 1)),
    (V.RandFlip(1.0, (0, -1)), lambda: monai.RandFlip(1.0, (0, -1))),
    (V.RandFlip(0.0), lambda: monai.RandFlip(0.0)),
    (V.RandRotate90(1.0, 1), lambda: monai.RandRotate90(1.0, 1)),
    (V.RandRotate90(1.0, 1, (2, 0)), lambda: monai.RandRotate90(1.0, 1, (2, 0))),
    (V.RandScaleIntensity((0.25, 0.25), 1.0), lambda: monai.RandScaleIntensity((0.25, 0.25), 1.0)),
    (V.RandShiftIntensity((-12.5, -12.5), prob=1.0), lambda: monai.RandShiftIntensity((-12.5, -12.5), prob=1.0)),
    (V.ScaleIntensity(), lambda: monai.ScaleIntensity()),
    (V.ScaleIntensity(-1, 2), lambda: monai.ScaleIntensity(-1, 2)),
    (V.ScaleIntensity(factor=0.5), lambda: monai.ScaleIntensity(None, None, factor=0.5)),
    (V.ScaleIntensityRange(-100, 900), lambda: monai.ScaleIntensityRange(-100, 900)),
    (
        V.ScaleIntensityRange(-100, 900, 0, 1, clip=True),
        lambda: monai.ScaleIntensityRange(-100, 900, 0, 1, clip=True),
    ),
    (V.ScaleIntensityRange(-100, 900, -1, 3), lambda: monai.ScaleIntensityRange(-100, 900, -1, 3)),
    (V.NormalizeIntensity(), lambda: monai.NormalizeIntensity()),
    (V.NormalizeIntensity(nonzero=True), lambda: monai.NormalizeIntensity(nonzero=True)),
    (V.NormalizeIntensity(channel_wise=True), lambda: monai.NormalizeIntensity(channel_wise=True)),
    (
        V.NormalizeIntensity(nonzero=True, channel_wise=True),
        lambda: monai.NormalizeIntensity(nonzero=True, channel_wise=True),
    ),
    (V.NormalizeIntensity(40, 300), lambda: monai.NormalizeIntensity(40, 300)),
]


@pytest.mark.parametrize(("ours", "theirs"), SAME, ids=[repr(s[0]) for s in SAME])
@pytest.mark.parametrize("channels", [0, 2])
def test_same_as_monai(tmp_path: Path, ours: st.Transform, theirs: Callable[[], Any], channels: int) -> None:
    shape, reference = (2,) * (channels > 0) + (7, 9, 11), theirs()
    for kind in ("int16", "float32") if channels else ("uint8", "int16"):
        made = write(tmp_path, [shape] * 4, kind)
        try:
            got = load(f"volumes:{tmp_path}", [ours])
        except stoker.ConfigError as error:  # sides that differ after a turn, of some records
            assert "end the list with volume.ResizeWithPadOrCrop" in str(error)
            got = load(f"volumes:{tmp_path}", [ours, V.CenterSpatialCrop(7)])
            reference = monai.Compose([reference, monai.CenterSpatialCrop(7)])
        for a, b in zip(got, made, strict=True):
            given = b.astype("float32") if "Intensity" in type(ours).__name__ else b
            want = np.asarray(reference(given if channels else given[None]))
            assert np.allclose(a, want if channels else want[0], rtol=1e-5, atol=1e-4), ours
            assert a.dtype == want.dtype


def test_lists_are_the_same_as_monai(tmp_path: Path) -> None:
    made = write(tmp_path, [(9 + i, 12 - i, 10) for i in range(8)])
    ours = [
        V.ScaleIntensityRange(-200, 1000, 0, 1, clip=True), V.CenterSpatialCrop((8, 20, 9)),
        V.SpatialPad((12, 11, 4), value=0.5), V.RandFlip(1.0, 2), V.RandRotate90(1.0, 1, (1, 2)),
        V.RandShiftIntensity((0.1, 0.1), prob=1.0), V.ResizeWithPadOrCrop((14, 10, 9), value=7),
        V.NormalizeIntensity(), V.RandScaleIntensity((0.5, 0.5), 1.0),
    ]  # fmt: skip
    theirs = monai.Compose([
        monai.ScaleIntensityRange(-200, 1000, 0, 1, clip=True), monai.CenterSpatialCrop((8, 20, 9)),
        monai.SpatialPad((12, 11, 4), value=0.5), monai.RandFlip(1.0, 2), monai.RandRotate90(1.0, 1, (1, 2)),
        monai.RandShiftIntensity((0.1, 0.1), prob=1.0), monai.ResizeWithPadOrCrop((14, 10, 9), value=7),
        monai.NormalizeIntensity(), monai.RandScaleIntensity((0.5, 0.5), prob=1.0),
    ])  # fmt: skip
    for a, b in zip(load(f"volumes:{tmp_path}", ours), made, strict=True):
        assert np.allclose(a, np.asarray(theirs(b[None].astype("float32")))[0], atol=1e-5)
    half = load(f"volumes:{tmp_path}", [*ours, st.ToDtype("float16")])
    assert half.dtype == np.float16
    assert np.allclose(half, load(f"volumes:{tmp_path}", ours), rtol=1e-3, atol=1e-3)


def test_what_is_drawn(tmp_path: Path) -> None:
    """Each draw is one that MONAI makes, and all of them come."""
    shape = (6, 7, 8)
    a = np.arange(np.prod(shape), dtype="int32").reshape(shape)
    for i in range(400):
        np.save(tmp_path / f"{i:03d}.npy", a)
    url = f"volumes:{tmp_path}"
    starts = set()
    for row in load(url, [V.RandSpatialCrop((5, 5, -1))], seed=3):
        z, y, x = np.unravel_index(row[0, 0, 0], shape)
        assert np.array_equal(row, a[z : z + 5, y : y + 5])
        starts.add((int(z), int(y), int(x)))
    assert starts == {(z, y, 0) for z in range(2) for y in range(3)}
    sizes = set()
    size = V.RandSpatialCrop((3, 7, 8), max_roi_size=(5, 7, 8), random_size=True)
    for row in load(url, [size, V.SpatialPad((5, 7, 8), method="end", value=-1)]):
        n = int((row[:, 0, 0] >= 0).sum())
        z = row[0, 0, 0] // 56
        assert np.array_equal(row[:n], a[z : z + n])
        sizes.add((n, int(z)))
    assert sizes == {(n, z) for n in (3, 4, 5) for z in range(6 - n + 1)}
    turns = [np.rot90(a[:, :6, :], k).tobytes() for k in range(4)]
    seen = [turns.index(r.tobytes()) for r in load(url, [V.CenterSpatialCrop((6, 6, 8)), V.RandRotate90(0.9)])]
    counts = np.bincount(seen, minlength=4) / 400
    if a[:, :6].tobytes() == turns[0]:
        assert abs(counts[0] - 0.1) < 0.06
        assert (abs(counts[1:] - 0.3) < 0.09).all()
    scaled = load(url, [V.RandScaleIntensity(0.5, 0.75), V.RandShiftIntensity((2, 4), prob=1.0)])
    shift = scaled[:, 0, 0, 0]
    factor = (scaled[:, 0, 0, 1] - shift) - 1
    assert 2 <= shift.min() < 2.1 < 3.9 < shift.max() < 4
    assert -0.5 <= factor.min() < -0.45 < 0.45 < factor.max() < 0.5
    assert abs((abs(factor) < 1e-6).mean() - 0.25) < 0.09


def test_how_it_is_read_does_not_matter(tmp_path: Path, binary: str) -> None:
    """A crop is the same from a file, from unpacked data, from a view and from a pack."""
    shapes = {"a": ".nii", "b": ".nii.gz", "c": ".npy"}
    for name, end in shapes.items():
        (tmp_path / name).mkdir()
        for i in range(10):
            a = np.random.default_rng(i).integers(0, 999, (12, 13, 14)).astype("int16")
            path = tmp_path / name / f"{i}{end}"
            if end == ".npy":
                np.save(path, a)
            else:
                nibabel.save(nibabel.Nifti1Image(a.T, np.eye(4)), path)
    cli(binary, "pack", tmp_path / "a", tmp_path / "packed")
    ops = [
        V.RandSpatialCrop((5, 6, 7)),
        V.RandFlip(0.5),
        V.RandScaleIntensity(0.1, 1.0),
    ]
    urls = [
        tmp_path / "a",
        tmp_path / "b",
        f"volumes:{tmp_path / 'c'}",
        tmp_path / "packed",
        f"volumes:{tmp_path / 'a'}",
    ]
    got = []
    for url in urls:
        loader = stoker.Loader(str(url), batch_size=4, transforms={"volume": ops}, shuffle=True, seed=5)
        got.append([np.concatenate([b.volume.copy() for b in loader]) for _ in range(2)])
        assert not np.array_equal(got[-1][0], got[-1][1])
        assert np.array_equal(got[-1], got[0]), url
    view = stoker.Loader(
        stoker.open(str(tmp_path / "a")).split(0.5, 0.5)[0], batch_size=4, transforms={"volume": ops}, seed=5
    )
    other = stoker.Loader(
        stoker.open(str(tmp_path / "packed")).split(0.5, 0.5)[0], batch_size=4, transforms={"volume": ops}, seed=5
    )
    for x, y in zip(view, other, strict=True):
        assert np.array_equal(x.volume, y.volume)


def test_what_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [(7, 9, 11), (8, 9, 11)])
    for ops, why in (
        ([V.RandSpatialCrop((8, 9, 9))], r"from \[7 9 9\] to \[8 9 9\] voxels"),
        ([st.RandomCrop(5)], "RandomCrop is for images, this is a volume; use volume.RandSpatialCrop"),
        ([V.ScaleIntensityRange(3, 3)], "another number than a_min"),
    ):
        with pytest.raises(stoker.ConfigError, match=why):
            stoker.Loader(f"volumes:{tmp_path}", batch_size=2, transforms={"volume": ops})
