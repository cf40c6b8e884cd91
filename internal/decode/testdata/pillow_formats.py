"""Writes formats/: small images of many kinds, each with files that hold its
pixels (width and height as little-endian int32, then the values): .rgb those of
Pillow's convert("RGB"), .rgba those of convert("RGBA") where Pillow can, .mask the
class numbers of np.asarray as u16 where there is one channel, .u16 the values of 16
bits in all channels. Those of oriented images are of ImageOps.exif_transpose. Run it with Pillow and NumPy installed, in this folder; the result is committed.
"""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

OUT = Path("formats")
OUT.mkdir(exist_ok=True)
W, H = 37, 29
rng = np.random.default_rng(7)


def smooth(channels: int) -> np.ndarray:
    y, x = np.mgrid[0:H, 0:W]
    planes = [
        (127 + 90 * np.sin(x / (4 + c)) + 60 * np.cos(y / (3 + c)) + rng.normal(0, 6, (H, W))).clip(0, 255)
        for c in range(channels)
    ]
    return np.stack(planes, -1).astype(np.uint8)


def expect(name: str, data: bytes, transpose: bool = False) -> None:
    (OUT / name).write_bytes(data)
    im = Image.open(io.BytesIO(data))
    if transpose:
        im = ImageOps.exif_transpose(im)
    put(name + ".rgb", im.convert("RGB"))
    if im.mode != "I;16" and not name.endswith(".jpg") and not transpose:
        put(name + ".rgba", im.convert("RGBA"))
    if im.mode in ("1", "L", "P", "I;16") and not name.endswith(".jpg"):
        put(name + ".mask", np.asarray(im).astype("<u2"))


def put(name: str, im: "Image.Image | np.ndarray") -> None:
    a = np.asarray(im)
    (OUT / name).write_bytes(struct.pack("<2i", a.shape[1], a.shape[0]) + a.tobytes())


def save(name: str, im: Image.Image, **options: object) -> None:
    b = io.BytesIO()
    im.save(b, **options)
    expect(name, b.getvalue())


rgb, gray = Image.fromarray(smooth(3)), Image.fromarray(smooth(1)[:, :, 0])
rgba = Image.fromarray(smooth(4), "RGBA")
la = Image.merge("LA", (gray, Image.fromarray(smooth(1)[:, :, 0])))
palette = rgb.quantize(20)
gray16 = Image.fromarray((smooth(1)[:, :, 0].astype(np.uint16) * 3))
one_bit = gray.convert("1")
cmyk = Image.fromarray(smooth(4), "CMYK")

save("rgb.png", rgb, format="PNG")
save("rgba.png", rgba, format="PNG")
save("gray.png", gray, format="PNG")
save("gray-alpha.png", la, format="PNG")
save("gray16.png", gray16, format="PNG")
save("one-bit.png", one_bit, format="PNG")
save("palette.png", palette, format="PNG")
save("palette-4bit.png", rgb.quantize(11), format="PNG", bits=4)
save("palette-transparent.png", palette, format="PNG", transparency=3)
save("rgb-transparent.png", rgb, format="PNG", transparency=rgb.getpixel((3, 3)))

save("rgb.bmp", rgb, format="BMP")
save("gray.bmp", gray, format="BMP")
save("palette.bmp", palette, format="BMP")
save("rgba.bmp", rgba, format="BMP")

save("palette.gif", palette, format="GIF")
save("gray.gif", gray, format="GIF")
save("transparent.gif", palette, format="GIF", transparency=2)
save("interlaced.gif", palette, format="GIF", interlace=1)
# A first frame smaller than the canvas: cut the logical screen larger.
for name, options in {"offset.gif": {}, "offset-transparent.gif": {"transparency": 2}}.items():
    b = io.BytesIO()
    palette.save(b, format="GIF", **options)
    data = bytearray(b.getvalue())
    data[6:10] = struct.pack("<2H", W + 9, H + 5)
    at = data.index(b"\x2c\x00\x00\x00\x00" + struct.pack("<2H", W, H))
    data[at + 1 : at + 5] = struct.pack("<2H", 4, 2)
    expect(name, bytes(data))
frames = [palette, rgb.quantize(7)]
save("animated.gif", frames[0], format="GIF", save_all=True, append_images=frames[1:])

save("lossy.webp", rgb, format="WEBP", quality=80)
save("lossy-even.webp", rgb.crop((0, 0, 36, 28)), format="WEBP", quality=80)
save("lossy-one.webp", rgb.crop((0, 0, 1, 1)), format="WEBP", quality=80)
save("lossy-row.webp", rgb.crop((0, 0, 33, 1)), format="WEBP", quality=80)
save("lossy-alpha.webp", rgba, format="WEBP", quality=80)
save("lossless.webp", rgb, format="WEBP", lossless=True)
save("lossless-alpha.webp", rgba, format="WEBP", lossless=True, exact=True)

save("rgb.tiff", rgb, format="TIFF")
save("lzw.tiff", rgb, format="TIFF", compression="tiff_lzw")
save("deflate.tiff", gray, format="TIFF", compression="tiff_adobe_deflate")
save("palette.tiff", palette, format="TIFF")
save("rgba.tiff", rgba, format="TIFF")
save("gray16.tiff", gray16, format="TIFF")
save("one-bit.tiff", one_bit, format="TIFF")

save("420.jpg", rgb, format="JPEG", quality=90, subsampling=2)
save("422.jpg", rgb, format="JPEG", quality=90, subsampling=1)
save("444-progressive.jpg", rgb, format="JPEG", quality=90, subsampling=0, progressive=True)
save("gray.jpg", gray, format="JPEG", quality=90)
save("rgb.jpg", rgb, format="JPEG", quality=90, keep_rgb=True)
save("cmyk.jpg", cmyk, format="JPEG", quality=90)
# YCCK: the same data with another Adobe transform means other colours.
b = io.BytesIO()
cmyk.save(b, format="JPEG", quality=90)
data = bytearray(b.getvalue())
at = data.index(b"Adobe")
data[at + 11] = 2
expect("ycck.jpg", bytes(data))

for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x112] = orientation
    b = io.BytesIO()
    rgb.save(b, format="JPEG", quality=90, exif=exif)
    expect(f"orientation-{orientation}.jpg", b.getvalue(), transpose=True)
    b = io.BytesIO()
    rgb.save(b, format="PNG", exif=exif)
    expect(f"orientation-{orientation}.png", b.getvalue(), transpose=True)


def png16(name: str, a: np.ndarray) -> None:
    """A PNG of 16 bits per value, which Pillow writes of gray only."""
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    kind = {2: 4, 3: 2, 4: 6}[a.shape[2]]
    head = struct.pack(">2I5B", a.shape[1], a.shape[0], 16, kind, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in a)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    expect(name, data)
    put(name + ".u16", a.astype("<u2"))


wide = (smooth(4).astype(np.uint16) << 8) + rng.integers(0, 256, (H, W, 4)).astype(np.uint16)
png16("rgb16.png", wide[..., :3])
png16("rgba16.png", wide)
png16("gray-alpha16.png", wide[..., 2:])
# More class numbers than a byte holds, and all of a palette's.
classes = rng.integers(0, 60000, (H, W)).astype(np.uint16)
save("classes16.png", Image.fromarray(classes), format="PNG")
save("classes16.tiff", Image.fromarray(classes), format="TIFF")
voc = Image.fromarray(rng.integers(0, 256, (H, W)).astype(np.uint8), "P")
voc.putpalette(list(rng.integers(0, 256, 768)))
save("classes-palette.png", voc, format="PNG")
