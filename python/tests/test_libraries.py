"""The engine's search for the libraries of other packages."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from stoker import _binary
from support import cli


def test_folders_of_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Wheels come before the system, OpenCV's after it. The user's own setting does not change."""
    site = tmp_path / "site"
    for name in ("av", "cv2", "PIL"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").touch()
    for name in ("av.libs", "opencv_python.libs", "imagecodecs.libs"):
        (site / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(site)])
    for name in ("av", "cv2", "PIL", "imagecodecs", "torchcodec"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "conda"))
    (tmp_path / "conda" / "conda-meta").mkdir(parents=True)
    monkeypatch.setenv("STOKER_FFMPEG", "/mine")
    env = _binary.environment()
    folders = env["STOKER_PACKAGE_LIBRARIES"].split(os.pathsep)
    assert folders == [str(site / "av.libs"), "", str(site / "opencv_python.libs")]
    assert env["CONDA_PREFIX"] == str(tmp_path / "conda") and env["STOKER_FFMPEG"] == "/mine"


def test_conda_environment(binary: str, tmp_path: Path) -> None:
    """A file that cannot be used is named, and the next place is searched."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libavif.so.16").write_text("no library")
    env = {**os.environ, "CONDA_PREFIX": str(tmp_path), "STOKER_FFMPEG": str(tmp_path)}
    said = json.loads(cli(binary, "formats", "--json", env=env))
    found = {d["codec"]: d for d in said["decoders"]}
    assert str(tmp_path / "lib") in said["searched"]
    assert found["AVIF"]["decodes"] or str(tmp_path / "lib" / "libavif.so.16") in found["AVIF"]["why"]
    assert "pip install av" in found["H.264"]["install"] and str(tmp_path) in found["H.264"]["why"]
