"""Datasets of torchvision as lists of files or arrays in memory."""

from __future__ import annotations

import bisect
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.utils.data

from . import _proof, _settings
from ._common import DEEP, meant
from ._library import Unknown, check_class, check_instance, qualified

Records = npt.NDArray[np.int64]


@dataclass
class Leaf:
    """A dataset that holds its records as paths or in one array."""

    dataset: Any
    # The list that the records are read from: of paths, of pairs of path and target, or the array; and how.
    held: Any
    paths: Callable[[Any], Any] | None  # from an element of held
    targets: Callable[[], Any]  # the list that holds the targets now
    read: Callable[[Any], Any]  # a target, from an element of that list
    channels: int = 3
    # Whether the dataset returns another record, with its target, in place of an unreadable one.
    replaces: bool = False
    # The object and its attributes that records and targets are read from.
    owner: Any = None
    attributes: tuple[str, ...] = ()
    # Returns the pixels that a tensor or a view has now, None if that is ``held``.
    view: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        self._size = len(self.held)

    def __len__(self) -> int:
        """Return the number of records when the dataset was recognised."""
        return self._size

    @property
    def pixels(self) -> Any:
        """The current pixels of a dataset in memory."""
        return self.held if self.view is None else self.view()

    def path(self, i: int) -> Any:
        """Return the current path of a record."""
        assert self.paths is not None
        return self.paths(getattr(self.owner, self.attributes[0])[i] if self.attributes else self.held[i])

    def paths_at(self, rows: list[int]) -> list[Any]:
        """Return the current paths of records."""
        assert self.paths is not None
        held = getattr(self.owner, self.attributes[0]) if self.attributes else self.held
        return [*map(self.paths, map(held.__getitem__, rows))]

    def targets_at(self, rows: list[int]) -> list[Any]:
        """Return the current targets of records."""
        held = self.targets()
        if type(held) not in (list, tuple):  # code of the program may change something for each of them
            return [*map(self.target, rows)]
        return [*map(self.read, map(held.__getitem__, rows))]

    def target(self, i: int) -> Any:
        """Return the current target of a record."""
        return self.read(self.targets()[i])

    def numbers(self) -> Records | None:
        """Return all targets, None unless they are whole numbers, of which default_collate makes int64."""
        held = self.targets()
        if self.read is int and type(held) in (torch.Tensor, np.ndarray):
            found = np.asarray(held.detach().cpu() if isinstance(held, torch.Tensor) else held)
            return found.astype(np.int64) if found.ndim == 1 and np.can_cast(found.dtype, np.int64) else None
        held = held if self.read is _same else [*map(self.read, held)]
        if type(held) is not list or set(map(type, held)) != {int}:
            return None
        try:
            return np.array(held, np.int64)
        except OverflowError:
            return None


@dataclass
class Data:
    """A sequence of leaves, and the records of them that a dataset has."""

    leaves: list[Leaf]
    records: Records | None  # None: all of them in their order; -1 for those that only the dataset itself refuses
    names: list[str]
    # Returns the current source of a record: the leaf and the index in it.
    at: Callable[[Any], tuple[Leaf, int]] = field(compare=False)
    # The objects that determine a record: the leaves and all datasets around them.
    parts: list[Any] = field(compare=False)

    def __len__(self) -> int:
        return sum(map(len, self.leaves)) if self.records is None else len(self.records)

    def numbers(self, indices: Any) -> Records | None:
        """Return the records of a batch in the leaves, None if its indices are not valid for a list."""
        try:
            chosen = _integers(indices)
        except (TypeError, OverflowError):
            return None
        n = len(self)
        if not len(chosen):
            return None
        if chosen.view(np.uint64).max() >= n:  # or negative
            if chosen.min() < -n or chosen.max() >= n:
                return None
            chosen[chosen < 0] += n
        if self.records is None:
            return chosen
        found = self.records[chosen]
        return None if found.min() < 0 else found

    def all(self) -> Records:
        """Return the records in their order."""
        return np.arange(len(self), dtype=np.int64) if self.records is None else self.records

    @functools.cached_property
    def starts(self) -> Records:
        """The number of the first record of each leaf."""
        return np.cumsum([0, *map(len, self.leaves)])[:-1]


