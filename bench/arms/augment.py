"""Decode, RandomResizedCrop and flip for the loaders that leave this to their user's Python."""

from __future__ import annotations

import io
import math
import random
from typing import Any

import numpy as np

from .harness import Job


def crop_box(width: int, height: int, job: Job, rng: Any = random) -> tuple[int, int, int, int]:
    """The box of torchvision's RandomResizedCrop: left, top, width, height."""
    area = width * height
    low, high = math.log(job.ratio[0]), math.log(job.ratio[1])
    for _ in range(10):
        target = area * rng.uniform(*job.scale)
        ratio = math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.random() * (width - w + 1)), int(rng.random() * (height - h + 1)), w, h
    if width / height < job.ratio[0]:
        w, h = width, round(width / job.ratio[0])
    elif width / height > job.ratio[1]:
        w, h = round(height * job.ratio[1]), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


class Pillow:
    """Pillow all the way: decode, then one resize of the box. HWC array."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, data: bytes, rng: Any = random) -> np.ndarray:
        from PIL import Image

        image = Image.open(io.BytesIO(data)).convert("RGB")
        x, y, w, h = crop_box(*image.size, self.job, rng)
        image = image.crop((x, y, x + w, y + h)).resize((self.job.size,) * 2, Image.Resampling.BILINEAR)
        if rng.random() < self.job.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.asarray(image)


class OpenCV:
    """A whole-image decoder of the caller's choice, then OpenCV's resize of the box: INTER_AREA when it shrinks, which
    is OpenCV's antialiasing. HWC array."""

    def __init__(self, job: Job, decoder: str) -> None:
        import cv2

        cv2.setNumThreads(0)
        self.job, self.decoder = job, decoder

    def __call__(self, data: bytes, rng: Any = random) -> np.ndarray:
        import cv2

        if self.decoder == "simplejpeg":
            import simplejpeg

            image = simplejpeg.decode_jpeg(data)
        else:
            flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
            image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        size = self.job.size
        x, y, w, h = crop_box(image.shape[1], image.shape[0], self.job, rng)
        how = cv2.INTER_AREA if w > size and h > size else cv2.INTER_LINEAR
        image = cv2.resize(image[y : y + h, x : x + w], (size, size), interpolation=how)
        return cv2.flip(image, 1) if rng.random() < self.job.flip else image


class Torchvision:
    """torchvision's own decoder and its v2 transforms on uint8 tensors. CHW tensor."""

    def __init__(self, job: Job) -> None:
        self.transform = transforms(job)

    def __call__(self, data: Any, rng: Any = None) -> Any:
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg

        if not isinstance(data, torch.Tensor):
            data = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data.dim() == 1:  # LitData has decoded it already, with the same decoder
            data = decode_jpeg(data, mode=ImageReadMode.RGB)
        return self.transform(data)


class TorchCodec(Torchvision):
    """TorchCodec's own decoder, then torchvision's v2 transforms on uint8 tensors. CHW tensor."""

    def __call__(self, data: Any, rng: Any = None) -> Any:
        from torchcodec.decoders import decode_jpeg

        return self.transform(decode_jpeg(data))


def transforms(job: Job, pillow: bool = False) -> Any:
    """The two transforms in torchvision v2, as its tutorials write them."""
    from torchvision.transforms import v2

    steps = [v2.RandomResizedCrop(job.size, job.scale, job.ratio, antialias=True), v2.RandomHorizontalFlip(job.flip)]
    return v2.Compose([*steps, v2.PILToTensor()] if pillow else steps)


def decoder(job: Job) -> Any:
    """The decoder named by --decode."""
    if job.decode == "pillow":
        return Pillow(job)
    if job.decode == "torchvision":
        return Torchvision(job)
    if job.decode == "torchcodec":
        return TorchCodec(job)
    return OpenCV(job, job.decode)


class Lazy:
    """Makes the decoder in the worker that uses it; OpenCV and torch handles do not travel between processes."""

    def __init__(self, job: Job) -> None:
        self.job, self.made = job, None

    def __call__(self, data: Any, rng: Any = random) -> Any:
        if self.made is None:
            self.made = decoder(self.job)
        return self.made(data, rng)
