"""Settings of libraries that decide how an image is read, which worker processes have from the time of their start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch

from . import _proof
from ._proof import Unknown

# Pillow's own limit of pixels. It refuses images of more than twice as many, and so does the engine.
PILLOW_LIMIT = 1024 * 1024 * 1024 // 4 // 3


class Settings(NamedTuple):
    """The values of settings at one moment."""

    backend: str
    pixels: int | None
    truncated: bool
    dtype: torch.dtype

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the libraries work with these settings, and with no mode of torch."""
        before = now()
        _set(self)
        try:
            with _proof.without_modes():
                yield
        finally:
            _set(before)


_NAMES = (
    "torchvision's image backend",
    "PIL.Image.MAX_IMAGE_PIXELS",
    "PIL.ImageFile.LOAD_TRUNCATED_IMAGES",
    "torch's default dtype",
)
# The libraries' own settings.
_OWN = Settings("PIL", PILLOW_LIMIT, False, torch.float32)


def now() -> Settings:
    """Return the present settings."""
    import PIL.Image
    import PIL.ImageFile
    import torchvision

    backend = torchvision.get_image_backend()
    return Settings(backend, PIL.Image.MAX_IMAGE_PIXELS, PIL.ImageFile.LOAD_TRUNCATED_IMAGES, torch.get_default_dtype())


def check(method: str) -> None:
    """Raise Unknown if processes that are started with a method may have other settings than this one."""
    if method == "fork":
        return
    for name, value, own in zip(_NAMES, now(), _OWN, strict=True):
        if value != own:
            raise Unknown(f"{name} is set, and worker processes that are not forked may not have it")


def _set(settings: Settings) -> None:
    import PIL.Image
    import PIL.ImageFile
    import torchvision

    torchvision._image_backend = settings.backend
    PIL.Image.MAX_IMAGE_PIXELS = settings.pixels
    PIL.ImageFile.LOAD_TRUNCATED_IMAGES = settings.truncated
    if torch.get_default_dtype() is not settings.dtype:
        torch.set_default_dtype(settings.dtype)
