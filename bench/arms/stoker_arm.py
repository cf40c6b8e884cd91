"""This project's loader over a folder or a pack. --workers is the number of engine threads (0: the engine's choice)."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import stoker
from stoker import transforms as T

from .. import procs
from .harness import Job, Stream, main

_loader: Any = None
_collections: list[int] = []


def open_stream(job: Job) -> Stream:
    global _loader
    image: list[Any] = []
    if job.geometry != "none":
        image = [T.RandomResizedCrop(job.size, scale=job.scale, ratio=job.ratio)]
        if job.flip:
            image.append(T.RandomHorizontalFlip(job.flip))
    more: dict[str, Any] = {"threads": job.workers} if job.workers else {}
    limits: dict[str, Any] = {k: int(v) for k, v in job.options.items() if k in ("memory", "prefetch")}
    limits |= {k: v for k, v in job.options.items() if k == "lookahead"}
    _loader = stoker.Loader(
        job.data,
        batch_size=job.batch,
        shuffle=job.options.get("shuffle", True),
        seed=job.seed,
        drop_last=job.epochs == 0,
        transforms=None if job.geometry == "none" else {"image": image},
        limits=stoker.Limits(**limits),
        **more,
    )
    # The images, or other data of the records.
    name = _loader.info["arrays"][0]["name"]
    count = 0
    while True:
        for batch in _loader:
            yield batch[name], batch["index"]
            count += 1
        if job.epochs:
            return
        if count > 40:
            _collections.append(collections())


def collections() -> int:
    """Garbage collections of the engine so far."""
    return int(_loader.stats()["engine"]["num_gc"])


def facts() -> dict[str, object]:
    """The memory of the engine alone, garbage collections per steady epoch, and its own counters."""
    stats = _loader.stats()
    steps = [b - a for a, b in itertools.pairwise(_collections)]
    engine = [pid for pid in procs.tree(os.getpid()) if Path(f"/proc/{pid}/comm").read_text().startswith("stoker")]
    return {
        "versions": {"stoker": getattr(stoker, "__version__", "")},
        "engine_memory_mib": procs.memory(engine[0]) if engine else None,
        "gc_in_steady_epochs": steps,
        "stats": stats,
    }


if __name__ == "__main__":
    main("stoker", open_stream, facts)
