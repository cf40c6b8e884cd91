"""Images of every kind that Pillow and tifffile write or read, compared with their results."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, features

import stoker
from support import cli, encoded

tifffile = pytest.importorskip("tifffile")

Make = Callable[..., stoker.Loader]
Files = dict[str, bytes]
H, W = 37, 53
rng = np.random.default_rng(3)
y, x = np.mgrid[:H, :W]
rgb = np.dstack([x * 4, y * 6, (x + y) * 2]).astype(np.uint8)
rgb[5:15, 5:25] = rng.integers(0, 256, (10, 20, 3))
gray, alpha = rgb[..., 0], rng.integers(0, 256, (H, W)).astype(np.uint8)
bits = ((x // 7 + y // 5) % 3 == 0) | (rng.random((H, W)) < 0.1)
picture = Image.fromarray(rgb)


def pillow(b: bytes, mode: str = "RGB") -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(b)).convert(mode))


def read(make: Make, root: Path, files: Files, **field: Any) -> dict[str, np.ndarray]:
    """Read all files in one batch."""
    (root / "c").mkdir(parents=True)
    for name, b in files.items():
        (root / "c" / name).write_bytes(b)
    loader = make(root, len(files), shuffle=False, transforms={"image": stoker.Field("image", [], **field)})
    images = np.array(next(iter(loader))["image"])
    return dict(zip(sorted(files), images, strict=True))


def differ(got: dict[str, np.ndarray], want: dict[str, np.ndarray], most: int = 0) -> list[str]:
    """Name the images with wrong pixels."""
    return [
        f"{name}: up to {np.abs(got[name].reshape(a.shape).astype(float) - a).max()}"
        for name, a in want.items()
        if not np.abs(got[name].reshape(a.shape).astype(float) - a).max() <= most
    ]


def tiffs() -> Files:
    """Return Pillow's files: all of its modes in all of its compressions."""
    modes = {
        "1": Image.fromarray(bits),
        "L": Image.fromarray(gray),
        "LA": Image.merge("LA", [Image.fromarray(gray), Image.fromarray(alpha)]),
        "P": picture.quantize(200),
        "I": Image.fromarray(gray.astype(np.int32) * 3 - 100),
        "I16": Image.fromarray(gray.astype(np.uint16) * 2),
        "F": Image.fromarray(gray.astype(np.float32) * 1.3 - 20),
        "RGB": picture,
        "RGBA": Image.merge("RGBA", [*picture.split(), Image.fromarray(alpha)]),
        "RGBX": picture.convert("RGBX"),
        "CMYK": Image.merge("CMYK", [*picture.split(), Image.fromarray(alpha)]),
        "YCbCr": picture.convert("YCbCr"),
    }
    packed = [None, "packbits", "tiff_lzw", "tiff_adobe_deflate", "jpeg", "lzma", "zstd"]
    options = [{}, {"tiffinfo": {278: 16}}, {"tiffinfo": {317: 2}}, {"big_tiff": True}]
    files = {}
    for mode, im in modes.items():
        for how in [*packed, "group3", "group4", "tiff_ccitt"] if mode == "1" else packed:
            for i, more in enumerate(options):
                if (mode == "1" and (how == "jpeg" or i == 2)) or (how == "jpeg" and mode in ("P", "I", "I16", "F")):
                    continue
                if mode == "F" and i == 2:
                    continue  # differences of floats as whole numbers are read by nothing
                files[f"{mode}-{how}-{i}.tif"] = encoded(im, "TIFF", compression=how, **more)
    two = {"tiffinfo": {292: 1}}
    files["1-group3-2d.tif"] = encoded(modes["1"], "TIFF", compression="group3", **two)
    files["1-group4-low.tif"] = encoded(modes["1"], "TIFF", compression="group4", tiffinfo={266: 2})
    return files


def test_tiffs_of_pillow(make: Make, tmp_path: Path) -> None:
    files = tiffs()
    assert len(files) > 250
    got = read(make, tmp_path, files)
    assert differ(got, {name: pillow(b) for name, b in files.items()}) == []


