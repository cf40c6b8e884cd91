"""Writes pillow_resize.bin: what Pillow makes of crop().resize(), for the test
of the same name. Run it with Pillow installed, in this folder; the result is
committed.

The file is a sequence of records, all numbers little-endian int32:
filter (1 bilinear, 2 bicubic, 3 nearest), source width, height, box x, y, w, h,
resized width, height, then the resized RGB bytes. The source of a record is
made by source() below, which the test repeats.
"""

import struct

from PIL import Image

FILTERS = {
    1: Image.Resampling.BILINEAR,
    2: Image.Resampling.BICUBIC,
    3: Image.Resampling.NEAREST,
}


def source(width: int, height: int) -> Image.Image:
    """Edges, gradients and noise from a linear congruential generator."""
    state = 12345
    data = bytearray()
    for y in range(height):
        for x in range(width):
            for c in range(3):
                state = (state * 1103515245 + 12345) & 0x7FFFFFFF
                v = (x * (3 + c) + y * 5 + (state >> 16) % 64) & 255
                if (x // 7 + y // 5 + c) % 3 == 0:
                    v = 255 - v
                if (x // 11 + y // 13) % 5 == 0:
                    v = 0 if (x + y) % 2 else 255
                data += bytes([v])
    return Image.frombytes("RGB", (width, height), bytes(data))


CASES = [
    # source, box, resized
    ((61, 47), (0, 0, 61, 47), (32, 24)),
    ((61, 47), (5, 3, 50, 41), (22, 22)),
    ((61, 47), (5, 3, 20, 11), (44, 31)),
    ((61, 47), (7, 9, 33, 1), (10, 4)),
    ((61, 47), (60, 0, 1, 47), (3, 5)),
    ((61, 47), (0, 0, 61, 47), (61, 20)),
    ((61, 47), (0, 0, 61, 47), (20, 47)),
    ((61, 47), (0, 0, 61, 47), (1, 1)),
    ((640, 9), (0, 0, 640, 9), (7, 5)),
    ((9, 640), (0, 0, 9, 640), (5, 7)),
    ((4, 5000), (0, 0, 4, 5000), (4, 3)),
    ((5000, 4), (0, 0, 5000, 4), (3, 4)),
    ((200, 150), (13, 17, 171, 120), (64, 48)),
    ((200, 150), (0, 0, 200, 150), (31, 29)),
]

with open("pillow_resize.bin", "wb") as out:
    for (w, h), (bx, by, bw, bh), (rw, rh) in CASES:
        im = source(w, h).crop((bx, by, bx + bw, by + bh))
        for number, pil in FILTERS.items():
            got = im.resize((rw, rh), pil)
            out.write(struct.pack("<9i", number, w, h, bx, by, bw, bh, rw, rh))
            out.write(got.tobytes())
