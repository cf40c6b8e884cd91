"""Datasets, transforms, orders and collate functions of the programs of adversary.py."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
import torch.utils.data as tud
from torch.utils.data import default_collate
from torchvision import datasets
from torchvision import transforms as v1
from torchvision.transforms import v2

FILES = 12
WIDE, HIGH = 48, 40


class World:
    """The surroundings of a program: files, a dataset, a loader, and the steps that undo its changes."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, stack: contextlib.ExitStack) -> None:
        self.root, self.patch, self.stack = root, patch, stack
        self.dataset: Any = None
        self.bases: list[Any] = []  # the datasets that hold records, from the first one on
        self.loader: Any = None
        self.iterator: Any = None  # of the epoch that runs
        self.sampler: Any = None
        self.generator = torch.Generator().manual_seed(3)
        self.numbers = random.Random(4)
        self.batch: Any = None  # the one that the loop has
        self.kept: list[Any] = []

    @property
    def base(self) -> Any:
        """The dataset that holds the first records."""
        return self.bases[0]


def picture(seed: int, wide: int = WIDE, high: int = HIGH) -> PIL.Image.Image:
    """Return a picture of patches, which differ much from those of any other number."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), np.uint8)
    return PIL.Image.fromarray(small).resize((wide, high), PIL.Image.Resampling.BICUBIC)


def pixels(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def write_files(root: Path) -> None:
    """Write the programs' files: a folder of images, and another one with the same names and other images."""
    for folder, first in (("images", 0), ("cd/images", 100)):
        for i in range(FILES):
            place = root / folder / "ab"[i % 2]
            place.mkdir(parents=True, exist_ok=True)
            image = picture(first + i)
            image = image.convert("L") if i == 7 else image
            image.save(place / f"{i:02d}.{'png' if i in (3, 8) else 'jpg'}", **({} if i in (3, 8) else {"quality": 92}))


# --- datasets ----------------------------------------------------------------


def _folder(w: World, t: Any) -> Any:
    return _base(w, datasets.ImageFolder(str(w.root / "images"), t()))


def _base(w: World, dataset: Any) -> Any:
    w.bases.append(dataset)
    return dataset


def _relative(w: World, t: Any) -> Any:
    os.chdir(w.root)
    return _base(w, datasets.ImageFolder("images", t()))


def _dataset_folder(w: World, t: Any) -> Any:
    loader = datasets.folder.default_loader
    return _base(w, datasets.DatasetFolder(str(w.root / "images"), loader, (".jpg", ".png"), t()))


def _bare(w: World, kind: Any, t: Any, **attributes: Any) -> Any:
    """Make a dataset of torchvision without its files."""
    dataset = kind.__new__(kind)
    dataset.__dict__.update({"root": "", "transform": t(), "target_transform": None, "transforms": None, **attributes})
    return _base(w, dataset)


def _listed(w: World) -> list[Path]:
    return sorted((w.root / "images").glob("*/*"))


class OwnFiles(tud.Dataset):  # type: ignore[type-arg]
    """A dataset as most programs have one."""

    def __init__(self, samples: list[tuple[str, int]], transform: Any) -> None:
        self.samples, self.transform, self.target_transform = samples, transform, None

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Any:
        path, target = self.samples[i]
        image = PIL.Image.open(path).convert("RGB")
        change: Any = self.target_transform
        return image if self.transform is None else self.transform(image), target if change is None else change(target)


def _own(w: World, t: Any) -> Any:
    return _base(w, OwnFiles([(str(p), i) for i, p in enumerate(_listed(w))], t()))


def _flowers(w: World, t: Any) -> Any:
    files, loader = _listed(w), datasets.folder.default_loader
    return _bare(w, datasets.Flowers102, t, loader=loader, _image_files=files, _labels=list(range(len(files))))


def _gtsrb(w: World, t: Any) -> Any:
    return _bare(w, datasets.GTSRB, t, _samples=[(str(p), i) for i, p in enumerate(_listed(w))])


def _cifar(w: World, t: Any) -> Any:
    return _bare(w, datasets.CIFAR10, t, data=pixels(FILES, 32, 32, 3), targets=list(range(FILES)))


def _mnist(w: World, t: Any) -> Any:
    data = torch.from_numpy(pixels(FILES, 28, 28))
    return _bare(w, datasets.MNIST, t, data=data, targets=torch.arange(FILES))


def _svhn(w: World, t: Any) -> Any:
    return _bare(w, datasets.SVHN, t, data=pixels(FILES, 3, 32, 32), labels=np.arange(FILES))


def _stl10(w: World, t: Any) -> Any:
    return _bare(w, datasets.STL10, t, data=pixels(FILES, 3, 24, 24), labels=np.arange(FILES) % 10)