def written(a: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    tifffile.imwrite(out, a, metadata=None, **options)
    return out.getvalue()


def test_tiffs_of_tifffile(make: Make, tmp_path: Path) -> None:
    """Strips, tiles, planes and both orders of bytes, with numbers of all kinds that become float32."""
    kinds = {
        "u8": gray,
        "u16": gray.astype(np.uint16) * 200,
        "u32": gray.astype(np.uint32) * 70000,
        "i8": gray.astype(np.int8),
        "i16": gray.astype(np.int16) * 90 - 9000,
        "i32": gray.astype(np.int32) * 9000 - 90000,
        "f16": (gray / 7 - 9).astype(np.float16),
        "f32": (gray / 7 - 9).astype(np.float32),
        "f64": gray / 8 - 9,
    }
    files, want = {}, {}
    for kind, a in kinds.items():
        for how in (None, "lzw", "deflate", "zstd", "packbits", "lzma"):
            for order in "<>":
                for tile in (None, (16, 32)):
                    for predictor in {False, how in ("deflate", "lzw")}:
                        name = f"{kind}-{how}-{ord(order)}-{tile is None}-{predictor}.tif"
                        options = {"compression": how, "byteorder": order, "tile": tile, "predictor": predictor}
                        files[name] = written(a, photometric="minisblack", **options)
                        want[name] = a.astype(np.float32)
    loaded = read(make, tmp_path, files, mode="L", depth=32)
    assert differ(loaded, want) == []


def test_first_frames(make: Make, tmp_path: Path) -> None:
    """Animated WebP is its first frame, also with alpha."""
    more = [Image.fromarray(255 - rgb)]
    clear = Image.merge("RGBA", [*picture.split(), Image.fromarray(alpha)])
    files = {
        "lossless.webp": encoded(picture, "WEBP", save_all=True, append_images=more, lossless=True),
        "lossy.webp": encoded(picture, "WEBP", save_all=True, append_images=more),
        "alpha.webp": encoded(clear, "WEBP", save_all=True, append_images=[clear.rotate(90, expand=False)]),
    }
    for mode in ("RGB", "RGBA"):
        got = read(make, tmp_path / mode, files, mode=mode)
        assert differ(got, {name: pillow(b, mode) for name, b in files.items()}) == []


def test_avif_without_pixi(make: Make, tmp_path: Path) -> None:
    """Phones omit the property with the number of bits per channel."""
    if not features.check("avif"):
        pytest.skip("Pillow has no AVIF")
    b = encoded(picture, "AVIF")
    assert b.count(b"pixi") == 1
    files = {"phone.avif": b.replace(b"pixi", b"free")}
    assert differ(read(make, tmp_path, files), {name: pillow(b) for name, b in files.items()}) == []


def masks() -> Files:
    classes = Image.fromarray((gray // 9).astype(np.uint8))
    colored = classes.convert("P")
    colored.putpalette([int(v) for v in rng.integers(0, 256, 768)])
    bilevel = Image.fromarray(bits)
    files = {
        f"{how}.tif": encoded(bilevel, "TIFF", compression=how)
        for how in ("group3", "group4", "tiff_ccitt", "tiff_lzw")
    }
    files |= {f"palette-{how}.tif": encoded(colored, "TIFF", compression=how) for how in ("raw", "lzma", "zstd")}
    files["gray.bmp"], files["palette.bmp"] = encoded(classes, "BMP"), encoded(colored, "BMP")
    files["indices.gif"] = encoded(colored, "GIF")
    return files


def test_masks_keep_their_numbers(make: Make, binary: str, tmp_path: Path) -> None:
    """Class numbers are those of the file, read directly and from a pack."""
    files = masks()
    for folder in ("images", "masks"):
        (tmp_path / "pairs" / folder).mkdir(parents=True)
    for name, b in files.items():
        (tmp_path / "pairs" / "masks" / name).write_bytes(b)
        picture.save(tmp_path / "pairs" / "images" / Path(name).with_suffix(".png"))
    source = f"pairs:{tmp_path / 'pairs'}?image=images/*.png&mask=masks/*"
    cli(binary, "pack", source, tmp_path / "pack")
    for where in (source, tmp_path / "pack"):
        loader = make(where, len(files), shuffle=False, transforms={"image": [], "mask": []})
        got = np.array(next(iter(loader))["mask"])
        for name, mask in zip(sorted(files, key=lambda name: Path(name).stem), got, strict=True):
            assert np.array_equal(mask, np.asarray(Image.open(io.BytesIO(files[name]))).astype(np.uint8)), (where, name)


def test_pack_takes_what_the_loader_reads(make: Make, binary: str, tmp_path: Path) -> None:
    """Unreadable formats are listed as not supported, and not as damaged."""
    codecs = pytest.importorskip("imagecodecs")
    good = {
        "good.jpg": encoded(picture, "JPEG"),
        "animated.webp": encoded(picture, "WEBP", save_all=True, append_images=[picture.rotate(9)]),
    }
    wide = rgb.astype(np.uint16) * 16
    bad = {
        "wide.jpg": codecs.jpeg8_encode(wide, bitspersample=12),
        "lossless.jpg": codecs.ljpeg_encode(gray),
        "bands.tif": written(np.dstack([rgb, rgb]), photometric="minisblack", planarconfig="contig"),
        "jpeg2000.tif": written(rgb, photometric="rgb", compression="jpeg2000"),
    }
    (tmp_path / "in" / "c").mkdir(parents=True)
    for name, b in (good | bad).items():
        (tmp_path / "in" / "c" / name).write_bytes(b)
    done = subprocess.run(
        [binary, "pack", tmp_path / "in", tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    said = done.stdout + done.stderr
    for name in bad:
        line = next(line for line in said.splitlines() if name in line)
        assert "not supported" in line and "damaged" not in line, line
    assert len(next(iter(make(tmp_path / "out", len(good))))["image"]) == len(good)
