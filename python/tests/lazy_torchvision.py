"""Imported first by scripts of tests: torchvision.models and torchvision.ops are loaded when they are used.

``import torchvision`` loads both, and with them PyTorch's compiler. That is half of the start of a script which uses
only datasets and transforms.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType


class Finder(importlib.abc.MetaPathFinder):
    """Finds the two modules as Python does, and has them loaded lazily."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in ("torchvision.models", "torchvision.ops"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


sys.meta_path.insert(0, Finder())
