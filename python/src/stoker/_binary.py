"""Finding the engine's binary."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ._errors import EngineNotFound

_HERE = Path(__file__).resolve().parent

# Names the folders of libraries that other packages have brought (internal/dynlib), with colons between them.
PACKAGES = "STOKER_PACKAGE_LIBRARIES"
SYSTEM = ""  # stands for the system's libraries among them


def find_binary() -> str:
    """Return the path of the ``stoker`` binary.

    The binary is the first of these: the file that ``STOKER_BINARY`` names, the one inside the installed package,
    ``bin/stoker`` of the checkout that this package runs from, ``stoker`` on the ``PATH``. An installed package has two
    binaries. ``stoker`` can load libraries. ``stoker-static`` also starts without glibc, for example.

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
    """Return the environment for the engine: this one, and the folders of libraries that it can use.

    These are FFmpeg's in the wheels of PyAV and OpenCV, libavif and libopenjp2 in Pillow's and libjxl in that of
    imagecodecs, and those of the conda environment of this Python. The engine is a process of its own, so its libraries
    do not conflict with those of Python.
    """
    env = dict(os.environ)
    wheels = [(name, f"{name}.libs") for name in ("av", "imagecodecs", "torchcodec")]
    wheels.insert(1, ("PIL", "pillow.libs"))
    folders = [folder for package, pattern in wheels for folder in _libraries(package, pattern)]
    # OpenCV's FFmpeg lacks decoders that the system's may have.
    env[PACKAGES] = os.pathsep.join([*folders, SYSTEM, *_libraries("cv2", "opencv_*.libs")])
    if Path(sys.prefix, "conda-meta").is_dir():
        env["CONDA_PREFIX"] = sys.prefix
    return env


def _libraries(package: str, pattern: str) -> list[str]:
    """Return the folders of the libraries of a package's wheel."""
    found = importlib.util.find_spec(package)
    if found is None or not found.origin:
        return []
    return sorted(str(p) for p in Path(found.origin).parents[1].glob(pattern) if p.is_dir())


def _checkout() -> Path | None:
    """Return the root of the checkout that contains this file, if there is one."""
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
