# ruff: noqa: E501 (tables)
"""The changes that adversary.py's programs make while they train: to datasets, transforms, loaders, libraries and
files."""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import os
import pickle
import random
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageFile
import PIL.JpegImagePlugin
import torch
import torch.utils.data as tud
from adversary_worlds import COLLATES, DATA, TRANSFORMS, World, double, picture
from PIL.PngImagePlugin import PngInfo
from torch.utils.data._utils import collate as collates
from torchvision import datasets, tv_tensors
from torchvision import transforms as v1
from torchvision.transforms import _functional_pil, _functional_tensor, v2
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2


@dataclass(frozen=True)
class Change:
    """Something that a program does.

    do: makes the change. A number selects one of many variants.
        on: tags of the datasets to change, "" for all.
        moments: "any", "files" (never while worker processes may read them), "alone" (no worker processes may read
            it), "loader" (a loader exists) or "batch" (in the loop).
        draws: a transform that is used from then on, which may draw random numbers.
        coarse: whether pixels may be off by one level afterwards.
    """

    do: Callable[[World, int], Any]
    on: str = ""
    moments: str = "any"
    draws: str = ""
    coarse: bool = False

    def allowed(self, program: Any, moment: str) -> bool:
        """Say whether a program can do it then."""
        _, _, count = moment.partition(".")
        inside = count != "" and count != "end"
        if self.moments == "files":
            return not inside or program.workers == 0
        if self.moments == "alone":
            return bool(program.workers == 0)
        if self.moments == "loader":
            return moment != "start"
        if self.moments == "batch":
            return inside and count != "0"
        return True


def applies(name: str, program: Any) -> bool:
    """Say whether a change is for a program's dataset."""
    change = CHANGES[name]
    return not change.on or bool(set(change.on.split()) & DATA[program.data].tags)


CHANGES: dict[str, Change] = {}


def _table(changes: dict[str, Callable[[World, int], Any]], **more: Any) -> None:
    assert not set(changes) & set(CHANGES)
    CHANGES.update({name: Change(do, **more) for name, do in changes.items()})


# --- lists of files, with or without their labels ------------------------------


def _holder(w: World) -> tuple[Any, str]:
    base = getattr(w.base, "reader", w.base)
    return next((base, name) for name in ("samples", "_samples", "_image_files") if hasattr(base, name))


def _get(w: World) -> Any:
    return getattr(*_holder(w))


def _set(w: World, samples: Any) -> None:
    setattr(*_holder(w), samples)


def _at(w: World, n: int) -> int:
    return n % len(_get(w))


def _path(sample: Any) -> Any:
    return sample[0] if isinstance(sample, tuple | list) else sample


def _with_path(sample: Any, path: Any) -> Any:
    return (path, *sample[1:]) if isinstance(sample, tuple | list) else path


