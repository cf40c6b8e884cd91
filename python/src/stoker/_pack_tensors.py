"""The second half of ``stoker.pack`` with tensors: the columns are packed unchanged first.

A tensor depends on statistics of all records, which are known only after the last record.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ._ask import ask
from ._errors import ConfigError
from ._pack_once import LONG
from ._pack_place import Place


class Stacked:
    """A pack with tensors, made from a pack of columns in the same folder."""

    def __init__(self, out: Place, view: Mapping[str, Any]) -> None:
        self.out = out
        self.columns = out.columns
        parts = [f"{k}={quote(v if isinstance(v, str) else json.dumps(v))}" for k, v in view.items()]
        self._url = f"{self.columns}#{'&'.join(parts)}"

    def done(self) -> dict[str, Any] | None:
        """Return the description of the pack if it exists already."""
        about = self.out.whole()
        if about is not None and not about["source"].startswith(f"{self.columns}#"):
            raise ConfigError(
                f"{self.out.text} is a finished pack of {about['source']}: choose another folder, or restart=True "
                "writes it again"
            )
        return about

    def clear(self) -> None:
        """Remove the files of an earlier call."""
        self.out.clear()

    def run(self, options: Sequence[str]) -> dict[str, Any]:
        """Make the pack, and remove that of the columns."""
        command = ["pack", self._url, self.out.text, "--json", "--allow-bad", *options]
        about: dict[str, Any] = json.loads(ask(command, timeout=LONG))
        shutil.rmtree(self.columns)
        return about
