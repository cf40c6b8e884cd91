"""Items of the program's own datasets: their code runs unmodified, in any process, and the opened files are watched.

The notes hold the JPEG files that an index opens, and the transform for each of them (_learned reads them). Once that
is known, the engine makes those rows before the index comes again, and the transform is answered (_pending). Pillow
decodes an image of an unexpected file, or one that goes to another transform.
"""

from __future__ import annotations

import contextlib
import functools
import io
import operator
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch

from . import _datasets, _memory, _pending, _proof, _samples, _transforms
from ._library import Unknown
from ._tally import Tally

Array = npt.NDArray[Any]
# A note on an index: its number, the files that went to transforms, and whether the state of torch's random numbers was
# read or set. Each file comes with the number of the transform and the mode of the image.
Note = tuple[int, list[tuple[str, int, str]], bool]

# A file that the engine reads: its path, its device and its number there.
_File = tuple[str, int, int]

# Functions that read or set the state of random numbers.
_STATE = ("get_state", "set_state", "manual_seed", "seed", "graphsafe_get_state", "graphsafe_set_state", "clone_state")
# Names there mean other files in another process.
_NOT_FILES = ("/proc/", "/dev/")


class Notes:
    """The notes of all processes, in a file in memory that all of them append to."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._memory: _memory.Memory | None = _memory.Memory("stoker-notes")
        self._path = self._memory.path

    def __getstate__(self) -> str:
        return self._path

    def __setstate__(self, path: str) -> None:
        self._memory, self._path = None, path

    def write(self, noted: list[Note]) -> None:
        """Append the notes of one batch."""
        if noted:
            data = pickle.dumps(noted, 5)
            with open(self._path, "ab", buffering=0) as file:
                file.write(len(data).to_bytes(8, "little") + data)

    def read(self) -> Iterator[Note]:
        """Yield the new notes since the last call. Notes written during the call may be lost."""
        if self._memory is None:
            return
        with open(self._memory.fd, "rb", closefd=False) as file:
            file.seek(0)
            data = file.read()
        os.ftruncate(self._memory.fd, 0)
        at = 0
        while at + 8 <= len(data):
            size = int.from_bytes(data[at : at + 8], "little")
            if at + 8 + size > len(data):
                break
            yield from pickle.loads(data[at + 8 : at + 8 + size])
            at += 8 + size


class _Again(BaseException):
    """An item has to be made by Python from its beginning; no program catches this by mistake."""


class _Generator:
    """Torch's default generator for the functions of ``torch.random``: tells when its state is read or set."""

    def __init__(self, own: Any, touched: Callable[[], None]) -> None:
        self._own, self._touched = own, touched

    def __getattr__(self, name: str) -> Any:
        if name in _STATE:
            self._touched()
        return getattr(self._own, name)


