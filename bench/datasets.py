"""The data that all arms read, made once into bench/work/data.

photos  real photographs of DATA/photos, several copies of each as separate files, so that the set is larger than any
        CPU cache. Skipped with a message if the folder does not exist.
gen     `stoker gen images`: the same bytes on every machine
raw256  the first photos, resized to 256x256, as records of one .npy file and as a folder of BMP files
cifar   32x32 pictures of DATA/cifar10_test_jpeg.tar in the same two forms
tokens  2 KB records of 16-bit token numbers in one .npy file
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PHOTOS = 5000
RAW = 4000
GENERATED = 2000
TOKENS = 40_000
CLASSES = 100


class MissingError(Exception):
    """A data set cannot be made here. The message has the reason."""


def make(name: str, work: Path, source: Path, say: Callable[[str], None]) -> Path:
    """Makes a data set unless it exists, and returns its folder or file. A finished set is renamed into place."""
    maker = MAKERS[name]
    out = work / "data" / name
    if out.exists():
        return out
    part = out.with_name(name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    say(f"making the data set {name}")
    maker(part, work, source)
    part.rename(out)
    return out


def records(name: str, work: Path) -> list[Path]:
    """The image files of a set in the order of their record numbers."""
    return sorted(p for p in (work / "data" / name).glob("*/*") if p.is_file())


def _photos(out: Path, _work: Path, source: Path) -> None:
    found = sorted(p for p in (source / "photos").glob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise MissingError(f"no photographs in {source / 'photos'}; set DATA=folder")
    for number in range(PHOTOS):
        folder = out / f"{number % CLASSES:02d}"
        folder.mkdir(exist_ok=True)
        shutil.copyfile(found[number % len(found)], folder / f"{number:05d}.jpg")


def _gen(out: Path, _work: Path, _source: Path) -> None:
    binary = ROOT / "bin" / "stoker"
    if not binary.exists():
        raise MissingError("bin/stoker is not built; run make build")
    target = out / "images"
    command = [str(binary), "gen", "images", str(target), "--count", str(GENERATED), "--classes", "10", "--seed", "1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise MissingError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    for entry in target.iterdir():
        entry.rename(out / entry.name)
    target.rmdir()


def _raw256(out: Path, work: Path, source: Path) -> None:
    from PIL import Image

    make("photos", work, source, print)
    files = records("photos", work)[:RAW]
    _records(
        out,
        (Image.open(f).convert("RGB").resize((256, 256), Image.Resampling.BILINEAR) for f in files),
        len(files),
        256,
    )


def _cifar(out: Path, _work: Path, source: Path) -> None:
    import io

    from PIL import Image

    archive = source / "cifar10_test_jpeg.tar"
    if not archive.exists():
        raise MissingError(f"{archive} is not there; set DATA=folder")
    with tarfile.open(archive) as tar:
        names = sorted(m.name for m in tar.getmembers() if m.name.lower().endswith((".jpg", ".jpeg")))
        images = (Image.open(io.BytesIO(tar.extractfile(n).read())).convert("RGB") for n in names)  # type: ignore[union-attr]
        _records(out, images, len(names), 32)


def _records(out: Path, images: object, count: int, side: int) -> None:
    """Writes images as out/records.npy and as out/bmp/CLASS/NUMBER.bmp, numbered alike."""
    import numpy as np

    array = np.lib.format.open_memmap(out / "records.npy", "w+", np.uint8, (count, side, side, 3))
    per_class = -(-count // 10)
    for number, image in enumerate(images):  # type: ignore[arg-type]
        array[number] = np.asarray(image)
        folder = out / "bmp" / f"{number // per_class:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number:05d}.bmp")
    array.flush()


def _tokens(out: Path, _work: Path, _source: Path) -> None:
    import numpy as np

    draw = np.random.default_rng(0)
    np.save(out / "records.npy", (draw.zipf(1.2, (TOKENS, 1024)) % 50257).astype(np.uint16))


MAKERS: dict[str, Callable[[Path, Path, Path], None]] = {
    "photos": _photos,
    "gen": _gen,
    "raw256": _raw256,
    "cifar": _cifar,
    "tokens": _tokens,
}
