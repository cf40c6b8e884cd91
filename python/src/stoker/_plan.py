"""``stoker.plan``: what a data path must deliver, and whether this machine does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from . import _commands
from ._ask import built, run


@dataclasses.dataclass(frozen=True)
class Resource:
    """One part of the path: its demand and its capacity.

    Attributes:
        name: ``"cores"``, ``"storage requests"``, ``"storage bandwidth"``, ``"memory"``, ...
        need, have: in the units of the resource; times are in seconds, sizes in bytes.
        margin: capacity divided by demand; below 1 it fails.
        verdict: ``"yes"``, ``"tight"`` (less than a quarter to spare) or ``"no"``.
        origin: ``"measured"``, ``"typical"``, ``"given"``, ...
    """

    name: str
    need: float
    have: float
    need_text: str
    have_text: str
    margin: float
    verdict: str
    origin: str


@dataclasses.dataclass(frozen=True)
class StorageClass:
    """Whether a kind of storage is fast enough.

    Attributes:
        name: ``"hdd"``, ``"sata-ssd"``, ``"nvme"``, ``"nfs-10gbe"``, ``"cloud-file"``, ``"object"``, ``"ram"``.
        examples_per_second: the speed of one unit (disk, SSD, server).
        units: the number of units needed.
        small_file_problem: too few requests per second, not too few bytes.
    """

    name: str
    title: str
    verdict: str
    margin: float
    examples_per_second: float
    units: float
    text: str
    source: str
    small_file_problem: bool = False


@dataclasses.dataclass(frozen=True)
class CodecNeed:
    """The cores that one way to store images takes: ``keep``, ``dct`` or ``raw`` (``bytes`` for other records)."""

    codec: str
    images_per_core: float
    cores: float
    record_bytes: float
    bandwidth: float
    origin: str


@dataclasses.dataclass(frozen=True)
class Advice:
    """A change and its predicted effect.

    Attributes:
        step: its place in the order of doing; 0 for an alternative.
        before, after: examples per second, with the steps before it done.
        au: accelerator utilisation afterwards, 0 to 1.
    """

    step: int
    kind: str
    title: str
    why: str
    before: float
    after: float
    gain: float
    au: float
    effect: str
    command: str = ""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of a published calculation and ours; ``reason`` explains the difference."""

    what: str
    text: str
    ours: str
    agrees: bool
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The demands on a data path, the prediction whether it meets them, and advice.

    ``print(plan)`` shows it in sentences. Sizes are in bytes, times in seconds.

    Attributes:
        batch: mini-batch size n of one accelerator.
        step: seconds t that it takes.
        examples_per_second: n / t of all accelerators of this machine.
        iops, bandwidth, block: reads and bytes per second from storage, for all
            experiments together, and the size of a read.
        largest_batch: largest n that fits the accelerator, 0 when not known.
        memory: bytes that the loader needs; ``torch_memory``: bytes of the batches of PyTorch's DataLoader with
            ``torch_workers`` workers.
        epoch_seconds: one pass over the data, 0 when its length is not known.
        meets: no known part fails; ``judged`` reports whether storage and cores are both known.
        first_to_fail: name of the resource with the least margin.
        delivered: predicted examples per second; ``au`` the predicted
            accelerator utilisation.
        loader: arguments for :class:`stoker.Loader`: ``batch_size``, ``prefetch``, ``memory``, ...
        python: a training loop with them.
        raw: the whole JSON of ``stoker plan --json``.
    """

    title: str
    batch: int
    step: float
    examples_per_second: float
    iops: float
    bandwidth: float
    block: float
    largest_batch: int
    memory: float
    batch_bytes: float
    torch_memory: float
    torch_workers: float
    epoch_seconds: float
    meets: bool
    judged: bool
    first_to_fail: str
    delivered: float
    au: float
    cpu: tuple[CodecNeed, ...]
    resources: tuple[Resource, ...]
    storage: tuple[StorageClass, ...]
    advice: tuple[Advice, ...]
    figures: tuple[Figure, ...]
    sentences: tuple[str, ...]
    loader: Mapping[str, Any]
    python: str
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    def __str__(self) -> str:
        return "\n".join([self.title, *self.sentences])

    def __repr__(self) -> str:
        verdict = "meets" if self.meets else f"fails at {self.first_to_fail!r}"
        return (
            f"<stoker.Plan n={self.batch} t={self.step:.4g}s: {self.examples_per_second:,.0f} examples/s, "
            f"{self.iops:,.0f} IOPS, {self.bandwidth / 1e6:,.0f} MB/s; {verdict}, "
            f"{self.delivered:,.0f} examples/s predicted>"
        )


def plan(
    data: _commands.Source | None = None,
    *,
    batch: int | None = None,
    step: float | str | None = None,
    rate: float | None = None,
    flops: float | str | None = None,
    device_flops: float | str | None = None,
    device: str | None = None,
    model: str | None = None,
    guess: str | None = None,
    example_bytes: int | str | None = None,
    records: int | None = None,
    dataset_bytes: int | str | None = None,
    parameters: int | str | None = None,
    activation: int | str | None = None,
    accelerator_memory: int | str | None = None,
    accelerators: int | None = None,
    experiments: int | str | None = None,
    cores: float | None = None,
    memory: int | str | None = None,
    network: str | None = None,
    percentile: float | None = None,
    storage: str | None = None,
    cached: float | None = None,
    price_per_million_gets: float | None = None,
    workers: int | None = None,
    kind: str | None = None,
    layout: str | None = None,
    codec: str | None = None,
    arrays: Sequence[str] = (),
    others: Sequence[str] = (),
    example: str | None = None,
    probe: bool = True,
    timeout: float = 900.0,
) -> Plan:
    """Plan the data path: its demands for n, t and sizes, and whether this machine meets them.

    ::

        p = stoker.plan("train/", batch=256, step="87ms", accelerators=4)
        print(p)                 # three sentences
        p.meets, p.first_to_fail, p.advice[0].effect

    Missing arguments are measured on this machine (about 15 seconds, stored for the next time), or named in the
    exception.

    Args:
        data: path, URL or ``stoker.Dataset`` of the data.
        batch: mini-batch size n per accelerator.
        step: time t per mini-batch: seconds, or text such as ``"87ms"``.
        rate: or the examples per second of one accelerator.
        flops: or the FLOPs per example (``"4GFLOP"``), with ``device_flops`` (``"7TFLOP/s"``).
        device_flops: FLOP per second of the accelerator.
        device: or an accelerator by name, ``"v100"``, with ``model``.
        model: a network by name, ``"resnet50"``.
        guess: or ``"small"`` or ``"large"``: the rule of thumb for such data.
        example_bytes: bytes of a stored example: a number, or text such as ``"64KB"``.
        records: examples in the dataset.
        dataset_bytes: its size.
        parameters: bytes of all parameters.
        activation: bytes of state per example on the accelerator.
        accelerator_memory: bytes of memory of an accelerator.
        accelerators: accelerators of one training, on one machine.
        experiments: concurrent trainings on the same storage: a number or ``"5-10"``.
        cores: cores to plan for, instead of this machine's.
        memory: free memory to plan for.
        network: network to plan for, ``"10Gbit/s"``.
        percentile: share of mini-batches that must be in time, 0.99 by default.
        storage: a kind of storage to plan for: ``"hdd"``, ``"sata-ssd"``, ``"nvme"``,
            ``"nfs-10gbe"``, ``"cloud-file"``, ``"object"``, ``"ram"``.
        cached: share of the data that is cached in memory, 0 to 1.
        price_per_million_gets: the price of a million reads of a bucket in dollars, instead of the list price.
        workers: workers of the PyTorch DataLoader to compare with.
        kind: ``"image"`` (to be decoded) or ``"bytes"``.
        layout: ``"files"`` or ``"pack"``.
        codec: ``"keep"``, ``"dct"`` or ``"raw"``.
        arrays: arrays of an example in a batch, ``"image:512x512x3:u8"``.
        others: further trainings on the same storage, ``"n=256 t=200ms es=64KB"``.
        example: a published calculation by name, ``"imagenet-4xv100"``.
        probe: measure this machine; otherwise only an earlier measurement is used.
        timeout: seconds after which to give up.

    Raises:
        ConfigError: a figure is missing or out of range; the message names it.
        StokerError: the plan could not be made.
    """
    flags: list[tuple[str, Any]] = [
        ("batch", batch), ("step", _time(step)), ("rate", rate), ("flops", flops), ("device-flops", device_flops),
        ("device", device), ("model", model), ("guess", guess), ("example-bytes", _size(example_bytes)),
        ("records", records), ("dataset-bytes", _size(dataset_bytes)), ("parameters", _size(parameters)),
        ("activation", _size(activation)), ("accelerator-memory", _size(accelerator_memory)),
        ("accelerators", accelerators), ("experiments", experiments), ("cores", cores), ("memory", _size(memory)),
        ("network", network), ("percentile", _share(percentile)), ("storage", storage), ("cached", _share(cached)),
        ("price-per-million-gets", price_per_million_gets),
        ("workers", workers), ("kind", kind), ("layout", layout), ("codec", codec), ("example", example),
    ]  # fmt: skip
    flags += [("array", a) for a in arrays] + [("with", w) for w in others]
    arguments = ["plan", "--json", *(f"--{name}={value}" for name, value in flags if value is not None)]
    if not probe:
        arguments.append("--no-probe")
    if data is not None:
        arguments += ["--", _commands.url_of(data)]
    return _parse(run(arguments, timeout=timeout))


def _time(value: float | str | None) -> str | None:
    # A number is in seconds, as everywhere in Python.
    return f"{value!r}s" if isinstance(value, int | float) else value


def _size(value: int | str | None) -> str | None:
    return f"{value}B" if isinstance(value, int) else value


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value * 100!r}%"


def _parse(raw: dict[str, Any]) -> Plan:
    goal, reads, memory, delivered = raw["goal"], raw["reads"], raw["memory"], raw["delivered"]
    return Plan(
        title=raw["title"],
        batch=goal["batch"],
        step=goal["step_seconds"],
        examples_per_second=goal["examples_per_second"],
        iops=reads["iops"],
        bandwidth=reads["bandwidth"],
        block=reads["block_bytes"],
        largest_batch=raw["fit"].get("largest_batch", 0),
        memory=memory["total_bytes"],
        batch_bytes=memory["batch_bytes"],
        torch_memory=memory["torch"]["total_bytes"],
        torch_workers=memory["torch"]["workers"],
        epoch_seconds=raw.get("epoch_seconds", 0.0),
        meets=raw["meets"],
        judged=raw["judged"],
        first_to_fail=raw.get("first_to_fail", ""),
        delivered=delivered["examples_per_second"],
        au=delivered["au"],
        cpu=tuple(built(CodecNeed, c) for c in raw["cpu"]),
        resources=tuple(built(Resource, r) for r in raw["resources"] or ()),
        storage=tuple(built(StorageClass, c) for c in raw["classes"]),
        advice=tuple(built(Advice, a, before=a["from"], after=a["to"]) for a in raw["advice"]),
        figures=tuple(built(Figure, f) for f in raw.get("figures", ())),
        sentences=tuple(raw["sentences"]),
        loader={k: v for k, v in raw["loader"].items() if k not in ("python", "pack")},
        python=raw["loader"]["python"],
        raw=raw,
    )