@dataclass
class Watched:
    """Makes the items of a program's own dataset, from the engine's batches if possible."""

    dataset: Any
    transforms: list[Any]  # whose calls are looked at
    notes: Notes
    tally: Tally

    watches = True
    # For the current item: whether the state of random numbers was touched, whether a random transform was answered,
    # and whether the former came after the latter.
    _touched = _drawn = _broken = False

    def __post_init__(self) -> None:
        self._done: tuple[Any, _pending.Done | None, Any] = None, None, None
        self._never = False  # random transforms are not answered any more
        self._seed = _samples.Seed()
        self._watches_seeds = any(map(_may_draw, self.transforms))
        # Whether the libraries are those that the engine was compared with; checked before each batch.
        self._libraries: Callable[[], bool] = bool
        self._refuted = False  # they are not, and were not when they were compared again
        self._proven = False
        self._made: list[_pending.Row] = []  # the rows of the batch that are answered
        self._start([])

    @contextlib.contextmanager
    def scope(self, batch: dict[str, Any] | None) -> Iterator[None]:
        """Have opened images watched, and transforms answered."""
        if batch is not None:
            self._proven = self._know(batch["foreseen"][0])  # before anything is replaced
        scope = _pending.Scope(self.transforms)
        self._given, self._thread = 0, threading.get_ident()
        self._noted: list[Note] = []
        # A program may use the generator itself, so it is replaced only if something depends on it.
        watched = _Generator(torch.random.default_generator, self._touch)
        changes = [(torch.random, "default_generator", watched)] if self._watches_seeds else []
        try:
            with _pending.replaced(changes), scope.open(opened=self._open):
                yield
        finally:
            for row in self._made:
                row.make = None  # an image that the program keeps is Pillow's from now on
            self._made = []
            self.tally.add(self._given, scope.answers)
            self.notes.write(self._noted)

    def make(
        self,
        batch: dict[str, Any] | None,
        indices: list[Any],
        at: Callable[[int, Any], None],
        anew: Callable[[Any], Any],
        *,
        copy: bool,
    ) -> list[Any]:
        """Return the items of a batch, None for one that the engine has no part in; see ``Samples.make``."""
        rows = [None] * len(indices) if batch is None else self._rows(batch, copy)
        made = []
        for row, (index, foreseen) in enumerate(zip(indices, rows, strict=True)):
            at(row, index)
            made.append(self._item(index, foreseen))
        return made

    def _rows(self, batch: dict[str, Any], copy: bool) -> list[list[tuple[_File, _pending.Row]] | None]:
        """Return the expected files of each item, and the engine's results for them; None: not known."""
        _, sources, self._since = batch["foreseen"]
        _, done, program = self._done if self._proven else (None, None, None)
        pixels, numbers = batch["image"], iter(enumerate(batch["index"].tolist()))
        rows: list[list[tuple[_File, _pending.Row]] | None] = []
        for files in sources:
            if files is None:
                rows.append(None)
                continue
            mine = []
            for file, (at, number) in zip(files, numbers, strict=False):
                self._given += number >= 0 and self._proven
                if number >= 0 and done is not None and program is not None:
                    result = functools.partial(self._result, pixels[at], program, copy)
                    made = _pending.Row(None, done, result)
                    self._made.append(made)
                    mine.append((file, made))
            rows.append(mine)
        return rows

    def _know(self, known: tuple[int, str, Any]) -> bool:
        """Report whether this process has the transform and the libraries that the engine's rows are made with."""
        if self._done[0] != known:
            self._done, self._refuted = (known, None, None), False
            self._prove(known)
        elif self._libraries():
            return True
        elif not self._refuted and self._done[1] is not None:
            # Pillow imports some of its formats late, TIFF for example to read EXIF data. They are compared, too.
            self._refuted = not self._prove(known)
        return self._libraries()

    def _prove(self, known: tuple[int, str, Any]) -> bool:
        """Compare the transform and the libraries, and watch them from now on; False if they differ."""
        which, mode, key = known
        transform = self.transforms[which]
        with contextlib.suppress(Unknown):
            program = program_of(transform, mode)
            unchanged = _transforms.Unchanged(transform, len(program.rest))
            _datasets.check_pillow()
            if program.key() == key:
                self._libraries = _proof.watch()
                same = functools.partial(self._same, unchanged, program.random)
                self._done = known, _pending.Done(transform, mode, same, program.random), program
                return True
        return False

    def _same(self, unchanged: Callable[[], bool], random: bool) -> bool:
        if random and (self._touched or self._never or self._seed.is_set()):
            return False
        return _settings_hold() and unchanged()

    def _result(self, row: Array, program: _transforms.Program, copy: bool, image: Any) -> Any:
        self._drawn |= program.random
        return _samples.answer(row, program, image, copy)

    def _start(self, foreseen: list[tuple[_File, _pending.Row]]) -> None:
        self._foreseen = foreseen
        self._opened: list[tuple[str, _pending.Row]] = []
        self._touched = self._drawn = self._broken = False

    def _item(self, index: Any, foreseen: list[tuple[_File, _pending.Row]] | None) -> Any:
        self._start(list(foreseen or ()))
        try:
            made = self.dataset[index]
        except _Again:
            made = None
        if self._broken:
            # The item touches the state of random numbers after a random transform, which then has to draw for itself.
            self._never = True
            self._start([])
            made = self.dataset[index]
        program = self._done[2]
        self._touched = self._touched or self._seed.is_set()
        if foreseen is None or (self._touched and program is not None and program.random):
            self._note(index)
        self._start([])
        return made

    def _note(self, index: Any) -> None:
        with contextlib.suppress(TypeError):
            files = []
            for name, row in self._opened:
                if row.called is not None:
                    transform, mode = row.called
                    which = next(i for i, known in enumerate(self.transforms) if known is transform)
                    files.append((name, which, mode))
            self._noted.append((operator.index(index), files, self._touched))

    def _open(self, image: Any) -> _pending.Row | None:
        """Return the data known about an image that Pillow has opened."""
        name = _name_of(image)
        if name is None:
            return None
        found = os.fstat(image.fp.fileno()) if self._foreseen else None
        for at, (expected, row) in enumerate(self._foreseen):
            # A link or a folder may lead to another file by now, which is old itself.
            if found is not None and expected == (name, found.st_dev, found.st_ino) and found.st_ctime_ns < self._since:
                del self._foreseen[at]
                return row
        row = _pending.Row(None)
        self._opened.append((name, row))
        return row

    def _touch(self) -> None:
        """See that the state of torch's random numbers is read or set."""
        self._touched = True
        if self._drawn:
            self._broken = True
            if threading.get_ident() == self._thread:
                raise _Again


def _may_draw(transform: Any) -> bool:
    """Whether a transform may draw random numbers."""
    try:
        return any(program_of(transform, mode).random for mode in ("RGB", "L"))
    except Unknown:
        return True


def _settings_hold() -> bool:
    try:
        _proof.check_settings()
    except Unknown:
        return False
    return True


def program_of(transform: Any, mode: str) -> _transforms.Program:
    """Return the engine's part of a transform that gets images in a mode, or raise Unknown."""
    program = _transforms.recognise(transform, 1 if mode == "L" else 3, split=True, pictures=True)
    if not program.sized or program.wrapped is None or not program.ops:
        raise Unknown("it leaves images of several sizes")
    if mode == "L":
        program.mode = mode
    return program


def _name_of(image: Any) -> str | None:
    """Return the path of an image's file, None if the image is not in a file."""
    file = image.fp
    if type(file) is not io.BufferedReader or type(file.raw) is not io.FileIO:
        return None
    name = image.filename or file.name
    name = os.fsdecode(name) if isinstance(name, bytes) else name
    if not isinstance(name, str):
        return None
    name = name if name.startswith("/") else f"{os.getcwd()}/{name}"  # noqa: PTH109
    return None if name.startswith(_NOT_FILES) else name
