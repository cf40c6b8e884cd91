"""Stoker keeps accelerators fed: a data loader with an engine outside Python.

::

    import stoker

    loader = stoker.Loader("train/", batch_size=256, shuffle=True, seed=0,
                           fields={"image": [stoker.RandomResizedCrop(224), stoker.RandomHorizontalFlip()]})
    for epoch in range(3):
        for images, labels in loader:
            ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import (
        transforms,
        transforms_audio,
        transforms_augment,
        transforms_detection,
        transforms_video,
        transforms_volume,
    )
    from ._batch import Batch
    from ._bench import BenchResult, StudyResult, bench, study
    from ._columns import Column
    from ._doctor import doctor
    from ._errors import (
        BatchesHeld,
        ConfigError,
        EngineDied,
        EngineNotFound,
        EngineRestarted,
        RecordError,
        SkippedRecords,
        StateMismatch,
        StokerError,
        StokerTimeout,
        UnknownArgument,
    )
    from ._fields import Field
    from ._fused import OnDevice
    from ._headroom import HeadroomResult, headroom
    from ._loader import Loader
    from ._pack import PackResult, pack
    from ._pad import Buckets, Padded
    from ._plan import Plan, plan
    from ._profile import Profiler, ProfileResult, profile
    from ._ragged import Ragged, Strings
    from ._step import stage, step, watch
    from .transforms import *  # noqa: F403
    from .transforms_audio import *  # noqa: F403
    from .transforms_augment import *  # noqa: F403
    from .transforms_detection import *  # noqa: F403
    from .transforms_video import *  # noqa: F403
    from .transforms_volume import *  # noqa: F403

    __all__ = [
        "Buckets",
        "Batch",
        "BenchResult",
        "HeadroomResult",
        "ProfileResult",
        "Profiler",
        "StudyResult",
        "BatchesHeld",
        "Column",
        "ConfigError",
        "EngineDied",
        "EngineRestarted",
        "EngineNotFound",
        "Field",
        "Padded",
        "Loader",
        "OnDevice",
        "PackResult",
        "Plan",
        "Ragged",
        "RecordError",
        "SkippedRecords",
        "StateMismatch",
        "StokerError",
        "StokerTimeout",
        "Strings",
        "UnknownArgument",
        "__version__",
        "doctor",
        "plan",
        "bench",
        "headroom",
        "pack",
        "profile",
        "stage",
        "step",
        "study",
        "watch",
        *transforms.__all__,
        *transforms_audio.__all__,
        *transforms_augment.__all__,
        *transforms_detection.__all__,
        *transforms_video.__all__,
        *transforms_volume.__all__,
    ]

# Where the names above are. They are imported when they are asked for, so that a trainer and its workers have no more
# of the package in memory than they use.
_NAMES: dict[str, tuple[str, ...]] = {
    "_batch": ("Batch",),
    "_bench": ("BenchResult", "StudyResult", "bench", "study"),
    "_columns": ("Column",),
    "_doctor": ("doctor",),
    "_errors": (
        "BatchesHeld",
        "ConfigError",
        "EngineDied",
        "EngineRestarted",
        "EngineNotFound",
        "RecordError",
        "SkippedRecords",
        "StateMismatch",
        "StokerError",
        "StokerTimeout",
        "UnknownArgument",
    ),
    "_fields": ("Field",),
    "_fused": ("OnDevice",),
    "_headroom": ("HeadroomResult", "headroom"),
    "_loader": ("Loader",),
    "_pack": ("PackResult", "pack"),
    "_pad": ("Buckets", "Padded"),
    "_plan": ("Plan", "plan"),
    "_profile": ("Profiler", "ProfileResult", "profile"),
    "_ragged": ("Ragged", "Strings"),
    "_step": ("stage", "step", "watch"),
}
_TRANSFORMS = (
    "transforms",
    "transforms_audio",
    "transforms_augment",
    "transforms_detection",
    "transforms_video",
    "transforms_volume",
)


def __getattr__(name: str) -> Any:
    if name in _TRANSFORMS:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__all__":
        found: Any = ["__version__", *(n for names in _NAMES.values() for n in names)]
        found += [n for module in _TRANSFORMS for n in importlib.import_module(f"{__name__}.{module}").__all__]
    else:
        found = _find(name)
    globals()[name] = found
    return found


def _find(name: str) -> Any:
    if not name.startswith("_"):
        for module, names in _NAMES.items():
            if name in names:
                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        for module in _TRANSFORMS:
            of = importlib.import_module(f"{__name__}.{module}")
            if name in of.__all__:
                return getattr(of, name)
    text = f"module {__name__!r} has no attribute {name!r}"
    if not name.startswith("_"):
        from . import _elsewhere

        text += _elsewhere.hint(name, __dir__())
    raise AttributeError(text)


def __dir__() -> list[str]:
    return sorted({*globals(), *_TRANSFORMS, *__getattr__("__all__")} - {"Any", "TYPE_CHECKING", "importlib"})