def paths_of(data: Data) -> list[Any] | None:
    """Return the paths of all records in the leaves, None if these hold pixels."""
    if data.leaves[0].paths is None:
        return None
    return [leaf.paths(x) for leaf in data.leaves if leaf.paths is not None for x in leaf.held]


def recognise(dataset: Any, depth: int = 0) -> Data:
    """Return the leaves and records of a dataset, or raise Unknown."""
    if depth > DEEP:
        raise Unknown(f"datasets lie in each other more than {DEEP} deep")
    kind = meant(type(dataset))
    name = qualified(kind)
    if kind is torch.utils.data.Subset:
        check_class(kind)
        check_instance(dataset)
        inner = recognise(dataset.dataset, depth + 1)
        names = [f"Subset of {inner.names[0]}", *inner.names[1:]]

        def at(index: Any) -> tuple[Leaf, int]:
            return inner.at(dataset.indices[index])

        return Data(inner.leaves, _chosen(inner, dataset.indices), names, at, [dataset, *inner.parts])
    if kind is torch.utils.data.ConcatDataset:
        check_class(kind)
        check_instance(dataset)
        if type(dataset.datasets) is not list:
            raise Unknown(f"the datasets of a ConcatDataset are a {type(dataset.datasets).__name__}")
        sizes = dataset.cumulative_sizes
        if not isinstance(sizes, list) or not sizes or sorted(sizes) != sizes or any(type(n) is not int for n in sizes):
            raise Unknown("the cumulative_sizes of a ConcatDataset were changed")
        return _concatenated(dataset, [recognise(d, depth + 1) for d in dataset.datasets[: len(sizes)]])
    known = _KNOWN.get(name)
    if known is None:
        raise Unknown(f"{name} is not known to the engine")
    check_class(kind)
    check_instance(dataset)
    leaf = known(dataset)
    leaf.owner = leaf.owner or dataset
    parts = [dataset] if leaf.owner is dataset else [dataset, leaf.owner]
    return Data([leaf], None, [kind.__name__], lambda index: (leaf, operator.index(index)), parts)


# Lists, arrays and tensors have the same item for indices of these types.
_WHOLE = {int, np.int64, np.int32}


def _integers(indices: Any) -> Records:
    """Return indices as an array, or raise TypeError. To arrays and tensors, truth values and bytes are masks."""
    if not set(map(type, indices)) <= _WHOLE and not all(map(_is_whole, indices)):
        raise TypeError
    return np.fromiter(map(operator.index, indices), np.int64, len(indices))


def _is_whole(index: Any) -> bool:
    if type(index) is torch.Tensor:
        return index.ndim == 0 and index.dtype in (torch.int64, torch.int32)
    return type(index) in _WHOLE


def _chosen(inner: Data, indices: Any) -> Records:
    if type(indices) not in (list, tuple, range, np.ndarray, torch.Tensor):
        raise Unknown(f"the indices of a Subset are a {type(indices).__name__}")
    try:
        chosen = _integers(list(indices))
    except (TypeError, OverflowError):
        raise Unknown("a Subset whose indices are not whole numbers") from None
    n = len(inner)
    if len(chosen) and not (-n <= chosen.min() and chosen.max() < n):
        raise Unknown("a Subset with indices that its dataset does not have")
    chosen[chosen < 0] += n
    return chosen if inner.records is None else inner.records[chosen]


