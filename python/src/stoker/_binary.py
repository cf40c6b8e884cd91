"""Finding the engine's binary."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from ._errors import EngineNotFound

_HERE = Path(__file__).resolve().parent

# Names the folder with FFmpeg's libraries, and folders with those of images.
FFMPEG = "STOKER_FFMPEG"
IMAGES = "STOKER_IMAGE_LIBRARIES"


def find_binary() -> str:
    """Return the path of the ``stoker`` binary.

    It is, in this order: the file that ``STOKER_BINARY`` names, the one inside
    the installed package, ``bin/stoker`` of the checkout that this package runs
    from, ``stoker`` on the ``PATH``. An installed package has two: ``stoker``
    can load libraries, and ``stoker-static`` also starts where the first one
    cannot, for example without glibc.

    Raises:
        EngineNotFound: there is none; the message lists every place searched.
    """
    override = os.environ.get("STOKER_BINARY")
    if override:
        if _executable(Path(override)):
            return os.path.abspath(override)
        raise EngineNotFound(f"STOKER_BINARY is set to {override}, which is not an executable file")
    searched = [_installed(_HERE / "bin")]
    checkout = _checkout()
    if checkout is not None:
        searched.append(checkout / "bin" / "stoker")
    for path in searched:
        if _executable(path):
            return str(path)
    # The script that this package installs has the same name; it is not the engine.
    for folder in os.get_exec_path():
        found = shutil.which("stoker", path=folder)
        if found and _is_elf(Path(found)):
            return os.path.abspath(found)
    places = "\n".join(f"  {p}" for p in [*searched, "stoker on the PATH"])
    hint = "install the wheel, which contains it, or set STOKER_BINARY"
    if checkout is not None:
        hint = f"build it: go build -o bin/stoker ./cmd/stoker in {checkout}"
    raise EngineNotFound(f"the stoker binary was not found; searched:\n{places}\nhint: {hint}")


def _installed(folder: Path) -> Path:
    """Return the program of an installed package that starts on this system."""
    loads, static = folder / "stoker", folder / "stoker-static"
    return static if _executable(static) and not _starts(loads) else loads


@functools.cache
def _starts(program: Path) -> bool:
    """Return whether a program starts: it may be missing, or need a C library that this system does not have."""
    try:
        return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def environment() -> dict[str, str]:
    """Return the environment for the engine: this one, and where wheels have libraries that it can use.

    Those are FFmpeg's in PyAV's, libavif and libopenjp2 in Pillow's and libjxl in that of imagecodecs. What
    ``STOKER_FFMPEG`` and ``STOKER_IMAGE_LIBRARIES`` name already stays.
    """
    env = dict(os.environ)
    if not env.get(FFMPEG):
        env[FFMPEG] = "".join(_libraries("av", "av.libs"))
    if not env.get(IMAGES):
        folders = [*_libraries("PIL", "pillow.libs"), *_libraries("imagecodecs", "imagecodecs.libs")]
        env[IMAGES] = os.pathsep.join(folders)
    return env


def _libraries(package: str, beside: str) -> list[str]:
    """Return the folder of the libraries of a package's wheel, if there is one."""
    found = importlib.util.find_spec(package)
    if found is None or not found.origin:
        return []
    folder = Path(found.origin).parents[1] / beside
    return [str(folder)] if folder.is_dir() else []


def _checkout() -> Path | None:
    """Return the root of the checkout that this file lies in, if it does."""
    root = _HERE.parents[2] if len(_HERE.parents) > 2 else None
    return root if root is not None and (root / "cmd" / "stoker" / "main.go").is_file() else None


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as f:
            return f.read(4) == b"\x7fELF"
    except OSError:
        return False
