"""The measured process: opens a loader's stream, consumes it like a trainer, prints one line of JSON.

An arm calls main(name, open_stream). open_stream(job) returns an iterator of (images, ids). images is one contiguous
uint8 array in this process's memory, and ids are the record numbers in the order of the sorted file list. With
job.epochs = 0 the stream has no end. With 1 it ends after one epoch and includes the last, partial batch.

Modes:
  measure  warm up, then time whole batches; the clock runs from one batch boundary to another
  flow     batches of one tiny record, as fast as possible: the cost of handing over a batch
  handoff  a consumer that is slower than the loader: the time for taking a batch that is ready
  foreground  how much slower the trainer's own Python runs while the loader delivers batches at a fixed pace
  check    one epoch: the records that came, a digest of each batch, and some images for comparison (run.py judges)
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .. import procs

# A window is a multiple of this many batches, so that 1, 2, 3 and 4 workers have all had equal turns.
TURNS = 12
# Every 4,097th byte: about two per page, no stride that a cache likes.
STRIDE = 4097
# Images that a check saves for the comparison with the reference decode.
KEPT = 48


@dataclass
class Job:
    """The task of an arm."""

    data: str
    workers: int = 2
    batch: int = 256
    size: int = 224
    seed: int = 0
    epochs: int = 0
    decode: str = ""
    # "random": RandomResizedCrop and flip. "centre": the centred square, resized; the same in every loader, for
    # checks. "none": unmodified records.
    geometry: str = "random"
    options: dict[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> tuple[float, float]:
        """Area of the crop. An area of twice the image's never fits, and torchvision's fallback with ratio (1, 1) is
        the centred square. The image's own area is not sufficient: a square of it fits into 380 x 379, at two
        positions."""
        return (0.08, 1.0) if self.geometry == "random" else (2.0, 2.0)

    @property
    def ratio(self) -> tuple[float, float]:
        return (3 / 4, 4 / 3) if self.geometry == "random" else (1.0, 1.0)

    @property
    def flip(self) -> float:
        return 0.5 if self.geometry == "random" else 0.0

    def files(self) -> list[str]:
        """The images of the folder, sorted. The position in this list is the record's number."""
        return sorted(str(p) for p in Path(self.data).glob("*/*") if p.is_file())


Stream = Iterator[tuple[np.ndarray, np.ndarray]]


def parse(argv: list[str]) -> tuple[argparse.Namespace, Job]:
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True, help="folder, shards or file that this arm reads")
    p.add_argument("--workers", type=int, default=2, help="processes or threads, as the loader counts them")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--decode", default="", help="which decoder, where the loader leaves that to its user")
    p.add_argument("--geometry", choices=["random", "centre", "none"], default="random")
    p.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    p.add_argument("--mode", choices=["measure", "flow", "handoff", "foreground", "check", "epoch"], default="measure")
    p.add_argument("--seconds", type=float, default=5, help="shortest window")
    p.add_argument("--warmup", type=float, default=2, help="shortest warm-up")
    p.add_argument("--records", type=int, default=0, help="check: the number of records of an epoch")
    p.add_argument("--batches", type=int, default=0, help="check: stop after so many batches")
    p.add_argument("--keep", default="", help="check: file for the images to compare")
    a = p.parse_args(argv)
    options = dict(o.partition("=")[::2] for o in a.option)
    epochs = 1 if a.mode in ("check", "epoch") else 0
    job = Job(a.data, a.workers, a.batch, a.size, a.seed, epochs, a.decode, a.geometry, options)
    return a, job


class Peak:
    """The largest memory seen. Sampled outside the window only: reading it costs milliseconds."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.last = 0.0

    def sample(self, every: float = 0.0) -> None:
        now = time.perf_counter()
        if now - self.last < every:
            return
        for key, value in procs.memory(os.getpid()).items():
            self.values[key] = max(value, self.values.get(key, 0))
        self.last = time.perf_counter()


def touch(images: np.ndarray) -> int:
    """Reads a sample of the batch, so that it is truly in this process's memory."""
    return int(images.reshape(-1)[::STRIDE].sum())


