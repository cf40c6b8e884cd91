"""Batches for TensorFlow: eager tensors over the engine's memory, and a ``tf.data.Dataset``.

::

    import stoker
    from stoker import transforms as T
    from stoker.tf import batches, dataset

    loader = stoker.Loader("train/", batch_size=256, shuffle=True, transforms={"image": [T.RandomResizedCrop(224)]})
    for batch in batches(loader):                 # in a loop of one's own
        train_step(batch["image"], batch["label"])
    data = dataset(loader).prefetch(2)            # where tf.data is wanted; each pass is the next epoch

Neither uses ``tf.data.Dataset.from_generator``, whose generator runs under its own locks. On CPU TensorFlow uses the
engine's memory without a copy. The engine gets it back when the tensors are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found,import-untyped,unused-ignore]

from ._batch import INDEX, Batch
from ._errors import ConfigError
from ._loader import Loader
from ._ragged import Ragged, Strings

__all__ = ["batches", "dataset"]


def __dir__() -> list[str]:
    return __all__


# The number of slots that stay with the engine. A consumer that holds more batches, such as a long prefetch, gets
# copies.
_KEPT = 2


def batches(loader: Loader, *, fields: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Return the batches of the loader's next epoch as dicts of eager tensors, which share the engine's memory.

    Rows of different lengths come as ``tf.RaggedTensor``s, texts as tensors of strings, which are copies.

    Args:
        loader: a ``stoker.Loader`` with ``output="numpy"`` (the default).
        fields: which arrays; default: all but ``index``.

    Raises:
        ConfigError: the loader has no such array, or gives tensors of torch.
    """
    _check(loader)
    for batch in loader:
        names = _names(batch) if fields is None else fields
        try:
            yield {name: _tensor(_kept(loader, batch[name])) for name in names}
        except KeyError as error:
            raise ConfigError(str(error.args[0])) from None


def dataset(loader: Loader, *, fields: Sequence[str] | None = None) -> Any:
    """Return a ``tf.data.Dataset`` of dicts, each pass over which is the loader's next epoch.

    It can be mapped, prefetched and given to ``model.fit`` like any other. After ``load_state_dict`` its first pass is
    the rest of that epoch. One pass runs at a time, as with the loader.

    Args:
        loader: a ``stoker.Loader`` with ``output="numpy"`` and without ``map=``, so that shapes and types are known.
        fields: which arrays; default: all but ``index``.

    Raises:
        ConfigError: the loader has no such array, gives tensors of torch, or has ``map=``.
    """
    _check(loader)
    if loader._epochs.stage is not None:
        raise ConfigError("TensorFlow wants to know shapes and types before the first batch, which map= decides")
    specs = {s.name: s for s in loader._epochs.specs}
    names = list(fields) if fields is not None else [n for n in specs if n != INDEX]
    for name in names:
        if name not in specs:
            raise ConfigError(f"the loader has no array {name!r}; it has {', '.join(specs)}")
    parts: list[tuple[str, Any, list[int | None]]] = []  # of the function: arrays, and two for ragged ones
    for name in names:
        s = specs[name]
        if s.is_text:
            parts.append((name, tf.string, [None]))
        elif s.offsets is not None:
            parts += [(name, tf.as_dtype(s.dtype), [None, *s.user_shape]), (name, tf.int64, [None])]
        else:
            parts.append((name, tf.as_dtype(s.dtype), [None, *([None] if s.varies else []), *s.user_shape]))
    source = _Source(loader, names, [t.as_numpy_dtype for _, t, _ in parts])
    types = [tf.bool, *(t for _, t, _ in parts)]

    def take(number: Any) -> Any:
        more, *arrays = tf.numpy_function(source.take, [number], types)
        more.set_shape([])
        for array, (_, _, shape) in zip(arrays, parts, strict=True):
            array.set_shape(shape)
        return more, tuple(arrays)

    def built(_: Any, arrays: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        rest = iter(arrays)
        for name in names:
            values = next(rest)
            ragged = specs[name].offsets is not None and not specs[name].is_text
            out[name] = tf.RaggedTensor.from_row_splits(values, next(rest), validate=False) if ragged else values
        return out

    # Counting is stateless, so that each pass begins at 0 for any caller. The function reports the end.
    counted = tf.data.Dataset.range(np.iinfo(np.int64).max).map(take)
    made = counted.take_while(lambda more, _: more).map(built)
    return made.apply(tf.data.experimental.assert_cardinality(len(loader))) if not _resumed(loader) else made


class _Source:
    """The function that a ``tf.data.Dataset`` calls for each batch."""

    def __init__(self, loader: Loader, names: list[str], types: list[Any]) -> None:
        self._loader, self._names, self._types = loader, names, types
        self._batches: Iterator[Batch] | None = None

    def take(self, number: Any) -> list[Any]:
        """Return whether there is a batch, and its arrays."""
        if number == 0:
            self._batches = iter(self._loader)
        assert self._batches is not None
        batch = next(self._batches, None)
        if batch is None:
            return [np.False_, *(np.zeros([0], t) for t in self._types)]
        out: list[Any] = [np.True_]
        for name in self._names:
            value = _kept(self._loader, batch[name])
            if isinstance(value, Strings):
                out.append(np.array([text.encode() for text in value], object))
            elif isinstance(value, Ragged):
                out += [value.values, value.offsets]
            else:
                out.append(value)
        return out


def _check(loader: Loader) -> None:
    if loader.output != "numpy":
        raise ConfigError('TensorFlow takes the arrays of output="numpy", which is the default')


def _resumed(loader: Loader) -> bool:
    """Whether the next epoch is the rest of one."""
    return loader._epochs.upcoming.row > 0


def _names(batch: Batch) -> list[str]:
    return [name for name in batch.keys() if name != INDEX]  # noqa: SIM118


def _kept(loader: Loader, value: Any) -> Any:
    """Return an array of a batch, as a copy if the program holds nearly all slots."""
    connection = loader._epochs.connection
    if connection is not None and connection.held > connection.slots - _KEPT:
        return value.copy()
    return value


def _tensor(value: Any) -> Any:
    if isinstance(value, Strings):
        return tf.constant([text.encode() for text in value], tf.string, [len(value)])
    if isinstance(value, Ragged):
        return tf.RaggedTensor.from_row_splits(_tensor(value.values), _tensor(value.offsets), validate=False)
    try:
        return tf.experimental.dlpack.from_dlpack(value.__dlpack__())
    except (BufferError, RuntimeError, TypeError, tf.errors.OpError):  # a type or alignment that it does not take
        return tf.constant(value)
