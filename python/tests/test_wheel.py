"""The wheel: built, installed into an empty environment outside the checkout, and used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from support import CHECKOUT, cli

LOOP = """
import json, os, shutil, stoker, sys
from stoker import transforms as T
from stoker._binary import find_binary
loader = stoker.Loader(sys.argv[1], batch_size=16, shuffle=True,
                       transforms={"image": [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]})
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
        programs = [z.getinfo(f"stoker/bin/{name}") for name in ("stoker", "stoker-static")]
    assert all(p.external_attr >> 16 & 0o111 for p in programs)
    assert "stoker/py.typed" in names
    package = CHECKOUT / "python" / "src"
    assert {n for n in names if n.startswith("stoker/") and n.endswith(".py")} == {
        p.relative_to(package).as_posix() for p in (package / "stoker").rglob("*.py")
    }


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment of its own; return the environment's folder."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    run(venv, "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    return venv


def run(venv: Path, program: str, *arguments: str, at: Path | None = None, **env: str) -> str:
    """Run a program of an environment in a folder outside the checkout, and return its output."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER", "PYTHON"))}
    command = [str(venv / "bin" / program), *arguments]
    ran = subprocess.run(
        command, env={**clean, "PATH": "/usr/bin:/bin", **env}, cwd=at or venv.parent, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def programs(venv: Path) -> Path:
    """Return the folder of the engine's programs."""
    return next(venv.glob("lib/python*/site-packages")) / "stoker" / "bin"


def test_wheel_in_an_empty_environment(installed: Path, pack: Path) -> None:
    said = run(installed, "python", "-c", LOOP, str(pack))
    assert '"rows": 203' in said
    assert f'"binary": "{programs(installed)}/stoker"' in said
    assert str(CHECKOUT) not in said
    # The command line comes with it.
    assert "203" in run(installed, "stoker", "inspect", str(pack))


def test_quickstart_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    """Without data of the user's, Go or the checkout: data, a script, and its first batch, within a minute."""
    began = time.monotonic()
    said = run(installed, "stoker", "quickstart", "--seconds", "1", at=tmp_path)
    assert "task of the script: tell the classes apart" in said and "train.py is written, for NumPy" in said
    said = run(installed, "python", "train.py", at=tmp_path)
    assert "first batch after" in said and "epoch 3" in said
    assert time.monotonic() - began < 60


LINK = re.compile(r"\]\(([\w-]+\.md)\)")
BLOCK = re.compile(r"^(<!-- not run: [^\n]* -->\n)?```(sh|python)\n(.*?)^```$", re.M | re.S)


def test_the_first_page_of_start_word_for_word(wheel: Path, installed: Path, tmp_path: Path) -> None:
    """The commands and the code of the first page of docs/start with code, in an empty folder and environment."""
    start = CHECKOUT / "docs/start"
    if not start.is_dir():
        pytest.skip("docs is not in this tree")
    pages = [start / name for name in LINK.findall((start / "index.md").read_text())]
    found = [(page, BLOCK.findall(page.read_text())) for page in pages]
    page, blocks = next(((p, b) for p, b in found if any("stoker quickstart" in code for _, _, code in b)), (None, []))
    if page is None:
        pytest.skip("no page of docs/start begins with stoker quickstart")
    run(installed, "stoker", "gen", "images", "photos", "--count", "80", "--classes", "4", at=tmp_path)  # the reader's
    for i, (skipped, language, code) in enumerate(blocks):
        if skipped:
            continue
        if language == "sh":
            code = re.sub(r"(pip install\b.*?) stoker\b", rf"\1 {wheel}", code)
            shell = "import subprocess, sys; sys.exit(subprocess.call(['bash', '-ec', sys.argv[1]]))"
            path = f"{installed / 'bin'}:/usr/bin:/bin"
            run(installed, "python", "-c", shell, code, at=tmp_path, PATH=path)
        else:
            script = tmp_path / f"block{i}.py"
            # Pages call the reader's own step by this name (scripts/docs.py).
            script.write_text(
                "def train_step(*arrays): pass\n"
                + "".join(c for s, kind, c in blocks[: i + 1] if kind == "python" and not s)
            )
            run(installed, "python", str(script), at=tmp_path)


