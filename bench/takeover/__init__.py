"""Unmodified scripts of other people, under plain Python and under `stoker run`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# The folder that the Python of a script finds first. It records what its loaders do, and has the small models.
HOOK = Path(__file__).resolve().parent / "hook"


@dataclass(frozen=True)
class Place:
    """The folders and settings with which a script runs."""

    checkout: Path  # the files of its repository
    data: Path  # its training data
    out: Path  # an empty folder, in which it is started
    epochs: int
    workers: int
    batch: int = 64


@dataclass(frozen=True)
class Script:
    """A public script and how it is called. Nothing of it is kept here, and nothing in it is changed."""

    name: str
    # Its origin: OWNER/NAME at a commit, or "tag of PACKAGE" for the tag of the installed version, and the required
    # folders.
    repository: str
    commit: str
    path: str
    folders: tuple[str, ...]
    # Its arguments.
    arguments: Callable[[Place], list[str]]
    # The maker, of data.MAKERS, of its training data.
    data: str = "folder"
    # Its imports, in addition to torch and torchvision.
    needs: tuple[str, ...] = ()
    # Whether its training loader is one that the engine takes over.
    recognised: bool = True
    # Whether it is the loader that limits; some bring a model that cannot be replaced.
    limited: bool = True
    # Finds the loss in its output; the last one counts.
    loss: str = r"loss:? ([0-9.]+)"
    # Prepares its folder or checkout before it starts.
    prepare: Callable[[Place], None] | None = None