def measure(stream: Stream, seconds: float, warmup: float, opened: float) -> dict[str, object]:
    me = os.getpid()
    images, _ = next(stream)
    first = time.perf_counter() - opened
    checksum = touch(images)
    shape, dtype, whole = list(images.shape), str(images.dtype), bool(images.flags["C_CONTIGUOUS"])
    peak, batches, waits = Peak(), 1, []
    while batches < 6 or time.perf_counter() - opened - first < warmup:
        images, _ = next(stream)
        checksum += touch(images)
        batches += 1
        peak.sample(every=0.7)
    # Memory sampling has delayed the consumer: let the queues return to their steady state.
    settled = time.perf_counter()
    for settling in itertools.count(1):
        images, _ = next(stream)
        checksum += touch(images)
        if settling >= 6 and time.perf_counter() - settled > 0.5:
            break
    cpu0, (busy0, steal0), (read0, disk0) = procs.cpu_seconds(me), procs.machine_busy(), procs.bytes_read(me)
    start = previous = time.perf_counter()
    count = rows = 0
    while True:
        images, _ = next(stream)
        checksum += touch(images)
        count += 1
        rows += len(images)
        now = time.perf_counter()
        waits.append(now - previous)
        previous = now
        if now - start >= seconds and count % TURNS == 0:
            break
    cpu1, (busy1, steal1), (read1, disk1) = procs.cpu_seconds(me), procs.machine_busy(), procs.bytes_read(me)
    peak.sample()
    span = previous - start
    return {
        "examples_s": rows / span,
        "batches_s": count / span,
        "gb_s": images.nbytes * count / span / 1e9,
        "cpu_s_per_1k": (cpu1 - cpu0) / rows * 1000,
        "cores_busy": (cpu1 - cpu0) / span,
        "cores_foreign": max(0.0, (busy1 - busy0 - (cpu1 - cpu0)) / span),
        "cores_stolen": (steal1 - steal0) / span,
        "first_batch_s": first,
        "window_s": span,
        "examples": rows,
        "wait_ms_p50": statistics.median(waits) * 1e3,
        "wait_ms_max": max(waits) * 1e3,
        "read_bytes_per_example": (read1 - read0) / rows,
        "disk_bytes_per_example": (disk1 - disk0) / rows,
        "memory_mib": peak.values,
        "shape": shape,
        "dtype": dtype,
        "contiguous": whole,
        "checksum": checksum % (1 << 31),
    }


def flow(stream: Stream, seconds: float) -> dict[str, object]:
    """Nothing to decode and nothing to copy: the time from batch to batch is the loader's own."""
    for _ in range(500):
        images, _ = next(stream)
    taken = []
    start = previous = time.perf_counter()
    while previous - start < seconds:
        images, _ = next(stream)
        now = time.perf_counter()
        taken.append(now - previous)
        previous = now
    return {
        "flow_us": (previous - start) / len(taken) * 1e6,
        "flow_us_p50": statistics.median(taken) * 1e6,
        "batches": len(taken),
        "batch_bytes": images.nbytes,
    }


def handoff(stream: Stream, seconds: float, opened: float) -> dict[str, object]:
    """The consumer thinks long enough for the next batch to be ready, then takes it."""
    images, _ = next(stream)
    first = time.perf_counter() - opened
    start = time.perf_counter()
    for _ in range(TURNS):
        images, _ = next(stream)
        touch(images)
    period = (time.perf_counter() - start) / TURNS
    think = min(max(3 * period, 0.002), 1.0)
    taken = []
    until = time.perf_counter() + max(seconds, 20 * think)
    while time.perf_counter() < until or len(taken) < 20:
        time.sleep(think)
        t = time.perf_counter()
        images, _ = next(stream)
        taken.append(time.perf_counter() - t)
        touch(images)
    # The queue was still filling up in the first ones.
    taken = sorted(taken[5:])
    return {
        "handoff_us": statistics.median(taken) * 1e6,
        "handoff_us_p95": taken[int(len(taken) * 0.95)] * 1e6,
        "think_ms": think * 1e3,
        "batches": len(taken),
        "batch_bytes": images.nbytes,
        "first_batch_s": first,
    }


# The batches per second in a foreground run: a rate that every loader here can deliver.
PACE = 1.5


def _spin() -> float:
    """About a millisecond of interpreter work, like that of a training loop between kernel launches."""
    start = time.perf_counter()
    total = 0
    for i in range(20_000):
        total += i & 7
    return time.perf_counter() - start