def test_the_program_that_loads_libraries_needs_an_old_glibc(installed: Path) -> None:
    objdump = shutil.which("objdump")
    assert objdump, "a C compiler comes with it"
    said = subprocess.run([objdump, "-T", programs(installed) / "stoker"], check=True, capture_output=True, text=True)
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", said.stdout)}
    assert versions and max(versions) <= (2, 28)
    # It does not offer its own libjpeg, Opus and Vorbis to the libraries that it loads.
    assert not re.search(r" (jpeg|opus|vorbis|ogg)_\w+$", said.stdout, re.M)


STATIC = "this program is static and cannot load libraries"


def decoders(venv: Path) -> dict[str, dict[str, str]]:
    """Return the decoders of the codecs in an environment."""
    said = json.loads(run(venv, "python", "-m", "stoker", "formats", "--json"))
    return {d["codec"]: d for d in said["decoders"]}


def test_the_program_can_load_libraries(installed: Path) -> None:
    found = decoders(installed)
    assert found["JPEG"]["decodes"] and "H.264" in found and "AVIF" in found
    assert not [d for d in found.values() if STATIC in d.get("why", "")]


def test_the_program_decodes_by_libraries(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries in the wheels of Pillow, imagecodecs and PyAV give the same pixels as in Python."""
    codecs: Any = pytest.importorskip("imagecodecs")
    av: Any = pytest.importorskip("av")
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (40, 56, 3), np.uint8)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.jxl").write_bytes(codecs.jpegxl_encode(pixels, lossless=True))
    avif = codecs.avif_encode(pixels, level=100)
    (tmp_path / "a" / "b.avif").write_bytes(avif)
    with av.open(str(tmp_path / "x.mp4"), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 56, 40, "yuv420p"
        for _ in range(4):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode())
    with av.open(str(tmp_path / "x.mp4")) as file:
        frames = np.stack([f.to_ndarray(format="rgb24") for f in file.decode(video=0)])
    monkeypatch.setenv("STOKER_BINARY", str(programs(installed) / "stoker"))
    with stoker.Loader(str(tmp_path / "a"), batch_size=2) as loader:
        batch = next(iter(loader))
        jxl, from_avif = batch.image[0], batch.image[1]
        assert np.array_equal(jxl, pixels)
        assert np.abs(from_avif.astype(int) - codecs.avif_decode(avif)[..., :3]).max() <= 1
    with stoker.Loader(f"{tmp_path / 'x.mp4'}?frames=4", batch_size=1) as loader:
        assert np.array_equal(next(iter(loader)).frames[0], frames)


def test_the_static_program_takes_over_where_the_other_one_does_not_start(
    installed: Path, pack: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "venv"
    shutil.copytree(installed, copy, symlinks=True)
    loads, static = programs(copy) / "stoker", programs(copy) / "stoker-static"
    linked = subprocess.run(["ldd", static], capture_output=True, text=True)
    assert "not a dynamic executable" in linked.stdout + linked.stderr
    for broken in (b"#!/no/such/interpreter\n", loads.read_bytes().replace(b"/ld-linux", b"/no-linux", 1)):
        loads.write_bytes(broken)
        said = run(copy, "python", "-c", LOOP, str(pack), PYTHONPATH=str(programs(copy).parents[1]))
        assert '"rows": 203' in said and f'"binary": "{static}"' in said
    found = decoders(copy)
    assert all(STATIC in found[codec]["why"] for codec in ("H.264", "AV1", "JPEG XL", "AVIF", "JPEG 2000"))
    assert found["JPEG"]["decodes"] and found["MJPEG"]["decodes"]


def test_verify_tells_files_that_are_intact_from_damage(installed: Path, tmp_path: Path, binary: str) -> None:
    """Without libavif an AVIF cannot be decoded: exit code 3 and not 4, and no advice to copy shards."""
    codecs: Any = pytest.importorskip("imagecodecs")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.avif").write_bytes(codecs.avif_encode(np.zeros((40, 56, 3), np.uint8)))
    cli(binary, "pack", tmp_path / "a", tmp_path / "pack")
    command = [programs(installed) / "stoker-static", "verify", str(tmp_path / "pack"), "--decode"]
    said = subprocess.run([*command, "--json"], capture_output=True, text=True)
    report = json.loads(said.stdout)
    assert said.returncode == 3 and report["whole"] and len(report["unsupported"]) == 1
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 3 and "AVIF needs libavif" in said.stdout
    assert "intact and not supported" in said.stderr and "copy" not in said.stderr


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
