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
from ._version import __version__
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
