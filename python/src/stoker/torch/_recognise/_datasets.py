"""Datasets of torchvision as lists of files or arrays in memory."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.utils.data

from . import DEEP, _proof
from ._library import Unknown, check_class, check_instance, qualified

Records = npt.NDArray[np.int64]


@dataclass
class Leaf:
    """A dataset that holds its records as paths or in one array."""

    dataset: Any
    # The list that the records are read from: of paths, of pairs of path and target, or the array; and how.
    held: Any
    paths: Callable[[Any], Any] | None  # from an element of held
    target: Callable[[int], Any]  # of a record
    channels: int = 3
    # Whether the dataset gives another record, with its target, in the place of one that cannot be read.
    replaces: bool = False

    def __len__(self) -> int:
        return len(self.held)


@dataclass
class Data:
    """Leaves one behind the other, and which of their records a dataset has."""

    leaves: list[Leaf]
    records: Records | None  # None: all of them in their order
    names: list[str]

    def __len__(self) -> int:
        return sum(map(len, self.leaves)) if self.records is None else len(self.records)

    def numbers(self, indices: Any) -> Records | None:
        """Return which records of the leaves a batch has, None where its indices are not what a list takes."""
        try:
            chosen = np.fromiter(map(operator.index, indices), np.int64, len(indices))
        except (TypeError, OverflowError):
            return None
        n = len(self)
        if not len(chosen) or chosen.min() < -n or chosen.max() >= n:
            return None
        chosen[chosen < 0] += n
        return chosen if self.records is None else self.records[chosen]

    @functools.cached_property
    def starts(self) -> Records:
        """The number of the first record of each leaf."""
        return np.cumsum([0, *map(len, self.leaves)])[:-1]


def recognise(dataset: Any, depth: int = 0) -> Data:
    """Return what a dataset has, or raise Unknown."""
    if depth > DEEP:
        raise Unknown(f"datasets lie in each other more than {DEEP} deep")
    kind = type(dataset)
    name = qualified(kind)
    if kind is torch.utils.data.Subset:
        check_class(kind)
        check_instance(dataset)
        inner = recognise(dataset.dataset, depth + 1)
        return Data(inner.leaves, _chosen(inner, dataset.indices), [f"Subset of {inner.names[0]}", *inner.names[1:]])
    if kind is torch.utils.data.ConcatDataset:
        check_class(kind)
        check_instance(dataset)
        return _concatenated([recognise(d, depth + 1) for d in dataset.datasets])
    known = _KNOWN.get(name)
    if known is None:
        raise Unknown(f"{name} is not known to the engine")
    check_class(kind)
    check_instance(dataset)
    leaf = known(dataset)
    return Data([leaf], None, [kind.__name__])


def _chosen(inner: Data, indices: Any) -> Records:
    try:
        chosen = np.fromiter(map(operator.index, indices), np.int64, len(indices))
    except TypeError:
        raise Unknown("a Subset whose indices are no numbers") from None
    n = len(inner)
    if len(chosen) and not (-n <= chosen.min() and chosen.max() < n):
        raise Unknown("a Subset with indices that its dataset does not have")
    chosen[chosen < 0] += n
    return chosen if inner.records is None else inner.records[chosen]


def _concatenated(parts: list[Data]) -> Data:
    if not parts:
        raise Unknown("a ConcatDataset of nothing")
    leaves: list[Leaf] = []
    records = []
    for part in parts:
        before = sum(map(len, leaves))
        n = sum(map(len, part.leaves))
        records.append(before + (np.arange(n, dtype=np.int64) if part.records is None else part.records))
        leaves.extend(part.leaves)
    if len({(leaf.paths is None, leaf.channels) for leaf in leaves}) > 1:
        raise Unknown("a ConcatDataset of files and arrays")
    return Data(leaves, np.concatenate(records), [f"ConcatDataset of {len(parts)}"])


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
    if limit is not None and limit < _PILLOW_LIMIT:
        raise Unknown(f"PIL.Image.MAX_IMAGE_PIXELS is {limit}")


# Pillow's own limit, at twice which it refuses images; the engine refuses them there too.
_PILLOW_LIMIT = 1024 * 1024 * 1024 // 4 // 3


def check_pillow() -> None:
    """Raise Unknown when functions of Pillow were replaced."""
    _proof.check(*_proof.PILLOW)
    _proof.check_formats()


def _strings(paths: Sequence[Any]) -> None:
    if not isinstance(paths, list):
        raise Unknown(f"its files are a {type(paths).__name__} and no list")


def _first(pair: Any) -> Any:
    return pair[0]


def _same(path: Any) -> Any:
    return path


def _samples(attribute: str, *, loader: bool = True) -> Callable[[Any], Leaf]:
    def leaf(dataset: Any) -> Leaf:
        _check_loader(dataset.loader if loader else _default_loader())
        samples = getattr(dataset, attribute)
        _strings(samples)
        return Leaf(dataset, samples, _first, lambda i: getattr(dataset, attribute)[i][1])

    return leaf


def _default_loader() -> Any:
    from torchvision.datasets.folder import default_loader

    return default_loader


def _files(dataset: Any) -> Leaf:
    """Two lists: of files, and of labels."""
    _check_loader(getattr(dataset, "loader", None) or _default_loader())
    _strings(dataset._image_files)
    return Leaf(dataset, dataset._image_files, _same, lambda i: dataset._labels[i])


def _array(dataset: Any, data: Any, channels: int, target: Callable[[int], Any]) -> Leaf:
    check_pillow()
    if isinstance(data, torch.Tensor):
        data = data.numpy() if data.device.type == "cpu" else None
    good = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == (3 if channels == 1 else 4)
    if not good or (channels == 3 and data.shape[3] != 3) or not len(data):
        raise Unknown("its data is no array of uint8 pixels any more")
    return Leaf(dataset, data, None, target, channels)


def _cifar(dataset: Any) -> Leaf:
    return _array(dataset, dataset.data, 3, lambda i: dataset.targets[i])


def _mnist(dataset: Any) -> Leaf:
    return _array(dataset, dataset.data, 1, lambda i: int(dataset.targets[i]))


def _labelled(dataset: Any) -> Leaf:
    """Colours first, as STL10 and SVHN have them."""
    data = dataset.data
    if not isinstance(data, np.ndarray) or data.ndim != 4 or dataset.labels is None:
        raise Unknown("its data is no array of labelled pixels")
    return _array(dataset, data.transpose(0, 2, 3, 1), 3, lambda i: int(dataset.labels[i]))


def _usps(dataset: Any) -> Leaf:
    return _array(dataset, dataset.data, 1, lambda i: int(dataset.targets[i]))


def _semeion(dataset: Any) -> Leaf:
    return _array(dataset, dataset.data, 1, lambda i: int(dataset.labels[i]))


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
    _strings(samples)

    def target(i: int) -> Any:
        return reader.samples[i][1]

    return Leaf(dataset, samples, _first, target, replaces=True)


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
    _D + "cifar.CIFAR10": _cifar,
    _D + "cifar.CIFAR100": _cifar,
    _D + "mnist.MNIST": _mnist,
    _D + "mnist.FashionMNIST": _mnist,
    _D + "mnist.KMNIST": _mnist,
    _D + "mnist.EMNIST": _mnist,
    _D + "stl10.STL10": _labelled,
    _D + "svhn.SVHN": _labelled,
    _D + "usps.USPS": _usps,
    _D + "semeion.SEMEION": _semeion,
    "timm.data.dataset.ImageDataset": _timm_folder,
}
