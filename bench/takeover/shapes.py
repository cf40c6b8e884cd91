"""Unrecognised data of many shapes: our workers compared with torch's, with the same number of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Bytes of a page of a batch, by which it is read.
_PAGE = 4096
_SETTLE = 0.5  # seconds in which the batches ahead are made
HAND_OFF = "hand-off of 38.5 MB"
PATHS = "1.2 million paths in a list"
MANY = 1_200_000


def rows(i: int) -> Any:
    return FIRST[i % 64], i


def table(i: int) -> Any:
    return {"x": SMALL[i % 64], "y": i, "w": i / 2}


def boxes(i: int) -> Any:
    # New tensors, as decoding makes them. Torch's workers need to share a repeated tensor only once.
    return IMAGE[i % 8].clone(), {"boxes": SMALL[i % 64].view(16, 4).clone(), "labels": i}


def work(i: int) -> Any:
    x = IMAGE[i % 8].float()
    return ((x - x.mean()) / x.std()).numpy(), i


def number(i: int) -> Any:
    return i


def listed(batch: Any) -> Any:
    return tuple(zip(*batch, strict=True))


def stamped(batch: Any) -> Any:
    import torch

    return torch.utils.data.default_collate(batch), time.monotonic()


class Data:
    def __init__(self, make: Callable[[int], Any], n: int) -> None:
        self.make, self.n = make, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


class Paths:
    """The file list of an ImageFolder of ImageNet's size, as a dataset."""

    def __init__(self) -> None:
        folder = "/data/imagenet/train/n"
        self.samples = [(f"{folder}{i % 1000:08}/n{i % 1000:08}_{i}.JPEG", i % 1000) for i in range(MANY)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Any:
        return self.samples[i][1] + len(self.samples[i][0])


# name: records, arguments of the loader, the function that makes a record
SHAPES: dict[str, tuple[int, dict[str, Any], Callable[[int], Any] | None]] = {
    "images, float32, 64 x 3 x 224 x 224 (38.5 MB)": (64 * 60, {"batch_size": 64}, rows),
    "the same, in a loop of 100 ms": (64 * 60, {"batch_size": 64}, rows),
    "table, 1,024 rows of 64 numbers": (1024 * 150, {"batch_size": 1024}, table),
    "detection, lists of tensors, 16 images": (16 * 200, {"batch_size": 16, "collate_fn": listed}, boxes),
    "NumPy, normalised in Python, 32 images": (32 * 60, {"batch_size": 32}, work),
    "batches of 8 numbers": (8 * 6000, {"batch_size": 8}, number),
    PATHS: (0, {"batch_size": 256, "shuffle": True}, None),
    # One worker, one batch ahead: the loop waits for each.
    HAND_OFF: (64 * 150, {"batch_size": 64, "collate_fn": stamped, "prefetch_factor": 1, "num_workers": 1}, rows),
}


def _kib(path: str, *keys: str) -> int:
    lines = Path(path).read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(keys))


def _shared() -> int:
    """KiB of shared memory of the whole system: with torch a batch that is on its way belongs to no process."""
    return _kib("/proc/meminfo", "Shmem:")


def _workers() -> list[int]:
    return [p.pid for p in multiprocessing.active_children() if p.pid]


def _used() -> int:
    """KiB of this process, its workers, and shared memory."""
    own = (_kib(f"/proc/{pid}/smaps_rollup", "Pss_Anon:", "Pss_File:") for pid in [os.getpid(), *_workers()])
    return sum(own) + _shared()


def _private() -> float:
    """The private memory of a worker in MiB, on average."""
    workers = _workers()
    own = sum(_kib(f"/proc/{pid}/smaps_rollup", "Private_Dirty:") for pid in workers)
    return own / max(1, len(workers)) / 1024


def one(name: str, side: str, workers: int) -> None:
    """Measure one side of a shape in this process; prints a line of JSON.

    The rate is that of the second half of an epoch, up to near its end. The memory is that of all processes at that
    time, including shared memory (no other program should use any then). The time of the first batch starts at
    ``iter()``.
    """
    import torch
    import torch.utils.data

    global FIRST, SMALL, IMAGE
    cls: Any = torch.utils.data.DataLoader
    if side == "stoker":
        from stoker.torch import DataLoader as cls  # noqa: N813
    n, arguments, make = SHAPES[name]
    FIRST = torch.rand(64 if make is rows else 1, 3, 224, 224)
    SMALL = torch.rand(64, 64)
    IMAGE = torch.randint(0, 256, (8, 3, 320, 320), dtype=torch.uint8)
    dataset = Data(make, n) if make else Paths()
    options = {"num_workers": workers} | arguments
    loader = cls(dataset, **options)
    half, late = len(loader) // 2, len(loader) - 2 * options["num_workers"]
    before = _shared()
    begin = time.perf_counter()
    iterator = iter(loader)
    next(iterator)
    first = time.perf_counter() - begin
    waits, reads, count = [], [], 1
    early = middle = end = memory = grown = 0.0
    for batch in iterator:
        count += 1
        if name == HAND_OFF:
            (images, _), made = batch
            waits.append(time.monotonic() - made)
            images.view(-1)[:: _PAGE // 4].sum()
            reads.append(time.monotonic() - made)
            del images
        if "loop of" in name:
            time.sleep(0.1)
        if count == 20:
            early = _private()
        if count == half:
            middle = time.perf_counter()
        if count == late:
            # After the prefetch is complete, because its amount varies before.
            end = time.perf_counter()
            time.sleep(_SETTLE)
            memory, grown = (_used() - before) / 1024, _private() - early
        del batch
    found = {"first_s": first, "rate": (late - half) / (end - middle), "memory_mib": memory}
    found |= {"grown_mib": max(0.0, grown)}
    if waits:
        found |= {"hand_off_ms": sorted(waits)[len(waits) // 2] * 1e3, "read_ms": sorted(reads)[len(reads) // 2] * 1e3}
    print(json.dumps(found), flush=True)
