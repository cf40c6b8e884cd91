"""`stoker quickstart` writes scripts that run, for each kind of data, in PyTorch and in NumPy."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stoker
from support import CHECKOUT

RNG = np.random.default_rng(0)


def photos(folder: Path) -> str:
    command = ["gen", "images", str(folder / "photos"), "--count", "48", "--classes", "3", "--size", "80x60"]
    subprocess.run([sys.executable, "-m", "stoker", *command], check=True, capture_output=True)
    return "photos"


def unlabelled(folder: Path) -> str:
    photos(folder)
    (folder / "flat").mkdir()
    for i, file in enumerate(sorted((folder / "photos").rglob("*.jpg"))):
        shutil.copy(file, folder / "flat" / f"{i}.jpg")
    return "flat"


def coco(folder: Path) -> str:
    from PIL import Image

    (folder / "coco/val").mkdir(parents=True)
    images, annotations = [], []
    for i in range(36):
        Image.fromarray(RNG.integers(0, 256, (60, 80, 3), np.uint8)).save(folder / f"coco/val/{i:03}.jpg")
        images.append({"id": i, "file_name": f"{i:03}.jpg", "width": 80, "height": 60})
        for k in range(i % 3):
            box = {"bbox": [5 + k, 6, 20, 30], "area": 600, "iscrowd": 0, "category_id": 1 + k}
            annotations.append({"id": len(annotations) + 1, "image_id": i, **box})
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    (folder / "coco/annotations").mkdir()
    whole = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "coco/annotations/instances_val.json").write_text(json.dumps(whole))
    return "coco/annotations/instances_val.json"


def masks(folder: Path) -> str:
    from PIL import Image

    for name in ("images", "masks"):
        (folder / "data" / name).mkdir(parents=True)
    for i in range(16):
        Image.fromarray(RNG.integers(0, 256, (60, 80, 3), np.uint8)).save(folder / f"data/images/{i}.png")
        Image.fromarray(RNG.integers(0, 4, (60, 80), np.uint8)).save(folder / f"data/masks/{i}.png")
    return "pairs:data/?image=images/*.png&mask=masks/*.png"


def recordings(folder: Path) -> str:
    for i in range(36):
        (folder / f"sounds/word{i % 2}").mkdir(parents=True, exist_ok=True)
        with wave.open(str(folder / f"sounds/word{i % 2}/{i}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(RNG.integers(-9000, 9000, 6000 + 100 * i).astype(np.int16).tobytes())
    return "sounds"


def volumes(folder: Path) -> str:
    (folder / "scans").mkdir()
    for i in range(32):
        np.save(folder / f"scans/{i}.npy", RNG.standard_normal((32 + i % 4, 34, 36)).astype(np.float32))
    return "volumes:scans/"


def labelled_volumes(folder: Path) -> str:
    for name in ("images", "labels"):
        (folder / "scans" / name).mkdir(parents=True)
        for i in range(8):
            values = RNG.integers(0, 3, (40, 50, 36))
            np.save(folder / f"scans/{name}/{i}.npy", values.astype(np.float32 if name == "images" else np.uint8))
    return "pairs:scans/?image=images/*.npy&label=labels/*.npy"


def text(folder: Path) -> str:
    lines = [
        json.dumps({"text": f"The {w} boat sailed to harbour {i}."}) for i, w in enumerate(["red", "old", ""] * 12)
    ]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n")
    return "docs.jsonl"


def tokens(folder: Path) -> str:
    rows = [{"tokens": RNG.integers(0, 500, 700 + i).astype(np.uint16)} for i in range(12)]
    stoker.pack(rows, folder / "tokens", kinds={"tokens": "tokens"}, progress=False)
    return "tokens"


def table(folder: Path) -> str:
    rows = [f"{20 + i % 40},{['Bern', 'Oslo'][i % 2]},{1000 + 10 * i}" for i in range(120)]
    (folder / "people.csv").write_text("age,city,income\n" + "\n".join(rows) + "\n")
    return "people.csv"


def classes_in_a_table(folder: Path) -> str:
    rows = [f"{i % 7},{i % 5 / 2},{['a', 'b', 'c'][i % 3]}" for i in range(120)]
    (folder / "iris.csv").write_text("length,width,species\n" + "\n".join(rows) + "\n")
    return "iris.csv"


def arrays(folder: Path) -> str:
    np.savez(folder / "x.npz", x=RNG.standard_normal((64, 9)).astype(np.float32), y=RNG.integers(0, 4, 64))
    return "x.npz"


def clips(folder: Path) -> str:
    (folder / "videos/a").mkdir(parents=True)
    shutil.copy(CHECKOUT / "internal/video/testdata/small.mp4", folder / "videos/a/1.mp4")
    return "videos/?frames=4&step=2"


def files(folder: Path) -> str:
    (folder / "notes").mkdir()
    for i in range(8):
        (folder / f"notes/{i}.bin").write_bytes(b"x" * i)
    return "files:notes/"


DATA: list[Callable[[Path], str]] = [
    photos, unlabelled, coco, masks, recordings, volumes, labelled_volumes, text, tokens, table, classes_in_a_table,
    arrays, clips, files,
]  # fmt: skip


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("data", DATA)
def test_the_script_runs(
    binary: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: Callable[[Path], str],
    framework: str,
) -> None:
    if framework == "torch":
        # Threads that wait for each other are slow on a busy machine.
        pytest.importorskip("torch").set_num_threads(1)
    url = data(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = [binary, "quickstart", url, "--framework", framework, "--no-measure"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    script = tmp_path / "train.py"
    compile(script.read_text(), "train.py", "exec")
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert "first batch after" in said
    assert "nan" not in said
    assert "epoch 3" in said or "standard deviation" in said


def test_the_script_passes_the_linter(binary: str, tmp_path: Path) -> None:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent))
    if ruff is None:
        pytest.skip("ruff is not installed")
    for data in (photos, coco, recordings, text, table):
        folder = tmp_path / data.__name__
        folder.mkdir()
        url = data(folder)
        for framework in ("torch", "numpy"):
            out = f"train_{framework}.py"
            command = [binary, "quickstart", url, "--framework", framework, "--no-measure", "--out", out]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            check = [ruff, "check", "--isolated", "--select", "E4,E7,E9,F,I", out]
            done = subprocess.run(check, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("data", [photos, coco, recordings, volumes])
def test_the_engine_knows_the_transforms_that_are_measured(
    binary: str, tmp_path: Path, data: Callable[[Path], str]
) -> None:
    """The engine gets the same transforms as the script."""
    folder = tmp_path / "data"
    folder.mkdir()
    url = data(folder)
    command = [binary, "quickstart", url, "--seconds", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "unpacked:" in done.stdout, done.stdout
