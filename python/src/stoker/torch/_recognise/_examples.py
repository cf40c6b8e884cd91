"""Datasets of Hugging Face with images: the program's functions run unmodified, the engine runs their transform.

The code of a function does not show what it does with images. But it shows the transforms that the function can use,
and the function probably gives its images to one of them. The engine runs that transform ahead. The function gets
images whose pixels are not decoded yet, and gets the engine's result when it calls the expected transform (_pending).
Any other use of an image decodes it. So a wrong guess costs time, and never changes a value.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data

from .._path import Row, start_method
from . import (
    _arrow_images,
    _datasets,
    _functions,
    _library,
    _memory,
    _moment,
    _pending,
    _plan,
    _proof,
    _samples,
    _tables,
    _transforms,
    _whole,
)
from ._library import Unknown
from ._tally import Tally

Array = npt.NDArray[Any]

# Types of objects that are never known transforms, and need no check.
_NO_TRANSFORMS = type | types.FunctionType | types.MethodType | types.BuiltinFunctionType
# The number of images that are checked before functions run without them.
_TRIED = 64
# The number of batches of functions run without images that may need some, and the share of them.
_ODD, _ODD_SHARE = 8, 0.25
# Functions that needed more.
_TOO_ODD: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
# Functions that have used their images in another way, and the reason given for them.
_ELSEWHERE: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Found(_plan.Found):
    """The recognised parts of a loader."""

    column: str = ""
    transform: Any = None  # what the functions have at hand
    unchanged: Any = field(default=None, compare=False)  # reports whether it still is what was recognised
    function: Any = None  # that of set_transform, or the collate
    held: tuple[Any, ...] = ()  # what must be the same objects later
    whole: bool = False  # the functions need no images, and no worker processes

    @property
    def transforms(self) -> list[Any]:
        """No transforms: the function's transform is compared at the call."""
        return []

    @property
    def split(self) -> bool:
        """Whether worker processes would have something to do with each record."""
        return not self.whole


def find(loader: Any) -> Found:
    """Recognise the parts of a loader, or raise Unknown."""
    if loader.batch_sampler is None:
        raise Unknown("it has no batch sampler")
    _library.check_init(loader)
    dataset = loader.dataset
    column = _check(dataset)
    own = dataset._format_kwargs.get("transform") if dataset._format_type == "custom" else None
    functions = [f for f in (own, loader.collate_fn) if f is not None]
    transform, program = _transform_of(functions)
    if program.random and not all(_functions.draws_alone(f, lambda v: v is transform) for f in functions):
        names = " or ".join(map(_plan.name_of, functions))
        raise Unknown(
            f"{_plan.name_of(transform)} draws random numbers, and {names} may set them: it names "
            "more than transforms, plain values and functions that make tensors"
        )
    _plan.check_seeds(loader, program)
    function = functions[0]
    if (why := _refused(function)) is not None:
        raise Unknown(why)
    leaf = _datasets.Leaf(dataset, range(len(dataset)), str, tuple, str)
    data = _datasets.Data([leaf], None, ["Dataset of Hugging Face"], lambda index: (leaf, index), [dataset])
    if not len(data):
        raise Unknown("it has no records")
    held = (dataset, dataset._data, dataset._indices, own, loader.collate_fn, transform)
    found = Found(
        data, program, None, "program", column=column, transform=transform, function=function, held=held,
        unchanged=_transforms.Unchanged(transform, len(program.rest)),
    )  # fmt: skip
    # Workers that are not forked import the program's modules again. The values in them may differ from those here.
    whole = loader.num_workers > 0 and start_method(loader) == "fork"
    return dataclasses.replace(found, whole=whole and _needs_no_images(found, functions))


