"""The wheel: built, installed into an empty environment outside the checkout, and used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import CHECKOUT

LOOP = """
import json, os, shutil, stoker, sys
from stoker._binary import find_binary
loader = stoker.Loader(sys.argv[1], batch_size=16, shuffle=True,
                       fields={"image": [stoker.RandomResizedCrop(32), stoker.RandomHorizontalFlip()]})
seen = sorted(i for images, labels in loader for i in labels.tolist())
print(json.dumps({"rows": len(seen), "file": stoker.__file__, "binary": find_binary()}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel; Go's build cache makes that quick after the first time."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), "."]
    subprocess.run(build, cwd=CHECKOUT / "python", check=True, capture_output=True)
    (found,) = out.glob("*.whl")
    return found


def test_wheel_contents(wheel: Path) -> None:
    assert wheel.name.startswith("stoker-")
    assert "-py3-none-" in wheel.name
    assert wheel.name.endswith(f"linux_1_1_{os.uname().machine}.whl")
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        binary = z.getinfo("stoker/bin/stoker")
    assert binary.external_attr >> 16 & 0o111
    assert "stoker/py.typed" in names
    package = CHECKOUT / "python" / "src"
    assert {n for n in names if n.startswith("stoker/") and n.endswith(".py")} == {
        p.relative_to(package).as_posix() for p in (package / "stoker").rglob("*.py")
    }


def test_wheel_in_an_empty_environment(wheel: Path, pack: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    bin_ = tmp_path / "venv" / "bin"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER", "PYTHON"))}
    env["PATH"] = "/usr/bin:/bin"
    pip = [str(bin_ / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True, env=env, cwd=tmp_path)
    command = [str(bin_ / "python"), "-c", LOOP, str(pack)]
    ran = subprocess.run(command, check=True, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert '"rows": 203' in ran.stdout
    assert str(CHECKOUT) not in ran.stdout
    # The command line comes with it.
    said = subprocess.run([str(bin_ / "stoker"), "inspect", str(pack)], env=env, capture_output=True, text=True)
    assert said.returncode == 0
    assert "203" in said.stdout
    # The binary needs nothing of the system that may differ elsewhere.
    ldd = shutil.which("ldd")
    if ldd:
        site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
        linked = subprocess.run([ldd, str(site / "stoker/bin/stoker")], capture_output=True, text=True)
        assert "not a dynamic executable" in linked.stdout + linked.stderr


def test_without_go_the_build_says_what_is_missing(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    env = {**os.environ, "PATH": str(tools)}
    command = [
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
        "--wheel-dir", str(tmp_path), str(CHECKOUT / "python"),
    ]  # fmt: skip
    ran = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode != 0
    text = ran.stdout + ran.stderr
    assert "Go is missing" in text
    assert "Go 1.26 or newer" in text
    assert not list(tmp_path.glob("*.whl"))