def foreground(open_stream: Callable[[], Stream], seconds: float) -> dict[str, object]:
    """The same work in the main thread, before the loader starts and while it feeds PACE batches per second."""

    def spin_for(span: float, stream: Stream | None) -> list[float]:
        times, start, due = [], time.perf_counter(), 0
        while (now := time.perf_counter() - start) < span:
            if stream is not None and now > due / PACE:
                touch(next(stream)[0])
                due += 1
            times.append(_spin())
        return sorted(times)

    alone = spin_for(2.0, None)
    stream = open_stream()
    spin_for(3.0, stream)
    beside = spin_for(max(seconds, 4.0), stream)
    return {
        "slowdown": statistics.fmean(beside) / statistics.fmean(alone),
        "slowdown_p50": statistics.median(beside) / statistics.median(alone),
        "slowdown_p99": beside[int(len(beside) * 0.99)] / alone[int(len(alone) * 0.99)],
        "alone_us": statistics.fmean(alone) * 1e6,
        "pace": PACE,
    }


def check(stream: Stream, records: int, batches: int, keep: str) -> dict[str, object]:
    ids: list[int] = []
    digests: list[str] = []
    kept: list[np.ndarray] = []
    shape: list[int] = []
    ended = False
    while (not records or len(ids) < records) and (not batches or len(digests) < batches):
        try:
            images, numbers = next(stream)
        except StopIteration:
            ended = True
            break
        shape = shape or list(images.shape)
        ids += [int(i) for i in numbers]
        digests.append(hashlib.blake2b(np.ascontiguousarray(images), digest_size=8).hexdigest())
        if keep and len(kept) < KEPT:
            kept += [np.array(image) for image in images[: KEPT - len(kept)]]
    if not batches and not ended and len(ids) == records:
        ended = next(stream, None) is None
    if keep:
        np.savez(keep, images=np.stack(kept), ids=np.array(ids[: len(kept)]))
    seen = ids[:records] if records else ids
    return {
        "rows": len(ids),
        "ended": ended,
        "distinct": len(set(seen)),
        "range": [min(ids), max(ids)],
        "ids_digest": hashlib.blake2b(np.array(ids, "int64"), digest_size=8).hexdigest(),
        "first_ids": ids[:8],
        "digests": digests[:8],
        "shape": shape,
    }


def epoch(stream: Stream, records: int, opened: float) -> dict[str, object]:
    """One pass over the data from the very beginning: opening, connections and the first batch are a part of it."""
    me = os.getpid()
    cpu0, seen, first, checksum = procs.cpu_seconds(me), 0, 0.0, 0
    for images, _ in stream:
        first = first or time.perf_counter() - opened
        seen += len(images)
        checksum += touch(images)
        if records and seen >= records:
            break
    span = time.perf_counter() - opened
    return {
        "examples": seen,
        "epoch_s": span,
        "examples_s": seen / span,
        "first_batch_s": first,
        "cpu_s_per_1k": (procs.cpu_seconds(me) - cpu0) / max(seen, 1) * 1000,
        "checksum": checksum % (1 << 31),
    }


def main(name: str, open_stream: Callable[[Job], Stream], facts: Callable[[], dict[str, object]] | None = None) -> None:
    """Runs the requested mode. facts() adds facts from the arm (versions, its loader's own counters)."""
    a, job = parse(sys.argv[1:])
    imported = time.time() - _process_start()
    opened = time.perf_counter()
    if a.mode == "foreground":
        result = foreground(lambda: iter(open_stream(job)), a.seconds)
        print(json.dumps({"arm": name, "mode": a.mode, **result}, default=float), flush=True)
        os._exit(0)
    stream = iter(open_stream(job))
    if a.mode == "measure":
        result = measure(stream, a.seconds, a.warmup, opened)
    elif a.mode == "epoch":
        result = epoch(stream, a.records, opened)
    elif a.mode == "flow":
        result = flow(stream, a.seconds)
    elif a.mode == "handoff":
        result = handoff(stream, a.seconds, opened)
    else:
        result = check(stream, a.records, a.batches, a.keep)
    result = {"arm": name, "mode": a.mode, "import_s": imported, **result}
    if facts is not None:
        result.update(facts())
    print(json.dumps(result, default=float), flush=True)
    # Loaders differ in how (and whether) they shut down in the middle of an epoch. That is not measured, and run.py
    # kills the remaining processes of the session.
    os._exit(0)


def _process_start() -> float:
    fields = procs.stat(os.getpid())
    assert fields is not None
    lines = Path("/proc/stat").read_text().splitlines()
    boot = next(int(line.split()[1]) for line in lines if line.startswith("btime"))
    return boot + int(fields[19]) / procs.TICKS
