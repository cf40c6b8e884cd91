"""Datasets in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._dataset import Dataset


def text(data: Dataset) -> str:
    """Return what ``repr`` shows: the path, and the records and fields once they are known."""
    known = data._about
    if known is None:
        return f"Dataset({data._shown()!r}, not read yet)"
    lines = [f"Dataset({data._shown()!r}, {len(data):,} records of {known.format})"]
    lines += [f"  {f.name}: {f}" for f in known.fields]
    return "\n".join(lines)