def _subset(w: World, t: Any) -> Any:
    return tud.Subset(_folder(w, t), [4, 0, 7, 4, 2, 9, 11])


def _subset_cifar(w: World, t: Any) -> Any:
    return tud.Subset(tud.Subset(_cifar(w, t), range(1, FILES)), [4, 0, 7, 4, 2])


def _concat(w: World, t: Any) -> Any:
    one = t()
    return tud.ConcatDataset([_folder(w, lambda: one), _folder(w, lambda: one)])


def _concat_cifar(w: World, t: Any) -> Any:
    one = t()
    return tud.ConcatDataset([_cifar(w, lambda: one), tud.Subset(_cifar(w, lambda: one), [3, 1])])


def _split(w: World, t: Any) -> Any:
    return tud.random_split(_folder(w, t), [8, 4], torch.Generator().manual_seed(1))[0]


def _timm(w: World, t: Any) -> Any:
    return _base(w, pytest.importorskip("timm.data").ImageDataset(str(w.root / "images"), transform=t()))


class Columns:
    """A function of the program's for a dataset of Hugging Face, with the transform as an attribute."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, batch: Any) -> Any:
        transform: Any = self.transform or (lambda image: image)
        return {"x": [transform(image.convert("RGB")) for image in batch["image"]], "y": batch["label"]}


def _hugging_face(w: World, t: Any) -> Any:
    hf = pytest.importorskip("datasets")
    images = [{"bytes": p.read_bytes(), "path": None} for p in _listed(w)]
    features = hf.Features({"image": hf.Image(), "label": hf.Value("int64")})
    data = hf.Dataset.from_dict({"image": images, "label": list(range(len(images)))}, features=features)
    transform = t()

    def function(batch: Any) -> Any:
        return {"x": [transform(image.convert("RGB")) for image in batch["image"]], "y": batch["label"]}

    data.set_transform(function)
    return _base(w, data)


def _table(w: World, _: Any) -> Any:
    hf = pytest.importorskip("datasets")
    rng = np.random.default_rng(1)
    columns = {"ids": rng.integers(0, 50_000, (FILES, 8)).tolist(), "labels": list(range(FILES))}
    return _base(w, hf.Dataset.from_dict(columns).with_format("torch"))


@dataclass(frozen=True)
class Data:
    make: Callable[[World, Callable[[], Any]], Any]
    tags: frozenset[str]
    of: str = "files"  # whose transforms fit: "files", "small" (pixels in memory), or "none"


def _data(make: Any, tags: str, of: str = "files") -> Data:
    return Data(make, frozenset(tags.split()), of)


DATA: dict[str, Data] = {
    "folder": _data(_folder, "files pairs vision"),
    "relative": _data(_relative, "files pairs vision relative"),
    "dataset_folder": _data(_dataset_folder, "files pairs vision"),
    "own": _data(_own, "files pairs vision own"),
    "flowers": _data(_flowers, "files lists vision"),
    "gtsrb": _data(_gtsrb, "files pairs vision"),
    "timm": _data(_timm, "files pairs timm"),
    "subset": _data(_subset, "files pairs vision subset"),
    "split": _data(_split, "files pairs vision subset"),
    "concat": _data(_concat, "files pairs vision concat"),
    "cifar": _data(_cifar, "array cifar vision", "small"),
    "mnist": _data(_mnist, "array mnist vision", "small"),
    "svhn": _data(_svhn, "array labelled vision", "small"),
    "stl10": _data(_stl10, "array labelled vision", "small"),
    "subset_cifar": _data(_subset_cifar, "array cifar vision subset", "small"),
    "concat_cifar": _data(_concat_cifar, "array cifar vision concat", "small"),
    "hf": _data(_hugging_face, "hf"),
    "table": _data(_table, "table", "none"),
}


# --- transforms --------------------------------------------------------------


class Preset:
    """Only calls the transform that it holds, like the presets of torchvision's references."""

    def __init__(self, *parts: Any) -> None:
        self.transforms = v1.Compose(list(parts))

    def __call__(self, img: Any) -> Any:
        return self.transforms(img)


class Later:
    """Returns its input. Its third call changes a transform that comes before it."""

    def __init__(self, part: Any) -> None:
        self.part, self.calls = part, 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            self.part.p = 1.0
        return x


def _changed_later() -> Any:
    flip = v1.RandomHorizontalFlip(0.0)
    return v1.Compose([v1.CenterCrop(20), flip, Later(flip), v1.ToTensor()])


def double(x: Any) -> Any:
    return x * 2


