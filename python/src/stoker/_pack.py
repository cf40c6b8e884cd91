"""Packing data of Python: a torch Dataset, a Hugging Face dataset, a list, a generator.

Workers call the dataset and ``map``, and turn the results into bytes. This process passes them to the engine, which
packs them in pieces of the size of a shard (internal/cli/pack_stream.go).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _columns, _options
from ._ask import Talk, run
from ._columns import Column
from ._dataset import Dataset
from ._errors import ConfigError, SkippedRecords, StokerError, public, warn
from ._fields import FieldSpec
from ._pack_once import made_once, part_options
from ._records import Spec, Writer, infer, record
from ._work._inside import Ended, Inbox
from ._work._memory import Page
from ._work._process import Worker
from ._work._team import Team

_LOOK = 32  # records that decide what the fields are
_BATCH_BYTES = 2 << 20  # of what a worker hands over at once
_MOST_BATCH = 1024
_FEWEST_BATCHES = 64
_SMALLEST = 8 << 20  # bytes of a shard
_LISTED = 5
_GRACE = 0.5  # seconds that all workers may take to exit on request
_SLICE = 1.0  # seconds of a wait: some ends of processes have no descriptor


@dataclasses.dataclass(frozen=True)
class PackResult:
    """The result of ``stoker.pack``.

    Attributes:
        path: the path of the pack, for ``stoker.Loader``.
        records: the number of records.
        bytes: the size of its files.
        skipped: the skipped inputs: pairs of an input and the reason.
        unchanged: whether the pack existed already.
    """

    __module__ = "stoker"

    path: str
    records: int
    bytes: int
    skipped: list[tuple[str, str]]
    unchanged: bool = False


@public
def pack(
    data: Any,
    out: str | os.PathLike[str],
    *,
    map: Callable[[Any], Any] | None = None,  # noqa: A002
    group: int = 1,
    names: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    classes: Mapping[str, Sequence[str]] | None = None,
    workers: int | None = None,
    images: str = "auto",
    resize: str | int | None = None,
    tensors: Mapping[str, Sequence[str | Column]] | None = None,
    tensors_of: str | os.PathLike[str] | None = None,
    transforms: Mapping[str, FieldSpec] | None = None,
    augment: int | None = None,
    seed: int = 0,
    audio: str | None = None,
    shard_size: str | int = "256MiB",
    part: tuple[int, int] | None = None,
    name: str = "",
    on_error: str = "raise",
    restart: bool = False,
    progress: bool | None = None,
) -> PackResult:
    """Pack the records of a dataset once, so that ``stoker.Loader`` loads them at the speed of the machine.

    ::

        stoker.pack(torchvision.datasets.CIFAR10("data"), "train/")
        stoker.pack(datasets.load_dataset("imagefolder", data_dir="photos")["train"], "train/")
        stoker.pack(open_records(), "train/", map=lambda r: {"image": r.jpeg, "label": r.cls}, workers=8)

    A record is a dict of fields, a named tuple, a dataclass, a tuple (see ``names``) or one value. The kind of a field
    follows from its values. Bytes of pictures and Pillow's images are images. NumPy arrays and tensors are arrays, or
    ragged if their first axis differs. Lists of numbers are ragged. The other kinds are text, numbers, class numbers
    (fields called label, target, ...) and JSON (dicts). Bytes of JPEGs are packed unchanged, which is smaller and loses
    nothing. From Hugging Face datasets these bytes are taken automatically, with the names of classes.

    Memory does not grow with the data. After an interruption, the same call continues after the last complete shard.
    The data must be the same and come in the same order.

    Args:
        data: a path that ``stoker pack`` takes, such as a folder of images. Or a dataset of ``stoker.open``, with its
            views. Or an object with ``len()`` and ``[i]``, such as a torch Dataset, a Hugging Face dataset, a list or
            an array, which the workers read. Or an iterable, which this process reads once and passes to ``map`` in the
            workers.
        out: the folder of the pack, new. Or a folder in a bucket, such as "s3://my-bucket/train": pieces are uploaded
            one by one, and the pack is valid when all of them are there.
        map: makes a record from an item of the dataset. ``None`` skips the item, a list or generator gives several
            records.
        group: the number of items that ``map`` gets in one call, as a list (the last one may be shorter).
        names: the fields of records that are tuples. By default image and label, or x and y.
        kinds: kinds of fields if their values do not show it: ``{"y": "label", "ids": "tokens"}``.
        classes: names of classes by field; labels may then also be names.
        workers: processes that call the dataset and ``map``, by default one per core. 0: this process calls them. With
            a path: threads of the engine.
        images: the codec of images, as with ``stoker pack --images``: auto, keep, dct, raw.
        resize: with ``images="raw"``, the shorter side, or WxH.
        tensors: fields that become one array, as in ``stoker.Loader``: ``{"x": ["age:normalize", "city:onehot"]}``.
            Their statistics are known only after the last record. So the fields are first packed unchanged, next to
            ``out``, and removed when the pack is complete.
        tensors_of: a pack with tensors. The new pack has the same ones, with that pack's means and vocabularies.
        transforms: transforms that run once, before packing, in the form that a loader takes. They make images of uint8
            and of one size. Boxes and key points follow. Masks also need transforms.
        augment: the number of variants of each record, made by random ``transforms``. A loader has each record once per
            epoch, in one of its variants. In this many epochs it has each variant once.
        seed: the random transforms of a record depend on it and on the record's number.
        audio: the format of sound after ``transforms``, as WAV: "f32" (the default, exact) or "i16".
        shard_size: size of the files.
        part: with a path, ``(i, n)`` packs part i of n. ``commit_pack`` makes one pack of all parts. A finished part
            is not written again, so a scheduler may repeat calls.
        name: the name of the data, for messages and ``stoker inspect``. Default: its type.
        on_error: "raise", or "skip" to skip inputs for which the dataset, ``map`` or a value fails.
        restart: begin again instead of continuing, also if there is a pack already.
        progress: show the progress on the terminal, by default if there is one.

    Returns:
        The pack's path, its size, and the skipped inputs.

    Raises:
        ConfigError: a record cannot be stored, or an argument is wrong.
        StokerError: packing failed, for example since the disk is full; the same call continues.
    """
    once = made_once(transforms, augment, seed, audio)
    if once and tensors:
        raise ConfigError("tensors= are made of a pack, and transforms= run before packing: give one of them")
    if isinstance(data, Dataset) and data._mixture is not None:
        raise ConfigError("a mixture is for loaders: pack its datasets one by one")
    if isinstance(data, Dataset) and not (data._maps or data._sequence or map or kinds or classes or name or tensors):
        data = data.path  # the engine reads it, with its views
    shard_bytes = _options.size("shard_size", shard_size)
    options = ["--json", "--allow-bad", *(["--restart"] if restart else []), *once]
    options += ["--images", images] if images != "auto" else []
    options += [] if resize is None else ["--resize", str(resize)]
    if isinstance(data, str | os.PathLike):
        for_python = {
            "map": map, "names": names, "kinds": kinds, "classes": classes, "name": name, "tensors": tensors,
            "tensors_of": tensors_of,
        }  # fmt: skip
        if given := [k for k, v in for_python.items() if v]:
            raise ConfigError(
                f"{os.fspath(data)} is a path, which the engine reads without Python: {', '.join(given)} cannot be "
                "given; stoker pack has --kind, --field and --tensor"
            )
        options += [*part_options(part), *(["--threads", str(workers)] if workers else [])]
        # The engine needs no Python for a path. It ends with this process.
        command = ["pack", os.fspath(data), os.fspath(out), f"--parent={os.getpid()}", f"--shard-size={shard_bytes}"]
        told = run([*command, *options])
        return _packed(os.fspath(out), told, told["unchanged"])
    if part is not None:
        raise ConfigError("part= needs data at a path, which each process can open: Python's objects have workers=")
    group = _options.whole("group", group, 1)
    on_error = _options.choice("on_error", on_error, ("raise", "skip"))
    workers = len(os.sched_getaffinity(0)) if workers is None else _options.whole("workers", workers, 0, 1024)
    view = _columns.to_view(tensors, tensors_of)
    packing = _Packing(os.fspath(out).rstrip("/") or "/", _Inputs(data, map, group, names), shard_bytes, name)
    packing.inputs.skip = on_error == "skip"
    with Talk(["pack", "--stream", packing.out, f"--shard-size={max(shard_bytes, _SMALLEST)}", *options]) as engine:
        state = engine.ask({"name": packing.name, "bytes": shard_bytes, "view": view})
        if state["whole"] is not None:
            return _packed(packing.out, state["whole"], unchanged=True)
        if not state["packed"]:
            packing.look(dict(kinds or {}), {k: list(v) for k, v in (classes or {}).items()})
            packing.run(engine, workers, sys.stderr.isatty() if progress is None else progress)
        return _packed(packing.out, engine.last({"end": True}), unchanged=False)


@public
def commit_pack(out: str | os.PathLike[str]) -> PackResult:
    """Make one pack of the parts that ``pack(..., part=(i, n))`` wrote into ``out``.

    It checks that all parts are there, are of the same data and options, and are the files that their processes wrote.
    The pack is valid after its last step, which writes the manifest. A second call changes nothing.

    Args:
        out: the folder or URL that all parts were written into.

    Raises:
        StokerError: a part is missing or does not belong to the others; the message names it.
    """
    command = ["pack", "--commit", os.fspath(out), "--json", "--allow-bad"]
    return _packed(os.fspath(out), run(command), unchanged=False)


def _packed(out: str, about: Mapping[str, Any], unchanged: bool) -> PackResult:
    """Return the result of packing, and warn about skipped inputs."""
    skipped = [(s["path"], s["reason"]) for s in about["skipped"] or []]
    if skipped and not unchanged:
        more = f"; and {len(skipped) - _LISTED} more" if len(skipped) > _LISTED else ""
        listed = "; ".join(f"{p}: {r}" for p, r in skipped[:_LISTED])
        warn(f"{len(skipped)} inputs were left out: {listed}{more}", SkippedRecords)
    return PackResult(out, about["records"], about["bytes"], skipped, unchanged)


def _failed(i: int, error: Exception) -> StokerError:
    """Return the error of the user's own code, with the place in it: its traceback stays in the worker."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return StokerError(f"input {i}: {type(error).__name__}: {error} ({at.filename}, line {at.lineno}, in {at.name})")


