"""Names of other libraries that Stoker does not have, and their replacements."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable

from ._errors import nearest

_BYTES = "images come as uint8 without it; stoker.Field(..., layout=) is NCHW or NHWC"
_FUNCTION = "give a function to map= or batch_map= of stoker.Loader"
ELSEWHERE: dict[str, str] = {
    "ToTensor": 'write stoker.transforms.ToDtype("float32", scale=True)',
    "ConvertImageDtype": 'write stoker.transforms.ToDtype("float32", scale=True)',
    "ConvertDtype": 'write stoker.transforms.ToDtype("float32", scale=True)',
    **dict.fromkeys(("PILToTensor", "ToImage", "ToPureTensor", "ToNumpy"), _BYTES),
    "Identity": "leave it out",
    "ToPILImage": 'write PIL.Image.fromarray(batch["image"][i]), with output="numpy"',
    "AutoAugmentPolicy": 'write policy="imagenet", "cifar10" or "svhn"',
    "InterpolationMode": 'write interpolation="nearest", "bilinear" or "bicubic"',
    "AugMix": "write stoker.transforms.RandAugment(), or use torchvision's in map=",
    "RandomPhotometricDistort": "write stoker.transforms.ColorJitter(...), in stoker.transforms.RandomApply",
    "RandomZoomOut": "write stoker.transforms.Pad(...), in stoker.transforms.RandomApply",
    **dict.fromkeys(("ScaleJitter", "RandomShortestSize", "RandomResize"), "write stoker.transforms.Resize(size)"),
    **dict.fromkeys(("Lambda", "FiveCrop", "TenCrop", "LinearTransformation", "GaussianNoise", "JPEG"), _FUNCTION),
    **dict.fromkeys(("RandomChannelPermutation", "functional", "v2", "SequentialTransform"), _FUNCTION),
    "DataLoader": "write stoker.Loader(...), or from stoker.torch import DataLoader",
}


# Arguments of other loaders, and of the option objects.
_TRANSFORMS = "use transforms={'image': [...]}, or map= for a function"
_RANKS = "use ranks=stoker.Ranks(rank, world_size)"
ARGUMENTS: dict[str, str] = {
    "pin_memory": "batches already lie in shared memory that can be copied from directly",
    "persistent_workers": "the engine always lives as long as the loader",
    "prefetch_factor": "use limits=stoker.Limits(prefetch=N), the number of batches built ahead",
    "num_workers": "threads= are the engine's threads, workers= the processes of map=",
    "collate_fn": "the engine puts batches together; functions go into map= and batch_map=",
    "worker_init_fn": "random numbers of map= are set for each record",
    "multiprocessing_context": "processes of map= are started as multiprocessing.set_start_method() says",
    "generator": "use seed=",
    **dict.fromkeys(("sampler", "batch_sampler"), "use batch_size=, shuffle= and seed="),
    "order": "use shuffle=",
    **dict.fromkeys(("pipelines", "transform", "fields", "batch_transforms"), _TRANSFORMS),
    "batch": "use batch_size=",
    **dict.fromkeys(("world", "num_replicas", "num_shards", "shard_id", "rank", "world_size"), _RANKS),
    "on_device": "use device=stoker.OnDevice(...)",
    "layout": 'use stoker.Field("image", [...], layout=...) in transforms=',
    "pad": "use transforms={NAME: stoker.Padded(...)}",
    **{
        name: f"views are methods of a dataset: stoker.open(path).{name}(...)"
        for name in ("where", "split", "select", "drop", "rename", "kinds", "resolution", "dedupe", "tensors")
    },
    "sequence_length": "use stoker.open(path).sequences(length)",
    "socket": "set STOKER_SOCKET in the environment",
    "cache_dir": "use cache=stoker.Cache(dir=...)",
    "cache_limit": "use cache=stoker.Cache(limit=...)",
    "cache_memory": "use cache=stoker.Cache(memory=...)",
}


def argument(name: str, known: Iterable[str]) -> str:
    """Return the replacement of an argument, or the most similar argument."""
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    from . import _options

    known = list(known)
    for option, of in _options.GROUPS.items():
        if option in known and name in of.__dataclass_fields__:
            return f"use {option}=stoker.{of.__name__}({name}=...)"
    return nearest(name, known)


def missing(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that a module does not have."""
    text = f"module {module!r} has no attribute {name!r}"
    return AttributeError(text if name.startswith("_") else text + hint(name, known))


def hint(name: str, known: Iterable[str]) -> str:
    """Return the replacement of a name, or the most similar name."""
    instead = ELSEWHERE.get(name) or _module_of(name) or nearest(name, known)
    return f"; {instead}" if len(instead) < 200 else ""  # and not a list of all names


def _module_of(name: str) -> str:
    """Return how a transform is written, if it is one, or nearly one, and was looked for without its module."""
    modules = ("transforms", "audio", "video", "volume")
    written = {n: f"stoker.{m}.{n}" for m in modules for n in importlib.import_module(f"stoker.{m}").__all__}
    if name in written:
        return f"write {written[name]}"
    near = difflib.get_close_matches(name, written, 1, 0.8)
    return f"did you mean {written[near[0]]!r}?" if near else ""
