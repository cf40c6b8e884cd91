"""Names of torchvision and torch that Stoker does not have, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable

from ._errors import nearest

_BYTES = "images come as uint8 without it; layout= is NCHW or NHWC"
_FUNCTION = "give a function to map= or batch_map= of stoker.Loader"
ELSEWHERE: dict[str, str] = {
    "ToTensor": 'write stoker.ToDtype("float32", scale=True)',
    "ConvertImageDtype": 'write stoker.ToDtype("float32", scale=True)',
    "ConvertDtype": 'write stoker.ToDtype("float32", scale=True)',
    **dict.fromkeys(("PILToTensor", "ToImage", "ToPureTensor", "ToNumpy"), _BYTES),
    "Identity": "leave it out",
    "ToPILImage": 'write PIL.Image.fromarray(batch["image"][i]), with layout="NHWC"',
    "InterpolationMode": 'write interpolation="nearest", "bilinear" or "bicubic"',
    "AugMix": "write stoker.RandAugment(), or use torchvision's in map=",
    "RandomPhotometricDistort": "write stoker.ColorJitter(...), in stoker.RandomApply",
    "RandomZoomOut": "write stoker.Pad(...), in stoker.RandomApply",
    **dict.fromkeys(("ScaleJitter", "RandomShortestSize", "RandomResize"), "write stoker.Resize(size)"),
    **dict.fromkeys(("Lambda", "FiveCrop", "TenCrop", "LinearTransformation", "GaussianNoise", "JPEG"), _FUNCTION),
    **dict.fromkeys(("RandomChannelPermutation", "functional", "v2", "SequentialTransform"), _FUNCTION),
    "DataLoader": "write stoker.Loader(...), or from stoker.torch import DataLoader",
    "Dataset": 'write stoker.pack(dataset, "out"), then stoker.Loader("out", batch_size=N)',
}


def hint(name: str, known: Iterable[str]) -> str:
    """Return what to write instead of a name, or the name that is most like it."""
    instead = ELSEWHERE.get(name) or nearest(name, known)
    return f"; {instead}" if len(instead) < 200 else ""  # and not a list of all names
