"""Adds to formats/ small images of the formats that Stoker reads by itself: those of
Netpbm, and TIFF files of floats, of integers of 32 bits, by channel, of BigTIFF.
Beside each lie its pixels as pillow_formats.py has them, and as .f32 the numbers that
the file holds, as float32. Run it in this folder with Pillow, tifffile and NumPy; the
result is committed.
"""

import io
import struct
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

OUT = Path("formats")
W, H = 37, 29
rng = np.random.default_rng(11)


def put(name: str, a: np.ndarray) -> None:
    (OUT / name).write_bytes(struct.pack("<2i", a.shape[1], a.shape[0]) + a.tobytes())


def expect(name: str, data: bytes, values: "np.ndarray | None" = None, pillow: bool = True) -> None:
    (OUT / name).write_bytes(data)
    if pillow:
        im = Image.open(io.BytesIO(data))
        put(name + ".rgb", np.asarray(im.convert("RGB")))
        if values is None:
            values = np.asarray(im)
    if values is not None:
        put(name + ".f32", values.astype("<f4"))


def smooth(channels: int, top: int) -> np.ndarray:
    y, x = np.mgrid[0:H, 0:W]
    planes = [0.5 + 0.3 * np.sin(x / (4 + c)) + 0.2 * np.cos(y / (3 + c)) for c in range(channels)]
    return (np.stack(planes, -1).clip(0, 1) * top).round().astype(np.uint16)


def pnm(kind: int, a: np.ndarray, top: int, note: str = "") -> bytes:
    head = f"P{kind}\n{note}{a.shape[1]} {a.shape[0]}\n"
    if kind not in (1, 4):
        head += f"{top}\n"
    if kind <= 3:
        return (head + "\n".join(" ".join(str(v) for v in row.ravel()) for row in a) + "\n").encode()
    if kind == 4:
        return head.encode() + np.packbits(a[..., 0].astype(bool), axis=1).tobytes()
    return head.encode() + a.astype("u1" if top < 256 else ">u2").tobytes()


bits = (smooth(1, 255) > 120).astype(np.uint16)
expect("text.pbm", pnm(1, bits, 1, "# made by hand\n"))
expect("bits.pbm", pnm(4, bits, 1))
for top in (255, 100, 3, 65535, 1023):
    wide = "-16" if top > 255 else ""
    gray, rgb = smooth(1, top), smooth(3, top)
    expect(f"text{wide}-{top}.pgm", pnm(2, gray, top))
    expect(f"gray{wide}-{top}.pgm", pnm(5, gray, top, "# one line\n# and another\n"))
    expect(f"text{wide}-{top}.ppm", pnm(3, rgb, top))
    expect(f"rgb{wide}-{top}.ppm", pnm(6, rgb, top))
for channels, name in ((1, "GRAYSCALE"), (2, "GRAYSCALE_ALPHA"), (3, "RGB"), (4, "RGB_ALPHA")):
    for top in (255, 65535):
        a = smooth(channels, top)
        head = f"P7\n# a comment\nWIDTH {W}\nHEIGHT {H}\nDEPTH {channels}\nMAXVAL {top}\nTUPLTYPE {name}\nENDHDR\n"
        wide = "16-" if top > 255 else ""
        expect(f"{wide}{channels}.pam", head.encode() + a.astype("u1" if top < 256 else ">u2").tobytes(), a, False)

real = (rng.standard_normal((H, W)) * 200).astype(np.float32)
real[0, :6] = [np.nan, np.inf, -np.inf, 254.99, 255.5, -0.5]
expect("le.pfm", f"Pf\n{W} {H}\n-1.0\n".encode() + real[::-1].astype("<f4").tobytes())
expect("be.pfm", f"Pf\n{W} {H}\n1.0\n".encode() + real[::-1].astype(">f4").tobytes())
rgbf = (rng.random((H, W, 3)) * 300).astype(np.float32)
expect("rgb.pfm", f"PF\n{W} {H}\n-1.0\n".encode() + rgbf[::-1].astype("<f4").tobytes(), rgbf, False)

real[0, 0] = 17  # what becomes of nan is nobody's promise
for name, how in (
    ("none", None),
    ("lzw", "tiff_lzw"),
    ("deflate", "tiff_adobe_deflate"),
    ("packbits", "packbits"),
    ("zstd", "zstd"),
):
    for predictor in (1, 3):
        if predictor == 3 and name in ("none", "packbits"):
            continue
        b = io.BytesIO()
        info = {317: predictor} if predictor > 1 else {}
        Image.fromarray(real).save(b, format="TIFF", compression=how, tiffinfo=info)
        expect(f"float-{name}-{predictor}.tiff", b.getvalue())
whole = rng.integers(-300, 70000, (H, W)).astype(np.int32)
b = io.BytesIO()
Image.fromarray(whole).save(b, format="TIFF", compression="tiff_lzw", tiffinfo={317: 2})
expect("int-lzw-2.tiff", b.getvalue())


def tiff(name: str, a: np.ndarray, pillow: bool = False, **options: object) -> None:
    b = io.BytesIO()
    tifffile.imwrite(b, a, **{"photometric": "minisblack", "metadata": None, **options})
    data = b.getvalue()
    assert np.array_equal(tifffile.imread(io.BytesIO(data)), a)
    if options.get("planarconfig") == "separate":
        a = a.transpose(1, 2, 0)
    expect(name, data, a, pillow)


tiff("float-tiles.tiff", real, True, tile=(16, 16))
tiff("float-strips-be.tiff", real, True, rowsperstrip=5, byteorder=">")
tiff("float-big.tiff", real, bigtiff=True)
tiff("float-double.tiff", real.astype(np.float64))
tiff("float-half.tiff", real.astype(np.float16))
tiff("float-rgb.tiff", rgbf, photometric="rgb", tile=(32, 16), compression="zlib", predictor=True)
tiff(
    "float-rgb-planes.tiff", rgbf.transpose(2, 0, 1).copy(), photometric="rgb", planarconfig="separate", rowsperstrip=7
)
tiff("int16.tiff", (whole // 3).astype(np.int16), True)
tiff("int8.tiff", rng.integers(-128, 128, (H, W)).astype(np.int8))
tiff("int-uint32.tiff", np.abs(whole).astype(np.uint32), byteorder=">", tile=(16, 32), compression="zlib")
wide = smooth(4, 65535)
tiff(
    "planes-16.tiff", wide[..., :3].transpose(2, 0, 1).copy(), photometric="rgb", planarconfig="separate", tile=(16, 16)
)
tiff(
    "planes.tiff",
    (wide[..., :3] >> 8).astype(np.uint8).transpose(2, 0, 1).copy(),
    True,
    photometric="rgb",
    planarconfig="separate",
    compression="zlib",
    predictor=True,
)
tiff("big-16.tiff", wide[..., 0], bigtiff=True, rowsperstrip=4, compression="zlib", predictor=True)
tiff("big-rgb.tiff", (wide[..., :3] >> 8).astype(np.uint8), bigtiff=True, photometric="rgb", byteorder=">")
tiff("gray-alpha-16.tiff", wide[..., :2], extrasamples=["unassalpha"])
