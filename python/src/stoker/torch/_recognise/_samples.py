"""The engine's pictures in the form that a dataset gives: the parts left to Python get them one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import torch
import torch.utils.data

from .. import _generator
from . import _datasets, _transforms

Array = npt.NDArray[Any]


class Seed:
    """Reports whether the program has set torch's random numbers, from which transforms would draw."""

    def __init__(self) -> None:
        """Remember the seed of this process."""
        self._before = _generator.program_seed()

    def is_set(self) -> bool:
        """Compare. A worker process begins with a seed of its own."""
        info = torch.utils.data.get_worker_info()
        return bool(torch.default_generator.initial_seed() != (self._before if info is None else info.seed))


class Still:
    """Reports quickly whether a dataset's parts and transforms are those that the engine knows."""

    def __init__(self, parts: list[Any], transforms: list[Any], rest: int) -> None:
        """Remember them; ``rest`` is the number of the last transforms that Python runs."""
        self._parts = [(part, type(part), dict(vars(part))) for part in parts]
        self._unchanged = [_transforms.Unchanged(t, rest) for t in transforms]

    def transforms(self) -> bool:
        """Compare the transforms."""
        return all(unchanged() for unchanged in self._unchanged)

    def parts(self) -> bool:
        """Compare the attributes of the dataset, and of those in it: whether they are the same objects."""
        return all(type(part) is kind and _is(vars(part), before) for part, kind, before in self._parts)

    def __call__(self) -> bool:
        """Compare both."""
        return self.parts() and self.transforms()


