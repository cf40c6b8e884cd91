"""``stoker.torch.DataLoader``: torch's DataLoader, by faster ways."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch.utils.data

from .._errors import ConfigError
from . import _frameworks, _path, _state

if TYPE_CHECKING:
    from .._fused import OnDevice
    from .._groups import Cache
    from ._device import Target

_T = TypeVar("_T")

# The arguments that are ours.
_OWN = ("device", "cache")


def _signature() -> inspect.Signature:
    """Return torch's signature with the arguments that are ours."""
    theirs = inspect.signature(torch.utils.data.DataLoader.__init__)
    ours = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _OWN]
    return theirs.replace(parameters=[*theirs.parameters.values(), *ours])


_SIGNATURE = _signature()


def _target(device: Any) -> Target | None:
    """Return the target device. Its module is imported only by loaders with a device."""
    from ._device import Target

    return Target.of(device)


class DataLoader(torch.utils.data.DataLoader[_T]):
    """torch's DataLoader, which reads through Stoker's engine if the batches are then identical.

    ::

        from stoker.torch import DataLoader  # instead of: from torch.utils.data import DataLoader

    This is a subclass with torch's arguments, defaults and errors. Batches, their order, and the numbers drawn from
    ``generator`` or from the global random numbers are equal to torch's. Each epoch takes one of three paths:

    1. **engine**: dataset, transforms and collate function are recognised, and the engine gives identical results.
       Any ``num_workers`` is accepted and has no effect.
    2. **workers**: anything else with ``num_workers > 0``. Stoker's own worker processes run your Python code, and
       share the memory of batches with this process. That memory is used again when its last tensor is gone.
    3. **torch**: torch's own code, with ``num_workers=0`` and if the other paths could give other results.

    ``explain()`` names the path, the reason, and what to change.

    A subclass or a framework may rely on the following, in addition to torch's attributes:

    - ``inspect.signature`` gives torch's arguments and these two. Copies made from ``dataset``, ``sampler`` and so on
      work as with torch's class.
    - ``_get_iterator()`` chooses the path. Iterators are ``_BaseDataLoaderIter``s. ``__iter__`` and
      ``_index_sampler`` differ from torch's only after ``load_state_dict()``.
    - ``_stoker_path`` is the path that was chosen last, None before the first choice.

    Args:
        device: the device of the batches: ``"cuda"``, ``"cuda:1"``, or a ``stoker.OnDevice``, which also transforms
            images there, in one kernel. Batches are copied from pinned memory, on a CUDA stream of their own, one
            batch ahead of the training loop. Tensors anywhere in lists, tuples and mappings are copied.
        cache: cache JPEG files that the engine reads in a format that decodes several times as fast, with the same
            pixels: ``True``, ``False``, ``"auto"`` or a ``stoker.Cache``, as for ``stoker.Loader``. Default:
            ``"auto"``, in the user's cache folder. The paths *workers* and *torch* do not cache.
    """

    # The way that was chosen last; a class attribute, as ``__init__`` is torch's.
    _stoker_path: _path.Way | None = None
    # The state of load_state_dict() until the epoch begins, and the state of the current epoch.
    _stoker_load: dict[str, Any] | None = None
    _stoker_standing: _state.Standing | None = None

    # The device for batches, None to leave them in place.
    _stoker_target: Target | None = None
    # The engine's settings for the cache of files, None for the default.
    _stoker_cache: dict[str, Any] | None = None

    def __new__(cls, *_args: Any, **_more: Any) -> Any:
        _frameworks.attach(DataLoader)
        return super().__new__(cls)

    def __init__(
        self,
        *args: Any,
        device: str | OnDevice | Any = None,
        cache: bool | Literal["auto"] | Cache | None = None,
        **more: Any,
    ) -> None:
        """Make a loader; the arguments are torch's, and those that the class describes."""
        if "feeders" in more:
            raise ConfigError(
                "feeders build batches of the engine's order, and this DataLoader takes records from its sampler: "
                "use stoker.Loader(..., feeders=...)"
            )
        target = None if device is None else _target(device)
        caching = None
        if cache is not None:
            from .._groups import Cache
            from .._options import group

            caching = group("cache", cache, Cache, bare=True).to_config()
        super().__init__(*args, **more)
        # Attributes, so that code that makes the loader again from them finds them.
        if device is not None:
            self.device = device
            self._stoker_target = target
        if caching is not None:
            self.cache = cache
            self._stoker_cache = caching

    __init__.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
    # inspect.signature(DataLoader) reads this first.
    __new__.__signature__ = _SIGNATURE  # type: ignore[attr-defined]

    def __iter__(self) -> Any:
        if self._stoker_standing is None:
            self._stoker_standing = _state.Standing()
        return self._stoker_standing.begin(self, self._begin)

    def _begin(self) -> Any:
        inner, target = super().__iter__(), self._stoker_target
        if target is None:
            return inner
        from ._device import DeviceIterator

        standing = self._stoker_standing
        # An iterable dataset is gone through from its beginning.
        ordered = standing is not None and not isinstance(self.dataset, torch.utils.data.IterableDataset)
        return DeviceIterator(target, inner, standing.skipped if ordered and standing is not None else 0)

    @property
    def _index_sampler(self) -> Any:
        standing = self._stoker_standing
        if standing is not None and standing.order is not None:
            return standing.order
        return super()._index_sampler

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position, between the batches that the loop has had and the next one.

        JSON can hold the state. It has the number of batches of the current epoch so far, and the seeds of that epoch:
        at most 256 bytes, unless the order comes from random numbers without a seed, which then take 7 KB. Between two
        epochs it points to the beginning of the next one.
        """
        if self._stoker_standing is None:
            self._stoker_standing = _state.Standing()
        return self._stoker_standing.state(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next ``for`` continue at the position at which ``state_dict()`` was called.

        The order is skipped through without loading anything. An iterable dataset has no order and is skipped through
        batch by batch. Random numbers of the loop itself do not change, and ``generator`` is as after the order was
        drawn.

        Raises:
            StateMismatch: the state is invalid, or the next ``for`` finds another dataset, order or batch size.
        """
        self._stoker_load = _state.check(state)

    def _get_iterator(self) -> Any:
        way = self._way()
        if isinstance(way, _path.TorchWay):
            return super()._get_iterator()
        return way.iterator(self)

    def _way(self) -> _path.Way:
        if self._stoker_path is None or not self._stoker_path.fits(self):
            self._stoker_path = _path.choose(self)
        return self._stoker_path

    def explain(self) -> str:
        """Return a table: the parts of this loader, where each runs, why, and what to change."""
        way = self._way()
        rows = [*way.rows(self)]
        asked = self._stoker_cache is not None and self._stoker_cache["cache"] == "on"
        if asked and not isinstance(way, _path.EngineWay):
            rows.append(_path.Row("cache", "-", "nothing is kept: the engine does not read the files"))
        return _path.table(rows)

    def adopt(self, other: DataLoader[Any]) -> None:
        """Copy the arguments ``device`` and ``cache`` of another loader."""
        for name in (*_OWN, "_stoker_target", "_stoker_cache"):
            if name in vars(other):
                setattr(self, name, vars(other)[name])

    def __getstate__(self) -> dict[str, Any]:
        # The way may hold processes and connections, so that the unpickled loader chooses again.
        state = dict(self.__dict__)
        for name in ("_stoker_path", "_stoker_standing", "_stoker_target"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "device" in state:
            self._stoker_target = _target(state["device"])
