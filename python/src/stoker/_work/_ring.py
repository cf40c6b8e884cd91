"""The ring of an engine, mapped in a worker process too."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .._batch import ArraySpec


class Ring:
    """The ring of an engine, in a worker process."""

    def __init__(
        self,
        fd: int,
        size: int,
        stride: int,
        slot_bytes: int,
        specs: Sequence[ArraySpec],
        *,
        writable: bool,
        private: bool = False,
    ) -> None:
        """Map it and close the descriptor. With ``private``, other processes do not see what this one writes."""
        from .._batch import numpy_views  # of those workers alone that have a ring

        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._mapping = mmap.mmap(fd, size, mmap.MAP_PRIVATE if private else mmap.MAP_SHARED, access)
        self.private = private
        os.close(fd)
        self._stride, self._bytes = stride, slot_bytes
        self.views = numpy_views(list(specs))

    def slot(self, number: int) -> Any:
        """Return the bytes of a slot."""
        if self.private:
            # Pages that this process wrote are copies, which hide the new batch.
            self._mapping.madvise(mmap.MADV_DONTNEED, number * self._stride, self._stride)
        return np.frombuffer(self._mapping, np.uint8, self._bytes, number * self._stride)
