"""How fast each format is read without conversion, compared with the usual library.

One module a format, with a constant FORMAT; `python -m bench.formats` (make bench SUITES=formats) finds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Format:
    """A format and its reference.

    The functions import the library themselves, so Stoker's own side runs without it.
    """

    # The name in `stoker formats`, followed by a blank and more text if a format is measured twice: "parquet images".
    name: str
    # The reference, by its usual name for installation.
    library: str
    # make(folder) writes 64 to 256 MiB, with the library or NumPy. The folder is there and empty.
    make: Callable[[Path], None]
    # url(folder) returns the URL for stoker.Loader.
    url: Callable[[Path], str]
    # reference(folder, batch) yields the number of records of each batch when the arrays of the batch are in memory.
    # The library is used well: on both cores if it can. When reference ends, it is called again.
    reference: Callable[[Path, int], Iterator[int]]
    # More arguments for stoker.Loader: {"shuffle": True, "transforms": {...}}. A value that must import stoker is a
    # function. Both sides must do the same work.
    loader: Mapping[str, Any] = field(default_factory=dict)
    # A view of the data, of the dataset that stoker.open returns.
    view: Callable[[Any], Any] | None = None
    # The minimum ratio of Stoker's rate to the library's.
    bar: float = 1.0
    batch: int = 256
    # The environment of bench/setup.sh that has the library; "project" is .venv.
    env: str = "project"
    # A short description of the data: "20,000 JPEGs of 256 x 256".
    what: str = ""
    # True if a record is one whole record of the file. Parts of volumes, frames and sequences are not, and bytes of
    # files per record would mean nothing for them.
    whole: bool = True
    # For sequences of tokens: the number of tokens per record. The page then also reports the tokens per second and
    # the time of the first batch, with their limits.
    tokens: int = 0
    tokens_s: float = 0.0
    first_batch_s: float = 0.0
    # Replaces the batches of a loader: own(folder, batch) yields numbers of records like reference.
    own: Callable[[Path, int], Iterator[int]] | None = None
    # A target in records/s, in addition to that of the ratio.
    least: float = 0.0
