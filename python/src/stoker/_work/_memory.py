"""Memory that a worker process shares with the loader's: pieces of it, each an anonymous file that both map.

A worker owns its pieces. A piece holds one batch, goes to the loader's process as a descriptor the first time and is
then known there by its number. A byte of a small shared page is set while the loader uses the piece. The worker sets it
before it sends a batch, and the loader clears it when the last tensor of the batch is gone. Nothing has a name.
Descriptors are closed once a piece is mapped. Python's mapping keeps one of its own, for as long as the piece lives.
Another part of the page has the worker's current record and its place in a pool, in case the worker ends in the middle
of it.

Large batches are in places of a pool that all workers of a loader share (_pool), if there is one.
"""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from collections.abc import Callable
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any

import numpy as np

from .._process import anonymous_file
from ._pool import LARGE, Places, Pool, map_file

ALIGN = 64  # of every array in a piece, for vector instructions
_GRAIN = 1 << 16  # pieces are multiples of it, so that batches of about the same size fit the same one
_DONE = 0  # the byte of the page that tells a worker to end
_AT = struct.Struct("<qq")  # behind the bytes of the pieces: the task and the row that the worker is at
_IN = struct.Struct("<qqqq")  # and behind that: which place of which pool it has taken for which task of which epoch
_GENERATION, _GENERATION_AT = struct.Struct("<q"), 16  # the third of those
PIECES = 4079  # a worker's numbered pieces at most; what is held beyond is used once
_WINDOW = 8  # so many batches tell how many pieces are needed
ONCE = -1  # the number of those
PLACE = -2  # the number of those in a pool

if TYPE_CHECKING:
    from ._pool import Bytes