def _needs_no_images(found: Found, functions: list[Any]) -> bool:
    """Whether functions need none of their images. Some images are tried."""
    dataset, collate, transform, program = found.held[0], found.held[4], found.transform, found.program
    tensors = program.state in (_transforms.BYTES, _transforms.UNIT, _transforms.FLOATS) and program.channels == 3
    if not tensors or program.rest or program.wrapped or dataset._format_columns is not None:
        return False
    if torch.get_default_dtype() is not torch.float32:
        return False
    if _has(_TOO_ODD, found.function) or program.mode != "RGB":
        return False
    if not all(_functions.leaves_nothing(f, lambda v: v is transform) for f in functions):
        return False
    some = np.linspace(0, len(dataset) - 1, min(len(dataset), _TRIED)).astype(int).tolist()
    heads = _whole.Heads(len(some))
    batch = _whole.Batch(len(some), torch.zeros(len(some), 3, 8, 8), heads.plain)
    feature = dataset._info.features[found.column]
    try:
        batch.run(lambda: collate(dataset.__getitems__(some)), transform, feature)
    except _whole.Strange:
        return False
    return True


def _check(dataset: Any) -> str:
    """Return the column of images, or raise Unknown."""
    import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]

    _library.check_class(type(dataset))
    _library.check_instance(dataset)
    _proof.check(*_proof.EXAMPLES)
    _proof.check_formatter(dataset._format_type)
    _datasets.check_pillow()
    _datasets.check_pixel_limit()
    _pending.check()
    if dataset._format_type not in (None, "python", "custom"):
        raise Unknown(f"a Dataset of Hugging Face with images and the format {dataset._format_type!r}")
    columns = _tables.image_columns(dataset)
    if len(columns) > 1:
        raise Unknown(f"columns {columns[0]!r} and {columns[1]!r} both have images, which may be made alike")
    feature = dataset._info.features[columns[0]]
    if type(feature) is not datasets.Image:
        raise Unknown(f"column {columns[0]!r} is a {type(feature).__name__}")
    return columns[0]


def _transform_of(functions: list[Any]) -> tuple[Any, _transforms.Program]:
    """Return the transform that functions can use, and the engine's part of it, or raise Unknown."""
    found: dict[int, tuple[Any, _transforms.Program]] = {}
    why = ""
    for value in (v for f in functions for v in _functions.named(f)):
        if id(value) in found or not callable(value) or isinstance(value, _NO_TRANSFORMS):
            continue
        try:
            program = _transforms.recognise(value, 3, split=True, pictures=True)
        except Unknown as reason:
            why = why or (str(reason) if _transforms.is_list(value) else "")
            continue
        if program.sized and program.wrapped is not None and program.ops:
            found[id(value)] = value, program
    names = " and ".join(map(_plan.name_of, functions))
    if not found:
        raise Unknown(f"{names} name no transform that the engine knows{': ' + why if why else ''}")
    if len(found) > 1:
        raise Unknown(f"{names} name {len(found)} transforms, of which nobody knows which one is called")
    return next(iter(found.values()))


def _refused(function: Any) -> str | None:
    try:
        return _ELSEWHERE.get(function)
    except TypeError:
        return None


def _has(functions: weakref.WeakKeyDictionary[Any, bool], function: Any) -> bool:
    try:
        return function in functions
    except TypeError:
        return False


