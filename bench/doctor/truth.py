"""Runs a training script with one resource removed and reports its rate: the truth of the matrix.

    python truth.py        reads jobs as JSON lines from standard input, answers each with a line

It imports the frameworks once and forks for each job, so that a measurement is as short as possible. A job:

    {"script": "imagefolder", "argv": [...], "remove": "cpu", "groups": ["/sys/fs/cgroup/.../cgroup.procs"],
     "local": "/folder", "cold": false, "warm": 1.0, "seconds": 3.0}

Resources that are removed inside of the script are replaced in its module, before its main() runs:

    ""            nothing
    cpu           decoding and transforming return their first results again. Bytes are still read and handed over.
    handoff       workers hand over one number per batch, and the loop gets an existing batch. Nothing is collated,
                  pickled or converted.
    network       fetched data is read from a file
    accelerator   the step takes no time
    everything    no loader at all: the same batch again and again

Removing storage and memory limits is the runner's part: it does not set them.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
LIMIT = 40.0  # seconds that a job may take in all
VERSION = 2  # increased when a removal changes its meaning: cached truths are measured again


class Done(BaseException):
    """The measurement is over."""


class Meter:
    """Replaces the progress lines of the script: measures and ends it."""

    def __init__(self, warm: float, seconds: float, skip: int) -> None:
        self.warm, self.seconds, self.skip = warm, seconds, skip
        self.first = 0.0
        self.start = 0.0
        self.steps = 0
        self.seen = 0
        self.waited = 0.0
        self.end = self.arrived = time.perf_counter()

    def data(self) -> None:
        self.arrived = time.perf_counter()

    def step(self) -> None:
        now = time.perf_counter()
        self.seen += 1
        self.first = self.first or now
        if self.start:
            self.steps += 1
            self.waited += self.arrived - self.end
        elif (self.seen > self.skip and now - self.first >= self.warm) or now - self.first > 6:
            self.start = now
        self.end = now
        measured = now - self.start
        if self.start and ((measured >= self.seconds and self.steps >= 6) or measured > 3 * self.seconds):
            raise Done

    def result(self) -> dict[str, float]:
        seconds = self.end - self.start
        if not self.start or not self.steps:
            return {"rate": 0.0, "wait": 1.0, "steps": 0}
        return {"rate": self.steps / seconds, "wait": self.waited / seconds, "steps": self.steps}


# --- removals --------------------------------------------------------------------


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def remove_cpu(script: Any, name: str, argv: list[str], cold: bool) -> None:
    if name == "imagefolder":

        def frozen(make: Any) -> Any:
            def dataset(args: Any) -> Any:
                made = make(args)
                item = made[0][0]
                made.loader = lambda path: Path(path).read_bytes()
                made.transform = lambda _: item
                return made

            return dataset

        replace(script, "make_dataset", frozen)
    elif name == "remote":
        items: dict[int, Any] = {}

        def fetch_only(get: Any) -> Any:
            def item(self: Any, index: int) -> Any:
                if 0 not in items:
                    items[0] = get(self, 0)
                script.fetch(f"{self.address}/{self.names[index]}")
                return items[0]

            return item

        replace(script.RemoteImages, "__getitem__", fetch_only)
    elif name == "shards":
        samples: dict[int, Any] = {}

        def first(call: Any) -> Any:
            def decode(self: Any, sample: Any) -> Any:
                if 0 not in samples:
                    samples[0] = call(self, sample)
                return samples[0]

            return decode

        replace(script.Decode, "__call__", first)
    elif name == "objects":
        images: dict[int, Any] = {}

        def read_only(get: Any) -> Any:
            def item(self: Any, index: int) -> Any:
                if 0 not in images:
                    images[0] = get(self, 0)[0]
                Path(self.files[index]).read_bytes()
                return images[0], self.targets[index % len(self.targets)]

            return item

        replace(script.Detection, "__getitem__", read_only)
    elif name == "arrays":
        rows: dict[int, Any] = {}

        def touch(augment: Any) -> Any:
            def touched(self: Any, row: Any) -> Any:
                if 0 not in rows:
                    rows[0] = augment(self, row)
                row.reshape(-1)[::4096].sum()
                return rows[0]

            return touched

        replace(script.Rows, "augment", touch)
    elif name == "packed":
        if cold:
            # One tile of each image: all bytes are still read.
            from stoker import transforms as T

            script.make_transforms = lambda size: [T.RandomResizedCrop(16, scale=(0.002, 0.003))]
        else:
            images, labels = ready_batch(argv)
            script.make_loader = lambda args: Again({"image": (images * 255).byte(), "label": labels})
    else:
        raise ValueError(f"no way to remove the CPU work of {name}")


def ready_batch(argv: list[str]) -> tuple[Any, Any]:
    """A batch of the shape that the loop expects."""
    import torch

    def option(name: str, default: int) -> int:
        return int(argv[argv.index(name) + 1]) if name in argv else default

    n, size = option("--batch", 32), option("--size", 224)
    return torch.rand(n, 3, size, size), torch.zeros(n, dtype=torch.long)


class Again:
    """An endless loader, or one that repeats the same batch for each batch of another loader."""

    def __init__(self, batch: Any, loader: Any = None) -> None:
        self.batch, self.loader = batch, loader

    def __iter__(self) -> Iterator[Any]:
        if self.loader is None:
            while True:
                yield self.batch
        for _ in self.loader:
            yield self.batch


def remove_handoff(script: Any, name: str, argv: list[str]) -> None:
    import torch

    batch = ready_batch(argv)
    if name == "packed":
        # Its batches arrive without a copy, so only the script's own work on them can be removed.
        script.unroll = lambda images, labels, views: (images, labels)
        return
    script.collate = lambda items: torch.zeros(1)
    replace(script, "make_loader", lambda make: lambda *a: Again(batch, make(*a)))
    if hasattr(script, "unroll"):
        script.unroll = lambda *a: batch


def remove_everything(script: Any, name: str, argv: list[str]) -> None:
    batch = ready_batch(argv)
    if hasattr(script, "make_dataset"):
        script.make_dataset = lambda args: None
    given = {"image": (batch[0] * 255).byte(), "label": batch[1]} if name == "packed" else batch
    script.make_loader = lambda *a: Again(given)
    if hasattr(script, "unroll"):
        script.unroll = lambda *a: batch


def remove_network(script: Any, name: str, local: str) -> None:
    if name == "remote":
        # .../127.0.0.1:PORT/name
        script.fetch = lambda url: Path(local, url.split("/", 3)[3]).read_bytes()
    else:
        script.find_shards = lambda data: sorted(str(p) for p in Path(local, "shards").glob("*.tar"))


def run(job: dict[str, Any]) -> dict[str, float]:
    """Runs in the forked child: the script, changed for the job, until the meter has enough steps."""
    for group in job.get("groups", []):
        Path(group).write_text(str(os.getpid()))
    import common

    name, argv, removed = job["script"], [str(a) for a in job["argv"]], job["remove"]
    script = importlib.import_module(name)
    workers = int(argv[argv.index("--workers") + 1]) if "--workers" in argv else 2
    meter = Meter(job["warm"], job["seconds"], workers + 1)
    common.Progress = lambda: meter  # type: ignore[assignment, misc]
    if removed == "cpu":
        remove_cpu(script, name, argv, job.get("cold", False))
    elif removed == "handoff":
        remove_handoff(script, name, argv)
    elif removed == "everything":
        remove_everything(script, name, argv)
    elif removed == "network":
        remove_network(script, name, job["local"])
    elif removed == "accelerator":
        common.make_step = lambda spec: lambda images, labels: None
    elif removed not in ("", "storage", "memory"):
        raise ValueError(f"no resource is called {removed!r}")
    try:
        script.main(argv)
    except Done:
        return meter.result()
    raise RuntimeError("the script ended before the measurement did")


# --- the server ------------------------------------------------------------------


def child(job: dict[str, Any], out: int) -> NoReturn:
    os.setsid()
    try:
        answer: dict[str, Any] = run(job)
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(out, json.dumps(answer).encode())
    os.close(out)
    # The workers are in this process group; nothing of them is needed any more.
    os.killpg(0, signal.SIGKILL)
    os._exit(0)


def answer(job: dict[str, Any]) -> dict[str, Any]:
    inside, outside = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(inside)
        child(job, outside)
    os.close(outside)
    ready, _, _ = select.select([inside], [], [], LIMIT)
    data = os.read(inside, 65536) if ready else b""
    os.close(inside)
    if not data:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return json.loads(data) if data else {"error": f"no answer within {LIMIT:.0f} s"}


def main() -> None:
    sys.path.insert(0, str(HERE / "train"))
    import torch
    import torchvision

    del torch, torchvision
    # readline and not the iterator: a forked child must not find a buffer with the next job in it.
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
