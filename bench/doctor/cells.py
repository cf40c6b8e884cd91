"""The cells of the matrix: a training loop, its scarce resource, and the degree of scarcity.

The cells of the tuning set were used to choose thresholds. The cells of the held-out set differ from them in
severity, seed, loader or step, and are run only for the final figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# The injected conditions. They are also the rows of the confusion matrix if the measured truth agrees.
INJECTIONS = ("cpu", "storage", "network", "memory", "handoff", "accelerator", "healthy")
TUNING, HELDOUT = "tuning", "heldout"


@dataclass(frozen=True)
class Cell:
    """One loop under one condition.

    script, data: the script of train/ and the entry of data.py. argv: its other arguments.
    conditions, by the names in inject.CONDITIONS:
        quota   cores that the job may use (cpu.cfs_quota_us)
        busy    number of antagonist processes
        bps     bytes per second read from the disk (blkio.throttle.read_bps_device)
        iops    reads per second (blkio.throttle.read_iops_device)
        cold    True: the data is dropped from the page cache first
        fuse    (milliseconds per request, bytes per second or 0): the data is on a slow file system
        http    (milliseconds per request, bytes per second or 0): the data comes from a slow server
        memory  MiB that the job may use (memory.limit_in_bytes)
        swap    True: there is a swap file
    runs: the number of runs, each with another seed.
    """

    set: str
    injection: str
    script: str
    data: str
    argv: tuple[str, ...]
    conditions: dict[str, Any] = field(default_factory=dict)
    runs: int = 1

    @property
    def id(self) -> str:
        options = [a.removeprefix("--") for a in self.argv]
        pairs = ["".join(p) for p in zip(options[::2], options[1::2], strict=False)]
        # A flag without a value is at the end.
        pairs += options[len(options) - len(options) % 2 :]
        conditions = [f"{k}{_short(v)}" for k, v in self.conditions.items()]
        return "-".join([self.injection, self.script, *pairs, *conditions]).replace(":", "")


def _short(value: Any) -> str:
    if value is True:
        return ""
    if isinstance(value, tuple):
        return "+".join(_short(v) for v in value)
    if isinstance(value, float) and value >= 1e5:
        return f"{value / 1e6:g}M"
    return f"{value:g}"


def cell(which: str, injection: str, script: str, options: str, **more: Any) -> Cell:
    data = {"shards": "shards", "packed": "pack", "arrays": "rows.npy", "objects": "small"}.get(script, "images")
    data = more.pop("data", data)
    runs = more.pop("runs", 1)
    argv = tuple(part if i % 2 else f"--{part}" for i, part in enumerate(options.split()))
    return Cell(which, injection, script, data, argv, more, runs)


def both(injection: str, script: str, tuning: list[str], heldout: list[str], **more: Any) -> list[Cell]:
    """The same conditions with other options in each set."""
    return [cell(TUNING, injection, script, o, **more) for o in tuning] + [
        cell(HELDOUT, injection, script, o, **more) for o in heldout
    ]


def _cpu() -> list[Cell]:
    cells = both(
        "cpu",
        "imagefolder",
        [
            "workers 2 step sleep:20",
            "workers 2 step sleep:60 blurs 2",
            "workers 1 step spin:40 blurs 1",
            "workers 0 step sleep:40",
        ],
        [
            "workers 2 step sleep:30 blurs 1",
            "workers 2 step spin:30 blurs 4",
            "workers 1 step sleep:45",
            "workers 0 step sleep:60 blurs 1",
            "workers 1 step cnn:8 blurs 3",
        ],
    )
    cells += both("cpu", "shards", ["workers 2 step sleep:30 blurs 1"], ["workers 1 step sleep:50 blurs 1"])
    cells += both(
        "cpu", "remote", ["workers 2 step sleep:20 blurs 2"], ["workers 2 step sleep:50 blurs 3"], http=(0, 0)
    )
    cells += both("cpu", "packed", ["step sleep:2 batch 64"], ["workers 1 step sleep:3 batch 64"])
    for which, quota, options in [
        (TUNING, 0.5, "workers 2 step sleep:60"),
        (TUNING, 1.0, "workers 2 step sleep:40"),
        (HELDOUT, 0.7, "workers 2 step sleep:50"),
        (HELDOUT, 0.4, "workers 1 step sleep:50 batch 16"),
    ]:
        cells.append(cell(which, "cpu", "imagefolder", options, quota=quota))
    for which, busy, options in [
        (TUNING, 2, "workers 2 step sleep:50"),
        (TUNING, 6, "workers 2 step sleep:40 batch 16"),
        (HELDOUT, 4, "workers 2 step sleep:50"),
        (HELDOUT, 8, "workers 1 step sleep:50 batch 16"),
    ]:
        cells.append(cell(which, "cpu", "imagefolder", options, busy=busy))
    cells += both("cpu", "packed", ["step sleep:15 batch 64"], ["step spin:20 batch 64"], data="images")
    cells.append(cell(HELDOUT, "cpu", "packed", "step sleep:10 batch 64", quota=0.3))
    return cells


def _storage() -> list[Cell]:
    cells = []
    for which, bps, script, options in [
        (TUNING, 20e6, "imagefolder", "workers 2 step sleep:50"),
        (TUNING, 8e6, "imagefolder", "workers 1 step sleep:40 batch 16"),
        (TUNING, 4e6, "imagefolder", "workers 0 step sleep:40 batch 8"),
        (TUNING, 12e6, "shards", "workers 2 step sleep:60"),
        (TUNING, 30e6, "packed", "step sleep:40 batch 64"),
        (HELDOUT, 16e6, "imagefolder", "workers 2 step sleep:60"),
        (HELDOUT, 6e6, "imagefolder", "workers 2 step cnn:8 batch 16"),
        (HELDOUT, 5e6, "imagefolder", "workers 1 step spin:30 batch 8"),
        (HELDOUT, 9e6, "shards", "workers 1 step sleep:80"),
        (HELDOUT, 18e6, "packed", "step sleep:30 batch 64"),
        (HELDOUT, 9e6, "packed", "step spin:30 batch 32"),
    ]:
        cells.append(cell(which, "storage", script, options, bps=bps, cold=True))
    for which, iops, data, options in [
        (TUNING, 400, "small", "workers 2 step sleep:40 size 64"),
        (TUNING, 100, "images", "workers 2 step sleep:40 batch 16"),
        (HELDOUT, 700, "small", "workers 2 step sleep:20 size 64"),
        (HELDOUT, 200, "small", "workers 1 step sleep:40 size 64"),
        (HELDOUT, 60, "images", "workers 1 step sleep:60 batch 16"),
    ]:
        cells.append(cell(which, "storage", "imagefolder", options, data=data, iops=iops, cold=True))
    for which, fuse, script, options in [
        (TUNING, (4, 0), "imagefolder", "workers 2 step sleep:60"),
        (TUNING, (12, 0), "imagefolder", "workers 2 step sleep:60 batch 16"),
        (TUNING, (1, 8e6), "shards", "workers 2 step sleep:60"),
        (HELDOUT, (7, 0), "imagefolder", "workers 1 step sleep:60 batch 16"),
        (HELDOUT, (9, 0), "imagefolder", "workers 2 step cnn:8 batch 16"),
        (HELDOUT, (1, 12e6), "imagefolder", "workers 2 step sleep:60"),
        (HELDOUT, (2, 6e6), "shards", "workers 1 step sleep:60"),
    ]:
        cells.append(cell(which, "storage", script, options, fuse=fuse))
    return cells


def _network() -> list[Cell]:
    cells = []
    for which, http, script, options in [
        (TUNING, (10, 0), "remote", "workers 2 step sleep:60 batch 16"),
        (TUNING, (30, 0), "remote", "workers 2 step sleep:40 batch 8"),
        (TUNING, (2, 8e6), "remote", "workers 2 step sleep:30 batch 16"),
        (TUNING, (5, 12e6), "shards", "workers 2 step sleep:30 batch 16"),
        (HELDOUT, (15, 0), "remote", "workers 2 step sleep:60 batch 16"),
        (HELDOUT, (50, 0), "remote", "workers 2 step sleep:80 batch 8"),
        (HELDOUT, (8, 0), "remote", "workers 1 step spin:40 batch 16"),
        (HELDOUT, (20, 0), "remote", "workers 0 step sleep:60 batch 8"),
        (HELDOUT, (2, 5e6), "remote", "workers 2 step cnn:8 batch 16"),
        (HELDOUT, (5, 8e6), "shards", "workers 2 step sleep:80"),
        (HELDOUT, (5, 5e6), "shards", "workers 1 step sleep:80 batch 16"),
    ]:
        cells.append(cell(which, "network", script, options, http=http))
    return cells


def _memory() -> list[Cell]:
    cells = []
    for which, memory, options in [
        (TUNING, 330, "workers 0 step sleep:10 batch 16"),
        (TUNING, 220, "workers 0 step sleep:20 batch 16"),
        (TUNING, 160, "workers 1 step sleep:5 batch 16"),
        (TUNING, 250, "workers 0 step spin:15 batch 16"),
        (HELDOUT, 290, "workers 0 step sleep:8 batch 16"),
        (HELDOUT, 260, "workers 0 step spin:12 batch 16"),
        (HELDOUT, 180, "workers 0 step sleep:20 batch 16"),
        (HELDOUT, 170, "workers 2 step sleep:5 batch 16"),
        (HELDOUT, 140, "workers 1 step sleep:6 batch 16"),
    ]:
        cells.append(cell(which, "memory", "arrays", options, memory=memory, swap=True))
    return cells


def _handoff() -> list[Cell]:
    cells = both(
        "handoff",
        "objects",
        [
            "workers 2 step sleep:30 size 64 objects 200",
            "workers 2 step sleep:20 size 64 objects 60 passes 6",
            "workers 1 step sleep:40 size 64 objects 400",
            "workers 2 step spin:20 size 64 objects 120",
        ],
        [
            "workers 2 step sleep:40 size 64 objects 300",
            "workers 2 step spin:30 size 64 objects 180",
            "workers 1 step sleep:30 size 64 objects 100 passes 8",
            "workers 2 step sleep:20 size 64 objects 40 passes 20",
        ],
    )
    cells += both(
        "handoff",
        "arrays",
        [
            "workers 1 step sleep:10 batch 128 dtype float32",
            "workers 2 step sleep:10 batch 256 dtype float32 sharing file_system",
            "workers 2 step spin:10 batch 192 dtype float32 sharing file_system",
        ],
        [
            "workers 1 step sleep:20 batch 192 dtype float32",
            "workers 2 step spin:8 batch 224 dtype float32 sharing file_system",
        ],
    )
    cells += both(
        "handoff",
        "packed",
        ["step sleep:20 batch 32 views 20", "step sleep:20 batch 64 views 6", "step sleep:15 batch 32 views 10"],
        ["step sleep:30 batch 32 views 40", "step sleep:25 batch 48 views 10"],
    )
    return cells


def _accelerator() -> list[Cell]:
    return (
        both(
            "accelerator",
            "imagefolder",
            ["workers 2 step sleep:400", "workers 1 step spin:300 batch 16"],
            [
                "workers 2 step sleep:600",
                "workers 2 step cnn:32 batch 16 size 448",
                "workers 1 step sleep:500 batch 16",
            ],
        )
        + both("accelerator", "packed", ["step sleep:200", "step cnn:32"], ["step cnn:24 batch 48", "step spin:150"])
        + both("accelerator", "shards", ["workers 1 step sleep:400"], ["workers 2 step spin:350 batch 16"])
    )


def _healthy() -> list[Cell]:
    cells = both(
        "healthy",
        "imagefolder",
        ["workers 2 step sleep:150", "workers 1 step sleep:240"],
        [
            "workers 2 step sleep:160",
            "workers 2 step sleep:220",
            "workers 1 step spin:260",
            "workers 1 step sleep:100 batch 8",
        ],
        runs=2,
    )
    cells += both(
        "healthy", "shards", ["workers 2 step sleep:220"], ["workers 2 step sleep:200", "workers 1 step sleep:300"]
    )
    cells += both(
        "healthy", "packed", ["step sleep:50", "step spin:40"], ["step sleep:35", "step spin:55", "step cnn"], runs=2
    )
    cells += both(
        "healthy",
        "remote",
        ["workers 2 step sleep:200"],
        ["workers 2 step sleep:240"],
        http=(1, 0),
        runs=2,
    )
    # Something is scarce, and it does not matter.
    for which, script, options, more in [
        (TUNING, "imagefolder", "workers 2 step sleep:200", {"bps": 40e6, "cold": True}),
        (TUNING, "packed", "step sleep:60", {"busy": 1}),
        (HELDOUT, "imagefolder", "workers 2 step sleep:250", {"fuse": (2, 0)}),
        (HELDOUT, "packed", "step sleep:80", {"quota": 1.0}),
        (HELDOUT, "packed", "step sleep:100", {"bps": 50e6, "cold": True}),
        (HELDOUT, "arrays", "workers 2 step sleep:100", {"memory": 1200}),
    ]:
        cells.append(cell(which, "healthy", script, options, **more))
    return cells


def all_cells() -> list[Cell]:
    cells: list[Cell] = []
    for make in (_cpu, _storage, _network, _memory, _handoff, _accelerator, _healthy):
        cells += make()
    # One of each injection after another: a run that ends early has seen some of each.
    place: dict[str, int] = {}
    order = []
    for c in cells:
        place[c.injection] = place.get(c.injection, -1) + 1
        order.append(place[c.injection])
    cells = [c for _, c in sorted(zip(order, cells, strict=True), key=lambda pair: pair[0])]
    ids = [c.id for c in cells]
    if len(set(ids)) != len(ids):
        raise ValueError(f"two cells are the same: {sorted({i for i in ids if ids.count(i) > 1})}")
    return cells


def removals(c: Cell) -> list[str]:
    """The resources to remove to find out what this cell lacks; "" is nothing. Irrelevant resources are left out:
    storage if the data is in the page cache or in the process, the network if nothing is fetched, Stoker's hand-off
    if the script does not process its batches (they are views of shared memory)."""
    if c.injection in ("healthy", "accelerator"):
        # If the loop does not become faster even without a loader, nothing is lacking. Otherwise the rest is also
        # measured.
        return ["", "everything", "accelerator"] if c.injection == "accelerator" else ["", "everything"]
    return ["", *data_removals(c)]


def data_removals(c: Cell) -> list[str]:
    found = ["cpu"]
    if "fuse" in c.conditions or c.conditions.get("cold"):
        found.append("storage")
    if c.script != "packed" or "--views" in c.argv:
        found.append("handoff")
    if "http" in c.conditions:
        found.append("network")
    if "memory" in c.conditions:
        found.append("memory")
    return found