def _concatenated(dataset: Any, parts: list[Data]) -> Data:
    """Return a ConcatDataset: the sizes that its parts had when it was made decide which of them has a record."""
    if not parts:
        raise Unknown("a ConcatDataset of nothing")
    sizes = list(dataset.cumulative_sizes)
    leaves: list[Leaf] = []
    records = np.full(sizes[-1], -1, np.int64)
    start = 0
    for part, end in zip(parts, sizes, strict=False):
        own = part.all()[: end - start]
        records[start : start + len(own)] = np.where(own < 0, -1, own + sum(map(len, leaves)))
        leaves.extend(part.leaves)
        start = end
    if len({(leaf.paths is None, leaf.channels) for leaf in leaves}) > 1:
        raise Unknown("a ConcatDataset of files and arrays")

    datasets = dataset.datasets[: len(parts)]

    def at(index: Any) -> tuple[Leaf, int]:
        ends = dataset.cumulative_sizes
        if index < 0:
            index = ends[-1] + index
        k = bisect.bisect_right(ends, index)
        if dataset.datasets[k] is not datasets[k]:
            raise Unknown("a part of a ConcatDataset was replaced")
        return parts[k].at(index - (ends[k - 1] if k else 0))

    around = [dataset, *(inner for part in parts for inner in part.parts)]
    return Data(leaves, records, [f"ConcatDataset of {len(parts)}"], at, around)


def _check_loader(loader: Any) -> None:
    """Raise Unknown unless files are opened as ``PIL.Image.open(path).convert("RGB")``."""
    import torchvision

    if not any(loader is _proof.find(name) for name in _proof.LOADERS):
        raise Unknown(f"images are loaded by {getattr(loader, '__qualname__', loader)!s}")
    _proof.check(*_proof.LOADERS)
    if torchvision.get_image_backend() != "PIL":
        raise Unknown(f"torchvision's image backend is {torchvision.get_image_backend()}")
    check_pillow()
    check_pixel_limit()


def check_pixel_limit() -> None:
    """Raise Unknown when Pillow refuses images that the engine takes."""
    import PIL.Image

    limit = PIL.Image.MAX_IMAGE_PIXELS
    if limit is not None and limit < _settings.PILLOW_LIMIT:
        raise Unknown(f"PIL.Image.MAX_IMAGE_PIXELS is {limit}")


def check_pillow() -> None:
    """Raise Unknown when functions of Pillow were replaced."""
    _proof.check(*_proof.PILLOW)
    _proof.check_formats()


def _strings(paths: Sequence[Any]) -> None:
    if type(paths) is not list:
        raise Unknown(f"its files are a {type(paths).__name__} and no list")


def _pairs(samples: Sequence[Any]) -> None:
    _strings(samples)
    if not {*map(type, samples)} <= {tuple, list} or {*map(len, samples)} - {2}:
        raise Unknown("its samples are not pairs of a path and a target")


def _first(pair: Any) -> Any:
    return pair[0]


def _same(value: Any) -> Any:
    return value


def _second(pair: Any) -> Any:
    _, found = pair
    return found


def _samples(attribute: str, *, loader: bool = True) -> Callable[[Any], Leaf]:
    def leaf(dataset: Any) -> Leaf:
        _check_loader(dataset.loader if loader else _default_loader())
        samples = getattr(dataset, attribute)
        _pairs(samples)
        return Leaf(dataset, samples, _first, lambda: getattr(dataset, attribute), _second, attributes=(attribute,))

    return leaf


def _default_loader() -> Any:
    from torchvision.datasets.folder import default_loader

    return default_loader


def _files(dataset: Any) -> Leaf:
    """Two lists: of files, and of labels."""
    _check_loader(getattr(dataset, "loader", None) or _default_loader())
    _strings(dataset._image_files)
    files = dataset._image_files
    _as_many(files, dataset._labels)
    return Leaf(dataset, files, _same, lambda: dataset._labels, _same, attributes=("_image_files", "_labels"))


def _as_many(records: Any, targets: Any) -> None:
    if len(records) != len(targets):
        raise Unknown(f"it has {len(records)} images and {len(targets)} labels")


