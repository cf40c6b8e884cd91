"""The loader: what a training loop iterates over."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from . import _audit, _device, _fields, _map, _node, _options, _state
from ._batch import Batch, main_classes
from ._connection import Position
from ._distributed import found_rank, local_world_size
from ._epochs import DeviceEpoch, Epochs, Form
from ._errors import ConfigError, StokerError, public, warn
from ._fields import FieldSpec
from ._fused import OnDevice
from ._groups import Cache, Feeders, Limits, OnError, Ranks
from ._pad import Buckets, parse_bucket
from ._process import when_forgotten
from ._rules import RULES

if TYPE_CHECKING:
    from typing import NoReturn

    from ._dataset import Dataset


# Settings that do not change the bytes of a batch, or are those of a process.
_OF_MACHINE = frozenset({
    "rank", "local_world_size", "threads", "memory", "prefetch", "lookahead", "timeout", "cache", "cache_dir",
    "cache_limit", "cache_memory", "stage", "peers", "peers_self", "feeders", "crashed", "suspects", "quarantine",
    "cores", "cpu_limit", "weight", "share", "pinned", "metrics",
})  # fmt: skip


class Loader:
    """Feeds a training loop.

    ::

        loader = stoker.Loader("train/", batch_size=256, shuffle=True, seed=0,
                               transforms={"image": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]})
        for epoch in range(3):
            for batch in loader:            # batch["image"], batch.image, or images, labels = batch
                ...

    Every ``for`` over the loader is the next epoch: the first one is epoch 0, the second one epoch 1, also after a
    ``break``. ``set_epoch`` sets the number of the next one. Each epoch has every record exactly once over all ranks,
    in an order that depends on (seed, epoch) alone.

    A loader starts an engine, a process of its own that reads, decodes and transforms with all cores. The engine exits
    with this process, or with ``close()``, or at the end of the ``with`` block. The ranks of a job on a machine share
    an engine, which exits after the last one (``shared`` of ``stoker.Limits``). A loader feeds one loop at a time:
    beginning another ``for`` ends the one before. ``stats()``, ``state_dict()`` and ``close()`` may be called from
    other threads. A forked child cannot use the loader, and it cannot be pickled.

    Args:
        source: path or URL of a pack, of a folder of images, or of other data: ``stoker formats`` lists the
            formats. Some take several files, such as ``shards/train-{0000..0127}.tar``. Or a dataset of
            ``stoker.open``, with its views, or of ``stoker.mix``.
        batch_size: records per batch and rank, 1 to 1,048,576.
        shuffle: ``True``: a new order in each epoch, any record at any place; otherwise the order of the source.
            ``"window:16"``: a new order that uses 16 chunks of the data at a time, and each chunk once in an epoch, so
            that slow storage is read in large pieces. ``"auto"``: ``True`` if that costs nothing, otherwise windows;
            ``info["order"]`` has the choice and the reason.
        seed: the seed of all random numbers, of the order and of the transforms.
        drop_last: skip the records of an epoch that do not fill a batch on every rank.
            Otherwise the last batch is smaller, and may be empty on some ranks.
        bucket: batches of records of about the same length or proportions: the name of a field, or
            ``stoker.Buckets``.
        align: a field that some records have no value in, such as ``"image"``. In each step all ranks have records with
            a value, or none has, so that collectives of a part of the model do not hang. ``batch["has_image"]`` says
            which; rows without an image are zeros. Each record comes once per epoch.
        transforms: the transforms of each image, mask, recording or array, ``{"image": [...]}``. Other fields except
            images and masks are included. ``stoker.Field`` makes several arrays from a stored field, or sets options of
            an array. Transforms of whole batches, such as MixUp, come last in a list. ``stoker.Padded``, last in a list
            or alone, makes one array of rows of different lengths: ``{"tokens": stoker.Padded(0)}``. Default: all
            fields as stored, which needs images of one size: the size of the first record.
        output: ``"numpy"`` or ``"torch"``. In both cases the arrays are views of shared memory.
        device: the device of the batches: ``"cuda"`` or ``"cuda:1"``; batches are then torch's. ``stoker.OnDevice``
            also casts, normalises, flips and mixes images there, in one kernel. The ring is registered as pinned
            memory. Batches are copied on a stream of their own, one ahead of the loop, which does not wait for them.
            ``batch["index"]`` and texts stay in the program's memory.
        map: your function for each record, called after all work of the engine. It gets a dict of views of the batch's
            memory, ``{"image": array of HWC, "label": 3}``. It returns a mapping of names to arrays, numbers, texts, or
            lists for rows of different lengths, which become the batch. Random numbers that it draws depend on (seed,
            epoch, record) alone.
        batch_map: your function for each batch, called after ``map``. It gets a Batch of NumPy arrays and returns a
            mapping of names to arrays, or the Batch, changed in place.
        workers: Python processes that run ``map`` and ``batch_map``; 0 runs them in this one. Default: one per core
            of this rank.
        threads: decoding threads of the engine. Default: one per core; if several ranks run on this
            machine (torchrun, MPI, Slurm), each engine takes its part of the cores.
        cache: ``"auto"``: folders of JPEGs are cached in the user's cache folder, in a format that decodes several
            times as fast, with the same pixels. Usually the first epoch caches all of them: while batches wait for the
            loop at no cost, else as many as leave 0.7 of the speed. From the second epoch on the folder is as fast as a
            pack. ``False``, or ``STOKER_CACHE=off`` in the environment for ``"auto"``: nothing is cached. ``True`` also
            caches other remote data (buckets, web servers, NFS) unmodified, so that later epochs and other jobs read
            only the rest. ``stoker.Cache`` sets the folder, its limit, a cache in memory, a copy on a local disk, or
            peers. ``stats()["engine"]["cache_disk"]`` shows the savings of the cache. ``stoker cache`` shows and
            removes cached data.
        limits: memory, batches built ahead, and the time to wait: ``stoker.Limits(memory="2GB", timeout=60)``.
        ranks: the part of each global batch for this process: ``stoker.Ranks(rank, world_size)``. Default: the rank of
            torch.distributed, torchrun, MPI or Slurm.
        on_error: ``"raise"`` raises ``RecordError`` for a record that cannot be read or decoded. ``"skip"`` replaces
            it by the next good record and counts it (``SkippedRecords`` warning at the end of the epoch).
            ``stoker.OnError`` sets how many records may be bad, a file that lists them, or another copy to read from.
        apply_orientation: turn images by their EXIF orientation. Default: keep the stored orientation, as torchvision
            does.
        metrics: export metrics for Prometheus on this address, such as ``":9400"``. One engine of a node exports those
            of all engines of this user, so all ranks can have the same address. If another program uses the port, a
            warning says so and training goes on. ``stoker top`` shows the same values.
        feeders: servers on other machines (``stoker serve --flight``) that build those batches for which the cores of
            this machine do not suffice: ``"dns:feeders:7443"``, ``"host:7443,host:7443"``, ``"file:PATH"``,
            ``"slurm:7443"`` or ``"ray:feeders"``; ``stoker.Feeders`` adds certificates and tokens. The batches are the
            same with and without. ``stats()["engine"]["feeders"]`` counts them.

    Raises:
        ConfigError: the source, a transform or an option is refused.
        EngineNotFound: there is no engine binary.
        TypeError: unknown argument.

    Attributes:
        batch_size, rank, world_size, seed, shuffle, drop_last: the values in effect.
        classes: names of the classes; the label is the index. With several label fields, those of ``label`` or
            ``target``; see ``info["classes"]`` for the others.
        num_records: records of the source, or of an epoch of a mixture.
        info: the engine's description of the source and its plan. ``info["skipped"]`` lists the files that are not
            records, by reason; it is missing if there are none.
    """

    __module__ = "stoker"

    @public
    def __init__(
        self,
        source: str | os.PathLike[str] | Dataset,
        batch_size: int = 1,
        *,
        shuffle: bool | str = False,
        seed: int = 0,
        drop_last: bool = False,
        bucket: Buckets | str | None = None,
        align: str | None = None,
        transforms: Mapping[str, FieldSpec] | None = None,
        output: Literal["numpy", "torch"] = "numpy",
        device: str | OnDevice | Any = None,
        map: Callable[[dict[str, Any]], Any] | None = None,  # noqa: A002
        batch_map: Callable[[Batch], Any] | None = None,
        workers: int | None = None,
        threads: int | None = None,
        cache: bool | Literal["auto"] | Cache = "auto",
        limits: Limits | None = None,
        ranks: Ranks | None = None,
        on_error: Literal["raise", "skip"] | OnError = "raise",
        apply_orientation: bool = False,
        metrics: str | None = None,
        feeders: str | Feeders | None = None,
    ) -> None:
        sequences, self._mixture = None, None
        if isinstance(source, _options.Data):
            self.source, sequences, map, self._mixture = source.for_loader(map)  # noqa: A001
        else:
            self.source = _options.source_url(source)
        self.batch_size: int = _options.check("batch_size", batch_size, RULES["Loader"]["batch_size"])
        shuffled, window = _options.order(shuffle)
        self.shuffle: bool | str = shuffle if window else shuffled
        self.seed = _options.whole("seed", seed, 0, 2**64 - 1)
        self.drop_last = bool(drop_last)
        self.output = "torch" if device is not None else _options.choice("output", output, ("numpy", "torch"))
        feeder = _device.feeder(device, self.seed)
        functions = _map.stage(map, batch_map, workers, self.seed, self.output)
        # Functions get images as the libraries of NumPy have them.
        plain = functions is not None or isinstance(device, OnDevice)
        layout = "NCHW" if self.output == "torch" and not plain else "NHWC"
        limits = _options.group("limits", limits, Limits)
        ranks = _options.group("ranks", ranks, Ranks)
        self.rank, self.world_size, rank_from = found_rank(ranks.rank, ranks.world_size)
        sharing = _node.sharing(limits.shared)
        # Ranks of a job have different batches, which need no place that several processes read.
        shared = sharing is not None and (sharing.asked or self.world_size == 1)
        fields = _fields.parse_transforms(transforms)
        _fields.check_layouts(fields, self.output, plain)
        config = {
            "source": self.source,
            "pad": _fields.pads(fields),
            "bucket": parse_bucket(bucket),
            "align": None if align is None else {"by": str(align), "ranks": 0},
            "batch_size": self.batch_size,
            "shuffle": shuffled,
            "window": window,
            "seed": self.seed,
            "drop_last": self.drop_last,
            "rank": self.rank,
            "world_size": self.world_size,
            "local_world_size": local_world_size(),
            "threads": _options.check("threads", threads, RULES["Loader"]["threads"]) or 0,
            **limits.to_config(),
            "share": shared,
            "pinned": functions is None and feeder is not None and feeder.only_reads,
            **ranks.to_config(),
            **_options.group("cache", cache, Cache, bare=True).to_config(),
            **_options.group("on_error", on_error, OnError, bare=True).to_config(),
            "outputs": _fields.outputs(fields, layout),
            "layout": layout,
            "apply_orientation": bool(apply_orientation),
            "metrics": "" if metrics is None else str(metrics),
            "sequence": sequences,
            "mix": None if self._mixture is None else self._mixture.config,
        }
        self._members: Any = None
        if feeders is not None:
            servers = _options.group("feeders", feeders, Feeders, bare=True).to_config()
            config["feeders"] = servers
            kind, _, name = servers["servers"].partition(":")
            if kind == "ray":
                self._members = members = _ray().Members(name)
                weakref.finalize(self, members.close)
                servers["servers"] = members.servers
        form = Form(self.batch_size, self.output, layout, fields)
        socket = os.environ.get("STOKER_SOCKET")
        self._audit: _audit.Log | None = None
        self._functions = _state.Functions((map, batch_map), device if isinstance(device, OnDevice) else None)
        self._epochs = epochs = Epochs(config, form, limits.timeout, socket or None, sharing, functions, feeder)
        epochs.open()
        if feeder is not None:
            when_forgotten(self, feeder.feeder.close)
        if functions is not None:
            weakref.finalize(self, functions.close)
            if limits.prefetch is None:
                epochs.widen(functions.wants)
        self.info = epochs.info = epochs.live().info
        self.info |= {"rank": self.rank, "world_size": self.world_size, "rank_from": rank_from}
        if shuffle == "auto":
            chosen = self.info["order"]
            self.shuffle = f"window:{chosen['window']}" if chosen["mode"] == "window" else True
            # A restarted engine, or another rank, continues with the same order.
            epochs.config["window"] = chosen.get("window", 0)
        if ranks.audit is not None:
            try:
                self._audit = _audit.Log(os.path.abspath(os.path.expanduser(os.fspath(ranks.audit))), self.info)
            except BaseException:
                self.close()
                raise
            weakref.finalize(self, self._audit.close)
        for name in ("cache_note", "metrics_note"):
            if note := self.info.get(name):
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
        inner = host if feeder is None else DeviceEpoch(self._epochs, host, feeder)
        return inner if self._audit is None else _audit.Audited(self._epochs, self._audit, inner)

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

        The state has at most 256 bytes as JSON: the epoch, the position, and hashes of the data and of the settings
        that change batches. Weights of a mixture that were set by hand are added. It fits a loader with the same data,
        order, seed, transforms and functions. Ranks, threads, memory, caches, ``on_error`` and, without ``bucket=``,
        the batch size may differ.
        """
        state = _state.save(self._epochs.position, self._identity())
        return {**state, "mix": changes} if (changes := self._changes()) else state

    @public
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next ``for`` go on exactly after the batch that ``state`` was taken at.

        Raises:
            StateMismatch: the state belongs to another manifest (other data), another pipeline (seed, shuffle,
                transforms, ...) or another order version. The message names the difference.
        """
        ours = self._identity()
        position = _state.load(state, ours, self.num_records, self._functions.names)
        if self._mixture is not None:
            self._reweigh(_state.load_mix(state))
        if "ranks" in ours and state["ranks"] != ours["ranks"]:
            # The order of buckets depends on the number of ranks that the run began with.
            key = "bucket" if self._epochs.config["bucket"] else "align"
            self.info = self._epochs.reopen(**{key: {**self._epochs.config[key], "ranks": state["ranks"]}})
        self._epochs.go_to(position)

    def _identity(self) -> dict[str, Any]:
        """Return what a position belongs to."""
        ours = dict(self.info["identity"])
        ours["pipeline"] += self._functions.hash
        return ours

    @public
    def set_weights(self, weights: Mapping[Any, float]) -> None:
        """Give the datasets of a mixture other weights, from the next batch on.

        All ranks must call it at the same step. The new weights replace the rest of the schedule. They are part of
        ``state_dict()``. Batches that are on a device already have the old weights.

        Args:
            weights: the weight of each dataset, or of each path, as for ``stoker.mix``.

        Raises:
            ConfigError: the loader has no mixture, or a weight is refused.
        """
        if self._mixture is None:
            raise ConfigError("set_weights is for mixtures: make the loader of stoker.mix({a: 3, b: 1})")
        at = self._epochs.next_position
        change = {"from": at.epoch * self.num_records + at.row, "weights": self._mixture.ordered(weights)}
        self._reweigh([*(c for c in self._changes() if c["from"] < change["from"]), change])

    def _changes(self) -> list[dict[str, Any]]:
        """Return the weights that were set by hand, with their positions."""
        return list((self._epochs.config["mix"] or {}).get("changes", ()))

    def _reweigh(self, changes: list[dict[str, Any]]) -> None:
        assert self._mixture is not None
        if changes != self._changes():
            self.info = self._epochs.reopen(mix={**self._mixture.config, "changes": changes})

    @property
    def timeout(self) -> float:
        """Seconds to wait for a batch."""
        return self._epochs.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._epochs.timeout = _options.check("timeout", seconds, RULES["Limits"]["timeout"])

    # --- about -------------------------------------------------------------

    @property
    def num_records(self) -> int:
        """Number of records of the source, or of an epoch of a mixture."""
        return int(self.info["len"])

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty when the source has none."""
        kinds = {a["name"]: a.get("kind", "") for a in self.info["arrays"]}
        return main_classes(kinds, self.info.get("classes") or {})

    @property
    def formats(self) -> dict[str, str]:
        """The format of boxes, by array: ``"XYXY"``, ``"XYWH"`` or ``"CXCYWH"``."""
        return {a["name"]: a["format"] for a in self.info["arrays"] if a.get("format")}

    @property
    def sample_rates(self) -> dict[str, int]:
        """Samples per second of the arrays that are made of sound, by name, where all recordings have the same."""
        return dict(self.info.get("rates") or {})

    @public
    def save_pipeline(self, path: str | os.PathLike[str]) -> None:
        """Write a file for ``stoker serve --flight --config``: the pipeline without settings of this machine."""
        about = {k: v for k, v in self._epochs.config.items() if k not in _OF_MACHINE}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(about, file, indent=1)
            file.write("\n")

    def stats(self) -> dict[str, Any]:
        """Return counters, for finding out what is slow.

        ``wait_seconds`` is the time that this loop has waited for batches, ``batches`` the number of batches delivered,
        ``held`` the number of them in use. ``skipped`` is the number of replaced records and ``restarts`` the number of
        engine restarts. ``repaired`` is the number of damaged records that were read again, from the ``store`` instead
        of a cache and from the ``copy`` that ``repair_from`` names. ``map`` has the seconds of the user's functions in
        all processes, and the number of worker restarts. ``engine`` has the counters of the engine, empty without one:
        per stage busy time, records and queue, then bytes read, memory, and what it waits for.
        docs/reference/protocol.md describes them.
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
        source = self.source if len(self.source) <= 200 else self.source[:200] + "..."
        parts = [repr(source), f"{self.num_records:,} records"]
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
        if self._members is not None:
            self._members.close()
        if self._audit is not None:
            self._audit.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Loader owns an engine and cannot be pickled or copied; make it in the process that uses it "
            "(loader.state_dict() can be pickled)"
        )


def _ray() -> Any:
    """Return stoker.ray."""
    try:
        return importlib.import_module(f"{__package__}.ray")  # which packs datasets, and those make loaders
    except ImportError as error:
        raise ConfigError(f'feeders="ray:NAME" needs Ray: pip install ray ({error})') from None
