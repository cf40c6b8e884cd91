"""Which loaders the engine can run in the place of Python, with equal batches.

Read ``plan`` first, then ``_plan.find``: a loader is recognised when its dataset (_datasets), its transforms
(_transforms) and its collate are exactly those of the installed libraries, of which it is known what they do. Anything
else is Unknown, and runs as Python.
"""

from __future__ import annotations

from typing import Any

from ..._binary import find_binary
from ..._errors import EngineNotFound
from . import _tables
from ._library import Unknown
from ._plan import EnginePlan

__all__ = ["plan"]


def plan(loader: Any) -> EnginePlan | _tables.TablePlan | str:
    """Return the plan of a loader that the engine can run, or why it cannot."""
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
