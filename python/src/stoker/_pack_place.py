"""The destination of ``stoker.pack``: a folder, or a bucket that the engine writes into piece by piece.

Either has the pieces of a pack until these are one pack. The state of a call, and the pieces on their way to the
engine, are in a folder of this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ._ask import ask, run
from ._errors import ConfigError


def begun(out: str) -> dict[str, Any]:
    """Return the state of a pack: if there is ``some`` of it, ``whole``, its finished ``pieces``, and ``parts``."""
    return dict(run(["pack", "--begun", out]))


def clear(out: str) -> None:
    """Remove the files of a pack."""
    ask(["pack", "--clear", out], timeout=None)


class Place:
    """A folder of this machine or of a bucket.

    Attributes:
        text: its path or URL.
        work: a folder of this machine for what is on its way there.
        columns: a folder of this machine for a pack of the columns, before they are tensors.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self.text = os.fspath(out).rstrip("/") or "/"
        self.in_bucket = re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", self.text) is not None
        if self.in_bucket:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            # By its URL, so that the same call finds it again.
            self.work = cache / "stoker-packing" / hashlib.sha256(self.text.encode()).hexdigest()[:32]
            self.columns = self.work.parent / f"{self.work.name}.columns"
        else:
            # Next to the pack, and on the same disk.
            path = Path(self.text).absolute()
            self.work, self.columns = (path.parent / f".{path.name}.{name}" for name in ("spool", "columns"))

    def finished(self, of: str, same: Callable[[str], bool]) -> dict[str, Any] | None:
        """Return the description of a finished pack, None for none; refuse one whose source is not the same."""
        about: dict[str, Any] | None = begun(self.text).get("whole")
        if about is not None and not same(about["source"]):
            raise ConfigError(
                f"{self.text} is a finished pack of {about['source']}, and not of {of}: choose another folder, or "
                "restart=True writes it again"
            )
        return about


class Stacked:
    """A pack with tensors, made from a pack of columns.

    A tensor depends on statistics of all records, which are known only after the last record. So the columns are
    packed unchanged first.
    """

    def __init__(self, out: Place, view: Mapping[str, Any]) -> None:
        self.out = out
        parts = [f"{k}={quote(v if isinstance(v, str) else json.dumps(v))}" for k, v in view.items()]
        self._url = f"{out.columns}#{'&'.join(parts)}"

    def done(self) -> dict[str, Any] | None:
        """Return the description of the pack if it exists already."""
        return self.out.finished("such tensors", lambda source: source.startswith(f"{self.out.columns}#"))

    def run(self, options: Sequence[str]) -> dict[str, Any]:
        """Make the pack, and remove that of the columns."""
        about: dict[str, Any] = run(["pack", self._url, self.out.text, "--json", "--allow-bad", *options])
        shutil.rmtree(self.out.columns)
        return about