def align(n: int) -> int:
    """Round up to the next place for an array."""
    return -(-n // ALIGN) * ALIGN


class Page:
    """The shared page: one byte for each piece, one for the end, and the worker's position."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = anonymous_file("stoker-page") if fd is None else fd
        size = PIECES + 1 + _AT.size + _IN.size
        if fd is None:
            os.ftruncate(self.fd, size)
        self.bytes = mmap.mmap(self.fd, size)

    def __reduce__(self) -> tuple[Any, ...]:
        return _page, (reduction.DupFd(self.fd),)

    def close_fd(self) -> None:
        """Close the descriptor; the mapping stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def end(self) -> None:
        """Tell the worker to end."""
        self.bytes[_DONE] = 1

    @property
    def ended(self) -> bool:
        """Whether the worker shall end."""
        return self.bytes[_DONE] == 1

    def mark(self, task: int, row: int) -> None:
        """Set the worker's current task and row. A row after the last stands for the work on all rows together."""
        _AT.pack_into(self.bytes, PIECES + 1, task, row)

    @property
    def marked(self) -> tuple[int, int]:
        """The worker's current task and row, or the last ones if it has exited."""
        task, row = _AT.unpack_from(self.bytes, PIECES + 1)
        return task, row

    def hold(self, epoch: int, task: int, generation: int, place: int) -> None:
        """Say which place of a pool is taken for a task.

        The generation is nought meanwhile: who is killed in the middle of it has not named a place that is in use.
        """
        at = PIECES + 1 + _AT.size
        _GENERATION.pack_into(self.bytes, at + _GENERATION_AT, 0)
        _IN.pack_into(self.bytes, at, epoch, task, 0, place)
        _GENERATION.pack_into(self.bytes, at + _GENERATION_AT, generation)

    @property
    def held(self) -> tuple[int, int, int, int]:
        """The place that was taken last: epoch, task, the pool's generation (0 for none), place."""
        epoch, task, generation, place = _IN.unpack_from(self.bytes, PIECES + 1 + _AT.size)
        return epoch, task, generation, place

    def used(self, piece: int) -> bool:
        """Say whether the loader uses a piece."""
        return self.bytes[piece + 1] == 1

    def use(self, piece: int) -> None:
        """Mark a piece as in use."""
        self.bytes[piece + 1] = 1

    def free(self, piece: int) -> None:
        """Give a piece back."""
        self.bytes[piece + 1] = 0


def _page(fd: Any) -> Page:
    """Map the page in a process that was not forked."""
    return Page(fd.detach())


# --- the worker's side ----------------------------------------------------------------------------------------------


class Piece:
    """A piece in the worker: filled from its beginning, once per batch."""

    def __init__(self, number: int, size: int, mapping: mmap.mmap, fd: int = -1, at: int = 0) -> None:
        self.number, self.size, self.fd = number, size, fd
        self._mapping, self._at = mapping, at
        self.place: tuple[int, int] | None = None  # in a pool: its generation, and the number of the place
        self.filled = 0
        self.root: Bytes | None = None
        self._root: weakref.ref[Bytes] | None = None
        self.base = 0

    @classmethod
    def new(cls, number: int, size: int) -> Piece:
        """Make one."""
        fd = anonymous_file("stoker-batch")
        try:
            os.ftruncate(fd, size)
            return cls(number, size, map_file(fd, size), fd)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def of(cls, places: Places, place: int) -> Piece:
        """Return a place of a pool as one."""
        piece = cls(PLACE, places.size, places.mapping, at=place * places.size)
        piece.place = places.generation, place
        return piece

    def open(self) -> Piece:
        """Begin a batch."""
        # Tensors of this process hold it: another batch cannot overwrite memory that the user holds.
        self.root = np.frombuffer(self._mapping, np.uint8, self.size, self._at)
        self._root = weakref.ref(self.root)
        self.base = self.root.ctypes.data
        self.filled = 0
        return self

    def close(self) -> None:
        """End the batch."""
        self.root = None

    @property
    def kept(self) -> bool:
        """Whether something in this process still uses it."""
        return self._root is not None and self._root() is not None

    def take(self, size: int) -> int | None:
        """Return the offset for ``size`` bytes, or None if they do not fit."""
        at = align(self.filled)
        if at + size > self.size:
            return None
        self.filled = at + size
        return at

    @property
    def described(self) -> tuple[int, Any]:
        """The description for the loader: its number, and its size if it is new, or its place in a pool."""
        return self.number, self.place or (self.size if self.fd >= 0 else 0)

    def known(self) -> None:
        """Learn that the loader knows it by its number; the mapping stays."""
        if self.number >= 0:
            self.place = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Pieces:
    """All pieces of a worker."""

    def __init__(self, page: Page) -> None:
        self._page = page
        # The smallest number of free pieces in recent requests, and the count of these requests.
        self._least, self._looked = PIECES, 0
        self._all: dict[int, Piece] = {}
        self._size = 0  # what batches have needed so far
        self.open: list[Piece] = []  # of the batch that is being made
        self.dropped: list[int] = []  # what the loader has to be told of
        self.task = -1, -1  # the epoch and the number of the batch that is being made
        self._places: Places | None = None
        self._back: list[Piece] = []  # places of batches that came to nothing

    def share(self, places: Places) -> None:
        """Take places for large batches from a pool from now on."""
        if self._places is not None:
            self._places.close()
        self._places, self._back = places, []

    def take(self, size: int) -> tuple[Piece, int] | None:
        """Return the position for an array of the current batch, or None: it is copied when all are known."""
        # The size of the batch is not known yet; the preceding batches give an estimate.
        if not self.open and align(size) <= self._size:
            self.open.append(self._find(self._size))
        for piece in self.open:
            at = piece.take(size)
            if at is not None:
                return piece, at
        return None

    def reserve(self, size: int) -> int:
        """Return the number in ``open`` of a piece with room for ``size`` bytes more."""
        for i, piece in enumerate(self.open):
            if align(piece.filled) + size <= piece.size:
                return i
        self.open.append(self._find(max(size, 0 if self.open else self._size)))
        return len(self.open) - 1

    def holds(self, address: int) -> tuple[int, int] | None:
        """Return the piece of this batch that contains an address, by its number in ``open``, and the offset in it."""
        for i, piece in enumerate(self.open):
            if 0 <= address - piece.base < piece.size:
                return i, address - piece.base
        return None

    def _find(self, size: int) -> Piece:
        places = self._places
        if places is not None and not self.open and LARGE <= size <= places.size:
            piece = self._place(places)
            if piece is not None:
                return piece.open()
        free = [p for p in self._all.values() if not self._page.used(p.number) and not p.kept and p not in self.open]
        fitting = [p for p in free if p.size >= size]
        # Pieces that have become too small, and pieces that have not been needed for a while.
        spare = self._spare(len(fitting) - 1)
        for piece in [p for p in free if p.size < size] + fitting[len(fitting) - spare :]:
            del self._all[piece.number]
            self.dropped.append(piece.number)
            piece.known()
        if fitting:
            return fitting[0].open()
        size = -(-(size + size // 64) // _GRAIN) * _GRAIN
        if len(self._all) == PIECES:
            return Piece.new(ONCE, size).open()
        piece = Piece.new(self._number(), size)
        self._all[piece.number] = piece
        return piece.open()

    def _number(self) -> int:
        return next(n for n in range(PIECES) if n not in self._all and n not in self.dropped)

    def _place(self, places: Places) -> Piece | None:
        """Return a place of the pool, None when all are in use."""
        found = next((p for p in self._back if not p.kept), None)
        if found is not None:
            self._back.remove(found)
        elif (place := places.take()) is not None:
            found = Piece.of(places, place)
        if found is None or found.place is None:
            return None
        self._page.hold(*self.task, *found.place)
        # The pieces that this worker has used before there was a pool.
        for piece in list(self._all.values()):
            if piece.size >= LARGE and not self._page.used(piece.number) and not piece.kept:
                del self._all[piece.number]
                self.dropped.append(piece.number)
                piece.known()
        return found

    def _spare(self, left: int) -> int:
        """Return the number of pieces that can be freed if this many are free now."""
        self._least = min(self._least, left)
        self._looked += 1
        if self._looked < _WINDOW:
            return 0
        spare, self._least, self._looked = max(0, self._least), PIECES, 0
        return spare

    def send(self, send: Callable[[tuple[Any, ...], list[int]], None], message: tuple[Any, ...]) -> None:
        """Send a message about the batch, which ends, followed by its pieces and those that are dropped."""
        used = self.finish()
        dropped, self.dropped = self.dropped, []
        described = [piece.described for piece in used]
        send((*message, described, dropped), [piece.fd for piece in used if piece.fd >= 0])
        for piece in used:
            piece.known()

    def finish(self) -> list[Piece]:
        """End the batch and return its pieces, now the loader's."""
        done, self.open = self.open, []
        self._size = max(self._size, sum(align(p.filled) for p in done))
        for piece in done:
            piece.close()
            if piece.number == PLACE and piece.kept and len(self._all) < PIECES:
                # No other process may have it while something here still uses it: it becomes a piece of this worker.
                piece.number = self._number()
                self._all[piece.number] = piece
            if piece.number >= 0:
                self._page.use(piece.number)
        return done

    def abandon(self) -> None:
        """Forget the batch that was being made."""
        for piece in self.open:
            piece.close()
            if piece.number == PLACE:
                self._back.append(piece)
        self.open = []


# --- the loader's side ----------------------------------------------------------------------------------------------


class Received:
    """The pieces of one worker, in the loader's process."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._maps: dict[int, mmap.mmap | memoryview] = {}
        self._places: dict[int, tuple[Pool, int]] = {}  # which of them are places of a pool
        self._held: dict[int, weakref.ref[Bytes]] = {}
        self._pid = os.getpid()

    def add(self, number: int, size: int, fd: int) -> mmap.mmap | memoryview:
        """Take a new piece."""
        mapping = map_file(fd, size)
        if number != ONCE:
            self._maps[number] = mapping
        return mapping

    def drop(self, number: int) -> None:
        """Forget a piece that is no longer used."""
        self._maps.pop(number, None)
        pool, place = self._places.pop(number, (None, 0))
        if pool is not None:
            pool.give(place)

    def adopt(self, number: int, pool: Pool, place: int) -> None:
        """Take a place of a pool as a piece of the worker's."""
        self._maps[number] = pool.view(place)
        self._places[number] = pool, place

    def lease(self, number: int, mapping: mmap.mmap | memoryview | None = None) -> Bytes:
        """Return a piece's bytes. When everything made of them is gone, the worker may use the piece again."""
        root: Bytes = np.frombuffer(mapping or self._maps[number], np.uint8)
        if number != ONCE:
            self._held[number] = weakref.ref(root, self._release(number))
        return root

    def _release(self, number: int) -> Callable[[Any], None]:
        # No reference to self: the page and the pieces in use outlive the iterator.
        page, held, pid = self._page, self._held, self._pid

        def release(_: object) -> None:
            # A forked child loses its copies of the tensors; the memory is in use all the same.
            if os.getpid() == pid:
                held.pop(number, None)
                page.free(number)

        return release
