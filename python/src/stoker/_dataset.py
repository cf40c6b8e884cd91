"""``stoker.open``: data as a dataset with a length, records and views."""

from __future__ import annotations

import atexit
import hashlib
import inspect
import json
import operator
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

import numpy as np
import numpy.typing as npt

from . import _columns, _options, _reader
from ._batch import main_classes
from ._errors import ConfigError, public
from ._loader import Loader
from ._mix import Mixture
from ._reader import FieldInfo, Info, Place, Record
from ._surface import VIEW_KEYS

if TYPE_CHECKING:
    from ._columns import Column

_P = ParamSpec("_P")
_R = TypeVar("_R")
Rows = range | npt.NDArray[np.int64]

# A list of more rows than this is passed to the engine in a file.
_ROWS_IN_URL = 512
# Iteration reads blocks of records that grow up to this number, or this many bytes.
_BLOCK = 64
_BLOCK_BYTES = 64 << 20


def _with_arguments_of(
    of: Callable[Concatenate[Any, _P], _R],
) -> Callable[[Callable[..., _R]], Callable[Concatenate[Dataset, _P], _R]]:
    """Give a method the arguments of a class, without its first one."""
    parameters = [*inspect.signature(of).parameters.values()][1:]

    def with_arguments(method: Any) -> Any:
        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        method.__signature__ = inspect.Signature([this, *parameters], return_annotation=of)
        return method

    return with_arguments


@public
def open(path: str | os.PathLike[str]) -> Dataset:  # noqa: A001
    """Return the data at a path or URL as a dataset.

    ::

        data = stoker.open("photos/")
        data.fields, data.classes, len(data)
        data[17]["image"]                             # uint8 [height, width, 3]
        train, val = data.split(0.9, 0.1, seed=0)
        loader = train.loader(batch_size=256, shuffle=True)

    Data is read only when needed. ``stoker formats`` lists the formats.

    Args:
        path: path or URL of a pack, of a folder of images, or of other data. A view may follow after a #:
            ``"train.csv#where=label<10"``.

    Raises:
        ConfigError: path is not a path. Errors of the data are raised when the data is first read.
    """
    return Dataset(_options.source_url(path), secrets.token_hex(8))


@public
def concat(datasets: Sequence[Dataset]) -> Dataset:
    """Return a dataset with the records of several datasets, one after the other.

    The datasets must have the same fields, with the same classes. Data is read only when needed.

    Args:
        datasets: the datasets, at least one. Functions of ``map`` and sequences come after ``concat``.

    Raises:
        ConfigError: the fields differ; the message names the field. This is raised when the data is first read.
    """
    datasets = list(datasets)
    if not datasets or not all(isinstance(d, Dataset) for d in datasets):
        raise ConfigError("concat needs a list of datasets, such as stoker.concat([a, b])")
    return datasets[0] if len(datasets) == 1 else joined("concat", datasets)


