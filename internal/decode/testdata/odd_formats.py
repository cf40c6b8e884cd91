"""Adds to formats/ small images of features that few programs write: TIFF, BMP, GIF, PNG
and WebP that Go's libraries do not read. Each has its pixels beside it, as in
pillow_formats.py. Run it in this folder with Pillow, tifffile, imagecodecs and NumPy; the
result is committed.
"""

import io
import struct
import zlib
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
    if rgba or im.mode == "RGBA":
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


# BMP
palette = b"".join(bytes(color) for color in rng.integers(0, 256, (256, 4)).astype(np.uint8))
indices = noise[..., 0]
bgr = rgb[..., ::-1]


def lines(a: np.ndarray) -> bytes:
    """Return rows from below, each of whole words."""
    return b"".join(row.tobytes().ljust((row.nbytes + 3) // 4 * 4, b"\0") for row in a[::-1])


def bmp(name: str, depth: int, data: bytes, header: int = 40, compression: int = 0, **more: object) -> None:
    """Write a BMP. more: colors, a palette; masks; gap, bytes in front of the pixels; height; mask."""
    colors, masks, gap = more.get("colors", b""), more.get("masks", b""), more.get("gap", 0)
    if header == 12:
        head = struct.pack("<IHHHH", 12, W, H, 1, depth)
    else:
        used = len(colors) // 4 if depth > 8 else 0
        head = struct.pack(
            "<IiiHHIIiiII", header, W, more.get("height", H), 1, depth, compression, len(data), 0, 0, used, 0
        )
        head = (head + masks).ljust(header, b"\0") if header > 40 else head + masks
    at = 14 + len(head) + len(colors) + gap
    out = b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + head + colors + b"\xaa" * gap + data
    expect(name, out[14:] if more.get("dib") else out, mask=depth <= 8)


def few_bits(depth: int) -> bytes:
    flat = ((indices[..., None] >> np.arange(7, 7 - depth, -1)) & 1).astype(np.uint8)
    return lines(np.packbits(flat.reshape(H, -1), axis=1))


bmp("os2-8.bmp", 8, lines(indices), 12, colors=b"".join(palette[4 * i : 4 * i + 3] for i in range(256)))
bmp("os2-24.bmp", 24, lines(bgr), 12)
bmp("os2-v2.bmp", 8, lines(indices), 64, colors=palette)
bmp("gap.bmp", 8, lines(indices), colors=palette, gap=22)
bmp("depth-1.bmp", 1, few_bits(1), colors=palette[:8])
bmp("depth-4.bmp", 4, few_bits(4), colors=palette[:64])
bmp("palette-24.bmp", 24, lines(bgr), colors=palette[:80])
bmp("top-down.bmp", 24, lines(bgr[::-1]), height=-H)
bmp("device-independent.bmp", 24, lines(bgr), dib=True)
half = lambda a, n: a.astype(np.uint16) >> (8 - n)  # noqa: E731
x555 = half(rgb[..., 0], 5) << 10 | half(rgb[..., 1], 5) << 5 | half(rgb[..., 2], 5)
x565 = half(rgb[..., 0], 5) << 11 | half(rgb[..., 1], 6) << 5 | half(rgb[..., 2], 5)
bmp("x555.bmp", 16, lines(x555))
bmp("x565.bmp", 16, lines(x565), compression=3, masks=struct.pack("<3I", 0xF800, 0x7E0, 0x1F))
bmp("x565-v2.bmp", 16, lines(x565), 52, 3, masks=struct.pack("<3I", 0xF800, 0x7E0, 0x1F))
bmp("x32.bmp", 32, lines(noise))
bmp("x32-masks.bmp", 32, lines(noise), 40, 3, masks=struct.pack("<3I", 0xFF000000, 0xFF0000, 0xFF00))
for header in (56, 108, 124):
    bmp(f"v{header}.bmp", 32, lines(noise), header, 3, masks=struct.pack("<4I", 0xFF, 0xFF00, 0xFF0000, 0xFF000000))
bmp("v108-abgr.bmp", 32, lines(noise), 108, 3, masks=struct.pack("<4I", 0xFF000000, 0xFF0000, 0xFF00, 0xFF))


def coded(depth: int) -> bytes:
    """Return runs, pixels as they are, a jump and the end of rows in all orders."""
    out = b""
    for i, row in enumerate(indices[::-1] >> (8 - depth)):
        if depth == 4:
            row = row & 15
        if i == 3:
            out += b"\x05" + bytes([0x12 if depth == 4 else 9]) + b"\0\x02\x03\x01"  # a run, and on to column 8 below
            continue
        start = 8 if i == 4 else 0
        part = row[start : start + 7]
        if depth == 4:
            both = np.append(part, [0] * (len(part) % 2))
            part_bytes = (both[::2] << 4 | both[1::2]).astype(np.uint8).tobytes()
        else:
            part_bytes = part.astype(np.uint8).tobytes()
        out += bytes([0, len(part)]) + part_bytes + b"\0" * (len(part_bytes) % 2)
        for value in row[start + 7 :]:
            out += bytes([1, value << 4 if depth == 4 else value])
        out += b"\0\0"
    return out + b"\0\1"


bmp("rle8.bmp", 8, coded(8), compression=1, colors=palette)
bmp("rle4.bmp", 4, coded(4), compression=2, colors=palette[:64])


# WebP, GIF and PNG
second = picture.copy()
second.putpixel((W - 1, H - 1), (1, 2, 3))
clear = Image.fromarray(np.dstack([rgb, alpha]))
more = {"format": "WEBP", "save_all": True, "append_images": [second]}
expect("animated.webp", saved(picture, lossless=True, **more))
expect("animated-lossy.webp", saved(picture, quality=90, **more))
clear_more = more | {"append_images": [Image.new("RGBA", (W, H), (1, 2, 3, 9))]}
expect("animated-alpha.webp", saved(clear, quality=90, **clear_more))
for name, alpha_flag in (("animated-part.webp", 0), ("animated-part-alpha.webp", 16)):
    data = bytearray(saved(picture, lossless=True, **more))
    at = data.index(b"VP8X") + 8
    data[at] = data[at] & ~16 | alpha_flag
    data[at + 4] += 6  # a larger picture
    data[at + 7] += 5
    at = data.index(b"ANMF") + 8
    data[at], data[at + 3] = 2, 1
    expect(name, bytes(data))

at = 6
data = bytearray(saved(few, format="GIF"))
data[6:10] = struct.pack("<2H", W - 5, H - 4)
expect("larger-frame.gif", bytes(data), mask=True)
data = bytearray(saved(Image.fromarray(gray), format="GIF"))
table = 3 << (data[10] & 7) + 1
gray_data = data[:10] + bytes([data[10] & 0x7F]) + data[11:13] + data[13 + table :]
expect("no-palette.gif", bytes(gray_data), mask=True)


def png(rows: np.ndarray, wrong: bool = False, end: bool = True) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body))
            + kind
            + body
            + struct.pack(">I", zlib.crc32(kind + body) ^ (wrong and kind == b"IDAT"))
        )

    head = struct.pack(">2I5B", W, H, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels)
    return out + chunk(b"IEND", b"") if end else out


