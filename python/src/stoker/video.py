"""Transforms of clips of video: which frames are taken.

One of them comes first in the list of a field of clips, what follows is done to each frame:
``fields={"frames": [video.RandomClip(16, stride=2), transforms.RandomResizedCrop(112)]}``. The clips may come from
videos (``videos/?frames=64``) or from packs of longer clips.
"""

from __future__ import annotations

from dataclasses import dataclass

from ._transform import Transform

__all__ = ["CenterClip", "RandomClip"]


@dataclass(frozen=True, repr=False)
class RandomClip(Transform):
    """Take frames from a random place of a clip on, another one in each epoch.

    Where a clip is too short, its last frame comes again.

    Args:
        frames: how many are taken.
        stride: how far they are apart.
    """

    frames: int
    stride: int = 1


@dataclass(frozen=True, repr=False)
class CenterClip(Transform):
    """Take frames from the middle of a clip. Where it is too short, its last frame comes again.

    Args:
        frames: how many are taken.
        stride: how far they are apart.
    """

    frames: int
    stride: int = 1
