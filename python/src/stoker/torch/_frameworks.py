"""Changes of a DataLoader by other packages that would undo ours."""

from __future__ import annotations

import functools
import sys
from typing import Any

_OURS = "_stoker_attached"


def attach(ours: Any) -> None:
    """Make Accelerate, if it is imported, keep the class of our loaders, ``ours``.

    ``Accelerator.prepare`` and ``skip_first_batches`` make a plain ``DataLoader`` from the arguments of the given one,
    inside of a wrapper that shards, counts and ends epochs. The wrapper stays. Only the loader inside gets the class of
    the given one. Our loader has its own state, so that torchdata is not asked for it.
    """
    module = sys.modules.get("accelerate.data_loader")
    if module is None or getattr(module, _OURS, False) or not hasattr(module, "skip_first_batches"):
        return
    setattr(module, _OURS, True)
    for name in ("prepare_data_loader", "skip_first_batches"):
        theirs = getattr(module, name)
        keeping = _keeping(module, theirs, ours)
        # Others have imported it by name.
        for other in list(sys.modules.values()):
            known = getattr(other, "__name__", "").startswith(("accelerate", "transformers"))
            if known and vars(other).get(name) is theirs:
                setattr(other, name, keeping)


def _keeping(module: Any, theirs: Any, ours: Any) -> Any:
    @functools.wraps(theirs)
    def prepare(dataloader: Any, *args: Any, **more: Any) -> Any:
        if not isinstance(dataloader, ours):
            return theirs(dataloader, *args, **more)
        stateful = more.pop("use_stateful_dataloader", False)
        plain = module.DataLoader
        module.DataLoader = ours
        try:
            made = theirs(dataloader, *args, **more)
        finally:
            module.DataLoader = plain
        if stateful:  # what save_state and load_state ask
            made.use_stateful_dataloader = True
        inside = getattr(made, "base_dataloader", None)
        if isinstance(inside, ours):
            inside.adopt(dataloader)
        return made

    return prepare
