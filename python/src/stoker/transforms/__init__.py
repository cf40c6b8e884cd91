"""Transforms of images, boxes, key points and masks, with the names and parameters of ``torchvision.transforms.v2``.

::

    from stoker import transforms as T

    loader = stoker.Loader("photos/", fields={"image": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]})

Boxes, key points and masks follow the transforms of their image. :mod:`stoker.audio`, :mod:`stoker.video` and
:mod:`stoker.volume` have those of other kinds of data.
"""

from __future__ import annotations

from typing import NoReturn

from .._transform import Transform as Transform
from . import _augment, _basic, _detection
from ._augment import *  # noqa: F403
from ._basic import *  # noqa: F403
from ._detection import *  # noqa: F403

__all__ = ["Transform", *_augment.__all__, *_basic.__all__, *_detection.__all__]


def __getattr__(name: str) -> NoReturn:
    text = f"module {__name__!r} has no attribute {name!r}"
    if not name.startswith("_"):
        from .._elsewhere import hint

        text += hint(name, __all__)
    raise AttributeError(text)