class _Inputs:
    """The dataset, and the conversion of its items. Workers have a copy of it."""

    def __init__(
        self, data: Any, function: Callable[[Any], Any] | None, group: int, names: Sequence[str] | None
    ) -> None:
        self.kinds: dict[str, str] = {}
        self.classes: dict[str, list[str]] = {}
        if hasattr(data, "features") and hasattr(data, "cast_column"):
            data = self._hugging_face(data)
        elif isinstance(found := getattr(data, "classes", None), list | tuple) and function is None and names is None:
            self.classes = {"label": [str(c) for c in found]}  # torchvision's
        self.indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Mapping)
        if not self.indexed and not isinstance(data, Iterable):
            raise ConfigError(
                f"a {type(data).__name__} has no records: give something with len() and [i], or to iterate over"
            )
        self.data = data
        self.map = function
        self.group = group
        self.names = list(names) if names is not None else None
        self.specs: list[Spec] = []
        self.skip = False

    def _hugging_face(self, data: Any) -> Any:
        """Take pictures and sounds as the bytes that they are, and the names of classes."""
        for name, feature in (data.features or {}).items():
            what = type(feature).__name__
            if what in ("Image", "Audio"):
                data = data.cast_column(name, type(feature)(decode=False))
                self.kinds[name] = what.lower()
            elif what == "ClassLabel":
                self.kinds[name], self.classes[name] = "label", list(feature.names)
        return data

    def __len__(self) -> int:
        """Return the number of inputs, or of groups of them, 0 if it is not known."""
        return -(-len(self.data) // self.group) if self.indexed else 0

    def get(self, i: int) -> Any:
        """Return input i of a dataset with places."""
        if self.group == 1:
            return self.data[i]
        return [self.data[k] for k in range(i * self.group, min((i + 1) * self.group, len(self.data)))]

    def iterate(self, start: int) -> Iterator[Any]:
        """Go through inputs from start on."""
        inputs = iter(self.data)
        if self.group > 1:
            one = inputs
            inputs = iter(lambda: list(itertools.islice(one, self.group)), [])
        return itertools.islice(inputs, start, None)

    def records(self, item: Any) -> list[dict[str, Any]]:
        """Return the records made from an input."""
        if self.map is None:
            return [record(item, self.names)]
        got = self.map(item)
        if got is None:
            return []
        if isinstance(got, list) or (isinstance(got, Iterator) and not hasattr(got, "_asdict")):
            return [record(r, self.names) for r in got]
        return [record(got, self.names)]

    def make(self, first: int, items: Sequence[Any] | None, count: int) -> _Made:
        """Make the bytes of inputs first, first + 1, ...: the given ones, or those of the dataset."""
        writer, skipped = Writer(self.specs), []
        for i in range(count):
            about = f"input {first + i}"
            try:
                for one in self.records(self.get(first + i) if items is None else items[i]):
                    writer.add(one, about)
            except Exception as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                if not self.skip:
                    if isinstance(error, StokerError):
                        raise
                    raise _failed(i + first, error) from error
                skipped.append({"Path": about, "Reason": reason.removeprefix(about + ": ")})
        return _Made(*writer.taken(), count, skipped)


@dataclasses.dataclass
class _Made:
    records: int
    index: bytes
    values: bytes
    inputs: int
    skipped: list[dict[str, str]]


def _work(sock: socket.socket, page: Page, inputs: _Inputs) -> None:
    """Run a worker: it makes batches until the call of pack ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which ends its workers
    inbox = Inbox(sock, page)
    with contextlib.suppress(Ended):
        while True:
            (number, *task), _ = inbox.receive()
            made: _Made | Exception
            try:
                made = inputs.make(*task)
            except Exception as error:
                made = error
            inbox.send((number, made))


class _Process(Worker):
    """A worker, and the number of its tasks."""

    busy = 0

    def results(self) -> Iterator[tuple[int, _Made | Exception]]:
        """Yield the numbers and the results of its tasks that have come."""
        try:
            while (found := self.message()) is not None:
                self.busy -= 1
                yield found[0]
        except EOFError:
            raise StokerError(
                "a worker exited on its own, perhaps since memory ran out; the same call goes on from here, with fewer "
                "workers= if so"
            ) from None


def _made_by(workers: int, inputs: _Inputs, tasks: Iterable[tuple[int, list[Any] | None, int]]) -> Iterator[_Made]:
    """Yield the results of tasks in order, from worker processes."""
    # Forked, as PyTorch's loaders are: datasets and functions need not be pickled.
    context = multiprocessing.get_context("fork")
    team = Team[_Process](_GRACE)
    done: dict[int, _Made | Exception] = {}
    given = wanted = 0

    def next_one() -> _Made:
        while wanted not in done:
            for worker in team.wait(_SLICE)[0]:
                done.update(worker.results())
        made = done.pop(wanted)
        if isinstance(made, Exception):
            raise made
        return made

    try:
        team.begin(workers, lambda number: _Process(context, _work, (inputs,), number))
        for task in tasks:
            worker = min(team.workers, key=lambda w: w.busy)
            worker.busy += 1
            worker.send((given, *task))
            given += 1
            if given - wanted > 2 * workers:
                yield next_one()
                wanted += 1
        while wanted < given:
            yield next_one()
            wanted += 1
    finally:
        team.close()


class _Packing:
    """One call of pack."""

    def __init__(self, out: str, inputs: _Inputs, shard_bytes: int, name: str) -> None:
        self.out, self.inputs, self.shard_bytes = out, inputs, shard_bytes
        length = f" of {len(inputs.data):,}" if inputs.indexed else ""
        self.name = name or f"Python's {type(inputs.data).__name__}{length}"
        self._sample = 0  # bytes of the records looked at, by input
        self._seen: list[Any] = []  # inputs of an iterator that were looked at
        self._began = self._shown = time.monotonic()

    def look(self, kinds: dict[str, str], classes: dict[str, list[str]]) -> None:
        """Read some records to find the kinds of their fields."""
        kinds, classes = {**self.inputs.kinds, **kinds}, {**self.inputs.classes, **classes}
        records: list[dict[str, Any]] = []
        if self.inputs.indexed:
            count = len(self.inputs)
            # These are spread over all of the data, so that fields of varying length are detected.
            for i in sorted({k * count // _LOOK for k in range(_LOOK)} if count else set()):
                records += self._records(i, self.inputs.get, i)
        else:
            iterator = iter(self.inputs.data)
            while len(self._seen) < _LOOK * self.inputs.group:
                try:
                    self._seen.append(next(iterator))
                except StopIteration:
                    break
            self.inputs.data = itertools.chain(self._seen, iterator)
            seen, group = self._seen, self.inputs.group
            items = seen if group == 1 else [seen[i : i + group] for i in range(0, len(seen), group)]
            for i, item in enumerate(items):
                records += self._records(i, lambda x: x, item)
        if not records:
            raise ConfigError(
                f"{self.name} gives no records"
                if self.inputs.map is None
                else "map= gives no record of the first inputs"
            )
        known = set(records[0])
        specs = infer(records, kinds, {k: v for k, v in classes.items() if k in known})
        self.inputs.specs = specs
        writer = Writer(specs)
        for one in records:
            writer.add(one, "a record")
        self._sample = max(writer.size // len(records), 1)

    def _records(self, i: int, get: Callable[[Any], Any], item: Any) -> list[dict[str, Any]]:
        try:
            return self.inputs.records(get(item))
        except StokerError:
            raise
        except Exception as error:
            if self.inputs.skip:
                return []
            raise _failed(i, error) from error

    def run(self, engine: Talk, workers: int, show: bool) -> None:
        """Send all records that an earlier call has not packed."""
        start = at = engine.ask({"fields": [s.described() for s in self.inputs.specs]})["start"]
        try:
            for made in self._made(start, workers):
                about = {"records": made.records, "inputs": made.inputs, "values": len(made.values)}
                engine.send({**about, "skipped": made.skipped}, made.index, made.values)
                at += made.inputs
                if show:
                    self._show(at, start)
        finally:
            if show:
                print(file=sys.stderr)

    def _made(self, start: int, workers: int) -> Iterator[_Made]:
        """Yield the batches made from the inputs from start on, in order."""
        # Pieces end at the end of a batch, whatever the number of workers.
        count = min(_BATCH_BYTES, self.shard_bytes // 8) // self._sample
        if self.inputs.indexed:
            count = min(count, len(self.inputs) // _FEWEST_BATCHES)
        count = max(1, min(count, _MOST_BATCH))
        tasks = self._tasks(start, count)
        if workers == 0 or (not self.inputs.indexed and self.inputs.map is None):
            for first, items, n in tasks:
                yield self.inputs.make(first, items, n)
            return
        shared = self.inputs
        if not shared.indexed:
            shared = _Inputs([], shared.map, shared.group, shared.names)
            shared.specs, shared.skip = self.inputs.specs, self.inputs.skip
        yield from _made_by(workers, shared, tasks)

    def _tasks(self, start: int, count: int) -> Iterator[tuple[int, list[Any] | None, int]]:
        if self.inputs.indexed:
            for first in range(start, len(self.inputs), count):
                yield first, None, min(count, len(self.inputs) - first)
            return
        inputs = self.inputs.iterate(start)
        first = start
        while items := list(itertools.islice(inputs, count)):
            yield first, items, len(items)
            first += len(items)

    def _show(self, at: int, start: int) -> None:
        now = time.monotonic()
        if now - self._shown < 0.2:
            return
        self._shown = now
        of = f" of {len(self.inputs):,}" if self.inputs.indexed else ""
        rate = (at - start) / max(now - self._began, 1e-3)
        print(f"\rpacking {self.out}: {at:,}{of} inputs, {rate:,.0f}/s ", end="", file=sys.stderr, flush=True)
