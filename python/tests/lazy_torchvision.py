"""Imported first by scripts of tests: imports torch and torchvision in half of the time.

``import torchvision`` loads torchvision.models and torchvision.ops, and with them PyTorch's compiler. Here both are
loaded when they are used: scripts have only datasets and transforms. Garbage is not collected meanwhile.
"""

from __future__ import annotations

import gc
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
gc.disable()
import torch  # noqa: E402, F401
import torchvision  # noqa: E402, F401

gc.freeze()
gc.enable()
