"""The loader: what a training loop iterates over."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _columns, _device, _map, _options, _state, _view
from ._batch import Batch
from ._columns import Column
from ._connection import Position
from ._dataset import Dataset
from ._distributed import found_rank, local_world_size
from ._epochs import Epochs, Form
from ._errors import ConfigError, StokerError, public, warn
from ._fields import FieldSpec, parse_fields
from ._fused import OnDevice
from ._pad import Buckets, Padded, parse_bucket, parse_pads
from ._transform import Transform

if TYPE_CHECKING:
    from typing import NoReturn

_ARGUMENTS = [
    "source", "batch_size", "fields", "shuffle", "seed", "drop_last", "uneven", "output", "layout", "batch_transforms",
    "apply_orientation", "rank", "world_size", "threads", "num_workers", "memory", "prefetch", "lookahead", "on_error",
    "repair_from", "max_bad", "quarantine",
    "timeout", "socket", "sequence_length", "sequence_packing", "sequence_fields", "sequence_shift", "sequence_dtype",
    "sequence_pad",
    "bucket", "pad", "where", "split", "part", "split_seed", "stratify", "group", "select", "drop", "rename",
    "kinds", "resolution", "dedupe", "tensors", "tensors_of", "map", "batch_map", "workers", "cache", "cache_dir",
    "cache_limit", "cache_memory", "stage", "peers", "peers_self", "device", "on_device",
]  # fmt: skip


class Loader:
    """Feeds a training loop.

    ::

        loader = stoker.Loader("train/", batch_size=256, shuffle=True, seed=0,
                               fields={"image": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]})
        for epoch in range(3):
            for batch in loader:            # batch["image"], batch.image, or images, labels = batch
                ...

    Every ``for`` over the loader is the next epoch: the first one is epoch 0,
    the second one epoch 1, also after a ``break``. ``set_epoch`` sets which
    one comes next. Each epoch has every record exactly once over all ranks, in
    an order that depends on (seed, epoch) alone.

    A loader starts an engine, a process of its own that reads, decodes and
    transforms with all cores and ends with this process, or with ``close()``, or
    with the ``with`` block. A loader feeds one loop at a time: beginning another
    ``for`` ends the one before. ``stats()``, ``state_dict()`` and ``close()`` may be called
    from other threads. A forked child cannot use it, and it cannot be pickled.

    Args:
        source: path or URL of a pack, of a folder of images, or of other data: ``stoker formats`` lists the
            formats. Some take several files, such as ``shards/train-{0000..0127}.tar``. Or a dataset of
            ``stoker.open``, with its views.
        batch_size: records per batch and rank.
        fields: the transforms of each image, mask or array, ``{"image": [...]}``; other fields
            but images and masks come along. Several arrays may be made from one stored field
            with ``stoker.Field``. A list of names gives those fields as they are stored.
            Default: all fields as stored, which needs images of one size: that of the first record.
        shuffle: ``True``: a new order in each epoch, any record at any place; otherwise the order of the source.
            ``"window:16"``: a new order that uses 16 chunks of the data at a time, and each chunk once in an epoch, so
            that storage which answers late or by the request is read in large pieces. ``"auto"``: the former where
            that costs nothing, otherwise the latter; ``info["order"]`` says which one and why.
        seed: all random numbers, of the order and of the transforms, depend on it.
        drop_last: leave out the records of an epoch that do not fill a batch on every rank.
            Otherwise the last batch is smaller, and may be empty on some ranks.
        uneven: what becomes of the last records where they cannot be shared evenly among the ranks. ``"exact"``: each
            record once; a rank may have fewer rows than another one in the last batch, or none. ``"pad"``: each rank
            has as many, records from the beginning of the epoch come again; ``batch.repeated`` says which rows.
            ``"drop"``: each rank has as many, those behind are left out.
        output: ``"numpy"`` or ``"torch"``. Either way the arrays are views of shared memory.
        device: where batches are wanted, ``"cuda"`` or ``"cuda:1"``, with ``output="torch"``. The ring is registered
            as pinned memory, and batches are copied on a stream of their own, one ahead of the loop, which does not
            wait for them. ``batch.index`` and texts stay in the program's memory.
        on_device: what is done to images there, in one kernel: ``stoker.OnDevice("bfloat16", mean=..., std=...)``. They
            travel as bytes; ``layout`` and MixUp are its own then. With ``device="cpu"`` PyTorch does the same.
        layout: ``"NHWC"`` (default for NumPy), ``"NCHW"`` (default for torch), or, for torch,
            ``"channels_last"``: shape NCHW over memory NHWC.
        bucket: batches of records of about the same length or proportions: the name of a field, or ``stoker.Buckets``.
        pad: arrays of rows of different lengths that come as one array, ``{"tokens": stoker.Padded(multiple=8)}``;
            a number stands for a Padded with that value. Their lengths are then in ``batch.tokens_length``.
        where: an expression; records for which it does not hold are left out: ``"label < 10 and width >= 224"``.
        split: cut the records into parts, ``"train:0.9,val:0.1"`` or a dict, of which ``part`` is the one that is
            wanted. Of data with parts of its own (CIFAR) it may be one of their names.
        part: name of the part of ``split``.
        split_seed: decides which records go to which part.
        stratify: a field of which each value is in all parts of ``split`` alike.
        group: a field of which all records with the same value are in one part; ``"folder"``: all of a folder.
        select: the fields that there are, in this order; ``drop`` leaves some out.
        drop: fields that are left out.
        rename: other names for fields, ``{"cls": "label"}``.
        kinds: what fields are taken for, ``{"cls": "label"}``.
        resolution: that of images, of a pack that was made with several (``--resize 128,192,256``); the largest one by
            default. States go from one to another.
        dedupe: leave out records that are as one before in these fields, or in all of them (``True``). All of them are
            read once for that when the loader is made.
        tensors: columns of a table that become one array, ``{"x": ["age:normalize", "city:onehot"], "y": ["income"]}``:
            see ``stoker.Column``. The fields that they are made of are left out unless ``select`` names them. What has
            to be known of all records (means, vocabularies) is found out once, of those for which ``where`` holds,
            before ``split``.
        tensors_of: a pack or another source with tensors: the same are made here, with its means and vocabularies.
        batch_transforms: transforms of whole batches, such as MixUp.
        map: a function of yours for each record, behind everything that the engine does. It is given a dict of views
            of the batch's memory, ``{"image": array of HWC, "label": 3}``, and returns a mapping of names to arrays,
            numbers, texts, or lists for rows of different lengths: those are then in the batches. Random numbers that
            it draws depend on (seed, epoch, record) alone.
        batch_map: a function for each batch, behind ``map``: it is given a Batch of NumPy arrays and returns a
            mapping of names to arrays, or the Batch, changed in place.
        workers: Python processes that run ``map`` and ``batch_map``; 0 runs them in this one. Default: one per core
            of this rank.
        apply_orientation: turn images as their EXIF orientation says. Default: leave them as
            they are stored, as torchvision does.
        rank: number of this process, from 0. Default: that of torch.distributed, torchrun (``RANK``),
            MPI (``OMPI_COMM_WORLD_RANK``, ``PMI_RANK``) or Slurm (``SLURM_PROCID``), else 0.
            ``info["rank_from"]`` names the variables. A launcher that sets a rank without the
            number of ranks gives a warning.
        world_size: number of processes that share each global batch; with ``rank``.
        threads: decoding threads of the engine. Default: one per core; where several ranks run on this
            machine (torchrun, MPI, Slurm), each engine takes its part of the cores.
        num_workers: another name for ``threads``, for code that knows it.
        memory: upper limit for ring, look-ahead, read buffers and scratch, in bytes or as
            ``"2GB"``. Default: a quarter of what is free, shared by the ranks on this machine.
        prefetch: batches made ahead. Default: what fits the memory, 4 to 8, up to 30 of small
            ones. A number that does not fit ``memory`` is refused.
        lookahead: the part of ``memory`` for what is read before a batch has room for it, in
            bytes or as ``"256MiB"``. Default: up to a quarter of the memory.
        cache: ``"auto"``: what is read of folders of JPEGs is kept in a form that decodes several times as fast,
            with the same pixels, in the user's cache folder, usually all of them in the first epoch: while batches wait
            for the loop at no cost, else as many as leave 0.7 of the speed. From the second epoch on the folder is as
            fast as a pack. ``False``, or ``STOKER_CACHE=off`` in the environment in the place of ``"auto"``: nothing is
            kept. With ``True``, of other data in other places (buckets, web servers, NFS) what is read is kept as it
            is, as far as there is room, so that later epochs and other jobs read only the rest of it.
            ``stats()["engine"]["cache_disk"]`` says what that saves. Naming a folder or a limit asks for it too.
            ``stoker cache`` shows and removes what is there.
        cache_dir: another folder for that, on a fast disk of this machine. Default: ``STOKER_CACHE_DIR``, else
            ``stoker`` in ``XDG_CACHE_HOME``.
        cache_limit: the most bytes that the whole folder may take, a number or ``"50GB"``. Default: what
            ``stoker cache limit`` has set, else a tenth of what is free, at most 20 GiB.
        cache_memory: the part of ``memory`` in which what is read of data in other places (buckets, web servers) is
            kept, so that later epochs read only the rest of it, in bytes or as ``"20GB"``.
            ``stats()["engine"]["cache_memory"]`` says what it saves.
        stage: a folder on a disk of this machine in which data in other places is copied while it is read: the
            first epoch runs at the pace of the bucket, later ones and other jobs read the copy.
            ``stats()["engine"]["stage"]`` says how far it is. In the place of ``cache``.
        peers: the addresses of all nodes, ``host:port``, of which each keeps a part of data in other places in its
            ``cache_dir`` and gives it to the others. They share a secret in ``STOKER_PEERS_TOKEN``.
        peers_self: which of them is this node. Default: ``STOKER_PEERS_SELF``, else the one with an address of it.
        on_error: ``"raise"``, or ``"skip"``: a record that cannot be read or decoded is
            replaced by another one, and counted (``SkippedRecords`` warning at the end of the epoch). The next good
            record of the source takes its place, on all ranks and after every restart the same. Failures of the
            store, the network or the machine are retried and then raised as ``StokerError``; they replace nothing.
            ``"repair"`` reads records that are damaged from ``repair_from``, and is ``"raise"`` for all others.
        repair_from: with ``on_error="repair"``, the path or URL of another copy of the pack. ``stats()["repaired"]``
            counts the records that came from it.
        max_bad: with ``on_error="skip"``, how many records may be bad: a number, or a share of the records that this
            rank reads, such as ``0.05`` or ``"5%"``. More end the epoch with a ``StokerError`` that counts them by
            reason. Default: 5%, but at least 10 records.
        quarantine: with ``on_error="skip"``, a text file of bad records, one JSON object per line. Those in it are not
            read again, and others are added.
        sequence_length: make sequences of so many tokens out of the documents of the source, which are then the
            records: ``input`` and, one token further, ``target``. Nothing is written for it. ``info["sequences"]``
            says what came of the documents, with what is dropped or padded.
        sequence_packing: ``"stream"`` (default): documents one behind the other, cut into full sequences, every token
            the input of one sequence in each epoch but for what is left over; or ``"best-fit"``: documents as a whole
            where they fit, the rest of each sequence padded.
        sequence_fields: what else a sequence has: ``"position_ids"``, ``"document_ids"`` (-1 is padding),
            ``"cu_seqlens"`` and ``"loss_mask"``.
        sequence_shift: without it there is ``tokens`` in the place of ``input`` and ``target``.
        sequence_dtype: ``"int32"`` or ``"int64"``; by default tokens are as they are stored.
        sequence_pad: the token that fills up sequences.
        timeout: seconds to wait for a batch before StokerTimeout is raised. The engine retries failures of the store
            or the network within this time, and those that seldom pass (refused access, no memory) for 15 seconds.
        socket: path of the socket of a running ``stoker serve``, to use that engine.

    Raises:
        ConfigError: the source, a transform or an option is refused.
        EngineNotFound: there is no engine binary.
        TypeError: unknown argument.

    Attributes:
        batch_size, rank, world_size, seed, shuffle, drop_last: as in force.
        classes: names of the classes; the label is the index. Of several label fields those of
            ``label`` or ``target``; see ``info["classes"]`` for the others.
        num_records: records of the source.
        info: what the engine says about the source and its plan. ``info["skipped"]`` lists
            the files that are not records, by reason; it is missing if there are none.
    """

    __module__ = "stoker"

    @public
    def __init__(
        self,
        source: str | os.PathLike[str] | Dataset,
        batch_size: int = 1,
        *,
        fields: Mapping[str, FieldSpec] | Sequence[str] | None = None,
        bucket: Buckets | str | None = None,
        pad: Mapping[str, Padded | float] | None = None,
        where: str | None = None,
        split: str | Mapping[str, float | int | str] | None = None,
        part: str | None = None,
        split_seed: int = 0,
        stratify: str | None = None,
        group: str | None = None,
        select: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        kinds: Mapping[str, str] | None = None,
        resolution: int | str | None = None,
        dedupe: bool | Sequence[str] = False,
        tensors: Mapping[str, Sequence[str | Column]] | None = None,
        tensors_of: str | os.PathLike[str] | None = None,
        shuffle: bool | str = False,
        seed: int = 0,
        drop_last: bool = False,
        uneven: str = "exact",
        output: str = "numpy",
        layout: str | None = None,
        device: Any = None,
        on_device: OnDevice | None = None,
        batch_transforms: Sequence[Transform] = (),
        map: Callable[[dict[str, Any]], Any] | None = None,  # noqa: A002
        batch_map: Callable[[Batch], Any] | None = None,
        workers: int | None = None,
        apply_orientation: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        threads: int | None = None,
        num_workers: int | None = None,
        memory: int | str | None = None,
        prefetch: int | None = None,
        lookahead: int | str | None = None,
        cache: bool | str = "auto",
        cache_dir: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        cache_memory: int | str | None = None,
        stage: str | os.PathLike[str] | None = None,
        peers: Sequence[str] | None = None,
        peers_self: str | None = None,
        on_error: str = "raise",
        repair_from: str | os.PathLike[str] | None = None,
        max_bad: float | str | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        timeout: float = 300.0,
        socket: str | os.PathLike[str] | None = None,
        sequence_length: int | None = None,
        sequence_packing: str = "stream",
        sequence_fields: Sequence[str] = (),
        sequence_shift: bool = True,
        sequence_dtype: str | None = None,
        sequence_pad: int = 0,
        **unknown: NoReturn,
    ) -> None:
        _options.refuse_unknown(unknown, _ARGUMENTS)
        sequences = None
        if isinstance(source, Dataset):
            self.source, sequences, map = source.for_loader(map)  # noqa: A001
        else:
            self.source = _options.source_url(source)
        self.batch_size = _options.whole("batch_size", batch_size, 1, 1 << 20)
        shuffled, window = _options.order(shuffle)
        self.shuffle: bool | str = shuffle if window else shuffled
        self.seed = _options.whole("seed", seed, 0, 2**64 - 1)
        self.drop_last = bool(drop_last)
        self.output = "torch" if device is not None else _options.choice("output", output, ("numpy", "torch"))
        feeder = _device.feeder(device, on_device, self.seed)
        functions = _map.stage(map, batch_map, workers, self.seed, self.output)
        if on_device is not None and layout is not None:
            raise ConfigError(f"layout={layout!r}: with on_device= it is OnDevice(layout=)")
        self.layout = _options.layout(layout, self.output, functions is not None or on_device is not None)
        self.rank, self.world_size, rank_from = found_rank(rank, world_size)
        timeout = _options.seconds("timeout", timeout)
        if threads is None:
            threads = num_workers
        socket = None if socket is None else os.path.abspath(os.path.expanduser(os.fspath(socket)))
        parsed, only = parse_fields(fields)
        config = {
            "source": self.source,
            "pad": parse_pads(pad),
            "bucket": parse_bucket(bucket),
            "view": _view.to_config(
                where, split, part, split_seed, stratify, group, select, drop, rename, kinds, resolution, dedupe
            )
            | _columns.to_view(tensors, tensors_of),
            "batch_size": self.batch_size,
            "shuffle": shuffled,
            "window": window,
            "seed": self.seed,
            "drop_last": self.drop_last,
            "uneven": _options.choice("uneven", uneven, ("exact", "pad", "drop")),
            "rank": self.rank,
            "world_size": self.world_size,
            "local_world_size": local_world_size(),
            "threads": 0 if threads is None else _options.whole("threads", threads, 0, 1024),
            "memory": _options.size("memory", memory),
            "prefetch": 0 if prefetch is None else _options.whole("prefetch", prefetch, 1, 1024),
            "lookahead": _options.size("lookahead", lookahead),
            **_options.caching(cache, cache_dir, cache_limit),
            "cache_memory": _options.size("cache_memory", cache_memory),
            "peers": list(peers or []),
            "peers_self": peers_self or "",
            "stage": "" if stage is None else os.path.abspath(os.path.expanduser(os.fspath(stage))),
            **_options.errors(on_error, max_bad, quarantine, timeout),
            "repair_from": "" if repair_from is None else _options.source_url(repair_from),
            "outputs": [f.to_config(name, self.layout) for name, f in parsed.items()],
            "layout": "NCHW" if self.layout == "NCHW" else "NHWC",
            "fields": only,
            "apply_orientation": bool(apply_orientation),
            "batch_ops": [t.to_config() for t in batch_transforms],
            "sequence": sequences
            or _options.sequence(
                sequence_length, sequence_packing, sequence_fields, sequence_shift, sequence_dtype, sequence_pad
            ),
        }
        form = Form(self.batch_size, self.output, self.layout, parsed)
        self._epochs = epochs = Epochs(config, form, timeout, socket, functions, feeder)
        epochs.connect()
        if feeder is not None:
            weakref.finalize(self, _end_feeding, feeder.feeder, os.getpid())
        if functions is not None:
            weakref.finalize(self, functions.close)
            if prefetch is None:
                epochs.widen(functions.wants)
        self.info = epochs.info = epochs.live().info
        self.info |= {"rank": self.rank, "world_size": self.world_size, "rank_from": rank_from}
        if shuffle == "auto":
            chosen = self.info["order"]
            self.shuffle = f"window:{chosen['window']}" if chosen["mode"] == "window" else True
            # An engine that is started anew, or another rank, goes on with the same order.
            epochs.config["window"] = chosen.get("window", 0)
        if note := self.info.get("cache_note"):
            warn(str(note), RuntimeWarning)

    # --- iterating ---------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, the same on each rank."""
        return int(self.info["steps"])

    @public
    def __iter__(self) -> Iterator[Batch]:
        """Begin the next epoch, or go on after ``load_state_dict`` or a lost engine."""
        host = self._epochs.begin(self)
        feeder = self._epochs.feeder
        return host if feeder is None else _device.DeviceEpoch(self._epochs, host, feeder)

    # --- position ----------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch of the batch that comes next; after the last batch of an epoch, the next one."""
        return self._epochs.position.epoch

    @public
    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next ``for``.

        It starts at its first batch, except right after ``load_state_dict`` of a
        state in the middle of the same epoch, which then goes on where it stopped.
        """
        epoch = _options.whole("epoch", epoch, 0)
        if epoch != self._epochs.upcoming.epoch:
            self._epochs.upcoming = Position(epoch, 0)
        self._epochs.position = self._epochs.upcoming

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop stands: after the last batch that it was given.

        The state is a few hundred bytes that JSON can hold. It fits a loader
        with the same source, seed and shuffle; batch size, rank, world size,
        threads, prefetch and transforms may differ; with ``bucket=`` batch size and world size may not.
        """
        return _state.save(self._epochs.position, self.seed, self.shuffle, self.info)

    @public
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next ``for`` go on exactly after the batch that ``state`` was taken at.

        Raises:
            StateMismatch: the state belongs to other data, seed or order.
        """
        self._epochs.go_to(_state.load(state, self.seed, self.shuffle, self.info))

    @property
    def timeout(self) -> float:
        """Seconds to wait for a batch."""
        return self._epochs.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._epochs.timeout = _options.seconds("timeout", seconds)

    # --- about -------------------------------------------------------------

    @property
    def num_records(self) -> int:
        """Number of records of the source."""
        return int(self.info["len"])

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty when the source has none."""
        classes = self.info.get("classes") or {}
        labels = [a["name"] for a in self.info["arrays"] if a.get("kind") == "label"]
        # Of several, the one that is called so is what a model learns, also if it has no names.
        if len(labels) > 1 and (main := next((n for n in ("label", "target") if n in labels), "")):
            labels, classes = [main], {n: c for n, c in classes.items() if n == main}
        return list(next((classes[name] for name in [*labels, *classes] if name in classes), []))

    @property
    def formats(self) -> dict[str, str]:
        """What the numbers of boxes are, by array: ``"XYXY"``, ``"XYWH"`` or ``"CXCYWH"``."""
        return {a["name"]: a["format"] for a in self.info["arrays"] if a.get("format")}

    @property
    def sample_rates(self) -> dict[str, int]:
        """Samples per second of the arrays that are made of sound, by name, where all recordings have the same."""
        return dict(self.info.get("rates") or {})

    def stats(self) -> dict[str, Any]:
        """Return counters, for finding out what is slow.

        ``wait_seconds`` is how long this loop has waited for batches, ``batches``
        how many it was given, ``held`` how many of them are in use, ``skipped`` the number of
        replaced records, ``restarts`` how often the engine was started again,
        ``repaired`` the number of damaged records that were read again, from the
        ``store`` instead of a cache and from the ``copy`` of ``repair_from``, ``map`` the seconds
        that the user's functions took in all processes, and how often a worker was started again.
        ``engine`` has the counters of the engine (empty when it is not there): per stage busy time,
        records and queue; bytes read, memory, and what it is waiting for. docs/reference/protocol.md
        describes them.
        """
        engine: dict[str, Any] = {}
        epochs = self._epochs
        connection = epochs.connection
        if connection is not None and epochs.ours:
            with contextlib.suppress(StokerError):
                engine = connection.stats(5.0)
        return {
            "batches": epochs.batches,
            "wait_seconds": epochs.wait_seconds,
            "held": connection.held if connection else 0,
            "skipped": epochs.skipped,
            "restarts": epochs.restarts.total,
            "repaired": engine.get("repaired", {"store": 0, "copy": 0}),
            **({"map": epochs.stage.stats()} if epochs.stage is not None else {}),
            "engine": engine,
        }

    def __repr__(self) -> str:
        if not getattr(self, "info", None):
            return "Loader(not open)"  # what tracebacks and debuggers show of a constructor that failed
        parts = [repr(self.source), f"{self.num_records:,} records"]
        if self.classes:
            parts.append(f"{len(self.classes):,} classes")
        parts.append(f"batch_size={self.batch_size}")
        if self.shuffle:
            parts.append(f"shuffle={self.shuffle!r}, seed={self.seed}")
        if self.world_size > 1:
            origin = self.info["rank_from"].partition(":")[0]
            parts.append(f"rank={self.rank}, world_size={self.world_size} from {origin}")
        arrays = ", ".join(str(s) for s in self._epochs.specs)
        if self._epochs.stage is not None:
            arrays += f"; then {self._epochs.stage}"
        closed = ", closed" if self._epochs.shut else ""
        return f"Loader({', '.join(parts)}, {len(self):,} batches of ({arrays}){closed})"

    # --- the end -----------------------------------------------------------

    def close(self) -> None:
        """End the engine. Arrays of batches that are still in use stay valid."""
        self._epochs.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Loader owns an engine and cannot be pickled or copied; make it in the process that uses it "
            "(loader.state_dict() can be pickled)"
        )


def _end_feeding(feeder: _device.Feeder, pid: int) -> None:
    """Undo what a forgotten loader has registered; in a forked child it is the parent's."""
    if os.getpid() == pid:
        feeder.close()