@dataclass
class Examples:
    """Makes examples like those of a Hugging Face dataset from the engine's batches, in any process."""

    dataset: Any
    column: str
    transform: Any
    program: _transforms.Program
    tally: Tally
    unchanged: _transforms.Unchanged = field(compare=False)
    # If the engine turns images: reports for an image whether the engine certainly turns it correctly.
    plain: Callable[[int, Any], bool] | None = None

    watches = False

    @contextlib.contextmanager
    def scope(self, _batch: dict[str, Any] | None) -> Iterator[None]:
        """Have images come without their pixels, and the transform answered."""
        scope = _pending.Scope([self.transform])
        self._scope, self._next, self._given = scope, 0, 0
        self._done = _pending.Done(self.transform, "RGB", self._same, self.program.random)
        self._rows: tuple[Array, list[int], bool] = np.empty(0), [], False
        try:
            with scope.open(self._decode):
                yield
        finally:
            self.tally.add(self._given, scope.answers)
            del self._rows

    def make(
        self,
        batch: dict[str, Array],
        indices: list[Any],
        at: Callable[[int, Any], None],
        anew: Callable[[Any], Any],
        *,
        copy: bool,
    ) -> list[Any]:
        """Return the examples of a batch. ``Samples.make`` documents the arguments."""
        self._rows = batch["image"], batch["index"].tolist(), copy
        self._next = 0
        made: list[Any] = self.dataset.__getitems__(indices)
        return made

    def _same(self) -> bool:
        return torch.get_default_dtype() is torch.float32 and self.unchanged()

    def _decode(self, decode: Callable[..., Any], feature: Any, value: Any, *args: Any, **more: Any) -> Any:
        """Replace ``datasets.Image.decode_example``."""
        pixels, numbers, copy = self._rows
        row = self._next
        if feature is not self.dataset._info.features[self.column] or row >= len(numbers):
            return decode(feature, value, *args, **more)
        self._next += 1
        if numbers[row] < 0 or type(value) is not dict or not feature.decode:
            return decode(feature, value, *args, **more)
        source = value["path"] if value["bytes"] is None else value["bytes"]
        if self.plain is not None and not self.plain(numbers[row], source):
            return decode(feature, value, *args, **more)
        self._given += 1
        made = functools.partial(_samples.answer, pixels[row], self.program, copy=copy)
        image = self._scope.image(_pending.Row(source, self._done, made))
        if image is None:
            return decode(feature, value, *args, **more)
        if feature.mode and feature.mode != image.mode:
            image = image.convert(feature.mode)
        return image


