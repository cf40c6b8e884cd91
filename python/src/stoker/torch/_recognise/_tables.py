"""Datasets of Hugging Face with columns of numbers: this process gathers batches from the Arrow table."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data

from .._path import Row
from . import _order, _proof
from ._library import Unknown, check_class, check_init, check_instance, collate_of, qualified

Array = npt.NDArray[Any]

# Workers copy larger records better, in parallel to the loop.
_LARGEST_RECORD = 64 << 10
# Columns up to this size are put together out of their pieces.
_SMALL_COLUMN = 64 << 20
# Lists in lists of lists ...
_DEEPEST = 8
_FEATURES = "datasets.features.features"
_FORMAT = (
    "_data", "_indices", "_fingerprint", "_format_type", "_format_columns", "_format_kwargs", "_output_all_columns",
)  # fmt: skip
_FORMATS = (None, "python", "numpy", "torch")


def is_table(dataset: Any) -> bool:
    """Say whether this is a dataset of Hugging Face's."""
    return qualified(type(dataset)) == "datasets.arrow_dataset.Dataset"


def image_columns(dataset: Any) -> list[str]:
    """Return the columns that a dataset of Hugging Face's decodes images of."""
    from datasets import Image  # type: ignore[import-not-found,import-untyped,unused-ignore]

    features = dataset._info.features or {}
    return [name for name, feature in features.items() if isinstance(feature, Image) and feature.decode]


class Column:
    """A column of numbers, or of arrays of numbers that are all of one shape."""

    def __init__(self, name: str, chunks: Any) -> None:
        """Take an Arrow column, or raise Unknown."""
        self.name = name
        parts = [part for part in (_numbers(name, chunk) for chunk in chunks.chunks) if len(part)]
        if not parts or len({p.shape[1:] for p in parts}) > 1:
            raise Unknown(f"column {name!r} has rows of different lengths")
        self.row_bytes = int(parts[0][:1].nbytes)
        if sum(p.nbytes for p in parts) <= _SMALL_COLUMN:
            parts = [np.concatenate(parts)]
        self._parts = parts
        self._starts = np.cumsum([0, *map(len, parts)])[:-1]
        self.dtype = torch.int64  # which the batches have; learned from one

    def take(self, records: npt.NDArray[np.int64]) -> torch.Tensor:
        """Return rows as the batches have them."""
        if len(self._parts) == 1:
            found = self._parts[0][records]
        else:
            of = np.searchsorted(self._starts, records, "right") - 1
            at = records - self._starts[of]
            found = np.empty((len(records), *self._parts[0].shape[1:]), self._parts[0].dtype)
            for i, (k, row) in enumerate(zip(of.tolist(), at.tolist(), strict=True)):
                found[i] = self._parts[k][row]
        return torch.from_numpy(found).to(self.dtype)


def _numbers(name: str, chunk: Any) -> Array:
    """Return a piece of a column as an array, without a copy if there are no booleans."""
    import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]

    if isinstance(chunk, pa.ExtensionArray) and type(chunk.type).__module__ == _FEATURES:
        chunk = chunk.storage  # Array2D and its kin are lists in lists
    widths: list[int] = []
    while True:
        kind = chunk.type
        if chunk.null_count:
            raise Unknown(f"column {name!r} has empty values")
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            break
        lengths = np.unique(chunk.value_lengths().to_numpy(zero_copy_only=False)) if len(chunk) else np.zeros(1)
        if len(lengths) > 1 or lengths[0] == 0 or len(widths) == _DEEPEST:
            raise Unknown(f"column {name!r} has rows of different lengths")
        widths.append(int(lengths[0]))
        chunk = chunk.flatten()
    good = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    if not (good or pa.types.is_boolean(kind)) or pa.types.is_uint64(kind):
        raise Unknown(f"column {name!r} has values of {kind}")
    values: Array = chunk.to_numpy(zero_copy_only=good)
    return values.reshape(-1, *widths) if widths else values