@public
def mix(
    weights: Mapping[Any, float],
    *,
    schedule: Mapping[int, Mapping[Any, float]] | None = None,
    length: int | None = None,
) -> Dataset:
    """Return a mixture of datasets: loaders take their records in proportion to weights.

    ::

        data = stoker.mix({"web/": 3, "code/": 1})                    # three of four records are from web/
        loader = data.loader(batch_size=256, shuffle=True, seed=0)

    After any number of records, each dataset had its share of them within less than one record. Each dataset has an
    order of its own: all of its records once, then all of them once again in a new order. An epoch of the mixture does
    not end these rounds. So the order depends on the seed and the position alone, on any number of ranks.

    The datasets must have the same fields, with the same classes, as for ``concat``. ``map`` and ``sequences`` come
    after ``mix``: weights of sequences count sequences, and each dataset is packed on its own. A mixture is for
    loaders: without one, it has the records of its datasets one after the other.

    Args:
        weights: the weight of each dataset, or of each path; 0 or more. Shares are exact if they have a common
            denominator up to 1,048,576, and rounded to such parts otherwise.
        schedule: other weights from a position on: ``{1_000_000: {"web/": 1, "code/": 1}}``. A position is a number of
            records, over all ranks and epochs: the number of steps x ``batch_size`` x ranks. It names all datasets.
        length: records of an epoch of the mixture. Default: the records of all datasets together.

    Raises:
        ConfigError: a weight is refused, or the fields differ; the message names the field. Data is read only when
            needed.
    """
    if not isinstance(weights, Mapping) or not weights:
        raise ConfigError('mix needs the weights of datasets, such as stoker.mix({"web/": 3, "code/": 1})')
    datasets = list(map(_opened, weights))
    if len({d._key() for d in datasets}) < len(datasets):
        raise ConfigError("mix: a dataset is there twice; give it one weight")
    mixture = Mixture(datasets, _opened)
    if schedule is None:
        schedule = {}
    if not isinstance(schedule, Mapping):
        raise ConfigError("mix: schedule must be a dict such as {1_000_000: {a: 1, b: 1}}")
    stages = {_options.whole("schedule: a position", at, 1, 2**62): w for at, w in schedule.items()}
    mixture.config = {
        "weights": mixture.ordered(weights),
        "schedule": [{"from": at, "weights": mixture.ordered(w)} for at, w in sorted(stages.items())],
        "length": 0 if length is None else _options.whole("length", length, 1, 2**40),
    }
    return joined("mix", datasets, mixture)


def _opened(data: Any) -> Dataset:
    return data if isinstance(data, Dataset) else open(data)


def joined(what: str, datasets: Sequence[Dataset], mixture: Mixture | None = None) -> Dataset:
    """Return the records of several datasets, one after the other, or by weight if there is a mixture."""
    for d in datasets:
        if d._mixture is not None:
            raise ConfigError(f"{what}: a dataset is a mixture; give its datasets")
        if d._maps or d._sequence is not None:
            raise ConfigError(
                f"a dataset has {'a function (map)' if d._maps else 'sequences'}: call {what} first, then "
                f"{'map' if d._maps else 'sequences'} of the result"
            )
    parts = ",".join(_escape(d._url(), ",") for d in datasets)
    return Dataset(f"concat:{parts}", datasets[0]._opened, mixture=mixture)


