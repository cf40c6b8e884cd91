"""A loader in the form that Keras 3 takes in ``fit``, ``evaluate`` and ``predict``, on each of its backends.

::

    import stoker
    from stoker import transforms as T
    from stoker.keras import Dataset

    loader = stoker.Loader("train/", batch_size=256, shuffle=True, transforms={"image": [T.RandomResizedCrop(224)]})
    model.fit(Dataset(loader), epochs=3)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras  # noqa: F401 - whoever lacks it learns that here
import numpy as np
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from ._errors import ConfigError
from ._loader import Loader
from ._ragged import Ragged, Strings, uneven

__all__ = ["Dataset"]


def __dir__() -> list[str]:
    return __all__


class Dataset(DataAdapter):  # type: ignore[misc]
    """A data adapter for ``x`` of ``model.fit``; each epoch of Keras is the next epoch of the loader.

    Torch's and JAX's backends get views of the engine's memory, and so does TensorFlow on CPU (``stoker.tf.dataset``).

    Args:
        loader: a ``stoker.Loader``.
        inputs: name of the input, or names if the model has several; default: the first array of a batch. With ``map=``
            it is required.
        targets: name of the target, or names; ``None`` for none. Default: the second array, if there is one.
        weights: name of the array of sample weights.
    """

    def __init__(
        self,
        loader: Loader,
        inputs: str | Sequence[str] | None = None,
        targets: str | Sequence[str] | None = "",
        weights: str | None = None,
    ) -> None:
        self.loader = loader
        mapped = loader._epochs.stage is not None  # then its functions say what arrays there are
        if mapped and (inputs is None or targets == ""):
            raise ConfigError("of a loader with map= or batch_map=, name inputs= and targets=")
        names = [a["name"] for a in loader.info["arrays"]]
        places = [s.name for s in loader._epochs.specs if s.name != "index" and not s.of]
        self._parts: list[Any] = [places[0] if inputs is None else inputs]
        if targets == "":
            targets = places[1] if len(places) > 1 else None
        if targets is not None or weights is not None:
            self._parts.append(targets)
        if weights is not None:
            self._parts.append(weights)
        for part in self._parts:
            for name in [part] if isinstance(part, str) else part or []:
                if name not in names and not mapped:
                    raise ConfigError(f"the loader has no array {name!r}; it has {', '.join(names)}")

    def _take(self, batch: Any) -> tuple[Any, ...]:
        return tuple(_of(batch, part) for part in self._parts)

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Return the batches of the next epoch as NumPy arrays."""
        for batch in self.loader:
            yield _as(np.asarray, self._take(batch))

    def get_jax_iterator(self) -> Iterator[Any]:
        """Return the batches of the next epoch as arrays for JAX."""
        return self.get_numpy_iterator()

    def get_torch_dataloader(self) -> Any:
        """Return an iterable over the next epoch's batches as torch tensors, views of the engine's memory."""
        return _Torch(self)

    def get_tf_dataset(self) -> Any:
        """Return a ``tf.data.Dataset`` of the next epoch."""
        from .tf import dataset

        parts = [p for p in self._parts if p is not None]
        names = dict.fromkeys(n for p in parts for n in ([p] if isinstance(p, str) else p))
        for name in names:
            spec = next((s for s in self.loader._epochs.specs if s.name == name), None)
            if spec is not None and (spec.is_text or spec.offsets is not None):
                raise uneven(name)
        return dataset(self.loader, fields=list(names)).map(
            lambda batch: tuple(batch[p] if isinstance(p, str) else tuple(batch[n] for n in p) for p in parts)
        )

    @property
    def num_batches(self) -> int:
        """The number of batches per epoch."""
        return len(self.loader)

    @property
    def batch_size(self) -> int:
        """The size of a batch."""
        return self.loader.batch_size

    @property
    def has_partial_batch(self) -> bool:
        """Whether the last batch is smaller."""
        return self.partial_batch_size > 0

    @property
    def partial_batch_size(self) -> int:
        """The number of records in the last batch, 0 if it is as large as the others."""
        if self.loader.drop_last or self.loader.world_size > 1:
            return 0
        return self.loader.num_records % self.loader.batch_size


class _Torch:
    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return self.dataset.num_batches

    def __iter__(self) -> Iterator[Any]:
        import torch

        for batch in self.dataset.loader:
            yield _as(torch.as_tensor, self.dataset._take(batch))


def _of(batch: Any, part: Any) -> Any:
    if part is None:
        return None
    if not isinstance(part, str):
        return tuple(_of(batch, name) for name in part)
    if isinstance(batch[part], Ragged | Strings):
        raise uneven(part)
    return batch[part]


def _as(kind: Any, parts: Any) -> Any:
    if isinstance(parts, tuple):
        return tuple(_as(kind, p) for p in parts)
    return None if parts is None else kind(parts)
