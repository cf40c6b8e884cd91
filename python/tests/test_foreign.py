"""JPEG XL and AVIF, whose decoding libraries may be missing, compared with imagecodecs and Pillow."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import _binary
from stoker import transforms as T
from support import encoded

Image = pytest.importorskip("PIL.Image")
features = pytest.importorskip("PIL.features")

Make = Callable[..., stoker.Loader]
W, H, COUNT = 61, 45, 4


def picture(channels: int, seed: int, most: int = 255) -> np.ndarray:
    y, x = np.mgrid[0:H, 0:W]
    planes = [0.5 + 0.3 * np.sin(x / (5 + c)) + 0.2 * np.cos(y / (4 + c + seed)) for c in range(channels)]
    return (np.clip(np.stack(planes, -1), 0, 1) * most).astype(np.uint8 if most == 255 else np.uint16)


def jxl(a: np.ndarray, **options: Any) -> bytes:
    codecs = pytest.importorskip("imagecodecs")
    if not codecs.JPEGXL.available:
        pytest.skip("imagecodecs has no JPEG XL")
    return bytes(codecs.jpegxl_encode(a, **options))


def avif(a: np.ndarray, **options: Any) -> bytes:
    if not features.check("avif"):
        pytest.skip("Pillow has no AVIF")
    return encoded(a, "AVIF", **options)


def write(root: Path, files: list[bytes], suffix: str) -> Path:
    for i, b in enumerate(files):
        (root / f"class{i % 2}").mkdir(exist_ok=True)
        (root / f"class{i % 2}" / f"{i // 2}{suffix}").write_bytes(b)
    return root


def order(items: list[Any]) -> list[Any]:
    return items[::2] + items[1::2]  # of the folder


def read(make: Make, source: Any, **more: Any) -> np.ndarray:
    more = {"transforms": {"image": []}} | more
    return np.array(next(iter(make(source, COUNT, **more)))["image"])


def check(make: Make, binary: str, root: Path, want: list[np.ndarray], within: int) -> None:
    expected = np.stack(order(want)).astype(int)
    got = read(make, root, transforms={"image": [T.Resize((H, W))]}).astype(int)
    assert np.abs(got - expected).max() <= within
    env = _binary.environment()
    for images in ("auto", "raw"):
        pack = root.with_name(f"{root.name}-{images}")
        command = [binary, "pack", str(root), str(pack), "--images", images]
        subprocess.run(command, check=True, capture_output=True, env=env)
        assert np.abs(read(make, pack).astype(int) - expected).max() <= within
    command = [binary, "verify", "--decode", str(root.parent / f"{root.name}-auto")]
    subprocess.run(command, check=True, capture_output=True, env=env)


def test_jpeg_xl(make: Make, binary: str, tmp_path: Path) -> None:
    codecs = pytest.importorskip("imagecodecs")
    for name, options, channels in (
        ("lossless", {"lossless": True}, 3),
        ("lossy", {"level": 80}, 3),
        ("alpha", {"lossless": True}, 4),
    ):
        root = tmp_path / name
        root.mkdir()
        files = [jxl(picture(channels, i), **options) for i in range(COUNT)]
        write(root, files, ".jxl")
        # imagecodecs may contain another version of the library than the system.
        check(make, binary, root, [codecs.jpegxl_decode(b)[..., :3] for b in files], 0 if "lossless" in options else 1)


def test_jpeg_xl_of_16_bits_and_gray(make: Make, tmp_path: Path) -> None:
    gray = [picture(1, i, 65535)[..., 0] for i in range(COUNT)]
    write(tmp_path, [jxl(a, lossless=True) for a in gray], ".jxl")
    got = read(make, tmp_path, transforms={"image": stoker.Field("image", [T.Resize((H, W))], mode="L", depth=16)})
    assert got.dtype == np.uint16 and np.array_equal(got[..., 0], np.stack(order(gray)))


@pytest.mark.parametrize("arenas", [None, "1"], ids=["", "one heap"])  # which may lie below 4 GiB
def test_avif(make: Make, binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arenas: str | None) -> None:
    if arenas:
        monkeypatch.setenv("MALLOC_ARENA_MAX", arenas)
    for name, options, channels in (
        ("420", {"quality": 80}, 3),
        ("444", {"quality": 90, "subsampling": "4:4:4"}, 3),
        ("alpha", {}, 4),
    ):
        root = tmp_path / name
        root.mkdir()
        files = [avif(picture(channels, i), **options) for i in range(COUNT)]
        write(root, files, ".avif")
        want = [np.asarray(Image.open(io.BytesIO(b)).convert("RGB")) for b in files]
        check(make, binary, root, want, 1)


@pytest.mark.parametrize("bits", [10, 12])
def test_avif_of_more_than_8_bits(make: Make, tmp_path: Path, bits: int) -> None:
    codecs = pytest.importorskip("imagecodecs")
    if not codecs.AVIF.available:
        pytest.skip("imagecodecs has no AVIF")
    most = 2**bits - 1
    options = {"level": 100, "bitspersample": bits, "pixelformat": "444"}
    files = [codecs.avif_encode(picture(3, i, most), **options) for i in range(COUNT)]
    want = np.stack(order([codecs.avif_decode(b).astype(float) for b in files]))
    write(tmp_path, files, ".avif")
    fields = {"image": stoker.Field("image", [T.Resize((H, W))], depth=16)}
    got = read(make, tmp_path, transforms=fields)
    assert got.dtype == np.uint16 and np.abs(got - want * (65535 / most)).max() <= 65535 / most
    assert len(np.unique(got)) > 256
    eight = read(make, tmp_path, transforms={"image": [T.Resize((H, W))]}).astype(float)
    assert np.abs(eight - want * (255 / most)).max() <= 1.5


def test_avif_is_turned_when_asked(make: Make, tmp_path: Path) -> None:
    files, want = [], []
    for orientation in (1, 3, 6, 7):
        exif = Image.Exif()
        exif[0x112] = orientation
        files.append(avif(picture(3, orientation), exif=exif))
        turned = pytest.importorskip("PIL.ImageOps").exif_transpose(Image.open(io.BytesIO(files[-1])))
        want.append(np.asarray(turned.convert("RGB").resize((W, H), Image.Resampling.NEAREST)))
    write(tmp_path, files, ".avif")
    ops = [T.Resize((H, W), interpolation="nearest")]
    got = read(make, tmp_path, transforms={"image": ops}, apply_orientation=True).astype(int)
    assert (np.abs(got - np.stack(order(want)).astype(int)).max(-1) > 1).mean() < 0.02


def test_what_is_damaged_is_named(binary: str, tmp_path: Path) -> None:
    for name, b in {
        "a.jxl": jxl(picture(3, 0), lossless=True, usecontainer=True),
        "b.avif": avif(picture(3, 0)),
    }.items():
        (tmp_path / name).write_bytes(b[: len(b) // 2])
    (tmp_path / "c.png").write_bytes(_png())
    command = [binary, "pack", str(tmp_path), str(tmp_path.parent / "p")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_binary.environment())
    assert done.returncode == 3
    for name in ("a.jxl", "b.avif"):
        assert any(name in line and "truncated" in line for line in done.stderr.splitlines()), done.stderr


def _png() -> bytes:
    return encoded(picture(3, 0))
