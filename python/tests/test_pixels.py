"""Pixels of other types than RGB of uint8 through the whole engine, compared with Pillow and torchvision."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import cli

Image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")
v2 = pytest.importorskip("torchvision.transforms.v2")

Make = Callable[..., stoker.Loader]
W, H, COUNT = 60, 44, 6


def picture(channels: int, seed: int) -> np.ndarray:
    """Gradients and noise from 0 to 1."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:H, 0:W]
    planes = [0.5 + 0.3 * np.sin(x / (5 + c)) + 0.2 * np.cos(y / (4 + c + seed)) for c in range(channels)]
    return np.clip(np.stack(planes, -1) + rng.uniform(-0.1, 0.1, (H, W, channels)), 0, 1)


def resized(a: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize pixels of this type with torchvision."""
    t = torch.from_numpy(a.copy()).permute(2, 0, 1)
    return v2.functional.resize(t, list(size), antialias=True).permute(1, 2, 0).numpy()


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write images into classes of a folder."""

    def write(images: list[Image.Image], suffix: str) -> Path:
        for i, im in enumerate(images):
            (tmp_path / f"class{i % 2}").mkdir(exist_ok=True)
            im.save(tmp_path / f"class{i % 2}" / f"{i // 2:03}{suffix}")
        return tmp_path

    return write


def everything(loader: stoker.Loader) -> dict[str, np.ndarray]:
    return next(iter(loader)).copy()


@pytest.mark.parametrize(("mode", "channels"), [("RGBA", 4), ("LA", 2), ("L", 1)])
def test_alpha_and_gray(make: Make, folder: Callable[..., Path], mode: str, channels: int) -> None:
    images = [Image.fromarray((picture(4, i) * 255).astype(np.uint8), "RGBA") for i in range(COUNT)]
    want = [np.asarray(im.convert(mode)).reshape(H, W, channels) for im in images]
    root = folder(images, ".png")
    norm = T.Normalize([0.1, 0.2, 0.3, 0.4][:channels], [0.5, 0.6, 0.7, 0.8][:channels])
    fields = {
        "plain": stoker.Field("image", [T.CenterCrop((H, W))], mode=mode),
        "small": stoker.Field("image", [T.Resize((20, 30))], mode=mode),
        "float": stoker.Field("image", [T.CenterCrop((H, W)), T.ToDtype("float32", scale=True), norm], mode=mode),
    }
    got = everything(make(root, batch_size=COUNT, transforms=fields))
    order = got["index"]
    by_name = [want[2 * (k % 3) + k // 3] for k in order]  # the folder is read class by class
    assert np.array_equal(got["plain"], np.stack(by_name))
    assert np.abs(got["small"].astype(int) - np.stack([resized(a, (20, 30)) for a in by_name])).max() <= 1
    mean, std = np.float32(norm.mean), np.float32(norm.std)
    assert np.allclose(got["float"], (np.stack(by_name) / np.float32(255) - mean) / std, atol=1e-5)


@pytest.mark.parametrize("suffix", [".png", ".tiff"])
def test_sixteen_bits(make: Make, folder: Callable[..., Path], suffix: str) -> None:
    arrays = [(picture(1, i)[..., 0] * 65535).astype(np.uint16) for i in range(COUNT)]
    root = folder([Image.fromarray(a) for a in arrays], suffix)
    crop = T.CenterCrop((H, W))
    fields = {
        "gray": stoker.Field("image", [crop], mode="L", depth=16),
        "small": stoker.Field("image", [T.Resize((20, 30))], mode="L", depth=16),
        "float": stoker.Field("image", [crop, T.ToDtype("float32", scale=True)], mode="L", depth=16, layout="NCHW"),
        "upper": stoker.Field("image", [crop, T.ToDtype("uint8", scale=True)], mode="L", depth=16),
        "mask": stoker.Field("image", [crop], mask=True, depth=16),
    }
    got = everything(make(root, batch_size=COUNT, transforms=fields))
    want = np.stack([arrays[2 * (k % 3) + k // 3] for k in got["index"]])[..., None]
    assert got["gray"].dtype == np.uint16
    assert np.array_equal(got["gray"], want)
    assert np.array_equal(got["mask"], want[..., 0])
    assert np.array_equal(got["upper"], want >> 8)
    assert np.allclose(got["float"][:, 0], want[..., 0] / np.float32(65535), atol=1e-7)
    small = np.stack([resized(a, (20, 30)) for a in want]).astype(int)
    assert np.abs(got["small"].astype(int) - small).max() <= 1


def test_class_numbers(make: Make, folder: Callable[..., Path]) -> None:
    rng = np.random.default_rng(4)
    classes = [rng.integers(0, 21, (H, W)).astype(np.uint8) for _ in range(COUNT)]
    images = []
    for a in classes:
        images.append(Image.fromarray(a, "P"))
        images[-1].putpalette(list(rng.integers(0, 256, 768)))
    root = folder(images, ".png")
    moves = [T.RandomCrop((32, 40), padding=4, fill=0), T.RandomHorizontalFlip()]
    fields = {
        "image": stoker.Field("image", moves),
        "mask": stoker.Field("image", moves, mask=True, follow="image"),
    }
    got = everything(make(root, batch_size=COUNT, transforms=fields, seed=3))
    for k, image, mask in zip(got["index"], got["image"], got["mask"], strict=True):
        im = images[2 * (k % 3) + k // 3]
        palette = np.array(im.getpalette(), np.uint8).reshape(-1, 3)
        inside = (mask != 0) | (image == palette[0]).all(-1)
        assert inside.mean() > 0.6
        assert np.array_equal(palette[mask][inside], image[inside])


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("channels", [0, 1, 2, 3, 4])
def test_arrays(make: Make, tmp_path: Path, dtype: str, channels: int) -> None:
    a = np.stack([picture(max(channels, 1), i) for i in range(COUNT)])
    a = (a * np.iinfo(dtype).max if dtype != "float32" else a * 100 - 20).astype(dtype)
    np.save(tmp_path / "x.npy", a if channels else a[..., 0])
    n = max(channels, 1)
    norm = [T.ToDtype("float32"), T.Normalize([3.0] * n, [7.0] * n)]
    size = (20, 31)
    fields = {
        "small": stoker.Field("x", [T.Resize(size)]),
        "turned": stoker.Field("x", [T.RandomHorizontalFlip(1), T.RandomRotation((90, 90), expand=True)]),
        "normal": stoker.Field("x", norm),
    }
    got = everything(make(tmp_path / "x.npy", batch_size=COUNT, transforms=fields))
    if not channels:
        got = {name: v[..., None] if v.ndim == 3 else v for name, v in got.items()}
    source = a[got["index"]]
    assert got["small"].dtype == np.dtype(dtype)
    small = np.stack([resized(x, size) for x in source]).astype(float)
    assert np.abs(got["small"] - small).max() <= (1e-5 * 100 if dtype == "float32" else 1)
    assert np.array_equal(got["turned"], np.rot90(source[:, :, ::-1], axes=(1, 2)))
    want = (source.astype(np.float64) - 3) / 7
    assert np.abs(got["normal"] - want).max() <= 1e-6 * np.abs(want).max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "CMYK"}, 'mode is "CMYK"'),
        ({"depth": 12}, "8, 16 or 32"),
        ({"mask": True, "mode": "L"}, "no mode"),
        ({"mask": np.True_, "mode": "L"}, "no mode"),
    ],
)
def test_fields_that_are_refused(
    make: Make, folder: Callable[..., Path], options: dict[str, Any], message: str
) -> None:
    root = folder([Image.fromarray((picture(4, 0) * 255).astype(np.uint8), "RGBA")], ".png")
    with pytest.raises(stoker.ConfigError, match=message):
        make(root, batch_size=1, transforms={"image": stoker.Field("image", [T.CenterCrop(20)], **options)})


def test_what_makes_no_sense_is_refused(make: Make, folder: Callable[..., Path], tmp_path: Path) -> None:
    root = folder([Image.fromarray((picture(4, 0) * 255).astype(np.uint8), "RGBA")], ".png")
    crop = T.CenterCrop(20)
    for field, message in [
        (
            stoker.Field("image", [crop, T.ColorJitter(0.2)], mode="RGBA"),
            "ColorJitter takes images of 1 or 3 channels, not uint8 with 4",
        ),
        (stoker.Field("image", [crop, T.Normalize([0.5] * 3, [0.5] * 3)], mode="L"), "mean must be one number"),
        (stoker.Field("image", [T.RandomCrop(20, fill=300)]), "fill must be between 0 and 255"),
        (stoker.Field("image", [crop, T.RandomSolarize(300)]), "threshold must be at most 255"),
    ]:
        with pytest.raises(stoker.ConfigError, match=message):
            make(root, batch_size=1, transforms={"image": field})
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8), np.int64))
    with pytest.raises(stoker.ConfigError, match="uint8, uint16 and float32, not on int64"):
        make(tmp_path / "x.npy", batch_size=1, transforms={"x": [T.CenterCrop(4)]})
    with pytest.raises(stoker.RecordError, match="the mask has a colour"):
        next(iter(make(root, batch_size=1, transforms={"image": stoker.Field("image", [crop], mask=True)})))