class TablePlan:
    """A loader whose batches are gathered. stoker.torch._path.Plan documents its methods."""

    def __init__(self, loader: Any) -> None:
        """Recognise the loader, or raise Unknown."""
        self._key = _key(loader)
        self.dtype = torch.get_default_dtype()
        dataset = loader.dataset
        if not len(dataset):
            raise Unknown("it has no records")
        self._len = len(dataset)
        names = dataset._format_columns if dataset._format_columns is not None else dataset.column_names
        table = dataset._data.table
        self._columns = [Column(name, table.column(name)) for name in table.column_names if name in names]
        if sum(c.row_bytes for c in self._columns) > _LARGEST_RECORD:
            raise Unknown(f"records of more than {_LARGEST_RECORD >> 10} KiB are copied beside the loop, by workers")
        self._records: Array | None = None
        if dataset._indices is not None:
            self._records = dataset._indices.column(0).to_numpy().astype(np.int64)
        self._learn(loader)

    def _learn(self, loader: Any) -> None:
        """Make a few records both ways: types are those of the program's, and so must be all else."""
        chosen = sorted({0, self._len // 2, self._len - 1})
        expected = loader.collate_fn(loader.dataset.__getitems__(chosen))
        if type(expected) is not dict or list(expected) != [c.name for c in self._columns]:
            raise Unknown("its batches are no mappings of its columns")
        for column in self._columns:
            want = expected[column.name]
            if type(want) is not torch.Tensor:
                raise Unknown(f"of column {column.name!r} it makes a {type(want).__name__} and no tensor")
            column.dtype = want.dtype
        for name, got in self.batch(np.array(chosen)).items():
            want = expected[name]
            if got.shape != want.shape or got.stride() != want.stride() or not torch.equal(got, want):
                raise Unknown(f"column {name!r} does not come as it is stored")

    def batch(self, records: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """Gather a batch."""
        if self._records is not None:
            records = self._records[records]
        return {column.name: column.take(records) for column in self._columns}

    # --- stoker.torch._path.Plan -------------------------------------------

    samples = None
    learns = False

    def close(self) -> None:
        """Nothing was started."""

    def fits(self, loader: Any) -> bool:
        """Report whether the loader still matches the plan."""
        try:
            now = _key(loader)
        except Exception:  # plan() says why
            return False
        same = all(a is b for a, b in zip(now[:2], self._key[:2], strict=True))
        return same and bool(now[2:] == self._key[2:])

    def moment(self, loader: Any) -> Any:
        """Return the dataset for an epoch that begins now: with workers it is a copy."""
        return copy.copy(loader.dataset) if loader.num_workers > 0 else loader.dataset

    def iterate(self, loader: Any, seed: int, order: Iterator[Any], moment: Any = None) -> Iterator[Any]:
        """Return an iterator over the batches of an epoch."""
        return _Epoch(self, loader, self._len, order, self.moment(loader) if moment is None else moment)

    def reads(self, dataset: Any) -> bool:
        """Whether a dataset still gives the data that is gathered here."""
        now, before = _format(dataset), self._key[: len(_FORMAT)]
        return all(a is b for a, b in zip(now[:2], before[:2], strict=True)) and bool(now[2:] == before[2:])

    def explain(self) -> Sequence[Row]:
        """Return the place where each part runs."""
        return [
            Row("dataset", "this process", f"Dataset of Hugging Face: {self._len:,} records"),
            Row("order", "this process", "the sampler decides, as with torch"),
            Row("collate", "this process", "batches are gathered out of the Arrow table, column by column"),
        ]


def _key(loader: Any) -> tuple[Any, ...]:
    """Return the properties that must not change, first those compared as objects. Raises Unknown."""
    if isinstance(loader.dataset, torch.utils.data.IterableDataset) or loader.batch_sampler is None:
        raise Unknown("it has no batch sampler")
    if not _proof.is_known(loader.collate_fn, _proof.COLLATES[0]):
        raise Unknown("collate_fn is not torch's default_collate, or something that it calls was replaced")
    check_init(loader)
    if _proof.modes():
        raise Unknown("a default device, or another mode of torch, changes what its operations make")
    dataset = loader.dataset
    check_class(type(dataset))
    check_instance(dataset)
    if dataset._format_type not in _FORMATS:
        what = "a function of the program's" if dataset._format_type == "custom" else repr(dataset._format_type)
        raise Unknown(f"a Dataset of Hugging Face with the format {what}")
    _proof.check_formatter(dataset._format_type)
    if dataset._format_kwargs or dataset._output_all_columns:
        raise Unknown("a Dataset of Hugging Face with options of its format")
    return (*_format(dataset), torch.get_default_dtype())


def _format(dataset: Any) -> tuple[Any, ...]:
    data, indices, *rest = (vars(dataset).get(name) for name in _FORMAT)
    return (data, indices, *(tuple(v) if isinstance(v, list) else v for v in rest))


class _Epoch(_order.Epoch):
    """The batches of one epoch."""

    def __init__(self, plan: TablePlan, loader: Any, length: int, order: Iterator[Any], dataset: Any) -> None:
        super().__init__(loader, order)
        self._plan, self._dataset, self._collate, self._len = plan, dataset, collate_of(loader), length
        # Without workers, a replacement during the epoch has an effect from then on.
        self._libraries = _proof.watch() if loader.num_workers == 0 else None
        self._pins = bool(loader.pin_memory) and torch.accelerator.is_available()
        self._begin()

    def _make(self, indices: Any) -> Any:
        libraries = self._libraries
        same = libraries is None or (
            libraries() and torch.get_default_dtype() is self._plan.dtype and not _proof.modes()
        )
        known = same and self._plan.reads(self._dataset)
        # A slice, an array or a tensor goes to the dataset as it is.
        if known and type(indices) is list and indices and all(type(i) is int and 0 <= i < self._len for i in indices):
            batch = self._made(np.array(indices, np.int64))
        else:
            batch = self._collate(self._dataset.__getitems__(indices))
        return torch.utils.data._utils.pin_memory.pin_memory(batch) if self._pins else batch

    def _made(self, records: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        with _proof.without_modes() if _proof.modes() else contextlib.nullcontext():
            return self._plan.batch(records)
