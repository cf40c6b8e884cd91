"""Packs in parts, for the tests of schedulers: data, the parts of one process, and sums of files."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from support import cli

OPTIONS = ("--images", "raw", "--resize", "96x96")


def sums(pack: Path) -> dict[str, str]:
    """Return the SHA-256 of each file."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(pack.iterdir())}


def part(binary: str, data: Path, out: Path, i: int, parts: int) -> list[str]:
    """Return the command of a part."""
    return [binary, "pack", str(data), str(out), "--part", f"{i}/{parts}", *OPTIONS]


def one_process(binary: str, data: Path, out: Path, parts: int) -> dict[str, str]:
    """Pack all parts one after the other, and return the sums of the pack."""
    for i in range(parts):
        subprocess.run(part(binary, data, out, i, parts), check=True, capture_output=True)
    cli(binary, "pack", "--commit", out)
    return sums(out)


class Killer:
    """Kills processes of a test at random. All of them have a mark in their environment."""

    def __init__(self, mark: str, words: Iterable[bytes], seed: int) -> None:
        self.mark, self.words, self.kills = mark.encode(), tuple(words), 0
        self._random = random.Random(seed)

    def found(self) -> list[int]:
        """Return the processes that it may kill."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes()
                if any(w in command for w in self.words) and self.mark in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue  # it has ended
        return [p for p in found if p != os.getpid()]

    def run(self, until: Callable[[], bool], most: int, pause: float = 0.1) -> None:
        """Kill one process after the other, up to a number of them."""
        while not until():
            if self.kills < most and (found := self.found()):
                try:
                    os.kill(self._random.choice(found), signal.SIGKILL)
                    self.kills += 1
                except ProcessLookupError:
                    pass
            time.sleep(pause)
