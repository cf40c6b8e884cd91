"""Batches for JAX: global arrays, sharded over the devices of a mesh.

::

    from stoker.jax import batches, ranks

    sharding = NamedSharding(mesh, PartitionSpec("data"))
    loader = stoker.Loader("train/", batch_size=256, drop_last=True, ranks=ranks(sharding),
                           transforms={"image": [stoker.transforms.RandomResizedCrop(224)]})
    for batch in batches(loader, sharding):
        state = train_step(state, batch["image"], batch["label"])

Nothing is forked (JAX warns of forks): the engine is a process of its own.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ._errors import ConfigError
from ._groups import Ranks
from ._loader import Loader
from ._ragged import Ragged, Strings, uneven

__all__ = ["batches", "ranks"]


def __dir__() -> list[str]:
    return __all__


def ranks(sharding: Any) -> Ranks:
    """Return ``ranks=`` for a loader whose rows have this sharding over the processes.

    Processes whose devices hold the same rows, such as those along a model axis, have the same rank, and so get the
    same rows.

    Args:
        sharding: a ``jax.sharding.Sharding`` that splits the first axis.

    Raises:
        ConfigError: the devices of a process do not hold one run of rows.
    """
    count = len(sharding.device_set)
    rows: dict[int, set[tuple[int, int]]] = collections.defaultdict(set)
    for device, index in sharding.devices_indices_map((count,)).items():
        lo, hi, _ = index[0].indices(count)
        rows[device.process_index].add((lo, hi))
    runs = {process: (min(lo for lo, _ in has), max(hi for _, hi in has)) for process, has in rows.items()}
    for process, (lo, hi) in runs.items():
        if sum(b - a for a, b in rows[process]) != hi - lo:
            raise ConfigError(
                f"the devices of process {process} do not hold one run of rows; order the mesh so that the axis of the "
                "data goes through each process's devices first"
            )
    parts = sorted(set(runs.values()))
    if any(a[1] != b[0] or b[1] - b[0] != a[1] - a[0] for a, b in itertools.pairwise(parts)):
        raise ConfigError(f"the processes hold the rows {parts}, not as many each; each must be fed as many rows")
    return Ranks(parts.index(runs[jax.process_index()]), len(parts))


def batches(
    loader: Loader, sharding: Any, *, fields: Sequence[str] | None = None, ahead: int = 1
) -> Iterator[dict[str, Any]]:
    """Return the batches of the loader's next epoch as dicts of global ``jax.Array``s.

    Args:
        loader: a ``stoker.Loader`` with ``output="numpy"`` (the default), of the ranks that ``ranks`` returns. A
            smaller last batch is compiled again, and must still split evenly over the devices: ``drop_last=True`` skips
            it.
        sharding: the split of the first axis.
        fields: names of arrays; default: all arrays with rows of one shape, except ``index``.
        ahead: the number of batches that are sent to the devices in advance.

    Raises:
        ConfigError: a requested field has rows of different lengths.
    """
    waiting: collections.deque[dict[str, Any]] = collections.deque()
    for batch in loader:
        # JAX holds the arrays until it has copied them. On CPU it may use them without a copy. In both cases the engine
        # can use their memory again when JAX has released them.
        waiting.append(
            {
                name: jax.make_array_from_process_local_data(sharding, _dense(name, batch[name]))
                for name in (fields if fields is not None else _denses(batch))
            }
        )
        if len(waiting) > ahead:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


def _denses(batch: Any) -> list[str]:
    return [n for n in batch.keys() if n != "index" and not isinstance(batch[n], Ragged | Strings)]  # noqa: SIM118


def _dense(name: str, array: Any) -> np.ndarray[Any, Any]:
    if isinstance(array, Ragged | Strings):
        raise uneven(name)
    return np.asarray(array)
