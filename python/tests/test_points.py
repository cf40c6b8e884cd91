"""Point clouds, compared with NumPy's reading of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stoker


def ply(points: np.ndarray, colors: np.ndarray, ascii: bool) -> bytes:  # noqa: A002
    names = [*(f"property float {n}" for n in "xyz"), *(f"property uchar {n}" for n in ("red", "green", "blue"))]
    kind = "ascii" if ascii else "binary_little_endian"
    head = "\n".join(["ply", f"format {kind} 1.0", f"element vertex {len(points)}", *names, "end_header", ""]).encode()
    if ascii:
        rows = (f"{p[0]:.9g} {p[1]:.9g} {p[2]:.9g} {c[0]} {c[1]} {c[2]}" for p, c in zip(points, colors, strict=True))
        return head + "\n".join(rows).encode()
    table = np.zeros(len(points), [("p", "<f4", 3), ("c", "u1", 3)])
    table["p"], table["c"] = points, colors
    return head + table.tobytes()


@pytest.mark.parametrize("ascii", [False, True])
def test_ply(tmp_path: Path, ascii: bool) -> None:  # noqa: A002
    rng = np.random.default_rng(0)
    clouds = [(rng.standard_normal((n, 3), np.float32), rng.integers(0, 256, (n, 3), np.uint8)) for n in range(3, 43)]
    for i, (points, colors) in enumerate(clouds):
        (tmp_path / f"{i:03d}.ply").write_bytes(ply(points, colors, ascii))
    seen = 0
    for batch in stoker.Loader(tmp_path, batch_size=8, shuffle=True):
        for row, i in enumerate(batch.index.tolist()):
            assert np.array_equal(batch.points[row], clouds[i][0])
            assert np.array_equal(batch.colors[row], clouds[i][1])
            seen += 1
    assert seen == len(clouds)


def test_kitti(tmp_path: Path) -> None:
    folder = tmp_path / "velodyne"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(20):
        rng.standard_normal((100 + i, 4), np.float32).tofile(folder / f"{i:06d}.bin")
    for batch in stoker.Loader(folder, batch_size=8):
        for row, i in enumerate(batch.index.tolist()):
            want = np.fromfile(folder / f"{i:06d}.bin", np.float32).reshape(-1, 4)
            assert np.array_equal(batch.points[row], want)
    loader = stoker.Loader(f"kitti:{folder}?numbers=2", batch_size=8)
    assert next(iter(loader)).points[0].shape == (200, 2)
    with pytest.raises(stoker.StokerError, match="not a multiple of a point of 3 float32"):
        next(iter(stoker.Loader(f"kitti:{folder}?numbers=3", batch_size=20)))