@pytest.mark.parametrize("packed", [False, True])
def test_netpbm(make: Make, binary: str, folder: Callable[..., Path], tmp_path: Path, packed: bool) -> None:
    images = [Image.fromarray((picture(3, i) * 255).astype(np.uint8)) for i in range(COUNT)]
    root: Path = folder(images, ".ppm")
    gray = [(picture(1, i)[..., 0] * 65535).astype(np.uint16) for i in range(2)]
    (root / "wide").mkdir()
    for i, a in enumerate(gray):
        (root / "wide" / f"{i}.pgm").write_bytes(b"P5\n%d %d 65535\n" % (W, H) + a.astype(">u2").tobytes())
    want = [Image.open(io.BytesIO(p.read_bytes())) for p in sorted(root.rglob("*.p?m"))]
    if packed:
        cli(binary, "pack", root, f"{root}-pack")
        root = tmp_path.with_name(tmp_path.name + "-pack")
    crop = [T.CenterCrop((H, W))]
    fields = {
        "rgb": stoker.Field("image", crop),
        "wide": stoker.Field("image", crop, mode="L", depth=16),
    }
    got = everything(make(root, batch_size=COUNT + 2, transforms=fields))
    for k, rgb, wide in zip(got["index"], got["rgb"], got["wide"], strict=True):
        im = want[k]
        assert np.array_equal(rgb, np.asarray(im.convert("RGB")))
        if im.mode == "I":
            assert np.array_equal(wide[..., 0], np.asarray(im))


