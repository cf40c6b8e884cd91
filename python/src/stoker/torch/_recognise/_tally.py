"""Counts of the images given to functions of the program, and of those for which the engine's result was used."""

from __future__ import annotations

import mmap
import os

import numpy as np
import torch.utils.data

from . import _memory

# The number of images that shows whether the guess is right for half of them.
_ENOUGH = 256


class Tally:
    """Counts of the images given to functions, and of those with the engine's result used, over all processes."""

    _SLOTS = 64

    def __init__(self) -> None:
        """Begin at nothing."""
        self._memory: _memory.Memory | None = _memory.Memory("stoker-tally")
        os.ftruncate(self._memory.fd, 16 * self._SLOTS)
        self._map(self._memory.path)

    def _map(self, path: str) -> None:
        self._path = path
        with open(path, "r+b") as file:
            mapping = mmap.mmap(file.fileno(), 16 * self._SLOTS)
        self._counts = np.frombuffer(mapping, np.int64).reshape(self._SLOTS, 2)

    def __getstate__(self) -> str:
        return self._path

    def __setstate__(self, path: str) -> None:
        self._memory = None
        self._map(path)

    def add(self, given: int, answered: int) -> None:
        """Count a batch."""
        info = torch.utils.data.get_worker_info()
        self._counts[0 if info is None else (info.id + 1) % self._SLOTS] += (given, answered)

    def sums(self) -> tuple[int, int]:
        """Return both numbers."""
        given, answered = self._counts.sum(axis=0).tolist()
        return int(given), int(answered)

    def wrong(self) -> bool:
        """Whether the functions do something else with most of their images."""
        given, answered = self.sums()
        return given >= _ENOUGH and 2 * answered < given
