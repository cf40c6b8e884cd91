"""Rates of Python's decoders on one core: whole JPEGs in memory, one thread, no loader. One line of JSON per round.

python -m bench.decoders ROUNDS LIST        LIST: one JPEG path per line
"""

from __future__ import annotations

import io
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def decoders(data: list[bytes]) -> dict[str, Callable[[int], Any]]:
    """A function per decoder that decodes image i to RGB pixels."""
    import cv2
    import numpy as np
    import simplejpeg
    import torch
    from PIL import Image
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    tensors = [torch.frombuffer(bytearray(d), dtype=torch.uint8) for d in data]
    arrays = [np.frombuffer(d, np.uint8) for d in data]
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    return {
        "Pillow, to an array": lambda i: np.asarray(Image.open(io.BytesIO(data[i])).convert("RGB")),
        "torchvision.io": lambda i: decode_jpeg(tensors[i], mode=ImageReadMode.RGB),
        "OpenCV": lambda i: cv2.imdecode(arrays[i], flags),
        "simplejpeg": lambda i: simplejpeg.decode_jpeg(data[i]),
    }


def main() -> None:
    rounds = int(sys.argv[1])
    data = [Path(line).read_bytes() for line in Path(sys.argv[2]).read_text().splitlines()]
    table = decoders(data)
    for function in table.values():
        for i in range(min(20, len(data))):
            function(i)
    for number in range(rounds):
        names = list(table)
        random.Random(number).shuffle(names)
        for name in names:
            start = time.perf_counter()
            for i in range(len(data)):
                table[name](i)
            rate = len(data) / (time.perf_counter() - start)
            print(json.dumps({"variant": name, "round": number, "images": len(data), "images_s": rate}), flush=True)


if __name__ == "__main__":
    main()
