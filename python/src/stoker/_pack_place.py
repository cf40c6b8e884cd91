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
from pathlib import Path
from typing import Any

from ._ask import ask
from ._pack_once import LONG, begun


def is_url(out: str | os.PathLike[str]) -> bool:
    """Say whether something is written into a bucket."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", os.fspath(out)) is not None


class Folder:
    """A folder of this machine."""

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self.path = Path(out)
        self.text = str(self.path)
        # Beside the pack, and on the same disk.
        self.work = self.path.parent / f".{self.path.name}.spool"
        self.columns = self.path.absolute().parent / f".{self.path.name}.columns"

    def whole(self) -> dict[str, Any] | None:
        """Return the description of a finished pack: its source, its records and bytes, the skipped inputs."""
        if not (self.path / "manifest.json").exists():
            return None
        about: dict[str, Any] = json.loads(ask(["inspect", self.text, "--json"]))
        return {**about, "source": about["source"]["path"]}

    def pieces(self) -> set[int]:
        """Return the numbers of the pieces that are there."""
        return {int(p.stem.removeprefix("piece-")) for p in self.path.glob("piece-*.json")}

    def forget(self, piece: int) -> None:
        """Remove a piece that is about to be written."""
        (self.path / f"piece-{piece:05d}.json").unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the files of earlier calls."""
        if any(any(self.path.glob(p)) for p in ("manifest.json", "piece-*", "shard-*")):
            shutil.rmtree(self.path)


class Bucket:
    """A folder of a bucket."""

    def __init__(self, url: str) -> None:
        self.text = url.rstrip("/")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        # By its URL, so that the same call finds it again.
        self.work = cache / "stoker-packing" / hashlib.sha256(self.text.encode()).hexdigest()[:32]
        self.columns = self.work.parent / f"{self.work.name}.columns"

    def whole(self) -> dict[str, Any] | None:
        """Return the description of a finished pack: its source, its records and bytes, the skipped inputs."""
        return begun(self.text).get("whole")

    def pieces(self) -> set[int]:
        """Return the numbers of the pieces that are there."""
        return set(begun(self.text)["pieces"])

    def forget(self, piece: int) -> None:
        """Do nothing: a piece counts when the engine has said that it is there, and is written over."""

    def clear(self) -> None:
        """Remove the files of earlier calls."""
        ask(["pack", "--clear", self.text], timeout=LONG)


Place = Folder | Bucket


def place(out: str | os.PathLike[str]) -> Place:
    """Return the destination of a pack."""
    return Bucket(os.fspath(out)) if is_url(out) else Folder(out)
