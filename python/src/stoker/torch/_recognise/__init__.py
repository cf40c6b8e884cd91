"""The recognition of loaders that the engine can run in place of Python, with equal batches.

Read ``plan`` first, then ``_plan.find``. A loader is recognised if its dataset (_datasets), its transforms
(_transforms) and its collate are exactly those of the installed libraries, whose effect is known. For the program's own
datasets, Stoker learns which files they open (_learned). Anything else is Unknown, and runs as Python.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch.utils.data

from ._common import DEEP, meant
from ._common import Refusal as Refusal

if TYPE_CHECKING:
    from . import _tables
    from ._plan import EnginePlan

__all__ = ["plan"]

# Packages with known datasets: those of _datasets and _tables.
PACKAGES = ("datasets", "timm", "torchvision")
# Modules that a program has imported if Stoker can learn its own datasets.
_LEARNED_OF = ("PIL.Image", "torchvision.transforms")


def plan(loader: Any) -> EnginePlan | _tables.TablePlan | Refusal:
    """Return the plan of a loader that the engine can run, or why it cannot."""
    # The recogniser is imported only for datasets that it may know: it takes more memory than all the rest of a loader.
    stranger = _stranger(loader.dataset)
    why = "" if stranger is None else f"{stranger.__module__}.{stranger.__qualname__} is not known to the engine"
    if stranger is not None and not all(name in sys.modules for name in _LEARNED_OF):
        return Refusal.of(why)

    if loader.num_workers > 0 and not loader.prefetch_factor:
        return Refusal.of("prefetch_factor=0", "prefetch_factor=2")  # torch refuses 0

    from ..._binary import find_binary
    from ..._errors import EngineNotFound
    from . import _tables
    from ._library import Unknown
    from ._plan import EnginePlan

    try:
        if stranger is not None:
            from . import _learned  # which needs Pillow

            find_binary()
            return _learned.LearnedPlan(loader)
        if _tables.is_table(loader.dataset):
            if not _tables.image_columns(loader.dataset):
                return _tables.TablePlan(loader)
            from . import _examples  # which needs Pillow

            find_binary()
            return _examples.ExamplesPlan(loader)
        find_binary()
        return EnginePlan(loader)
    except Unknown as reason:
        return Refusal.of(f"{why}: {reason}" if why else str(reason), reason.step)
    except EngineNotFound as error:
        why, _, hint = str(error).partition("\n")
        return Refusal.of(why, " ".join(hint.split()) or "STOKER_BINARY=path of the program stoker")
    except Exception as error:
        # It may be an error of the program. Then torch raises it again later.
        text = str(error).splitlines()
        return Refusal.of(f"it was not recognised: {type(error).__name__}{': ' + text[0] if text else ''}")


def _stranger(dataset: Any, depth: int = 0) -> type | None:
    """Return the class of this dataset, or of one in it, if that class is unknown; else None."""
    kind = meant(type(dataset))
    inside: Any = []
    if kind is torch.utils.data.Subset:
        inside = [vars(dataset).get("dataset")]
    elif kind is torch.utils.data.ConcatDataset:
        inside = vars(dataset).get("datasets")
    elif kind.__module__.partition(".")[0] not in PACKAGES:
        return kind
    if depth > DEEP or not isinstance(inside, list):
        return None  # the rest says why
    return next((found for d in inside if (found := _stranger(d, depth + 1)) is not None), None)