def _array(dataset: Any, data: Any, channels: int, targets: str, read: Callable[[Any], Any], view: Any = None) -> Leaf:
    check_pillow()
    good = type(data) in (np.ndarray, np.memmap) and data.dtype == np.uint8 and data.ndim == (3 if channels == 1 else 4)
    if not good or (channels == 3 and data.shape[3] != 3) or not len(data):
        raise Unknown("its data is no array of uint8 pixels any more")
    _as_many(data, getattr(dataset, targets))
    attributes = ("data", targets)
    return Leaf(
        dataset, data, None, lambda: getattr(dataset, targets), read, channels, attributes=attributes, view=view
    )


def _pixels(channels: int, targets: str, read: Callable[[Any], Any]) -> Callable[[Any], Leaf]:
    return lambda dataset: _array(dataset, dataset.data, channels, targets, read)


def _mnist(dataset: Any) -> Leaf:
    data = dataset.data
    if type(data) is not torch.Tensor or data.device.type != "cpu":
        raise Unknown("its data is not a tensor of this process any more")
    return _array(dataset, data.numpy(), 1, "targets", int, lambda: dataset.data.numpy())


def _labelled(dataset: Any) -> Leaf:
    """Colours first, as STL10 and SVHN have them."""
    data = dataset.data
    if type(data) not in (np.ndarray, np.memmap) or data.ndim != 4 or dataset.labels is None:
        raise Unknown("its data is no array of labelled pixels")

    def view() -> Any:
        return dataset.data.transpose(0, 2, 3, 1)

    return _array(dataset, view(), 3, "labels", int, view)


def _timm_folder(dataset: Any) -> Leaf:
    """Take timm's ImageDataset over a folder."""
    check_pillow()
    check_pixel_limit()
    reader = dataset.reader
    if qualified(type(reader)) not in READERS:
        raise Unknown(f"its reader is {type(reader).__name__}")
    check_class(type(reader))
    check_instance(reader)
    if dataset.load_bytes or dataset.additional_features is not None or dataset.input_img_mode != "RGB":
        raise Unknown("it gives bytes, other modes than RGB, or more than image and target")
    samples = reader.samples
    _pairs(samples)
    if any(target is None for _, target in samples):
        raise Unknown("some of its records have no target")

    def read(pair: Any) -> Any:
        _, found = pair
        return -1 if found is None else found

    return Leaf(
        dataset, samples, _first, lambda: reader.samples, read, replaces=True, owner=reader, attributes=("samples",)
    )  # fmt: skip


_D = "torchvision.datasets."

READERS = ("timm.data.readers.reader_image_folder.ReaderImageFolder",)

_KNOWN: dict[str, Callable[[Any], Leaf]] = {
    _D + "folder.ImageFolder": _samples("samples"),
    _D + "folder.DatasetFolder": _samples("samples"),
    _D + "imagenet.ImageNet": _samples("samples"),
    _D + "eurosat.EuroSAT": _samples("samples"),
    _D + "country211.Country211": _samples("samples"),
    _D + "imagenette.Imagenette": _samples("_samples"),
    _D + "stanford_cars.StanfordCars": _samples("_samples"),
    _D + "rendered_sst2.RenderedSST2": _samples("_samples"),
    _D + "gtsrb.GTSRB": _samples("_samples", loader=False),
    _D + "flowers102.Flowers102": _files,
    _D + "food101.Food101": _files,
    _D + "dtd.DTD": _files,
    _D + "fgvc_aircraft.FGVCAircraft": _files,
    _D + "sun397.SUN397": _files,
    _D + "cifar.CIFAR10": _pixels(3, "targets", _same),
    _D + "cifar.CIFAR100": _pixels(3, "targets", _same),
    **{f"{_D}mnist.{name}": _mnist for name in ("MNIST", "FashionMNIST", "KMNIST", "EMNIST")},
    _D + "stl10.STL10": _labelled,
    _D + "svhn.SVHN": _labelled,
    _D + "usps.USPS": _pixels(1, "targets", int),
    _D + "semeion.SEMEION": _pixels(1, "labels", int),
    "timm.data.dataset.ImageDataset": _timm_folder,
}