@dataclass(frozen=True)
class Transform:
    make: Callable[[], Any]
    of: str = "files small"
    exact: bool = False  # whether pixels are torch's own
    draws: bool = False  # whether torch draws random numbers


def _t(*parts: Callable[[], Any], **more: Any) -> Transform:
    return Transform(lambda: v1.Compose([p() for p in parts]), **more)


def _cropped(part: Callable[[], Any], *, exact: bool = True) -> Transform:
    """Have something random, which is none, between a crop and a tensor."""
    return _t(lambda: v1.CenterCrop(20), part, v1.ToTensor, exact=exact, draws=True)


def _size() -> Any:
    return v1.Resize((24, 20))


def _norm() -> Any:
    return v1.Normalize((0.5,), (0.25,))


TRANSFORMS: dict[str, Transform] = {
    "resize": _t(_size, v1.ToTensor),
    "norm": _t(_size, v1.ToTensor, _norm),
    "bytes": _t(_size, v1.PILToTensor),
    "side": _t(lambda: v1.Resize(22), v1.ToTensor),
    "v2": Transform(
        lambda: v2.Compose(
            [v2.ToImage(), v2.Resize((24, 20)), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.25])]
        )
    ),
    "v2-pictures": Transform(lambda: v2.Compose([v2.Resize((24, 20)), v2.PILToTensor(), v2.ToDtype(torch.float32)])),
    "crop": _t(lambda: v1.CenterCrop(20), v1.ToTensor, exact=True),
    "tensor": _t(v1.ToTensor, exact=True),
    "flip": _t(lambda: v1.CenterCrop(20), lambda: v1.RandomHorizontalFlip(1.0), v1.ToTensor, exact=True, draws=True),
    "noflip": _t(lambda: v1.CenterCrop(20), lambda: v1.RandomVerticalFlip(0.0), v1.PILToTensor, exact=True, draws=True),
    "rrc": _t(lambda: v1.RandomResizedCrop(20, (1, 1), (1.2, 1.2)), v1.ToTensor, of="files", draws=True),
    "random-crop": _t(lambda: v1.CenterCrop(18), lambda: v1.RandomCrop(18), v1.ToTensor, exact=True),
    "gray": _t(lambda: v1.CenterCrop(20), lambda: v1.RandomGrayscale(1.0), v1.ToTensor, of="files", draws=True),
    "bright": _t(lambda: v1.CenterCrop(20), lambda: v1.ColorJitter((1.5, 1.5)), v1.ToTensor, of="files", draws=True),
    "erasing": _t(_size, v1.ToTensor, lambda: v1.RandomErasing(0.0), draws=True),
    "apply": _cropped(lambda: v1.RandomApply([v1.RandomHorizontalFlip(1.0)], 1.0)),
    "choice": _cropped(lambda: v1.RandomChoice([v1.RandomHorizontalFlip(1.0)])),
    "rotated": _cropped(lambda: v1.RandomRotation((90, 90))),
    "padded": _cropped(lambda: v1.Pad(3)),
    "affine": _cropped(lambda: v1.RandomAffine(0)),
    "perspective": _cropped(lambda: v1.RandomPerspective(p=0.0)),
    "solarize": _cropped(lambda: v1.RandomSolarize(100, 1.0)),
    "posterize": _cropped(lambda: v1.RandomPosterize(3, 1.0)),
    "equalize": _cropped(lambda: v1.RandomEqualize(1.0)),
    "autocontrast": _cropped(lambda: v1.RandomAutocontrast(1.0)),
    "sharp": _cropped(lambda: v1.RandomAdjustSharpness(2, 1.0), exact=False),
    "v2-sharp": Transform(
        lambda: v2.Compose([v2.ToImage(), v2.CenterCrop(20), v2.RandomAdjustSharpness(3, 1.0), v2.ToPureTensor()]),
        draws=True,
    ),
    "blur": _cropped(lambda: v1.GaussianBlur(3, (1.0, 1.0)), exact=False),
    "v2-invert": Transform(
        lambda: v2.Compose([v2.CenterCrop(20), v2.RandomInvert(1.0), v2.RandomRotation((180, 180)), v2.PILToTensor()]),
        exact=True,
        draws=True,
    ),
    "split": _t(_size, lambda: v1.RandomInvert(1.0), v1.ToTensor, draws=True),
    "changed-later": Transform(_changed_later, exact=True, draws=True),
    "noisy": _t(_size, v1.ToTensor, lambda: v1.Lambda(lambda x: x + torch.rand(()))),
    "lambda": _t(_size, v1.ToTensor, lambda: v1.Lambda(double)),
    "preset": Transform(lambda: Preset(_size(), v1.ToTensor(), _norm())),
    "modules": Transform(
        lambda: torch.nn.Sequential(v2.ToImage(), v2.Resize((24, 20)), v2.ToDtype(torch.float32, scale=True))
    ),
    "nested": Transform(lambda: v1.Compose([v1.Compose([_size()]), v1.ToTensor()])),
    "pictures": _t(_size),
    "none": Transform(lambda: None),
}


