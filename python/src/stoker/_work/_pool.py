"""Large pieces that a loader's workers share: equal places in one anonymous file, which each process maps once.

A worker takes a free place for each batch. The loader releases it when the last tensor of the batch is gone. So there
are as many places with memory as are in use, whichever worker makes the batches. Each process keeps the pages of all of
them that it has touched. Free places wait as bytes in two pipes. One has the places with memory. The other has those
without, for example because they were not needed for a while.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import termios
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._process import anonymous_file

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

LARGE = 1 << 20  # batches from this size on lie in a pool's places
_HUGE = 4 << 20  # from this size on, huge pages spare the faults of the first use
_ROUND = 2 << 20  # places are multiples of it, as huge pages are
_MOST = 255  # places: each is a byte
# The leases of all pools. A lease is released even if the pool itself has been forgotten.
_leases: dict[tuple[int, int], weakref.ref[Bytes]] = {}
_WINDOW = 16  # so many batches tell how many places need their memory


def map_file(fd: int, size: int) -> mmap.mmap:
    """Map a file, or the current contents of an anonymous one."""
    mapping = mmap.mmap(fd, size)
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


class Pool:
    """The places, in the loader's process."""

    def __init__(self, generation: int, size: int, places: int) -> None:
        """Make places of at least ``size`` bytes; raises OSError if there cannot be so many."""
        self.generation, self.places = generation, places
        # Only touched pages take memory: places are large enough for somewhat larger batches.
        self.size = -(-(size + size // 4) // _ROUND) * _ROUND
        self._pid = os.getpid()
        self._lock = threading.RLock()  # the collector may give a place back at any time
        self._fds = [anonymous_file("stoker-batches")]
        try:
            os.ftruncate(self._fds[0], self.size * places)
            self._mapping = map_file(self._fds[0], self.size * places)
            for _ in range(2):
                self._fds += os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except BaseException:
            self._close_fds()
            raise
        _, self._warm, self._to_warm, self._cold, self._to_cold = self._fds
        os.write(self._to_cold, bytes(range(places)))
        self._held: set[int] = set()  # what batches of this process lie in
        # The smallest number of free places in recent releases, and the count of these releases.
        self._least, self._looked = places, 0

    @property
    def fds(self) -> list[int]:
        """The descriptors that workers get."""
        return [self._fds[0], self._warm, self._cold]

    @property
    def free(self) -> tuple[int, int]:
        """The number of free places with memory, and the number without."""
        return _waiting(self._warm), _waiting(self._cold)

    def view(self, place: int) -> memoryview:
        """Return the bytes of a place."""
        return memoryview(self._mapping)[place * self.size : (place + 1) * self.size]

    def lease(self, place: int) -> Bytes:
        """Return the bytes of a batch's place. The place is released when everything made of them is gone."""
        root: Bytes = np.frombuffer(self.view(place), np.uint8)
        self._held.add(place)
        key = id(self), place

        def release(_: object) -> None:
            del _leases[key]
            # A forked child loses its copies of the tensors; the memory is in use all the same.
            if os.getpid() == self._pid:
                self._held.discard(place)
                self.give(place)

        _leases[key] = weakref.ref(root, release)
        return root

    def give(self, place: int) -> None:
        """Let a place be used again."""
        with self._lock:
            spare = self._spare() if self._fds else 1
            if spare == 0:
                os.write(self._to_warm, bytes([place]))
                return
            left = bytes([place])
            if spare > 1:
                with contextlib.suppress(BlockingIOError):  # workers were quicker
                    left += os.read(self._warm, spare - 1)
            for one in left:
                self._empty(one)
            if self._fds:
                os.write(self._to_cold, left)

    def _spare(self) -> int:
        """Return the number of places with memory that have not been needed for a while."""
        if self._least:  # a loop lets go of a batch just when it gets the next: the system is asked no more than needed
            self._least = min(self._least, _waiting(self._warm))
        self._looked += 1
        if self._looked < _WINDOW:
            return 0
        spare, self._least, self._looked = self._least, self.places, 0
        return spare

    def _empty(self, place: int) -> None:
        """Free the memory of a place, in all processes."""
        with contextlib.suppress(OSError, AttributeError):  # elsewhere than on Linux it stays
            self._mapping.madvise(mmap.MADV_REMOVE, place * self.size, self.size)

    def close(self, ended: bool) -> None:
        """Free the waiting places, now and on later releases. After its workers have exited, free all but held ones."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            free: set[int] = set(range(self.places)) - self._held if ended else set()
            if self._fds:
                with contextlib.suppress(BlockingIOError):
                    free.update(os.read(self._warm, _MOST))
            self._close_fds()
        for place in free:
            self._empty(place)

    def _close_fds(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def _waiting(pipe: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])


class Pools:
    """The pool of a loader's workers, and earlier pools whose places were too small."""

    def __init__(self, batches: int) -> None:
        """Make none yet; it will have places for more than as many batches as are made ahead."""
        self._places = min(_MOST, 2 * batches + 16)
        self._all: dict[int, Pool] = {}
        self._wanted = 0
        self.current: Pool | None = None

    def want(self, size: int) -> None:
        """Learn of a batch that had no place."""
        if size >= LARGE:
            self._wanted = max(self._wanted, size)

    def renew(self) -> bool:
        """Make a pool, or a larger one, if one was requested. Report whether there is a new one."""
        size, self._wanted = self._wanted, 0
        if size == 0 or (self.current is not None and size <= self.current.size):
            return False
        generation = len(self._all) + 1
        try:
            pool = Pool(generation, size, self._places)
        except OSError:  # a limit of this process: batches lie in pieces of their workers
            return False
        if self.current is not None:
            self.current.close(ended=False)
        self.current = self._all[generation] = pool
        return True

    def of(self, generation: int) -> Pool:
        """Return a pool that a worker speaks of."""
        return self._all[generation]

    def close(self) -> None:
        """Free the places without a batch, after the workers have exited."""
        for pool in self._all.values():
            pool.close(ended=True)


class Places:
    """The places, in a worker."""

    def __init__(self, generation: int, size: int, places: int, fds: Sequence[int]) -> None:
        """Map them."""
        self.generation, self.size = generation, size
        fd, *self._waiting = fds
        try:
            self.mapping: Any = map_file(fd, size * places)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(fd)

    def take(self) -> int | None:
        """Return a free place, preferably with memory, None if there is none."""
        for fd in self._waiting:
            with contextlib.suppress(BlockingIOError):
                found = os.read(fd, 1)
                if found:
                    return found[0]
        return None

    def close(self) -> None:
        """Take no further places."""
        for fd in self._waiting:
            os.close(fd)
        self._waiting = []