def _is(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return len(now) == len(before) and all(now.get(k, before) is v for k, v in before.items())


@dataclass
class Samples:
    """Makes samples of rows of the engine's batches, in whatever process."""

    dataset: Any
    rest: list[Any]  # what of the transform Python does, one behind the other
    state: str  # what a row is, as _transforms names it
    wrapped: bool  # whether a tensor is of torchvision's Image class
    random: bool  # whether the transforms before the rest draw random numbers
    # The positions of the dataset's records. Not sent to another process, which finds them itself.
    _data: _datasets.Data | None = field(default=None, compare=False)
    # The paths that the engine was given, None if it has arrays.
    _names: list[Any] | None = field(default=None, compare=False)
    # Reports whether the engine's rows are still those of the dataset. The program's code may change it at any record.
    _still: Any = field(default=None, compare=False)

    # Whether it also makes batches in which the engine has no part.
    watches = False

    def __post_init__(self) -> None:
        """Remember the dataset as it is now."""
        if self._data is None:
            self._data = _datasets.recognise(self.dataset)
            self._names = _datasets.paths_of(self._data)
        transforms = {id(leaf.dataset.transform): leaf.dataset.transform for leaf in self._data.leaves}
        self._still = Still(self._data.parts, list(transforms.values()), len(self.rest))
        self._seed = Seed()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None, "_names": None, "_still": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Before the program's code runs in this process.
        self.__dict__.update(state)
        self.__post_init__()

    def scope(self, _batch: dict[str, Any] | None) -> Any:
        """Return the context in which samples of a batch are made and collated."""
        return contextlib.nullcontext()

    def make(
        self,
        batch: dict[str, Array],
        indices: list[Any],
        at: Callable[[int, Any], None],
        anew: Callable[[Any], Any],
        *,
        copy: bool,
    ) -> list[Any]:
        """Return the samples of a batch.

        Args:
            batch: the engine's arrays.
            indices: the indices for the dataset.
            at: called with the row and its index before it is made.
            anew: makes a sample of an index that the engine cannot make.
            copy: whether the arrays' memory is used again even if a view of it is held.
        """
        assert self._data is not None
        data, still, names = self._data, self._still, self._names
        pixels, numbers = batch["image"], batch["index"].tolist()
        samples = []
        for row, (index, number) in enumerate(zip(indices, numbers, strict=True)):
            at(row, index)
            if number < 0 or (self.random and self._seed.is_set()) or not still():
                samples.append(anew(index))
                continue
            leaf, i = data.at(index)
            beside = None
            if names is not None:
                if leaf.path(i) != names[number]:
                    samples.append(anew(index))
                    continue
                beside = _Info(_Beside(names[number]))
            image = value_of(pixels[row], self.state, self.wrapped, beside, copy)
            for part in self.rest:
                image = part(image)
            target = leaf.target(i)
            change = leaf.dataset.target_transform
            samples.append((image, target if change is None else change(target)))
        return samples


def value_of(row: Array, state: str, wrapped: bool, info: dict[Any, Any] | None, copy: bool) -> Any:
    """Return a row in the form that the earlier transforms give.

    Args:
        row: a row of the engine's.
        state: its form, as _transforms names it.
        wrapped: whether a tensor is of torchvision's Image class.
        info: the metadata of a picture.
        copy: whether the row's memory is used again even if a view of it is held.
    """
    if state == _transforms.PICTURE:
        import PIL.Image

        mode = "RGB" if row.ndim == 3 and row.shape[2] == 3 else "L"
        image = PIL.Image.frombytes(mode, (row.shape[1], row.shape[0]), row.tobytes())
        if info is not None:
            image.info = info
        return image
    own = row if row.ndim == 3 else row[None]
    if copy:
        own = own.copy()
    if state == _transforms.ARRAY:
        return own
    tensor = torch.from_numpy(own)
    if wrapped:
        from torchvision import tv_tensors

        return tv_tensors.Image(tensor)
    return tensor


def answer(row: Array, program: _transforms.Program, image: Any, copy: bool) -> Any:
    """Return a transform's result for an image. Without random numbers it may be asked again for the same image."""
    kept = copy or not program.random
    value = value_of(row, program.state, bool(program.wrapped), image._copy_info(), kept)
    for part in program.rest:
        value = part(value)
    return value


class _Beside:
    """Pillow's metadata of a file, read once, on first access."""

    def __init__(self, path: Any) -> None:
        self._path: Any = path
        self._found: dict[Any, Any] = {}

    def read(self) -> dict[Any, Any]:
        path, self._path = self._path, None
        if path is not None:
            import PIL.Image

            with open(path, "rb") as file:
                image: Any = PIL.Image.open(file)
                # Other formats may have more metadata after their pixels, and lose some of it here.
                self._found = (image if image.format == "JPEG" else image.convert("RGB")).info
        return self._found


class _Info(dict[Any, Any]):
    """``Image.info`` of a picture whose file has not been read yet.

    Pillow copies it for each image derived from another. Then the file's head is read, once.
    """

    def __init__(self, beside: _Beside) -> None:
        super().__init__()
        self._beside: _Beside | None = beside

    def _fill(self) -> None:
        beside, self._beside = self._beside, None
        if beside is not None:
            for key, value in beside.read().items():
                dict.setdefault(self, key, value)

    def copy(self) -> dict[Any, Any]:
        """As a dict does."""
        if self._beside is None:
            return dict(self)
        other = _Info(self._beside)
        dict.update(other, dict.items(self))  # which does not look for more
        return other

    def __iter__(self) -> Iterator[Any]:
        self._fill()
        return super().__iter__()

    def __reduce__(self) -> tuple[Any, ...]:
        self._fill()
        return dict, (dict(dict.items(self)),)


def _filled(name: str) -> Callable[..., Any]:
    theirs = getattr(dict, name)

    def method(self: _Info, *args: Any, **more: Any) -> Any:
        self._fill()
        return theirs(self, *args, **more)

    method.__name__ = name
    return method


for _name in (
    "__getitem__", "__contains__", "__len__", "__eq__", "__ne__", "__repr__", "__delitem__", "__or__", "__ror__",
    "__reversed__", "get", "keys", "values", "items", "pop", "popitem", "clear", "setdefault",
):  # fmt: skip
    setattr(_Info, _name, _filled(_name))