class Dataset(_options.Data):
    """Data with a length, records and views. ``stoker.open`` makes one.

    ``len(data)`` is the number of records. ``data[17]`` is a record, decoded, as a dict of NumPy arrays and numbers;
    see :class:`stoker.Record`. ``data[:100]``, ``data[[3, 1, 2]]`` and ``data["train"]`` are datasets with a part of
    the records. ``for record in data`` reads all records in order.

    Views (``where``, ``split``, ``select``, ...) return a new dataset and read nothing. They can follow each other in
    any order; each works on the result of the one before. ``map`` and ``sequences`` come last.

    A dataset is a map-style dataset for libraries that want one: pass it to ``torch.utils.data.DataLoader``. It can be
    pickled, and forked or spawned processes can use it. Records are read by an engine, a process which all datasets
    of this process and of its children share. It is started on first use and ends with this process.
    ``loader()`` makes a :class:`stoker.Loader`, which is much faster in training.
    """

    __module__ = "stoker"
    __slots__ = ("__weakref__", "_about", "_base", "_maps", "_mixture", "_opened", "_rows", "_sequence")

    _base: str
    _opened: str
    _rows: Rows | None
    _sequence: dict[str, Any] | None
    _maps: tuple[Callable[[dict[str, Any]], Any], ...]
    _mixture: Mixture | None
    _about: Info | None

    def __init__(
        self,
        base: str,
        opened: str,
        rows: Rows | None = None,
        sequence: dict[str, Any] | None = None,
        maps: tuple[Callable[[dict[str, Any]], Any], ...] = (),
        mixture: Mixture | None = None,
    ) -> None:
        """Use ``stoker.open``."""
        for name, value in zip(
            ("_base", "_opened", "_rows", "_sequence", "_maps", "_mixture", "_about"),
            (base, opened, rows, sequence, maps, mixture, None),
            strict=True,
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a dataset does not change: its views ({name!r} cannot be set) return a new one")

    # --- about -------------------------------------------------------------

    @property
    def path(self) -> str:
        """The path or URL of the data, with its views after a #."""
        return self._url()

    @property
    def fields(self) -> dict[str, FieldInfo]:
        """The fields by name: kind, type and shape after decoding, classes. See :class:`stoker.FieldInfo`."""
        return {f.name: f for f in self._info().fields}

    @property
    def classes(self) -> list[str]:
        """Names of the classes; the label is the index. Empty if the data has none.

        If there are several fields of labels, those of ``label`` or ``target``, else of the first one.
        """
        fields = self._info().fields
        return main_classes({f.name: f.kind for f in fields}, {f.name: f.classes for f in fields if f.classes})

    @property
    def sample_rates(self) -> dict[str, int]:
        """Samples per second of recordings, by field, if the probed recordings agree."""
        return dict(_reader.describe(self._place(), listen=True).rates)

    @property
    def fingerprint(self) -> str:
        """A text that differs if the records differ, as far as that can be told without reading them."""
        if self._rows is None:
            return self._info().fingerprint
        return hashlib.sha256(f"{self._info().fingerprint} {_rows_text(self._rows)}".encode()).hexdigest()[:32]

    def __len__(self) -> int:
        """Return the number of records."""
        return self._info().length if self._rows is None else len(self._rows)

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same views of the same path."""
        if not isinstance(other, Dataset):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        rows = None if self._rows is None else _rows_text(self._rows)
        mixed = None if self._mixture is None else json.dumps(self._mixture.config, sort_keys=True)
        return self._base, rows, json.dumps(self._sequence, sort_keys=True), self._maps, mixed

    def __repr__(self) -> str:
        from . import _show

        return _show.text(self)

    def _repr_html_(self) -> str:
        from . import _show

        return _show.html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        about = (self._base, self._opened, self._rows, self._sequence, self._maps, self._mixture)
        return _unpickled, (*about, _reader.address())

    # --- records -----------------------------------------------------------

    @overload
    def __getitem__(self, item: int) -> Record: ...
    @overload
    def __getitem__(self, item: slice | str | Sequence[int] | npt.NDArray[Any]) -> Dataset: ...
    @public
    def __getitem__(self, item: Any) -> Any:
        """Return a record by its number, or a dataset of a slice, of some numbers, or of a named split.

        Raises:
            IndexError: there is no such record.
            RecordError: the record cannot be read or decoded.
            ConfigError: there is no such split.
        """
        if isinstance(item, str):
            return self._split_named(item)
        if isinstance(item, slice):
            start, stop, step = item.indices(len(self))
            return self._with_rows(range(start, stop, step))
        if isinstance(item, list | tuple | np.ndarray | range) and not (
            isinstance(item, np.ndarray) and item.ndim == 0
        ):
            return self._with_rows(self._numbers(item))
        return self._read([self._number(item)])[0]

    def __getitems__(self, items: Sequence[int]) -> list[Record]:
        """Return the records of some numbers: one request to the engine, which decodes them with all cores."""
        return self._read([self._number(i) for i in items])

    @public
    def __iter__(self) -> Iterator[Record]:
        """Yield all records in order."""
        return self._all()

    def _all(self) -> Iterator[Record]:
        at, block, end = 0, 1, len(self)
        # A compressed archive is read from its beginning for each block.
        most = _BLOCK if not self._info().in_order else end
        while at < end:
            records = self._read(range(at, min(at + block, end)))
            at += len(records)
            yield from records
            bytes_each = sum(_size(v) for r in records for v in r.values()) / len(records)
            block = max(1, min(2 * block, most, int(_BLOCK_BYTES / max(bytes_each, 1))))

    def _number(self, item: Any) -> int:
        try:
            n = operator.index(item)
        except TypeError:
            raise ConfigError(
                f"data[{item!r:.40}]: a record has a number; a slice, a list of numbers or the name of a split "
                "gives a dataset"
            ) from None
        size = len(self)
        if not -size <= n < size:
            raise IndexError(f"record {n} is out of range: there are {size:,} records in {self._shown()}")
        return n + size if n < 0 else n

    def _numbers(self, items: Any) -> npt.NDArray[np.int64]:
        array = np.asarray(items)
        if array.dtype == bool:
            if array.shape != (len(self),):
                raise ConfigError(f"a mask of records has {len(self):,} elements, this one has shape {array.shape}")
            return np.flatnonzero(array)
        if array.size == 0:
            return np.empty(0, np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ConfigError(f"a list of whole numbers chooses records, this one is {array.dtype}{list(array.shape)}")
        size = len(self)
        low, high = int(array.min()), int(array.max())
        if low < -size or high >= size:
            bad = low if low < -size else high
            raise IndexError(f"record {bad} is out of range: there are {size:,} records in {self._shown()}")
        array = array.astype(np.int64)
        return np.where(array < 0, array + size, array)

    def _with_rows(self, rows: Rows) -> Dataset:
        if self._mixture is not None:
            raise ConfigError("a mixture has no part: choose the records of its datasets before stoker.mix()")
        if self._rows is not None:
            if isinstance(self._rows, range) and isinstance(rows, range):
                rows = self._rows[rows.start : rows.stop : rows.step] if len(rows) else range(0)
            else:
                rows = np.asarray(self._rows, np.int64)[np.asarray(rows, np.int64)]
        return self._new(rows=rows)

    def _read(self, numbers: Sequence[int]) -> list[Record]:
        rows = numbers if self._rows is None else [int(self._rows[n]) for n in numbers]
        records = _reader.read(self._place(), rows, self._info().fields)
        for record, number in zip(records, numbers, strict=True):
            record.index = number
        for function in self._maps:
            records = [_mapped(function, r) for r in records]
        return records

    # --- views -------------------------------------------------------------

    @public
    def where(self, expression: str) -> Dataset:
        """Return the records for which an expression holds: ``data.where("label < 10 and width >= 224")``.

        Names are fields, their sizes (``image.width``), ``folder`` and ``path``. The fields that the expression needs
        are read once; the result is cached.
        """
        return self._view(where=_text("where", expression))

    @public
    def split(
        self, *parts: float | str, seed: int = 0, stratify: str | None = None, group: str | None = None
    ) -> tuple[Dataset, ...]:
        """Return as many datasets as there are parts: ``train, val = data.split(0.9, 0.1, seed=0)``.

        A record is in one part at most. The same seed gives the same parts on every machine.

        Args:
            parts: fractions (0.9), numbers of records (5000), or ``"rest"`` for one of them.
            seed: decides which records go to which part.
            stratify: a field whose values have the same shares in all parts.
            group: a field; all records with the same value are in one part. ``"folder"``: all of a folder.
        """
        if not parts:
            raise ConfigError("split needs the sizes of the parts, such as data.split(0.9, 0.1, seed=0)")
        sizes = ",".join(f"part{i}:{_share(p)}" for i, p in enumerate(parts))
        options: dict[str, str] = {"split": sizes}
        if seed := _options.whole("seed", seed, 0, 2**64 - 1):
            options["split_seed"] = str(seed)
        if stratify is not None:
            options["stratify"] = _text("stratify", stratify)
        if group is not None:
            options["group"] = _text("group", group)
        return tuple(self._view(**options, part=f"part{i}") for i in range(len(parts)))

    @public
    def select(self, *fields: str) -> Dataset:
        """Return a dataset with these fields, in this order: ``data.select("image", "label")``."""
        return self._view(select=_list("select", fields))

    @public
    def drop(self, *fields: str) -> Dataset:
        """Return a dataset without these fields."""
        return self._view(drop=_list("drop", fields))

    @public
    def rename(self, names: Mapping[str, str]) -> Dataset:
        """Return a dataset with other names for fields: ``data.rename({"cls": "label"})``."""
        return self._view(rename=_pairs("rename", names, '{"cls": "label"}'))

    @public
    def kinds(self, kinds: Mapping[str, str]) -> Dataset:
        """Return a dataset that takes fields for another kind: ``data.kinds({"cls": "label"})``.

        Tables convert more if this is the first view.
        """
        return self._view(kinds=_pairs("kinds", kinds, '{"cls": "label"}'))

    @public
    def resolution(self, pixels: int | str) -> Dataset:
        """Return the images in one resolution of a pack that has several: ``data.resolution(192)``, ``"256x192"``."""
        return self._view(resolution=_text("resolution", str(pixels)))

    @public
    def dedupe(self, *fields: str) -> Dataset:
        """Return a dataset without records that are the same as an earlier one, in these fields or in all.

        All records are read once for that.
        """
        return self._view(dedupe=_list("dedupe", fields or ("*",)))

    @public
    def tensors(
        self,
        tensors: Mapping[str, Sequence[str | Column]] | None = None,
        *,
        of: str | os.PathLike[str] | Dataset | None = None,
    ) -> Dataset:
        """Return a dataset with arrays made of columns of a table.

        ::

            data.tensors({"x": ["age:normalize", "city:onehot"], "y": ["income"]})

        The columns are removed. Means and vocabularies are those of this dataset: split it first, and give the other
        parts ``of=train``.

        Args:
            tensors: columns by the name of the array; see :class:`stoker.Column`.
            of: a dataset, pack or other data with tensors. The same tensors are made here, with its means and
                vocabularies.
        """
        if (tensors is None) == (of is None):
            raise ConfigError('tensors needs columns, such as {"x": ["age:normalize"]}, or of= another dataset')
        if tensors is not None:
            return self._view(tensors=_escape(json.dumps(_columns.to_config(tensors))))
        url = of._url() if isinstance(of, Dataset) else _options.source_url(of)
        return self._view(tensors_of=_escape(url))

    @public
    def sequences(
        self,
        length: int,
        *,
        packing: str = "stream",
        fields: Sequence[str] = (),
        shift: bool = True,
        dtype: str | None = None,
        pad: int = 0,
    ) -> Dataset:
        """Return sequences of tokens, cut from the documents of this dataset. Views come before.

        Args:
            length: tokens of a sequence.
            packing: ``"stream"``: documents are joined and cut into full sequences. ``"best-fit"``: documents stay
                whole if they fit, and the rest of each sequence is padded.
            fields: additional fields of a sequence: ``"position_ids"``, ``"document_ids"`` (-1 is padding),
                ``"cu_seqlens"`` and ``"loss_mask"``.
            shift: True gives ``input`` and ``target``, one token further; False gives ``tokens``.
            dtype: ``"int32"`` or ``"int64"``; default: as stored.
            pad: the token that fills sequences.
        """
        self._may_view("sequences")
        config = _options.sequence(length, packing, fields, shift, dtype, pad)
        return Dataset(self._url(), self._opened, None, config, mixture=self._mixture)

    @public
    def map(self, function: Callable[[dict[str, Any]], Any]) -> Dataset:
        """Return a dataset whose records go through a function: ``data.map(lambda r: {"x": r["image"].mean()})``.

        It is called when a record is read, and by loaders in their worker processes. Views of fields come before it;
        slices, lists of numbers and other functions may follow.

        Args:
            function: gets a record, a dict, and returns a mapping of names to arrays, numbers or texts.
        """
        if not callable(function):
            raise ConfigError(f"map({function!r:.60}): it must be a function")
        return self._new(maps=(*self._maps, function))

    @_with_arguments_of(Loader)
    def loader(self, *arguments: Any, **options: Any) -> Loader:
        """Return a :class:`stoker.Loader` of this dataset; the arguments are those of ``stoker.Loader``.

        ::

            loader = data.loader(batch_size=256, shuffle=True, transforms={"image": [T.RandomResizedCrop(224)]})
        """
        return Loader(self, *arguments, **options)

    # --- inside ------------------------------------------------------------

    def _info(self) -> Info:
        if self._about is None:
            object.__setattr__(self, "_about", _reader.describe(self._place()))
        assert self._about is not None
        return self._about

    def _place(self) -> Place:
        return Place(self._base, self._opened, self._sequence)

    def _shown(self) -> str:
        """Return the path or URL for people, without secrets, once the data is known."""
        shown = self._info().shown
        return shown if len(shown) <= 100 else shown[:100] + "..."

    def _new(self, rows: Rows | None = None, maps: tuple[Any, ...] | None = None) -> Dataset:
        new = Dataset(
            self._base, self._opened, self._rows if rows is None else rows, self._sequence,
            self._maps if maps is None else maps, self._mixture,
        )  # fmt: skip
        object.__setattr__(new, "_about", self._about)
        return new

    def _url(self) -> str:
        """Return the URL of the data, with all views but sequences."""
        return self._base if self._rows is None else f"{self._base}#rows={_rows_url(self._rows)}"

    def _may_view(self, what: str) -> None:
        if self._mixture is not None and what != "sequences":
            raise ConfigError(f"{what} works on the datasets of a mixture: call {what}() before stoker.mix()")
        if self._maps:
            raise ConfigError(f"{what} works on fields of the data: call {what}() before map()")
        if self._sequence is not None:
            raise ConfigError(
                f"{what} works on documents, and this dataset has sequences: call {what}() before sequences()"
            )

    def _view(self, **options: str) -> Dataset:
        self._may_view(next(iter(options)))
        return Dataset(self._url() + "#" + "&".join(f"{k}={v}" for k, v in options.items()), self._opened)

    def _split_named(self, name: str) -> Dataset:
        """Return a split that the data has itself: the first view, whatever came before."""
        self._may_view("a split")
        if not name or ":" in name:
            raise ConfigError(f'data[{name!r}]: expected the name of a split of the data, such as data["train"]')
        at = next((i for i, c in enumerate(self._base) if c == "#" and self._base[i + 1 :].startswith(_STARTS)), None)
        views = "" if at is None else self._base[at:]
        if self._rows is not None or "#split=" in views or "#rows=" in views:
            raise ConfigError(f"data[{name!r}]: choose the split first, then records: stoker.open(...)[{name!r}]")
        source = self._base if at is None else self._base[:at]
        return Dataset(f"{source}#split={_escape(name)}{views}", self._opened)

    def for_loader(self, function: Callable[..., Any] | None) -> tuple[str, dict[str, Any] | None, Any, Mixture | None]:
        """Return the URL, the sequences, the function and the mixture of a loader, whose own function comes last."""
        if self._sequence is not None and self._rows is not None:
            raise ConfigError("a loader reads all sequences: choose records before sequences()")
        functions = (*self._maps, *(() if function is None else (function,)))
        mapped = None if not functions else functions[0] if len(functions) == 1 else _Chain(functions)
        return self._url(), self._sequence, mapped, self._mixture


_STARTS = tuple(f"{key}=" for key in VIEW_KEYS)


class _Chain:
    """Functions of records, one after the other."""

    def __init__(self, functions: tuple[Callable[..., Any], ...]) -> None:
        self._functions = functions
        self.__qualname__ = ", ".join(getattr(f, "__qualname__", type(f).__qualname__) for f in functions)

    def __call__(self, record: Any) -> Any:
        for function in self._functions:
            record = function(record)
        return record


def _mapped(function: Callable[[dict[str, Any]], Any], record: Record) -> Record:
    out = function(record)
    if not isinstance(out, Mapping):
        raise ConfigError(
            f"map: the function returned {type(out).__name__}; it must return a dict of the record's fields"
        )
    if isinstance(out, Record):
        return out
    new = Record(out)
    new.index, new.name, new.sample_rates = record.index, record.name, record.sample_rates
    return new


def _unpickled(
    base: str,
    opened: str,
    rows: Rows | None,
    sequence: dict[str, Any] | None,
    maps: tuple[Callable[[dict[str, Any]], Any], ...],
    mixture: Mixture | None,
    engine: str,
) -> Dataset:
    _reader.know(engine)
    return Dataset(base, opened, rows, sequence, maps, mixture)


# --- the grammar of views --------------------------------------------------


def _escape(text: str, more: str = "") -> str:
    for c in "%&#" + more:
        text = text.replace(c, f"%{ord(c):02X}")
    return text


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name}({value!r:.60}): expected a text")
    return _escape(value)


def _list(name: str, fields: tuple[Any, ...]) -> str:
    names = fields[0] if len(fields) == 1 and isinstance(fields[0], list | tuple) else fields
    if not names or not all(isinstance(n, str) and n for n in names):
        raise ConfigError(f'{name}: expected names of fields, such as data.{name}("image", "label")')
    return ",".join(_escape(n, ",:") for n in names)


def _pairs(name: str, value: object, example: str) -> str:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise ConfigError(f"{name}({value!r:.60}): expected a dict such as {example}")
    return ",".join(f"{_escape(k, ',:')}:{_escape(v, ',:')}" for k, v in value.items())


def _share(part: Any) -> str:
    if part == "rest":
        return "rest"
    if isinstance(part, float | np.floating) and 0 <= part <= 1:
        return repr(float(part))
    if isinstance(part, int | np.integer) and not isinstance(part, bool) and part >= 0:
        return str(int(part))
    raise ConfigError(f'split: {part!r} is not a fraction (0.9), a number of records (5000) or "rest"')


def _rows_text(rows: Rows) -> str:
    """Return rows as a text that differs if they differ."""
    if isinstance(rows, range):
        return f"{rows[0]}:{rows[-1] + (1 if rows.step > 0 else -1)}:{rows.step}" if rows else "0:0:1"
    return hashlib.sha256(np.ascontiguousarray(rows, "<i8").tobytes()).hexdigest()


_files: set[Path] = set()


def _rows_url(rows: Rows) -> str:
    """Return rows as the engine reads them: start:stop:step, a list, or a file with a long list."""
    if isinstance(rows, range):
        return _rows_text(rows)
    if len(rows) == 0:
        return "0:0:1"
    if len(rows) <= _ROWS_IN_URL:
        return ",".join(map(str, rows.tolist()))
    path = Path(tempfile.gettempdir(), f"stoker-rows-{os.getuid()}-{_rows_text(rows)[:32]}.npy")
    if not path.exists():
        # Written under another name first: another process may be about to read it.
        fd, part = tempfile.mkstemp(prefix=".stoker-rows-")
        with os.fdopen(fd, "wb") as f:
            np.save(f, np.ascontiguousarray(rows, "<i8"))
        Path(part).replace(path)
        if not _files:
            atexit.register(_remove_files, os.getpid())
        _files.add(path)
    return "@" + _escape(str(path))


def _remove_files(pid: int) -> None:
    if os.getpid() == pid:  # a forked child's are the parent's
        for path in _files:
            path.unlink(missing_ok=True)


def _size(value: Any) -> int:
    return value.nbytes if isinstance(value, np.ndarray) else len(value) if isinstance(value, str | bytes) else 8
