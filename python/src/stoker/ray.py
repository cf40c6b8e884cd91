"""Packing on a Ray cluster: Ray places the parts of a pack on its nodes, and repeats parts whose node is lost.

::

    import stoker.ray

    stoker.ray.pack("s3://my-bucket/photos/", "s3://my-bucket/train/", images="raw", resize=256)
"""

from __future__ import annotations

import os
import sys
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from . import _pack
from ._ask import ask
from ._errors import ConfigError, EngineDied, StokerError, public
from ._pack_once import LONG, begun

__all__ = ["pack"]

_PARTS = 4  # per node: a lost node costs at most a quarter of its share


def __dir__() -> list[str]:
    return __all__


@public
def pack(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    parts: int | None = None,
    cpus: float | None = None,
    retries: int = 10,
    progress: bool | None = None,
    **options: Any,
) -> _pack.PackResult:
    """Pack the data at a path with all nodes of a Ray cluster. Nothing passes through Ray's object store.

    After an interruption, the same call continues with the parts that are not finished.

    Args:
        data: a path or URL that all nodes can open.
        out: a folder that all nodes share, or a URL.
        parts: the number of parts, 4 per node by default, or as many as a call before has begun.
        cpus: the CPUs of a part, by default those of the smallest node.
        retries: how often a part starts again after its process or node was lost. A machine that Ray reports as
            preempted does not count.
        progress: show the progress on the terminal, by default if there is one.
        **options: of ``stoker.pack``: ``images``, ``resize``, ``transforms``, ``shard_size``, ``restart``, ...

    Raises:
        StokerError: a part failed; the message names it. The other parts stop, and the same call continues.
    """
    source, to = os.fspath(data), os.fspath(out)
    if not ray.is_initialized():
        ray.init()
    nodes = [n["Resources"]["CPU"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
    if options.pop("restart", False):
        ask(["pack", "--clear", to], timeout=LONG)  # once, and not by each part
    state = begun(to)
    if parts is None:
        parts = 1 if state.get("whole") else state["parts"] or _PARTS * max(len(nodes), 1)
    elif parts < 1:
        raise ConfigError(f"parts={parts}: give 1 or more")
    if cpus is None:
        cpus = min(nodes, default=1)
    task = ray.remote(num_cpus=cpus, max_retries=retries, retry_exceptions=[EngineDied], scheduling_strategy="SPREAD")
    part = task(_part).options(name=f"stoker pack {to}")
    running = {part.remote(source, to, i, parts, max(int(cpus), 1), options): i for i in range(parts)}
    show = sys.stderr.isatty() if progress is None else progress
    try:
        while running:
            ended, _ = ray.wait(list(running), timeout=60)  # and look again: no wait is without end
            for one in ended:
                i = running.pop(one)
                try:
                    ray.get(one)
                except RayError as error:
                    why = error.cause if isinstance(error, RayTaskError) else error
                    raise StokerError(f"part {i}/{parts} of {to}: {why}") from None
            if show:
                print(f"\rpacking {to}: {parts - len(running)} of {parts} parts ", end="", file=sys.stderr, flush=True)
    finally:
        for one in running:
            ray.cancel(one, force=True)
        if show:
            print(file=sys.stderr)
    return _pack.commit_pack(to)


def _part(data: str, out: str, i: int, parts: int, threads: int, options: dict[str, Any]) -> None:
    _pack.pack(data, out, part=(i, parts), workers=threads, **options)
