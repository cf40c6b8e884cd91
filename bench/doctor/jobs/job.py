"""Common code of the jobs of the kinds: options, a folder for data, a step that takes time, and the count of steps.

A job runs for --seconds after its first step and prints its steps per second, without the first two seconds.
--without NAME removes a resource of its data path, to measure the truth.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

# If it was built for another CUDA version than torch, it cannot be imported, and Trainer fails with it. No job needs
# it.
sys.modules.setdefault("torchaudio", None)
_parser = argparse.ArgumentParser()
_parser.add_argument("--seconds", type=float, default=60)
_parser.add_argument("--without", default="")
# Other programs, such as Ray for its workers, have their own options.
_own = Path(sys.argv[0]).resolve().parent == Path(__file__).resolve().parent
options = _parser.parse_args() if _own else _parser.parse_known_args([])[0]
WARM = 2.0


def leave(code: int) -> None:
    """Exits without waiting for threads, and leaves no process running."""
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(code)


_first = _begun = 0.0
_steps = 0


def without(name: str) -> bool:
    return options.without in (name, "everything")


def folder() -> Path:
    path = Path(os.environ.get("STOKER_KINDS", Path(tempfile.gettempdir()) / "stoker-kinds"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def tick() -> None:
    """At the end of each step."""
    global _first, _begun, _steps
    now = time.monotonic()
    _first = _first or now
    if not _begun and now - _first >= WARM:
        _begun = now
    elif _begun:
        _steps += 1
    if now - _first >= options.seconds:
        if int(os.environ.get("RANK", "0")) == 0:
            print(f"rate {_steps / max(1e-9, now - _begun):.4f}", flush=True)
        leave(0)


def spin(seconds: float) -> None:
    """Computes in Python for so much CPU time."""
    end = time.thread_time() + seconds
    x = 0
    while time.thread_time() < end:
        for i in range(200):
            x += i * i


def evict(path: Path) -> None:
    """Drops a file from the page cache."""
    with path.open("rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