@pytest.mark.parametrize("packed", [False, True])
def test_float_tiffs(make: Make, binary: str, tmp_path: Path, packed: bool) -> None:
    """Files that tifffile wrote in several layouts, as float32 with operations that torchvision knows."""
    tifffile = pytest.importorskip("tifffile")
    root = tmp_path / "in"
    (root / "a").mkdir(parents=True)
    ways: list[dict[str, object]] = [
        {},
        {"tile": (16, 16), "compression": "zlib"},
        {"rowsperstrip": 5, "byteorder": ">"},
        {"bigtiff": True},
    ]
    arrays = [(picture(1, i)[..., 0] * 100 - 20).astype(np.float32) for i in range(len(ways))]
    for i, (a, way) in enumerate(zip(arrays, ways, strict=True)):
        tifffile.imwrite(root / "a" / f"{i}.tif", a, **way)
    data = root
    if packed:
        data = tmp_path / "out"
        cli(binary, "pack", root, data)
    flip = T.RandomHorizontalFlip(1.0)
    fields = {
        "plain": stoker.Field("image", [T.CenterCrop((H, W))], mode="L", depth=32),
        "moved": stoker.Field("image", [T.CenterCrop((30, 40)), flip], mode="L", depth=32),
        "small": stoker.Field("image", [T.Resize((20, 30))], mode="L", depth=32),
        "rgb": stoker.Field("image", [T.CenterCrop((H, W))]),
    }
    got = everything(make(data, batch_size=len(ways), transforms=fields))
    assert got["plain"].dtype == np.float32
    for k, row in enumerate(got["index"]):
        a = arrays[row]
        assert np.array_equal(got["plain"][k, ..., 0], a)
        assert np.array_equal(got["moved"][k, ..., 0], a[7:37, 10:50][:, ::-1])
        assert np.abs(got["small"][k] - resized(a[..., None], (20, 30))).max() < 1e-3
        assert np.array_equal(got["rgb"][k], np.asarray(Image.fromarray(a).convert("RGB")))