def transforms_for(data: str) -> list[str]:
    """Return the names of the transforms that fit a dataset."""
    of = DATA[data].of
    if of == "none":
        return ["none"]
    return [name for name, t in TRANSFORMS.items() if of in t.of and (data != "hf" or t.make() is not None)]


# --- orders ------------------------------------------------------------------


class Own(tud.Sampler):  # type: ignore[type-arg]
    """A sampler of a program's, with random numbers that live on."""

    def __init__(self, n: int, numbers: random.Random) -> None:
        self.n, self.numbers = n, numbers

    def __iter__(self) -> Iterator[int]:
        return (self.numbers.randrange(self.n) for _ in range(self.n))

    def __len__(self) -> int:
        return self.n


class Uneven:
    """A batch sampler of a program's."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[list[int]]:
        at, size = 0, 1
        while at < self.n:
            yield list(range(at, min(self.n, at + size)))
            at, size = at + size, size % 4 + 1

    def __len__(self) -> int:
        return 5


def _with(w: World, sampler: Any, batch: int, **more: Any) -> dict[str, Any]:
    w.sampler = sampler
    return {"sampler": sampler, "batch_size": batch, **more}


def _weighted(w: World, batch: int) -> dict[str, Any]:
    weights = torch.arange(1.0, len(w.dataset) + 1)
    return _with(w, tud.WeightedRandomSampler(weights, 10, generator=w.generator), batch)


ORDERS: dict[str, Callable[[World, int], dict[str, Any]]] = {
    "seq": lambda _, b: {"batch_size": b},
    "shuffle": lambda _, b: {"batch_size": b, "shuffle": True},
    "drop": lambda _, b: {"batch_size": b, "shuffle": True, "drop_last": True},
    "gen": lambda w, b: {"batch_size": b, "shuffle": True, "generator": w.generator},
    "default-gen": lambda _, b: {"batch_size": b, "shuffle": True, "generator": torch.default_generator},
    "repl": lambda w, b: _with(w, tud.RandomSampler(w.dataset, True, 11, generator=w.generator), b),
    "repl-both": lambda w, b: _with(w, tud.RandomSampler(w.dataset, True, 11, w.generator), b, generator=w.generator),
    "more": lambda w, b: _with(w, tud.RandomSampler(w.dataset, num_samples=17, generator=w.generator), b),
    "weight": _weighted,
    "chosen": lambda w, b: _with(w, tud.SubsetRandomSampler([3, 1, 4, 0, 2], generator=w.generator), b),
    "own": lambda w, b: _with(w, Own(len(w.dataset), w.numbers), b),
    "list": lambda w, b: _with(w, [3, 0, 2, 1, 3, -1], b),
    "bools": lambda w, b: _with(w, [True, False, True, True], b),
    "tensors": lambda w, b: _with(w, list(torch.tensor([3, 1, 2, -1])), b),
    "masks": lambda w, b: _with(w, list(torch.tensor([3, 1, 2], dtype=torch.uint8)), b),
    "rows": lambda w, b: _with(w, list(torch.tensor([[3], [1], [2]])), b),
    "shorts": lambda w, b: _with(w, list(np.array([3, 1, 2, -1], np.int16)), b),
    "dist": lambda w, b: _with(w, tud.distributed.DistributedSampler(w.dataset, 2, 1, seed=5), b),
    "batches": lambda _, __: {"batch_sampler": [[1, 2], [3], [4, 0, 2, 1], [2]]},
    "slices": lambda _, __: {"batch_sampler": [slice(0, 3), range(3, 5), (5, 1), np.array([2, 1]), torch.tensor([4])]},
    "uneven": lambda w, _: {"batch_sampler": Uneven(len(w.dataset))},
    "one-by-one": lambda _, __: {"batch_size": None},
}


# --- collates ----------------------------------------------------------------


def as_list(batch: list[Any]) -> list[Any]:
    return batch


def wrapped(batch: list[Any]) -> Any:
    return {"made": default_collate(batch), "rows": len(batch)}


def columns(batch: list[Any]) -> Any:
    return tuple(zip(*batch, strict=True)) if isinstance(batch[0], tuple) else batch[::-1]


COLLATES: dict[str, Any] = {"list": as_list, "wrapped": wrapped, "columns": columns}