def _swap(w: World, n: int) -> None:
    s = _get(w)
    i, j = _at(w, n), _at(w, n + 1 + n // 12)
    s[i], s[j] = s[j], s[i]


_table(
    {
        "reverse": lambda w, _: _get(w).reverse(),
        "shuffle": lambda w, n: random.Random(n).shuffle(_get(w)),
        "sort": lambda w, _: _get(w).sort(key=lambda s: Path(_path(s)).name[::-1]),
        "swap": _swap,
        "delete": lambda w, n: _get(w).pop(_at(w, n)),
        "insert": lambda w, n: _get(w).insert(_at(w, n), _get(w)[_at(w, n + 5)]),
        "append": lambda w, n: _get(w).extend(_get(w)[: 1 + n % 4]),
        "assign-reversed": lambda w, _: _set(w, _get(w)[::-1]),
        "assign-fewer": lambda w, n: _set(w, _get(w)[: 6 + n % 6]),
        "assign-tuple": lambda w, _: _set(w, tuple(_get(w))),
        "assign-own-list": lambda w, _: _set(w, type("List", (list,), {"__getitem__": lambda s, i: list.__getitem__(s, -1 - i)})(_get(w))),
        "clear": lambda w, _: _get(w).clear(),
        "other-file": lambda w, n: _get(w).__setitem__(_at(w, n), _with_path(_get(w)[_at(w, n)], _path(_get(w)[_at(w, n + 3)]))),
        "no-such-file": lambda w, n: _get(w).__setitem__(_at(w, n), _with_path(_get(w)[_at(w, n)], str(w.root / "none.jpg"))),
        "path-objects": lambda w, _: _set(w, [_with_path(s, Path(_path(s))) for s in _get(w)]),
        "byte-paths": lambda w, _: _set(w, [_with_path(s, os.fsencode(_path(s))) for s in _get(w)]),
        "other-loader": lambda w, _: setattr(w.base, "loader", lambda p: PIL.Image.open(p).convert("L").convert("RGB")),
        "cwd": lambda w, _: os.chdir(w.root / "cd"),
        "root": lambda w, _: setattr(w.base, "root", "/nowhere"),
    },
    on="files",
)  # fmt: skip
_table(
    {
        "relabel": lambda w, n: _get(w).__setitem__(_at(w, n), (_get(w)[_at(w, n)][0], 50 + n)),
        "relabel-all": lambda w, n: _set(w, [(p, n + i) for i, (p, _) in enumerate(_get(w))]),
        "as-lists": lambda w, _: _set(w, [list(s) for s in _get(w)]),
        "edit-a-list": lambda w, n: _edit(w, n, 0, _get(w)[_at(w, n + 3)][0]),
        "edit-a-label": lambda w, n: _edit(w, n, 1, 77),
        "tensor-labels": lambda w, _: _set(w, [(p, torch.tensor(float(t))) for p, t in _get(w)]),
        "text-labels": lambda w, _: _set(w, [(p, f"label {t}") for p, t in _get(w)]),
        "no-labels": lambda w, _: _set(w, [(p, None) for p, _ in _get(w)]),
        "triples": lambda w, _: _set(w, [(p, t, 5) for p, t in _get(w)]),
        "targets": lambda w, _: setattr(w.base, "targets", [9] * 40),
        "imgs": lambda w, _: w.base.imgs.reverse(),
        "label-object": lambda w, n: _get(w).__setitem__(_at(w, n), (_get(w)[_at(w, n)][0], {"deep": n})),
    },
    on="pairs",
)
_table(
    {
        "labels-reversed": lambda w, _: w.base._labels.reverse(),
        "labels-assigned": lambda w, n: setattr(w.base, "_labels", [n + i for i in range(20)]),
        "labels-fewer": lambda w, _: w.base._labels.pop(),
    },
    on="lists",
)


def _edit(w: World, n: int, part: int, value: Any) -> None:
    if not isinstance(_get(w)[0], list):
        _set(w, [list(s) for s in _get(w)])
    else:
        _get(w)[_at(w, n)][part] = value


# --- pixels in memory ----------------------------------------------------------


def _data(w: World) -> Any:
    return w.base.data


def _labels(w: World) -> tuple[Any, str]:
    return w.base, "labels" if hasattr(w.base, "labels") else "targets"


def _in_place(change: Callable[[Any, int], Any]) -> Callable[[World, int], None]:
    """Change pixels as an array, in place."""

    def do(w: World, n: int) -> None:
        array = np.asarray(_data(w))
        array[...] = change(array.copy(), n)

    return do


def _together(w: World, n: int) -> None:
    order = np.random.default_rng(n).permutation(len(_data(w)))
    w.base.data = _data(w)[order]
    base, name = _labels(w)
    labels = getattr(base, name)
    setattr(base, name, [labels[i] for i in order] if isinstance(labels, list) else labels[order])


def _one_pixel(a: Any, n: int) -> Any:
    a.reshape(len(a), -1)[n % len(a), (n * 37) % a[0].size] ^= 0x40
    return a


_table(
    {
        "black": _in_place(lambda a, _: a * 0),
        "negative": _in_place(lambda a, _: 255 - a),
        "one-image": _in_place(lambda a, n: np.where(np.arange(len(a)).reshape(-1, *[1] * (a.ndim - 1)) == n % len(a), 7, a)),
        "one-pixel": _in_place(_one_pixel),
        "turned-over": _in_place(lambda a, _: a[:, ::-1]),
        "mirrored": _in_place(lambda a, _: a[:, :, ::-1]),
        "roll": _in_place(lambda a, n: np.roll(a, 1 + n % 14, 1)),
        "roll-across": _in_place(lambda a, n: np.roll(a, 4 + n % 8, 2)),
        "roll-records": _in_place(lambda a, n: np.roll(a, 1 + n % 5, 0)),
        "pixels-mixed": _in_place(lambda a, n: np.random.default_rng(n).permuted(a.reshape(len(a), -1), axis=1).reshape(a.shape)),
        "swap-words": _in_place(lambda a, _: np.concatenate([a.reshape(len(a), -1)[:, 8:16], a.reshape(len(a), -1)[:, :8], a.reshape(len(a), -1)[:, 16:]], 1).reshape(a.shape)),
        "assign-data": lambda w, n: setattr(w.base, "data", _data(w)[[*range(n % 12, 12), *range(n % 12)]]),
        "assign-fewer-images": lambda w, n: setattr(w.base, "data", _data(w)[: 6 + n % 6]),
        "assign-more-images": lambda w, n: setattr(w.base, "data", _data(w)[[*range(12), n % 12]]),
        "assign-floats": lambda w, _: setattr(w.base, "data", np.asarray(_data(w)).astype(np.float32)),
        "not-contiguous": lambda w, _: setattr(w.base, "data", np.asfortranarray(np.asarray(_data(w)))),
        "together": _together,
        "tensor-set": lambda w, _: _data(w).set_(255 - _data(w)) if isinstance(_data(w), torch.Tensor) else None,
        "tensor-data": lambda w, _: setattr(_data(w), "data", _data(w).flip(1)) if isinstance(_data(w), torch.Tensor) else None,
        "shape-in-place": lambda w, _: setattr(_data(w), "shape", _data(w).shape[::-1]) if isinstance(_data(w), np.ndarray) else None,
        "label": lambda w, n: getattr(*_labels(w)).__setitem__(n % 12, 5 + n % 3),
        "labels-assigned-again": lambda w, n: setattr(*_labels(w), [(i + n) % 9 for i in range(12)]),
        "labels-as-array": lambda w, _: setattr(*_labels(w), np.arange(12, dtype=np.int16)),
        "labels-as-floats": lambda w, _: setattr(*_labels(w), torch.arange(12.0)),
        "labels-missing": lambda w, _: setattr(*_labels(w), [1, 2, 3]),
        "no-labels-at-all": lambda w, _: setattr(*_labels(w), None),
    },
    on="array",
)  # fmt: skip


# --- transforms ----------------------------------------------------------------


def _of(w: World) -> Any:
    """Return the transform that the first records have."""
    if hasattr(w.base, "transform"):
        return w.base.transform
    return w.base.format["format_kwargs"]["transform"].__closure__[0].cell_contents


def _list(w: World) -> Any:
    t = _of(w)
    found = getattr(t, "transforms", t)
    return getattr(found, "transforms", found)


def _part(w: World, kind: str) -> Any:
    """Return the first transform of a kind, by its name."""
    parts = [_of(w)]
    for part in parts:
        inner = getattr(part, "transforms", None) or (list(part) if isinstance(part, torch.nn.Sequential) else [])
        parts.extend(inner if isinstance(inner, list) else [inner])
    return next(p for p in parts if type(p).__name__ == kind)


def _all(w: World, transform: Any) -> None:
    for base in w.bases:
        base.transform = transform


def _class(part: Any, name: str, function: Any) -> None:
    part.__class__ = type(type(part).__name__, (type(part),), {name: function})


_INVERT = lambda x: PIL.Image.eval(x, lambda v: 255 - v) if isinstance(x, PIL.Image.Image) else 1 - x  # noqa: E731


class Counts:
    """A target_transform with a state, which does something at one of its calls."""

    def __init__(self, w: World, n: int, then: Callable[[Any], Any] = lambda _: None) -> None:
        self.dataset, self.at, self.then, self.calls = w.base, 2 + n % 9, then, 0

    def __call__(self, target: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            info = tud.get_worker_info()
            dataset: Any = self.dataset if info is None else info.dataset
            while hasattr(dataset, "dataset"):
                dataset = dataset.dataset
            self.then(dataset)
        return target if isinstance(target, str) else self.calls


def _stop(_: Any) -> None:
    raise StopIteration


def _fail(_: Any) -> None:
    raise KeyError("no such label")


def _other_transform(dataset: Any) -> None:
    dataset.transform = v1.Compose([v1.CenterCrop(20), v1.Resize((24, 20)), v1.ToTensor(), v1.Lambda(lambda x: 1 - x)])


def _other_samples(dataset: Any) -> None:
    for name in ("samples", "_samples", "_image_files", "data"):
        if hasattr(dataset, name):
            setattr(
                dataset,
                name,
                dataset.__dict__[name][::-1].copy()
                if name == "data" and isinstance(dataset.data, np.ndarray)
                else dataset.__dict__[name].flip(0)
                if name == "data"
                else dataset.__dict__[name][::-1],
            )


for _name in ("resize", "norm", "bytes", "v2", "crop", "flip", "split", "none", "lambda"):
    CHANGES[f"transform-{_name}"] = Change(
        lambda w, _, name=_name: _all(w, TRANSFORMS[name].make()), "vision timm", draws=_name, coarse=True
    )
_table(
    {
        "transform-function": lambda w, _: _all(w, lambda x: F.to_tensor(F.resize(x, [8, 8]))),
        "transform-of-one": lambda w, _: setattr(w.base, "transform", TRANSFORMS["side"].make()),
        "transform-copied": lambda w, _: _all(w, copy.deepcopy(_of(w))),
        "target-plus": lambda w, n: setattr(w.base, "target_transform", lambda t: t + n),
        "target-lambda": lambda w, _: [setattr(b, "target_transform", str) for b in w.bases],
        "target-dict": lambda w, _: setattr(w.base, "target_transform", {i: i + 3 for i in range(8)}.get),
        "target-fails": lambda w, n: setattr(w.base, "target_transform", lambda t: 1 // (t - n % 3) and t),
        "target-counts": lambda w, n: setattr(w.base, "target_transform", Counts(w, n)),
        "target-draws": lambda w, _: setattr(w.base, "target_transform", lambda t: float(torch.rand(()))),
        "target-stops": lambda w, n: setattr(w.base, "target_transform", Counts(w, n, _stop)),
        "target-fails-once": lambda w, n: setattr(w.base, "target_transform", Counts(w, n, _fail)),
        "target-changes-transform": lambda w, n: setattr(w.base, "target_transform", Counts(w, n, _other_transform)),
        "target-changes-samples": lambda w, n: setattr(w.base, "target_transform", Counts(w, n, _other_samples)),
        "target-none": lambda w, _: setattr(w.base, "target_transform", None),
    },
    on="vision timm",
    coarse=True,
)
_table(
    {
        "append-double": lambda w, _: _list(w).append(v1.Lambda(double)),
        "append-norm": lambda w, n: _list(w).append(v1.Normalize((0.1 * (n % 5),), (1.0,))),
        "pop-last": lambda w, _: _list(w).pop(),
        "pop-first": lambda w, _: _list(w).pop(0),
        "insert-gray": lambda w, _: _list(w).insert(0, v1.Grayscale(3)),
        "insert-function": lambda w, _: _list(w).insert(0, _INVERT),
        "insert-None": lambda w, _: _list(w).insert(0, None),
        "replace-first": lambda w, n: _list(w).__setitem__(0, v1.Resize((12 + n % 9, 16))),
        "own-list": lambda w, _: setattr(_of(w), "transforms", type("List", (list,), {"__iter__": lambda s: iter([*s[:-1], s[-1], double])})(_list(w))),
        "tuple-of-transforms": lambda w, _: setattr(_of(w), "transforms", tuple(_list(w))),
        "generator-of-transforms": lambda w, _: setattr(_of(w), "transforms", (t for t in list(_list(w)))),
        "size": lambda w, n: setattr(_part(w, "Resize"), "size", (10 + n % 20, 14)),
        "size-in-place": lambda w, n: setattr(_part(w, "Resize"), "size", [10 + n % 20, 14]),
        "size-int": lambda w, n: setattr(_part(w, "Resize"), "size", 10 + n % 20),
        "size-text": lambda w, _: setattr(_part(w, "Resize"), "size", "24"),
        "size-float": lambda w, _: setattr(_part(w, "Resize"), "size", (20.5, 16.0)),
        "nearest": lambda w, _: setattr(_part(w, "Resize"), "interpolation", v1.InterpolationMode.NEAREST),
        "bicubic": lambda w, _: setattr(_part(w, "Resize"), "interpolation", v1.InterpolationMode.BICUBIC),
        "interpolation-int": lambda w, _: setattr(_part(w, "Resize"), "interpolation", 3),
        "mean": lambda w, n: setattr(_part(w, "Normalize"), "mean", [0.01 * (n % 90)]),
        "mean-number": lambda w, _: setattr(_part(w, "Normalize"), "mean", 0.3),
        "mean-array": lambda w, _: setattr(_part(w, "Normalize"), "mean", np.full((3, 1, 1), 0.3)),
        "std": lambda w, n: setattr(_part(w, "Normalize"), "std", (0.2 + 0.01 * (n % 50),)),
        "std-zero": lambda w, _: setattr(_part(w, "Normalize"), "std", (0.0,)),
        "std-tensor": lambda w, _: setattr(_part(w, "Normalize"), "std", torch.tensor([0.5])),
        "inplace": lambda w, _: setattr(_part(w, "Normalize"), "inplace", True),
        "crop-size": lambda w, n: setattr(_part(w, "CenterCrop"), "size", (9 + n % 30, 15)),
        "crop-int": lambda w, n: setattr(_part(w, "CenterCrop"), "size", 9 + n % 30),
        "p": lambda w, n: setattr(_part(w, "RandomHorizontalFlip"), "p", float(n % 2)),
        "p-text": lambda w, _: setattr(_part(w, "RandomHorizontalFlip"), "p", "1"),
        "brightness": lambda w, n: setattr(_part(w, "ColorJitter"), "brightness", (0.5 + n % 2, 0.5 + n % 2)),
        "lambda-of-Lambda": lambda w, _: setattr(_part(w, "Lambda"), "lambd", lambda x: x + 3),
        "own-ToTensor": lambda w, _: _class(_part(w, "ToTensor"), "__call__", lambda self, x: 1 - F.to_tensor(x)),
        "own-Resize": lambda w, _: _class(_part(w, "Resize"), "forward", lambda self, x: _INVERT(F.resize(x, self.size))),
        "own-class-of-Compose": lambda w, _: _class(_of(w), "__call__", lambda self, x: 2 * F.to_tensor(F.resize(x, [9, 9]))),
        "forward-of-one": lambda w, _: setattr(_part(w, "Resize"), "forward", lambda x: _INVERT(F.resize(x, [9, 9]))),
        "hook": lambda w, _: _part(w, "Resize").register_forward_hook(lambda m, i, o: _INVERT(o)),
        "pre-hook": lambda w, _: _part(w, "Resize").register_forward_pre_hook(lambda m, i: (_INVERT(i[0]),)),
        "compiled-call": lambda w, _: setattr(_part(w, "Resize"), "_compiled_call_impl", lambda x: _INVERT(F.resize(x, [24, 20]))),
        "types-of-one": lambda w, _: setattr(_part(w, "RandomInvert"), "_transformed_types", (int,)),
        "eval": lambda w, _: _part(w, "Resize").eval(),
        "double-precision": lambda w, _: _of(w).double(),
    },
    on="vision timm hf",
    coarse=True,
)  # fmt: skip


# --- datasets ------------------------------------------------------------------


def _subclass(value: Any, **methods: Any) -> None:
    value.__class__ = type(type(value).__name__, (type(value),), methods)


def _replaced(w: World, kind: Any, name: str) -> None:
    """Have a method of a class give its samples with other labels, or other indices."""
    theirs = getattr(kind, name)

    def method(self: Any, index: Any) -> Any:
        sample = theirs(self, index)
        return (sample[0], (sample[1], "other")) if isinstance(sample, tuple) else sample[::-1]

    w.patch.setattr(kind, name, method)


_table(
    {
        "subclass": lambda w, _: _subclass(w.base, __getitem__=lambda self, i: 5),
        "subclass-len": lambda w, _: _subclass(w.base, __len__=lambda self: 4),
        "subclass-outside": lambda w, _: _subclass(w.dataset, __getitem__=lambda self, i: (torch.ones(2) * i, i)),
        "getitem-of-one": lambda w, _: setattr(w.base, "__getitem__", lambda i: 5),
        "getitem-of-class": lambda w, _: _replaced(w, type(w.base), "__getitem__"),
        "getitems-of-one": lambda w, _: setattr(
            w.dataset, "__getitems__", lambda indices: [(torch.ones(1), i) for i in indices]
        ),
        "len-of-class": lambda w, _: w.patch.setattr(type(w.base), "__len__", lambda self: 5),
        "another-attribute": lambda w, n: setattr(w.base, "note", n),
    },
    on="vision timm",
)
_table(
    {
        "indices-append": lambda w, n: w.dataset.indices.append(n % 5),
        "indices-edit": lambda w, n: w.dataset.indices.__setitem__(n % 4, n % 3),
        "indices-assign": lambda w, n: setattr(w.dataset, "indices", [n % 4, 1, 0, 3, 2, 1, 0]),
        "indices-range": lambda w, _: setattr(w.dataset, "indices", range(7)),
        "indices-array": lambda w, _: setattr(w.dataset, "indices", np.array([3, 2, 1, 0, 1, 2, 3])),
        "indices-tensor": lambda w, _: setattr(w.dataset, "indices", torch.tensor([3, 2, 1, 0, 1, 2, 3])),
        "indices-beyond": lambda w, _: w.dataset.indices.__setitem__(1, 500),
        "indices-fewer": lambda w, _: setattr(w.dataset, "indices", [1]),
        "inner-dataset": lambda w, _: setattr(w.dataset, "dataset", copy.copy(w.dataset.dataset)),
        "inner-list": lambda w, _: setattr(w.dataset, "dataset", [(torch.ones(3) * i, i) for i in range(12)]),
        "Subset.__getitem__": lambda w, _: _replaced(w, tud.Subset, "__getitem__"),
        "Subset.__getitems__": lambda w, _: _replaced(w, tud.Subset, "__getitems__"),
    },
    on="subset",
)
_table(
    {
        "parts-reversed": lambda w, _: w.dataset.datasets.reverse(),
        "part-swapped": lambda w, _: w.dataset.datasets.__setitem__(0, w.dataset.datasets[1]),
        "part-added": lambda w, _: w.dataset.datasets.append(w.dataset.datasets[0]),
        "part-dropped": lambda w, _: w.dataset.datasets.pop(),
        "sizes": lambda w, n: w.dataset.cumulative_sizes.__setitem__(0, 5 + n % 6),
        "sizes-fewer": lambda w, _: w.dataset.cumulative_sizes.pop(),
        "sizes-again": lambda w, _: setattr(
            w.dataset, "cumulative_sizes", tud.ConcatDataset.cumsum(w.dataset.datasets)
        ),
        "ConcatDataset.__getitem__": lambda w, _: _replaced(w, tud.ConcatDataset, "__getitem__"),
    },
    on="concat",
)


def _hf_function(w: World, name: str) -> None:
    transform = TRANSFORMS[name].make()
    w.base.set_transform(lambda b: {"x": [transform(i.convert("RGB")) for i in b["image"]], "y": b["label"][::-1]})


_table(
    {
        "set_transform": lambda w, n: _hf_function(w, ("crop", "tensor")[n % 2]),
        "set_transform-labels": lambda w, _: w.base.set_transform(lambda b: {"y": [v * 2 for v in b["label"]]}),
        "set_transform-tensor": lambda w, _: w.base.set_transform(
            lambda b: {"x": [F.to_tensor(i) for i in b["image"]]}
        ),
        "set_transform-gray": lambda w, _: w.base.set_transform(
            lambda b: {"x": [F.to_tensor(i.convert("L")) for i in b["image"]]}
        ),
        "hf-cell": lambda w, _: setattr(
            w.base.format["format_kwargs"]["transform"].__closure__[0], "cell_contents", TRANSFORMS["crop"].make()
        ),
    },
    on="hf",
    coarse=True,
)
_table(
    {
        "reset_format": lambda w, _: w.base.reset_format(),
        "format-numpy": lambda w, _: w.base.set_format("numpy"),
        "format-columns": lambda w, _: w.base.set_format("torch", columns=[w.base.column_names[-1]]),
        "format-python": lambda w, _: w.base.set_format(None),
        "format-dtype": lambda w, _: w.base.set_format("torch", dtype=torch.float32),
        "format-all": lambda w, _: w.base.set_format(
            "torch", columns=[w.base.column_names[0]], output_all_columns=True
        ),
        "hf-data": lambda w, n: setattr(w.base, "_data", w.base._data.slice(n % 3, 9)),
        "hf-indices": lambda w, _: setattr(
            w.base, "_indices", w.base.select([4, 2, 3, 1, 0, 5, 6, 7, 8, 9, 1, 1])._indices
        ),
    },
    on="table hf",
)
_table(
    {"hf-transform-on-table": lambda w, _: w.base.set_transform(lambda b: {"n": [sum(i) for i in b["ids"]]})},
    on="table",
)


# --- loaders, orders, random numbers -------------------------------------------


def _batches(w: World) -> Any:
    return w.loader.batch_sampler


def _forked(w: World) -> None:
    """Have a child make the rest of the epoch; the parent then makes it, too."""
    if w.loader.num_workers:
        return  # torch's workers answer only the process that has started them
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            rest = [tuple(x.tolist() for x in _flat(b) if isinstance(x, torch.Tensor)) for b in w.iterator or ()]
        except Exception as error:
            rest = [type(error).__name__]  # type: ignore[list-item]
        with os.fdopen(theirs, "wb") as file:
            pickle.dump(rest, file)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        found = pickle.load(file)
    os.waitpid(child, 0)
    w.kept.append([torch.tensor(x) if isinstance(x, list) else x for batch in found for x in batch])


def _iterator(w: World) -> Any:
    iterator = iter(w.loader)
    w.kept.append(next(iterator))
    return iterator


_table(
    {
        "batch-size": lambda w, n: setattr(_batches(w), "batch_size", 1 + n % 7),
        "batch-drop": lambda w, _: setattr(_batches(w), "drop_last", not _batches(w).drop_last),
        "batch-order": lambda w, n: setattr(_batches(w), "sampler", [n % 5, 3, 1, 4, 2]),
        "loader-batch_size": lambda w, _: setattr(w.loader, "batch_size", 4),
        "loader-sampler": lambda w, _: setattr(w.loader, "sampler", [1]),
        "loader-dataset": lambda w, _: setattr(w.loader, "dataset", [1]),
        "loader-drop_last": lambda w, _: setattr(w.loader, "drop_last", True),
        "loader-collate": lambda w, n: setattr(w.loader, "collate_fn", list(COLLATES.values())[n % len(COLLATES)]),
        "loader-collate-none": lambda w, _: setattr(w.loader, "collate_fn", None),
        "loader-generator": lambda w, n: setattr(w.loader, "generator", torch.Generator().manual_seed(n)),
        "loader-generator-none": lambda w, _: setattr(w.loader, "generator", None),
        "loader-workers": lambda w, n: vars(w.loader).update(num_workers=n % 2, prefetch_factor=2 if n % 2 else None),
        "loader-pin": lambda w, _: setattr(w.loader, "pin_memory", True),
        "loader-timeout": lambda w, _: setattr(w.loader, "timeout", 60),
        "worker-init": lambda w, n: setattr(w.loader, "worker_init_fn", lambda i: random.seed(n + i)),
        "worker-init-changes": lambda w, _: setattr(w.loader, "worker_init_fn", _changes_labels),
        "len": lambda w, _: len(w.loader),
        "fork": lambda w, _: _forked(w),
        "another-iterator": lambda w, _: _iterator(w),
        "two-iterators": lambda w, _: w.kept.extend(a for ab in zip(iter(w.loader), iter(w.loader), strict=False) for a in ab),
        "whole-epoch": lambda w, _: w.kept.extend(w.loader),
        "loader-copied": lambda w, _: w.kept.append(next(iter(copy.copy(w.loader)))),
        "dataset-pickled": lambda w, _: pickle.dumps(w.dataset),
        "sample": lambda w, n: w.kept.append(w.dataset[n % 5]),
    },
    moments="loader",
)  # fmt: skip


def _changes_labels(_: int) -> None:
    info: Any = tud.get_worker_info()
    data = info.dataset
    while hasattr(data, "dataset"):
        data = data.dataset
    data.target_transform = str


_table({"share": lambda w, _: [x.share_memory_() for x in (w.base.data, w.base.targets)]}, on="mnist", moments="alone")
_table(
    {
        "manual_seed": lambda w, n: torch.manual_seed(n),
        "generator-seed": lambda w, n: w.generator.manual_seed(n),
        "generator-draw": lambda w, n: torch.rand(1 + n, generator=w.generator),
        "generator-state": lambda w, n: w.generator.set_state(torch.Generator().manual_seed(n).get_state()),
        "torch-draw": lambda w, n: torch.rand(1 + n),
        "random-draw": lambda w, n: [random.random() for _ in range(n)],
        "numpy-draw": lambda w, n: np.random.rand(1 + n),
        "numbers-draw": lambda w, n: w.numbers.random(),
        "sampler-weights": lambda w, _: w.sampler.weights.zero_()[2].fill_(1.0),
        "sampler-indices": lambda w, _: setattr(w.sampler, "indices", [4, 3, 2]),
        "sampler-num": lambda w, n: setattr(w.sampler, "_num_samples", 1 + n % 20),
        "sampler-num_samples": lambda w, n: setattr(w.sampler, "num_samples", 1 + n % 20),
        "sampler-generator": lambda w, n: setattr(w.sampler, "generator", torch.Generator().manual_seed(n)),
        "sampler-generator-none": lambda w, n: setattr(w.sampler, "generator", None),
        "sampler-replacement": lambda w, _: setattr(w.sampler, "replacement", True),
        "sampler-list": lambda w, _: w.sampler.reverse(),
        "sampler-grows": lambda w, n: w.sampler.append(n % 3),
        "sampler-epoch": lambda w, n: w.sampler.set_epoch(n),
        "sampler-seed": lambda w, n: setattr(w.sampler, "seed", n),
        "sampler-rank": lambda w, _: setattr(w.sampler, "rank", 0),
        "sampler-data": lambda w, _: setattr(w.sampler, "data_source", range(4)),
        "sampler-class": lambda w, _: _subclass(w.sampler, __iter__=lambda self: iter([2, 1, 0])),
        "collect": lambda w, _: gc.collect(),
    },
)
_table(
    {
        "write-into-batch": lambda w, _: next(x for x in _flat(w.batch) if isinstance(x, torch.Tensor)).zero_(),
        "write-into-labels": lambda w, _: [x for x in _flat(w.batch) if isinstance(x, torch.Tensor)][-1].add_(100),
        "resize-batch": lambda w, _: next(x for x in _flat(w.batch) if isinstance(x, torch.Tensor)).resize_(2),
        "keep-batch": lambda w, _: w.kept.append(w.batch),
        "keep-a-row": lambda w, _: w.kept.append(next(x for x in _flat(w.batch) if isinstance(x, torch.Tensor))[0]),
        "clear-batch": lambda w, _: w.batch.clear(),
        "requires-grad": lambda w, _: next(x for x in _flat(w.batch) if x.is_floating_point()).requires_grad_(),
    },
    moments="batch",
)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [x for v in value for x in _flat(v)] if isinstance(value, list | tuple) else [value]


# --- files ---------------------------------------------------------------------


def _file(w: World, n: int) -> Path:
    return sorted((w.root / "images").glob("*/*"))[n % 12]


def _encoded(n: int, path: Path, form: str = "") -> bytes:
    import io

    file = io.BytesIO()
    picture(200 + n).save(file, form or ("PNG" if path.suffix == ".png" else "JPEG"), quality=92)
    return file.getvalue()


def _as_before(path: Path, write: Callable[[], Any]) -> None:
    """Write, and give the file the time that it had."""
    before = path.stat()
    write()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _renamed(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.replace(path)


def _linked(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to(other)


def _with_text(path: Path, n: int) -> None:
    """Write a PNG with a text that Pillow refuses, or one that it reads."""
    info = PngInfo()
    info.add_text("note", "n" * ((1 << 20) + n % 2), zip=True)
    picture(200 + n).save(path, "PNG", pnginfo=info)


def _folder_linked(w: World) -> None:
    """Have the name of a folder lead to another one, whose files are old."""
    (w.root / "images").rename(w.root / "first")
    (w.root / "images").symlink_to(w.root / "cd/images")


def _every(w: World, n: int, write: Callable[[Path, bytes], Any]) -> None:
    for i in range(12):
        write(_file(w, i), _encoded(n + i, _file(w, i)))


def _same_size(path: Path, data: bytes) -> None:
    """Write other pixels in as many bytes, with the same times."""
    size = path.stat().st_size
    _as_before(path, lambda: path.write_bytes((data + b"\0" * size)[:size]))


_table(
    {
        "rewrite": lambda w, n: _file(w, n).write_bytes(_encoded(n, _file(w, n))),
        "rewrite-all": lambda w, n: _every(w, n, Path.write_bytes),
        "rename-onto": lambda w, n: _renamed(_file(w, n), _encoded(n, _file(w, n))),
        "rename-onto-all": lambda w, n: _every(w, n, _renamed),
        "rewrite-with-the-old-time": lambda w, n: _every(w, n, lambda p, d: _as_before(p, lambda: p.write_bytes(d))),
        "rename-with-the-old-time": lambda w, n: _every(w, n, lambda p, d: _as_before(p, lambda: _renamed(p, d))),
        "rewrite-with-the-old-size-and-time": lambda w, n: _every(w, n, _same_size),
        "folder-linked": lambda w, _: _folder_linked(w),
        "long-text": lambda w, n: _with_text(_file(w, n), n),
        "odd-format": lambda w, n: picture(200 + n).save(_file(w, n), "QOI"),
        "png-as-jpg": lambda w, n: _file(w, n).write_bytes(_encoded(n, _file(w, n), "PNG")),
        "link": lambda w, n: _linked(_file(w, n), w.root / "cd/images/a/00.jpg"),
        "file-gone": lambda w, n: _file(w, n).unlink(),
        "cut": lambda w, n: _file(w, n).write_bytes(_file(w, n).read_bytes()[:-40]),
        "empty": lambda w, n: _file(w, n).write_bytes(b""),
        "no-image": lambda w, n: _file(w, n).write_bytes(b"<html>"),
        "folders-swapped": lambda w, _: [(w.root / a).rename(w.root / b) for a, b in (("images", "x"), ("cd/images", "images"), ("x", "cd/images"))],
        "new-file": lambda w, n: (w.root / "images/a/99.jpg").write_bytes(_encoded(n, Path("x.jpg"))),
    },
    on="files",
    moments="files",
)  # fmt: skip


# --- functions of libraries ----------------------------------------------------


class Called:
    """Calls a function and inverts or flips its result."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **more: Any) -> Any:
        return _turned(self.function(*args, **more))


def _turned(value: Any) -> Any:
    if isinstance(value, PIL.Image.Image):
        return PIL.Image.eval(value.convert("RGB"), lambda v: 255 - v)
    return value.flip(-1) if isinstance(value, torch.Tensor) else value


def _turning(function: Any, n: int) -> Any:
    """Return a callable, of one of several kinds, that calls a function and inverts or flips its result."""

    def plain(*args: Any, **more: Any) -> Any:
        return _turned(function(*args, **more))

    kinds = (
        plain,
        functools.partial(plain),
        Called(function),
        functools.wraps(function)(lambda *a, **k: plain(*a, **k)),
    )
    return kinds[n % len(kinds)]


def _function(where: Any, name: str) -> Callable[[World, int], None]:
    return lambda w, n: w.patch.setattr(where, name, _turning(getattr(where, name), n))


def _method(where: Any, name: str) -> Callable[[World, int], None]:
    def do(w: World, n: int) -> None:
        theirs = getattr(where, name)
        plain = lambda self, *a, **k: _turned(theirs(self, *a, **k))  # noqa: E731
        w.patch.setattr(where, name, functools.wraps(theirs)(plain) if n % 2 else plain)

    return do


def _other(where: Any, name: str, other: Callable[[], Any]) -> Callable[[World, int], None]:
    return lambda w, _: w.patch.setattr(where, name, other())


def _kernel(w: World, n: int) -> None:
    registry: Any = importlib.import_module("torchvision.transforms.v2.functional._utils")._KERNEL_REGISTRY
    function: Any = (F2.resize, F2.to_dtype, F2.normalize)[n % 3]
    for kind, kernel in list(registry[function].items()):
        w.patch.setitem(registry[function], kind, _turning(kernel, 0))


def _global_hook(w: World, n: int) -> None:
    module = torch.nn.modules.module
    register = (module.register_module_forward_hook, module.register_module_forward_pre_hook)[n % 2]
    hook: Any = (lambda m, i, o: _turned(o)) if n % 2 == 0 else (lambda m, i: (_turned(i[0]),))
    w.stack.callback(register(hook).remove)


def _setting(get: Callable[[], Any], set_: Callable[[Any], Any], value: Any) -> Callable[[World, int], None]:
    def do(w: World, _: int) -> None:
        w.stack.callback(set_, get())
        set_(value)

    return do


def _registered(w: World, _: int) -> None:
    factory, accept = PIL.Image.OPEN["JPEG"]
    opened = lambda fp, name: PIL.Image.eval(factory(fp, name), lambda v: 255 - v)  # noqa: E731
    w.patch.setitem(PIL.Image.OPEN, "JPEG", (opened, accept))


class _Gray(PIL.ImageFile.PyDecoder):
    """Decodes nothing, but gray pixels."""

    _pulls_fd = True

    def decode(self, _: Any) -> tuple[int, int]:
        self.set_as_raw(bytes([9]) * (self.state.xsize * self.state.ysize * len(self.mode)))
        return -1, 0


class _Nines(PIL.ImageFile.PyEncoder):
    """Encodes all pixels as nines."""

    def encode(self, size: int) -> tuple[int, int, bytes]:
        return size, 1, bytes([9]) * size


def _no_decoder(*_: Any) -> Any:
    raise OSError("there is no decoder today")


def _module_class(w: World, module: Any) -> None:
    """Have a module find its functions in another way, as packages do that are imported late."""
    theirs = module.resize
    resize = property(lambda _: lambda *a, **k: _turned(theirs(*a, **k)))
    w.stack.callback(setattr, module, "__class__", module.__class__)
    module.__class__ = type("Module", (types.ModuleType,), {"resize": resize})


def _return_type(w: World, _: int) -> None:
    w.stack.enter_context(tv_tensors.set_return_type("TVTensor"))


def _map(kind: Any, function: Any) -> Callable[[World, int], None]:
    return lambda w, _: w.patch.setitem(collates.default_collate_fn_map, kind, function)


_table(
    {
        "F.resize": _function(F, "resize"),
        "F.to_tensor": _function(F, "to_tensor"),
        "F.to_tensor-other": _other(F, "to_tensor", lambda: F.pil_to_tensor),
        "F.normalize": _function(F, "normalize"),
        "F.normalize-other": _other(F, "normalize", lambda: lambda t, *a, **k: t),
        "F.pil_to_tensor": _function(F, "pil_to_tensor"),
        "F.center_crop": _function(F, "center_crop"),
        "F.crop": _function(F, "crop"),
        "F.hflip": _function(F, "hflip"),
        "F2.resize": _function(F2, "resize"),
        "FP.resize": _function(_functional_pil, "resize"),
        "FP.crop": _function(_functional_pil, "crop"),
        "FT.normalize": _function(_functional_tensor, "normalize"),
        "FT.resize": _function(_functional_tensor, "resize"),
        "FP.hflip": _function(_functional_pil, "hflip"),
        "FP-swapped": _other(_functional_pil, "hflip", lambda: _functional_pil.vflip),
        "ToTensor.__call__": _method(v1.ToTensor, "__call__"),
        "Resize.forward": _method(v1.Resize, "forward"),
        "Compose.__call__": _method(v1.Compose, "__call__"),
        "Module.__call__": _method(torch.nn.Module, "__call__"),
        "CenterCrop.forward": _method(v1.CenterCrop, "forward"),
        "pil_loader": _function(datasets.folder, "pil_loader"),
        "default_loader": _function(datasets.folder, "default_loader"),
        "Image.open": _function(PIL.Image, "open"),
        "Image.fromarray": _function(PIL.Image, "fromarray"),
        "Image.convert": _method(PIL.Image.Image, "convert"),
        "Image.resize": _method(PIL.Image.Image, "resize"),
        "Image.crop": _method(PIL.Image.Image, "crop"),
        "Jpeg.convert": lambda w, _: w.patch.setattr(PIL.JpegImagePlugin.JpegImageFile, "convert", lambda self, *a, **k: PIL.Image.new("RGB", self.size, 9), raising=False),
        "ImageFile.load": lambda w, _: w.patch.setattr(PIL.ImageFile.ImageFile, "load", _cleared(PIL.ImageFile.ImageFile.load)),
        "register_open": _registered,
        "kernel": _kernel,
        "global-hook": _global_hook,
        "default-dtype": _setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
        "image-backend": lambda w, _: w.patch.setattr(importlib.import_module("torchvision"), "_image_backend", "accimage"),
        "pixel-limit": lambda w, _: w.patch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 500),
        "truncated": lambda w, _: w.patch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True),
        "return-type": _return_type,
        "map-tuple": _map(tuple, lambda b, *, collate_fn_map=None: {"rows": len(b)}),
        "map-tensor": _map(torch.Tensor, lambda b, *, collate_fn_map=None: torch.stack(b) + 1),
        "map-int": _map(int, lambda b, *, collate_fn_map=None: [str(v) for v in b]),
        "register_decoder": lambda w, n: w.patch.setitem(PIL.Image.DECODERS, ("jpeg", "zip", "raw")[n % 3], _Gray),
        "register_encoder": lambda w, _: w.patch.setitem(PIL.Image.ENCODERS, "raw", _Nines),
        "core-decoder": lambda w, n: w.patch.setattr(PIL.Image.core, ("jpeg", "zip", "raw")[n % 3] + "_decoder", _no_decoder),
        "module-class": lambda w, n: _module_class(w, (F, _functional_pil, F2)[n % 3]),
        "types": lambda w, n: w.patch.setattr((v2.RandomInvert, v2.RandomRotation, v2.Transform)[n % 3], "_transformed_types", (int,)),
        "Module._compiled_call_impl": lambda w, _: w.patch.setattr(torch.nn.Module, "_compiled_call_impl", lambda *a, **k: 7),
        "autocast": lambda w, _: w.stack.enter_context(torch.autocast("cpu", torch.bfloat16)),
        "default-device": lambda w, _: w.stack.enter_context(torch.device("meta")),
        "map-image": _map(tv_tensors.Image, lambda b, *, collate_fn_map=None: len(b)),
        "torch.stack": _function(torch, "stack"),
        "default_collate": _function(collates, "default_collate"),
        "collate_tensor_fn": _function(collates, "collate_tensor_fn"),
        "BatchSampler.__iter__": lambda w, _: w.patch.setattr(tud.BatchSampler, "__iter__", lambda self: iter([[1, 0], [2]])),
        "RandomSampler.__iter__": lambda w, _: w.patch.setattr(tud.RandomSampler, "__iter__", lambda self: iter([3, 1, 2])),
        "fetch": _method(torch.utils.data._utils.fetch._MapDatasetFetcher, "fetch"),
    },
    coarse=True,
)  # fmt: skip


def _cleared(load: Any) -> Any:
    def loaded(self: Any) -> Any:
        found = load(self)
        self.im.paste(77, (0, 0, *self.size)) if self.mode == "L" else self.im.paste((9, 9, 9), (0, 0, *self.size))
        return found

    return loaded
