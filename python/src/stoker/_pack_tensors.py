"""The second half of ``stoker.pack`` with tensors: columns are packed as they are first.

What a tensor needs to know of all records is not known before the last one is there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ._ask import ask
from ._errors import ConfigError

_LONG = 1e6  # seconds: packing takes as long as it takes


class Stacked:
    """A pack with tensors, made of a pack of columns that lies beside it."""

    def __init__(self, out: Path, view: Mapping[str, Any]) -> None:
        self.out = out
        self.columns = out.absolute().parent / f".{out.name}.columns"
        parts = [f"{k}={quote(v if isinstance(v, str) else json.dumps(v))}" for k, v in view.items()]
        self._url = f"{self.columns}#{'&'.join(parts)}"

    def done(self) -> dict[str, Any] | None:
        """Return what the pack is when it is there already."""
        if not (self.out / "manifest.json").exists():
            return None
        about: dict[str, Any] = json.loads(ask(["inspect", str(self.out), "--json"]))
        if not about["source"]["path"].startswith(f"{self.columns}#"):
            raise ConfigError(
                f"{self.out} is a finished pack of {about['source']['path']}: choose another folder, or restart=True "
                "writes it anew"
            )
        return about

    def clear(self) -> None:
        """Remove what an earlier call has made."""
        if (self.out / "manifest.json").exists() or any(self.out.glob("shard-*")):
            shutil.rmtree(self.out)

    def run(self, options: Sequence[str]) -> dict[str, Any]:
        """Make the pack, and remove that of the columns."""
        command = ["pack", self._url, str(self.out), "--json", "--allow-bad", *options]
        about: dict[str, Any] = json.loads(ask(command, timeout=_LONG))
        shutil.rmtree(self.columns)
        return about
