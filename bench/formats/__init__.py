"""How fast each format is read as it is, beside the library that people read it with.

One module a format, with a constant FORMAT; `python -m bench.formats` (make bench SUITES=formats) finds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Format:
    """A format and what it is compared with.

    The functions import the library themselves: Stoker's own side runs where it is not installed.
    """

    # As `stoker formats` has it, with more behind a blank where a format is measured twice: "parquet images".
    name: str
    # The reference, as a reader would install it.
    library: str
    # make(folder) writes 64 to 256 MiB, with the library or NumPy. The folder is there and empty.
    make: Callable[[Path], None]
    # url(folder) is what stoker.Loader gets.
    url: Callable[[Path], str]
    # reference(folder, batch) yields the number of records of each batch, when its arrays are in memory. The library is
    # used well: on both cores where it can. When it ends it is called again.
    reference: Callable[[Path, int], Iterator[int]]
    # More for stoker.Loader: {"shuffle": True, "transforms": {...}}; a value that has to import stoker is a function.
    # What both sides deliver must be the same work.
    loader: Mapping[str, Any] = field(default_factory=dict)
    # A view of the data, of the dataset that stoker.open returns.
    view: Callable[[Any], Any] | None = None
    # How many times the library's rate Stoker must reach.
    bar: float = 1.0
    batch: int = 256
    # The environment of bench/setup.sh that has the library; "project" is .venv.
    env: str = "project"
    # What is in the data, in a few words: "20,000 JPEGs of 256 x 256".
    what: str = ""
    # A record is one of the file's, whole. Parts of volumes, frames and sequences are not: bytes of files per record
    # would say nothing of them.
    whole: bool = True
    # Of sequences of tokens: how many a record has. The page then says how many come in a second, and when the first
    # batch came, beside the most and the least that they may be.
    tokens: int = 0
    tokens_s: float = 0.0
    first_batch_s: float = 0.0
    # In the place of batches of a loader: own(folder, batch) yields numbers of records as reference does.
    own: Callable[[Path, int], Iterator[int]] | None = None
    # A bar in records/s beside that of the ratio.
    least: float = 0.0
