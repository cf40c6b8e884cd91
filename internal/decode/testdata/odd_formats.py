"""Adds to formats/ small images of features that few programs write: TIFF, BMP, GIF, PNG
and WebP that Go's libraries do not read. Each has its pixels beside it, as in
pillow_formats.py. Run it in this folder with Pillow, tifffile, imagecodecs and NumPy; the
result is committed.
"""

import io
import struct
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

OUT = Path("formats")
W, H = 21, 17
rng = np.random.default_rng(5)


def put(name: str, a: np.ndarray) -> None:
    (OUT / name).write_bytes(struct.pack("<2i", a.shape[1], a.shape[0]) + a.tobytes())


def expect(name: str, data: bytes, mask: bool = False, rgba: bool = False) -> None:
    (OUT / name).write_bytes(data)
    im = Image.open(io.BytesIO(data))
    put(name + ".rgb", np.asarray(im.convert("RGB")))
    if mask:
        put(name + ".mask", np.asarray(im).astype("<u2"))
    if rgba:
        put(name + ".rgba", np.asarray(im.convert("RGBA")))


def saved(im: Image.Image, **options: object) -> bytes:
    b = io.BytesIO()
    im.save(b, **options)
    return b.getvalue()


y, x = np.mgrid[0:H, 0:W]
noise = rng.integers(0, 256, (H, W, 4)).astype(np.uint8)
rgb = np.dstack([x * 12, y * 15, (x + y) * 6]).astype(np.uint8)
rgb[3:9, 4:12] = noise[3:9, 4:12, :3]
alpha = noise[..., 3].copy()
alpha[:4] = 255
alpha[4:6] = 0
gray = rgb[..., 2]
bits = ((x // 4 + y // 3) % 3 == 0) | (noise[..., 0] < 20)
picture, bilevel = Image.fromarray(rgb), Image.fromarray(bits)
few = picture.quantize(13)


# TIFF


def entry(data: bytes, tag: int) -> int:
    """Return where the value of a tag is in a TIFF file."""
    order = "<" if data[:2] == b"II" else ">"
    (at,) = struct.unpack_from(order + "I", data, 4)
    (n,) = struct.unpack_from(order + "H", data, at)
    for i in range(n):
        if struct.unpack_from(order + "H", data, at + 2 + 12 * i)[0] == tag:
            return at + 2 + 12 * i + 8
    raise KeyError(tag)


def patched(data: bytes, tag: int, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into("<H", out, entry(data, tag), value)
    return bytes(out)


for how in ("group3", "group4", "tiff_ccitt"):
    data = saved(bilevel, format="TIFF", compression=how)
    expect(f"{how}-black-is-zero.tiff", data, mask=True)
    expect(f"{how}-white-is-zero.tiff", patched(data, 262, 0), mask=True)
expect("group3-2d.tiff", saved(bilevel, format="TIFF", compression="group3", tiffinfo={292: 1}), mask=True)
expect("group3-strips.tiff", saved(bilevel, format="TIFF", compression="group3", tiffinfo={292: 5, 278: 5}), mask=True)
expect("group4-low-bit-first.tiff", saved(bilevel, format="TIFF", compression="group4", tiffinfo={266: 2}), mask=True)


def tiff(name: str, a: np.ndarray, mask: bool = False, rgba: bool = False, **options: object) -> None:
    b = io.BytesIO()
    tifffile.imwrite(b, a, **{"photometric": "rgb", "metadata": None, "software": False, **options})
    expect(name, b.getvalue(), mask, rgba)


expect("jpeg-rgb.tiff", saved(picture, format="TIFF", compression="jpeg"))
expect("jpeg-gray.tiff", saved(Image.fromarray(gray), format="TIFF", compression="jpeg"))
expect("jpeg-ycbcr.tiff", saved(picture.convert("YCbCr"), format="TIFF", compression="jpeg"))
expect("jpeg-cmyk.tiff", saved(Image.fromarray(np.dstack([rgb, gray]), "CMYK"), format="TIFF", compression="jpeg"))
tiff("jpeg-tiles.tiff", rgb, photometric="ycbcr", subsampling=(2, 2), compression="jpeg", tile=(16, 16))
tiff("jpeg-planes.tiff", rgb.transpose(2, 0, 1).copy(), planarconfig="separate", compression="jpeg")
expect("cmyk.tiff", saved(Image.fromarray(noise, "CMYK"), format="TIFF"))
tiff("cmyk-16.tiff", noise.astype(np.uint16) * 257, photometric="separated", compression="lzw", predictor=True)
expect("ycbcr.tiff", saved(picture.convert("YCbCr"), format="TIFF"))
expect("ycbcr-lzw.tiff", saved(picture.convert("YCbCr"), format="TIFF", compression="tiff_lzw"))
expect("lzma.tiff", saved(picture, format="TIFF", compression="lzma", tiffinfo={317: 2}))
tiff("nir.tiff", noise, extrasamples=["unspecified"])
tiff("five.tiff", np.dstack([noise, gray]), extrasamples=["unspecified"] * 2)
small = (noise[..., :3].astype(int) * alpha[..., None] // 255).astype(np.uint8)
associated = np.dstack([small, alpha])
tiff("premultiplied.tiff", associated, rgba=True, extrasamples=["assocalpha"])
tiff(
    "premultiplied-16.tiff",
    associated.astype(np.uint16) * 257,
    rgba=True,
    extrasamples=["assocalpha"],
    compression="lzw",
)
tiff("int8-bytes.tiff", noise[..., 0].astype(np.int8), photometric="minisblack")
tiff("int16-negative.tiff", (noise[..., 0].astype(np.int16) - 99) * 3, photometric="minisblack")


def made(name: str, tags: dict[int, "int | bytes"], data: bytes, mask: bool = False) -> None:
    """Write a TIFF of one strip; tags of bytes are lists of 16-bit numbers."""
    tags = {256: W, 257: H, 259: 1, 266: 1, 273: 8, 278: H, 279: len(data)} | tags
    at = 8 + len(data)
    out, more = b"II*\0" + struct.pack("<I", at) + data + struct.pack("<H", len(tags)), b""
    at += 6 + 12 * len(tags)
    for tag, value in sorted(tags.items()):
        if isinstance(value, bytes):
            inside = value.ljust(4, b"\0") if len(value) <= 4 else struct.pack("<I", at + len(more))
            out += struct.pack("<HHI", tag, 3, len(value) // 2) + inside
            more += value if len(value) > 4 else b""
        else:
            out += struct.pack("<HHII", tag, 4, 1, value)
    expect(name, out + b"\0\0\0\0" + more, mask)


def depths(name: str, values: np.ndarray, depth: int, photometric: int, reverse: bool = False) -> None:
    """Write a TIFF of samples that are not whole bytes."""
    flat = ((values[..., None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8)
    packed = np.packbits(flat.reshape(H, -1), axis=1, bitorder="little" if reverse else "big").tobytes()
    tags: dict[int, int | bytes] = {258: depth, 262: photometric, 266: 1 + reverse}
    if photometric == 3:
        tags[320] = (np.arange(3 << depth) * 7919 % 65536).astype("<u2").tobytes()
    made(name, tags, packed, mask=photometric == 3 or depth == 12)


def subsampled(name: str, across: int, down: int) -> None:
    """Write a TIFF of YCbCr in units of several pixels, PackBits: libtiff then converts it."""
    ycc = np.asarray(picture.convert("YCbCr"))
    units = b""
    for top in range(0, H, down):
        for left in range(0, W, across):
            rows = np.minimum(np.arange(top, top + down), H - 1)
            columns = np.minimum(np.arange(left, left + across), W - 1)
            units += ycc[np.ix_(rows, columns)][..., 0].tobytes() + ycc[top, left, 1:].tobytes()
    packed = b"".join(bytes([len(part) - 1]) + part for part in (units[i : i + 128] for i in range(0, len(units), 128)))
    tags = {258: b"\x08\0" * 3, 259: 32773, 262: 6, 277: 3, 530: struct.pack("<2H", across, down)}
    made(name, tags, packed)


for across, down in ((2, 2), (2, 1), (1, 2), (4, 1), (4, 4)):
    subsampled(f"ycbcr-{across}-{down}.tiff", across, down)
for depth in (1, 2, 4):
    for photometric in (0, 1, 3):
        for reverse in (False, True)[: 1 if photometric == 3 else 2]:  # Pillow has no reverse palettes
            low = "-low" if reverse else ""
            depths(f"depth-{depth}-{photometric}{low}.tiff", noise[..., 0] >> (8 - depth), depth, photometric, reverse)
depths("gray16-depth-12.tiff", noise[..., 0].astype(int) * 3, 12, 1)
