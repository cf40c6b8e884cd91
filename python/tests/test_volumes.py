"""NIfTI volumes, compared with nibabel's reading of them."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest

import stoker
from support import cli


def write(
    folder: Path, name: str, seed: int, shape: tuple[int, ...], kind: str = "int16", scaled: bool = False
) -> None:
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 200, shape).astype(kind)
    affine = np.eye(4)
    affine[:3] += rng.normal(size=(3, 4))
    image = (nibabel.Nifti2Image if seed % 3 == 2 else nibabel.Nifti1Image)(data, affine if seed % 2 else None)
    if seed % 4 == 1:
        image.set_qform(nibabel.affines.from_matvec(np.diag([2.0, 3.0, 1.5]), [1, 2, 3]), code=1)
        image.set_sform(None, code=0)
    if scaled:
        image.header.set_slope_inter(0.25, -3)
    nibabel.save(image, folder / name)


@pytest.mark.parametrize("scaled", [False, True])
def test_whole(tmp_path: Path, scaled: bool) -> None:
    for i in range(8):
        write(tmp_path, f"{i:02d}.nii" + (".gz" if i % 2 else ""), i, (9, 8, 7), "uint16", scaled)
    files = sorted(tmp_path.iterdir())
    for batch in stoker.Loader(tmp_path, batch_size=4, shuffle=True):
        for row, i in enumerate(batch.index.tolist()):
            image = nibabel.load(files[i])
            want = np.asanyarray(image.dataobj).T
            assert batch.volume[row].dtype == (np.float32 if scaled else np.uint16)
            assert np.allclose(batch.volume[row], want, rtol=1e-6)
            assert np.allclose(batch.affine[row], image.affine, atol=1e-5)


def test_patches(tmp_path: Path) -> None:
    for i in range(6):
        write(tmp_path, f"{i:02d}.nii" + (".gz" if i % 2 else ""), i, (12 + i, 11, 13 - i), "float32")
    whole = [np.asanyarray(nibabel.load(p).dataobj).T for p in sorted(tmp_path.iterdir())]
    covered = [np.zeros(w.shape, bool) for w in whole]
    loader = stoker.Loader(f"{tmp_path}?patch=4x5x6&stride=4", batch_size=8)
    names: list[int] = []
    for i, w in enumerate(whole):
        counts = [-(-(side - p) // 4) + 1 for side, p in zip(w.shape, (4, 5, 6), strict=True)]
        names += [i] * int(np.prod(counts))
    assert loader.num_records == len(names)
    for batch in loader:
        for row, record in enumerate(batch.index.tolist()):
            i, (z, y, x) = names[record], batch.origin[row]
            assert np.array_equal(batch.volume[row], whole[i][z : z + 4, y : y + 5, x : x + 6])
            covered[i][z : z + 4, y : y + 5, x : x + 6] = True
    assert all(c.all() for c in covered)
    with pytest.raises(stoker.ConfigError, match="less than a patch of 100 x 100 x 100"):
        next(iter(stoker.Loader(f"{tmp_path}?patch=100", batch_size=1)))
    with pytest.raises(stoker.ConfigError, match=r"\?patch=64x64x64"):
        next(iter(stoker.Loader(tmp_path, batch_size=1)))


def test_parts_of_a_pack_of_any_size(tmp_path: Path, binary: str) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    for i in range(5):
        write(folder, f"{i}.nii", i, (104, 100, 60), "int16")
    cli(binary, "pack", folder, tmp_path / "packed")
    whole = [np.asanyarray(nibabel.load(p).dataobj).T for p in sorted(folder.iterdir())]
    orders: list[dict[str, object]] = [{}, {"shuffle": True}, {"shuffle": "window:2"}]
    for size, order in zip([16, (48, 90, 100), (60, 1, 104)], orders, strict=True):
        fields = {"volume": [stoker.volume.RandSpatialCrop(size)]}
        seen = {}
        for at in (folder, tmp_path / "packed"):
            for batch in stoker.Loader(at, batch_size=2, transforms=fields, seed=3, **order):
                for row, record in zip(batch.volume, batch.index.tolist(), strict=True):
                    assert np.array_equal(seen.setdefault(record, row.copy()), row)
                    assert row.tobytes()[:32] in whole[record].tobytes()
        assert len(seen) == 5


def test_patches_of_a_pack(tmp_path: Path, binary: str) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    for i in range(3):
        write(folder, f"{i}.nii", i, (14, 13, 12), "uint16")
    cli(binary, "pack", folder, tmp_path / "packed")
    for query in ("patch=6", "patch=4x5x14&stride=3x4x1"):
        places = (folder, tmp_path / "packed")
        a, b = (list(stoker.Loader(f"{at}?{query}", batch_size=4, shuffle=True, seed=5)) for at in places)
        assert len(a) == len(b) > 2
        for x, y in zip(a, b, strict=True):
            assert x.index.tolist() == y.index.tolist()
            for name in ("volume", "affine", "origin"):
                assert np.array_equal(x[name], y[name]), name
