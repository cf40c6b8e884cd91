"""Stoker keeps accelerators fed: a data loader with an engine outside Python.

::

    import stoker
    from stoker import transforms as T

    loader = stoker.Loader("train/", batch_size=256, shuffle=True, seed=0,
                           transforms={"image": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]})
    for epoch in range(3):
        for images, labels in loader:
            ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import audio, cache, callbacks, transforms, video, volume
    from ._batch import Batch
    from ._bench import BenchResult, StudyResult, bench, study
    from ._columns import Column
    from ._commands import ConvertResult, InspectResult, VerifyResult, convert, inspect, verify
    from ._dataset import Dataset, concat, mix, open  # noqa: A004
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
    from ._groups import Cache, Feeders, Limits, OnError, Ranks
    from ._headroom import HeadroomResult, headroom
    from ._loader import Loader
    from ._pack import PackResult, commit_pack, pack
    from ._pad import Buckets, Padded
    from ._plan import Plan, plan
    from ._profile import Profiler, ProfileResult, profile
    from ._ragged import Ragged, Strings
    from ._reader import FieldInfo, Record
    from ._step import stage, step, watch

    __all__ = [
        "Batch", "BatchesHeld", "BenchResult", "Buckets", "Cache", "Column", "ConfigError", "ConvertResult", "Dataset",
        "EngineDied", "EngineNotFound", "EngineRestarted", "Feeders", "Field", "FieldInfo", "HeadroomResult",
        "InspectResult", "Limits", "Loader", "OnDevice", "OnError", "PackResult", "Padded", "Plan", "ProfileResult",
        "Profiler", "Ragged", "Ranks", "Record", "RecordError", "SkippedRecords", "StateMismatch", "StokerError",
        "StokerTimeout", "Strings", "StudyResult", "UnknownArgument", "VerifyResult", "__version__", "audio", "bench",
        "cache", "callbacks", "commit_pack", "concat", "convert", "doctor", "headroom", "inspect", "mix", "open",
        "pack", "plan", "profile", "stage", "step", "study", "transforms", "verify", "video", "volume", "watch",
    ]  # fmt: skip

# The module of each name above. Modules are imported on first use, so that a trainer and its workers hold only the
# parts that they use.
_NAMES: dict[str, tuple[str, ...]] = {
    "_batch": ("Batch",),
    "_bench": ("BenchResult", "StudyResult", "bench", "study"),
    "_columns": ("Column",),
    "_commands": ("ConvertResult", "InspectResult", "VerifyResult", "convert", "inspect", "verify"),
    "_dataset": ("Dataset", "concat", "mix", "open"),
    "_doctor": ("doctor",),
    "_errors": (
        "BatchesHeld", "ConfigError", "EngineDied", "EngineRestarted", "EngineNotFound", "RecordError",
        "SkippedRecords", "StateMismatch", "StokerError", "StokerTimeout", "UnknownArgument",
    ),
    "_fields": ("Field",),
    "_fused": ("OnDevice",),
    "_groups": ("Cache", "Feeders", "Limits", "OnError", "Ranks"),
    "_headroom": ("HeadroomResult", "headroom"),
    "_loader": ("Loader",),
    "_pack": ("PackResult", "commit_pack", "pack"),
    "_pad": ("Buckets", "Padded"),
    "_plan": ("Plan", "plan"),
    "_profile": ("Profiler", "ProfileResult", "profile"),
    "_ragged": ("Ragged", "Strings"),
    "_reader": ("FieldInfo", "Record"),
    "_step": ("stage", "step", "watch"),
}  # fmt: skip
_MODULES = ("audio", "cache", "callbacks", "transforms", "video", "volume")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__all__":
        found: Any = ["__version__", *_MODULES, *(n for names in _NAMES.values() for n in names)]
    else:
        found = _find(name)
    globals()[name] = found
    return found


def _find(name: str) -> Any:
    if not name.startswith("_"):
        for module, names in _NAMES.items():
            if name in names:
                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    text = f"module {__name__!r} has no attribute {name!r}"
    if not name.startswith("_"):
        from . import _elsewhere

        text += _elsewhere.hint(name, __dir__())
    raise AttributeError(text)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")} - {"Any", "TYPE_CHECKING", "importlib"})
