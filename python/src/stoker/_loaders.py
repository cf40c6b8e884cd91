"""The records that a process writes on its PyTorch DataLoaders for ``stoker doctor``, ``profile`` and ``bench``.

The waits for batches go into the step log. The settings of each loader, and the recogniser's answer for ``stoker run``,
go into a file in memory. Doctor finds it through ``/proc/PID/fd`` (internal/doctor/loaders.go).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from . import _step
from ._process import anonymous_file

NAME = "stoker-loaders"
# More loaders than this are not written down.
_MOST = 12


class _Notes:
    """The loaders of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._fd = anonymous_file(NAME)
        self._of: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self._all: list[dict[str, Any]] = []

    def note(self, loader: Any) -> None:
        """Write a loader down that begins an epoch."""
        note = self._of.get(loader)
        if note is None:
            if len(self._all) >= _MOST:
                return
            note = self._of[loader] = {"dataset": type(loader.dataset).__name__, "epochs": 0, **_answer(loader)}
            self._all.append(note)
        note["epochs"] += 1
        note["num_workers"] = int(loader.num_workers)
        note["batches"] = 0
        with contextlib.suppress(TypeError):
            note["batches"] = len(loader)
        data = json.dumps({"pid": self.pid, "loaders": self._all}).encode()
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))


_notes: _Notes | None = None


def note(loader: Any) -> None:
    """Write a loader down that begins an epoch."""
    global _notes
    if _notes is None or _notes.pid != os.getpid():
        _notes = _Notes()
    _notes.note(loader)


def _answer(loader: Any) -> dict[str, Any]:
    """Return whether ``stoker run`` would have the engine make the batches, and if not, why; {} if it is not asked."""
    if "STOKER_RUN" in os.environ:
        return {"taken": True}
    if os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) != "0":
        return {}  # the first process asks for all
    try:
        from .torch import DataLoader, _recognise

        if isinstance(loader, DataLoader):
            return {"taken": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = _recognise.plan(loader)
        if isinstance(plan, str):
            return {"engine": False, "why": plan}
        try:
            rows = [row for row in plan.explain() if row.where != "engine"]
            rest = sorted({row.part for row in rows if row.part in ("transform", "__getitem__")})
            # A dataset that is learned in the first epoch has its later gain in a row.
            later = next((row.gain for row in rows if row.part == "dataset"), "")
            return {"engine": True, "rest": rest, "later": later}
        finally:
            plan.close()
    except Exception as error:
        return {"why": f"{type(error).__name__}: {error}"[:200]}


def watch(module: Any, doctor: bool = False) -> Callable[[], None]:
    """Make the iterators of torch's DataLoader module write their waits. Return a function that undoes it.

    Args:
        module: ``torch.utils.data.dataloader``.
        doctor: also write the loaders down, and only the waits of the main thread: threads that fill a queue wait
            for their loader while the training loop does not.
    """
    base = module._BaseDataLoaderIter
    original, begins = base.__next__, base.__init__
    main, in_worker = threading.main_thread().ident, module._utils.worker.get_worker_info

    def wait(self: Any) -> Any:
        # The loops of threads and of worker processes are not the training loop.
        if (doctor and threading.get_ident() != main) or in_worker() is not None:
            return original(self)
        return _step.wait_for(lambda: original(self))[0]

    def begin(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        begins(self, loader, *args, **kwargs)
        with contextlib.suppress(Exception):
            note(loader)

    base.__next__ = wait
    if doctor:
        base.__init__ = begin

    def undo() -> None:
        base.__next__, base.__init__ = original, begins

    return undo
