"""Which loaders the engine can run in the place of Python, with equal batches.

Read ``plan`` first, then ``_plan.find``: a loader is recognised when its dataset (_datasets), its transforms
(_transforms) and its collate are exactly those of the installed libraries, of which it is known what they do. Anything
else is Unknown, and runs as Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.utils.data

if TYPE_CHECKING:
    from . import _tables
    from ._plan import EnginePlan

__all__ = ["plan"]

# Whose datasets are known: those of _datasets and _tables.
PACKAGES = ("datasets", "timm", "torchvision")
# How deep datasets lie in each other at most.
DEEP = 8


def plan(loader: Any) -> EnginePlan | _tables.TablePlan | str:
    """Return the plan of a loader that the engine can run, or why it cannot."""
    # What recognises is imported for datasets that it may know: it takes more memory than all the rest of a loader.
    stranger = _stranger(loader.dataset)
    if stranger is not None:
        return f"{stranger.__module__}.{stranger.__qualname__} is not known to the engine"

    if loader.num_workers > 0 and not loader.prefetch_factor:
        return "prefetch_factor=0"  # which torch refuses

    from ..._binary import find_binary
    from ..._errors import EngineNotFound
    from . import _tables
    from ._library import Unknown
    from ._plan import EnginePlan

    try:
        if _tables.is_table(loader.dataset):
            if not _tables.image_columns(loader.dataset):
                return _tables.TablePlan(loader)
            from . import _examples  # which needs Pillow

            find_binary()
            return _examples.ExamplesPlan(loader)
        find_binary()
        return EnginePlan(loader)
    except Unknown as reason:
        return str(reason)
    except EngineNotFound as error:
        return str(error).splitlines()[0]
    except Exception as error:
        # It may be the program's: then it comes again, where torch raises it.
        text = str(error).splitlines()
        return f"it was not recognised: {type(error).__name__}{': ' + text[0] if text else ''}"


def _stranger(dataset: Any, depth: int = 0) -> type | None:
    """Return the class of this dataset, or of one in it, of which nothing is known; None when there is none."""
    kind = type(dataset)
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

