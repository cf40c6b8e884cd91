"""The data that the loops of the matrix train on, made once into bench/work/doctor.

images   a folder of JPEG files, one folder per class: photographs if available, otherwise generated ones
small    the same pictures as 48x48 JPEG files of about 2 KB: many small files
shards   the images as tar shards
pack     the images as a pack of Stoker, coefficients (dct)
rows.npy some of the images, 256x256, in one array
served   the data of the HTTP server: images and shards, each with an index.txt
"""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from bench import datasets

SMALL = 12_000
ROWS = 2400
SHARDS = 24


def images(work: Path, source: Path, say: Callable[[str], None]) -> Path:
    """The folder of images, photographs if there are any."""
    try:
        return datasets.make("photos", work, source, say)
    except datasets.MissingError:
        return datasets.make("gen", work, source, say)


def make(work: Path, source: Path, binary: Path, say: Callable[[str], None]) -> dict[str, Path]:
    """Makes the missing data sets, and returns the path of each by its name."""
    base = work / "doctor"
    base.mkdir(parents=True, exist_ok=True)
    folder = images(work, source, say)
    files = sorted(p for p in folder.glob("*/*.jpg"))
    paths = {"images": folder}
    for name, maker in {"small": _small, "shards": _shards, "rows.npy": _rows, "served": _served}.items():
        out = base / name
        if not out.exists():
            say(f"making {name}")
            part = out.with_name(out.name + ".part")
            shutil.rmtree(part, ignore_errors=True)
            part.unlink(missing_ok=True)
            maker(part, files, folder)
            part.rename(out)
        paths[name] = out
    paths["pack"] = base / "pack"
    if not (paths["pack"] / "manifest.json").exists():
        say("packing")
        subprocess.run(
            [str(binary), "pack", str(folder), str(paths["pack"]), "--images", "dct"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    return paths


def _small(out: Path, files: list[Path], _folder: Path) -> None:
    from PIL import Image

    made: list[bytes] = []
    for file in files[:1000]:
        image = Image.open(file)
        image.draft("RGB", (96, 96))
        buffer = io.BytesIO()
        image.convert("RGB").resize((48, 48)).save(buffer, "JPEG", quality=85)
        made.append(buffer.getvalue())
    for number in range(SMALL):
        folder = out / f"{number % 20:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06d}.jpg").write_bytes(made[number % len(made)])


def _shards(out: Path, files: list[Path], _folder: Path) -> None:
    out.mkdir()
    classes = sorted({f.parent.name for f in files})
    files = list(files)
    random.Random(0).shuffle(files)
    for shard in range(SHARDS):
        with tarfile.open(out / f"train-{shard:04d}.tar", "w") as tar:
            for number, file in enumerate(files[shard::SHARDS]):
                label = str(classes.index(file.parent.name)).encode()
                for suffix, data in (("jpg", file.read_bytes()), ("cls", label)):
                    info = tarfile.TarInfo(f"{shard:04d}{number:06d}.{suffix}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


def _rows(out: Path, files: list[Path], _folder: Path) -> None:
    import numpy as np
    from PIL import Image

    rows = np.empty((ROWS, 256, 256, 3), np.uint8)
    for number in range(ROWS):
        if number < 600:
            image = Image.open(files[number])
            image.draft("RGB", (256, 256))
            rows[number] = np.asarray(image.convert("RGB").resize((256, 256)))
        else:
            rows[number] = rows[number % 600]
    with open(out, "wb") as f:
        np.save(f, rows)


def _served(out: Path, files: list[Path], folder: Path) -> None:
    out.mkdir()
    os.symlink(folder.resolve(), out / "images")
    os.symlink((out.parent / "shards").resolve(), out / "shards")
    (out / "index.txt").write_text("\n".join(f"images/{f.parent.name}/{f.name}" for f in files))
    shards = out.parent / "shards"
    (shards / "index.txt").write_text("\n".join(sorted(p.name for p in shards.glob("*.tar"))))