expect("row-too-many.png", png(np.vstack([rgb, rgb[:1]])))
expect("wrong-crc.png", png(rgb, wrong=True))

# PNG with damage or disorder that leaves the pixels as they are


def chunks(data: bytes) -> dict[bytes, bytes]:
    """Return the chunks of a PNG in which no kind occurs twice, each with its length and checksum."""
    out, at = {}, 8
    while at < len(data):
        end = at + 12 + struct.unpack_from(">I", data, at)[0]
        out[data[at + 4 : at + 8]] = data[at:end]
        at = end
    return out


def ordered(data: bytes, order: str) -> bytes:
    """Return a PNG with its chunks in an order. A small x damages the checksum of the chunk before it."""
    out = b"\x89PNG\r\n\x1a\n"
    parts = chunks(data) | {b"tEXt": b"\0\0\0\x03tEXta\0b" + struct.pack(">I", zlib.crc32(b"tEXta\0b"))}
    for name in order.split():
        part = parts[name[:4].encode()]
        out += part[:-1] + bytes([part[-1] ^ 1]) if name.endswith("x") else part
    return out


indexed = saved(few, format="PNG", transparency=bytes(range(0, 260, 20)))
colored = saved(picture, format="PNG")
expect("trns-first.png", ordered(indexed, "IHDR tRNS PLTE IDAT IEND"), rgba=True)
expect("text-damaged.png", ordered(colored, "IHDR IDAT tEXtx IEND"))
expect("end-damaged.png", ordered(colored, "IHDR IDAT IENDx"))
expect("both-damaged.png", ordered(colored, "IHDR IDATx tEXtx IENDx"))
expect("cut-in-checksum.png", ordered(colored, "IHDR IDAT")[:-2])
expect(
    "palette-of-gray.png",
    ordered(saved(Image.fromarray(gray), format="PNG") + chunks(indexed)[b"PLTE"], "IHDR PLTE IDAT IEND"),
)
