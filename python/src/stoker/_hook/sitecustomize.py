"""Loaded by the Python of a program that ``stoker profile``, ``bench``, ``doctor`` or ``run`` starts.

It records the waits for PyTorch DataLoaders (_loaders.py). For this it changes methods of torch's own iterator class,
once torch has been imported, and nothing of the program. It must never fail: a program runs the same without it. For
``stoker run`` it also replaces DataLoaders (_run.py), and for ``stoker doctor --verify`` it changes their options.
"""

import contextlib
import importlib
import importlib.abc
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

_MODULE = "torch.utils.data.dataloader"
_HERE = Path(__file__).resolve().parent


def _stoker(name: str) -> Any:
    """Import a module of stoker, from the package of this file if the program has none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        sys.path.append(str(_HERE.parent.parent))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.pop()


def _take_over(module: Any) -> None:
    """Have loaders taken over in a program that ``stoker run`` runs."""
    if "STOKER_RUN" not in os.environ:
        return
    try:
        _stoker("stoker._run").install(module)
    except Exception as error:
        print(f"stoker run: loaders are left as they are: {error}", file=sys.stderr)


def _try(module: Any) -> None:
    """Have DataLoaders made with the options that ``stoker doctor --verify`` tries."""
    wanted = json.loads(os.environ["STOKER_TRY"])
    if not isinstance(wanted, dict):
        return
    original = module.DataLoader.__init__
    signature = inspect.signature(original)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.arguments.update({k: v for k, v in wanted.items() if k in signature.parameters})
        if not bound.arguments.get("num_workers"):
            for name in ("prefetch_factor", "persistent_workers"):
                bound.arguments.pop(name, None)
        original(*bound.args, **bound.kwargs)

    module.DataLoader.__init__ = init


def _end_quietly() -> None:
    """Have an interrupt end the program without a traceback: it comes from ``stoker profile`` or ``bench``."""
    original = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            original(kind, error, trace)

    sys.excepthook = hook


class _Loader(importlib.abc.Loader):
    """Runs a module as its own loader does, and changes it then."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        with contextlib.suppress(Exception):
            _stoker("stoker._loaders").watch(module, doctor="STOKER_DOCTOR" in os.environ)
        _take_over(module)
        if "STOKER_TRY" in os.environ:
            try:
                _try(module)
            except Exception as error:
                print(f"stoker doctor: nothing is tried: {error}", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
if "STOKER_ENDS" in os.environ:
    _end_quietly()

# Another sitecustomize may be meant to run: it is the next one on the path.
sys.path[:] = [p for p in sys.path if Path(p).resolve() != _HERE]
_this = sys.modules.pop("sitecustomize", None)
try:
    importlib.import_module("sitecustomize")
except ImportError:
    if _this is not None:
        sys.modules["sitecustomize"] = _this