class ExamplesPlan(_plan.EnginePlan):
    """A loader of a Hugging Face dataset with images. The engine does most of its work."""

    found: Found

    def __init__(self, loader: Any) -> None:
        """Recognise the loader and start the engine, or raise Unknown."""
        self._tally = Tally()
        self._made_whole = self._odd = 0  # batches of functions that are run without images, and those that needed some
        super().__init__(loader)
        self.heads = _whole.Heads(len(self.found.data) if self.found.whole else 0)

    def _find(self, loader: Any) -> Found:
        return find(loader)

    def _transform(self) -> Any:
        return self.found.transform

    def _config(self, program: _transforms.Program | None = None) -> dict[str, Any]:
        # With workers, Pillow turns the images. If the functions need no images, the engine turns them.
        return super()._config(program) | ({"apply_orientation": True} if self.found.whole else {})

    def _hold(self) -> tuple[_memory.Memory, str, str]:
        dataset = self.found.data.leaves[0].dataset
        rows = None if dataset._indices is None else dataset._indices.column(0).to_numpy().astype(np.int64)
        memory = _arrow_images.located(dataset._data.table.column(self.found.column), rows)
        return memory, memory.path, "image"

    def fits(self, loader: Any) -> bool:
        """Report whether the loader still matches the plan, and the functions behave as expected."""
        if os.getpid() != self._pid:
            return False
        if self._tally.wrong():
            given, answered = self._tally.sums()
            with contextlib.suppress(TypeError):
                _ELSEWHERE[self.found.function] = (
                    f"{_plan.name_of(self.found.function)} gave {given - answered:,} of {given:,} images to something "
                    f"else than {_plan.name_of(self.found.transform)}"
                )
            return False
        if self._odd > max(_ODD, _ODD_SHARE * self._made_whole):
            with contextlib.suppress(TypeError):
                _TOO_ODD[self.found.function] = True
            return False
        return super().fits(loader)

    def like(self, loader: Any) -> Found | None:
        """Return the loader's current parts, None if the engine would make other batches, or raise Unknown."""
        now, before = self._find(loader), self.found
        same = now.whole == before.whole and now.program.key() == before.program.key() and now.column == before.column
        return now if same and all(a is b for a, b in zip(now.held, before.held, strict=True)) else None

    def _holds(self, now: _plan.Found) -> bool:
        memory = self.memory
        return memory.here is None or memory.here == _memory.here()

    def _moment(self, loader: Any) -> _moment.Moment | None:
        """Return the data that an epoch beginning now reads of the dataset: with workers, in its current format."""
        if loader.num_workers == 0:
            return _moment.Live(self, loader)
        return _moment.Moment(copy.copy(loader.dataset), loader, _memory.names_of(self.memory))

    def numbers(self) -> Callable[[Any], Any]:
        """Return a function that lists a batch's records. It returns None if too many batches were made for nothing."""
        data, tally = self.found.data, self._tally
        return lambda indices: None if tally.wrong() else data.numbers(indices)

    def iterate(self, loader: Any, seed: int, order: Iterator[Any], moment: Any = None) -> Iterator[Any]:
        """Return an iterator over the batches of an epoch."""
        return _Epoch(self, loader, seed, order, moment or self._moment(loader))

    def whole(self, batch: _whole.Batch, dataset: Any, collate: Any, indices: list[Any]) -> Any:
        """Return a batch whose functions need no images, or raise Strange."""
        self._made_whole += 1
        try:
            made = batch.run(
                lambda: collate(dataset.__getitems__(indices)), self.found.transform,
                dataset._info.features[self.found.column],
            )  # fmt: skip
        except _whole.Strange:
            self._odd += 1
            raise
        self._tally.add(batch.rows, batch.rows)
        return made

    @property
    def samples(self) -> Any:
        """The maker of examples from the engine's batches, for worker processes."""
        return None if self.found.whole else self.here

    @property
    def here(self) -> Examples:
        """The maker of examples from the engine's batches."""
        found, program = self.found, self.found.program
        return Examples(
            self._dataset, found.column, found.transform, program, self._tally, found.unchanged,
            self.heads.plain if found.whole else None,
        )  # fmt: skip

    def explain(self) -> Sequence[Row]:
        """Return the place where each part runs."""
        found = self.found
        python = f"{self.workers} workers" if self.workers else "this process"
        function = _plan.name_of(found.function)
        rows = [
            Row("dataset", "engine", f"{found.data.names[0]}: {len(found.data):,} records, images of {found.column!r}"),
            Row("order", "this process", "the sampler decides, as with torch"),
            *self._transform_rows(python),
        ]
        called = _plan.name_of(found.transform)
        without = ", and runs without images" if found.whole else ""
        what = f"{function} is your code{without}; {called} returns what the engine has made"
        step = ""
        if not found.whole:
            step = "only convert and transform images in it, and use torch.stack in collate_fn"
        rows += [
            Row("function", python, what, step),
            Row("collate", python, _plan.name_of(found.held[4]), step and "torch.stack in order"),
        ]
        given, answered = self._tally.sums()
        if answered < given:
            why = f"{given - answered:,} of {given:,} images, which are not JPEGs or not given to {called}"
            rows.append(Row("other images", python, why, f"save them as JPEGs, and give them to {called} only"))
        return rows + self._bad()


class _Epoch(_plan.Epoch):
    """The batches of an epoch that is made in this process."""

    _plan: ExamplesPlan

    def _of_samples(self, samples: Any, images: torch.Tensor, index: Array, indices: list[Any], place: int) -> Any:
        plan = self._plan
        if not plan.found.whole:
            return super()._of_samples(samples, images, index, indices, place)
        numbers, plain = index.tolist(), plan.heads.plain
        batch = _whole.Batch(
            len(numbers), images, lambda row, source: numbers[row] >= 0 and plain(numbers[row], source)
        )
        try:
            return plan.whole(batch, self._moment.dataset, self._collate, indices)
        except _whole.Strange:
            pass
        if batch.stacked:  # and may have been written into
            return self._by_python(indices, place)
        # As in a worker process: its random numbers are none of the program's.
        with self._moment.then(), _plan.random_numbers(self._seed + place):
            return super()._of_samples(samples, images, index, indices, place)
