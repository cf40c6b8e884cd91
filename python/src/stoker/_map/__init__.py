"""A user's Python functions inside a loader's pipeline: ``stoker.Loader(..., map=, batch_map=, workers=)``.

The loader's process hands slots of the ring to worker processes (``_stage``). Each of them maps the ring and calls the
functions on views of it (``_maker``), with random numbers set by ``_seeds``. It puts their results into memory that it
shares with the loader's process (``_result``, ``_worker``). Batches come in the order in which the engine made them.
"""

from __future__ import annotations

import os
from typing import Any

from .. import _options
from .._distributed import local_world_size
from .._errors import ConfigError
from ._maker import Functions
from ._stage import End, Made, Raised, Stage

__all__ = ["End", "Made", "Raised", "Stage", "stage"]


def stage(function: Any, batch_function: Any, workers: int | None, seed: int, output: str) -> Stage | None:
    """Check the arguments of a loader and return the stage that they ask for, None without functions."""
    for name, value in (("map", function), ("batch_map", batch_function)):
        if value is not None and not callable(value):
            raise ConfigError(f"{name}={value!r:.60} must be a function")
    if function is None and batch_function is None:
        if workers is not None:
            raise ConfigError("workers= are the processes of map= and batch_map=; the engine's threads are threads=")
        return None
    if workers is None:
        workers = max(1, len(os.sched_getaffinity(0)) // max(1, local_world_size()))
    workers = _options.whole("workers", workers, 0, 1024)
    return Stage(Functions(function, batch_function), workers, seed, output == "torch")
