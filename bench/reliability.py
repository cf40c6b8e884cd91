"""Stoker's results for files of every kind, compared with the usual library for that kind.

    python -m bench.reliability [--collections FOLDER] [--fetch] [--docs DIR]

Small cases are generated. Public collections of test files are cloned into FOLDER with --fetch, several hundred MB.
Each file is read by Stoker and by the reference, and falls into one class:

    equal     the values are the same
    close     lossy formats: no value differs by more than the tolerance of the kind
    refused   Stoker reports the file and the reason, the reference reads it
    both      neither reads it
    only      Stoker reads it, the reference fails or reads it wrongly (such files are listed with the reason)
    wrong     the values differ: no file may be in this class

Writes docs/internals/reliability.md and bench/results/reliability.json. Exits with 1 if a file is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import stored

ROOT = Path(__file__).parent.parent
CLASSES = ("equal", "close", "refused", "both", "only", "wrong")


class UnreadableError(Exception):
    """A reader refused a file; the text is its reason."""


# Files that the reference reads wrongly, and the evidence.
KNOWN = {
    "gradient-1c-32b.tiff": "Pillow takes unsigned values of 32 bits as signed ones; tifffile agrees with Stoker",
    "flower-rgb-planar-16.tif": "Pillow reads planes of 16 bits as if they had 8; tifffile agrees with Stoker",
    "flower-separated-planar-16.tif": "Pillow reads planes of 16 bits as if they had 8; tifffile agrees with Stoker",
}


@dataclass
class Kind:
    """One kind of files: how both sides read a file into an array, and the tolerance of lossy formats."""

    name: str
    reference: str
    endings: tuple[str, ...]
    lossy: tuple[str, ...]
    tolerance: float
    unit: str
    theirs: Callable[[Path], Any]
    ours: Callable[[Path, Any], Any]
    # For codecs with differing decoders: another reference, whose values are also right.
    second: Callable[[Path], Any] | None = None


@dataclass
class Result:
    """The classes of the files of one kind in one collection."""

    kind: str
    collection: str
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


# --- readers -----------------------------------------------------------------


def loaded(url: str, **options: Any) -> Any:
    """The first batch of a loader."""
    import stoker

    try:
        with stoker.Loader(url, batch_size=1, threads=1, limits=stoker.Limits(timeout=120), **options) as loader:
            batch = next(iter(loader))
            return {k: (v.copy() if isinstance(v, np.ndarray) else v) for k, v in batch.items()}
    except stoker.StokerError as err:
        raise UnreadableError(str(err)) from None


@contextlib.contextmanager
def alone(path: Path, scheme: str) -> Iterator[str]:
    """A folder that holds nothing but a link to the file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, path.name).symlink_to(path.resolve())
        yield f"{scheme}:{folder}"


def picture_theirs(path: Path) -> Any:
    from PIL import Image

    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, 8_000_000  # twice this is an error: bombs take no memory
    try:
        with Image.open(path) as im:
            return np.asarray(im.convert("RGB"))
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def picture_ours(path: Path, want: Any) -> Any:
    import stoker

    # A border of one pixel shows a size that differs.
    h, w = (want.shape[0] + 2, want.shape[1] + 2) if want is not None else (66, 66)
    if max(h, w) > 65500:
        raise UnreadableError(f"a side of {max(h, w) - 2} pixels; 65,500 is the limit of images")
    field = stoker.Field("image", [stoker.transforms.CenterCrop((h, w))])
    with alone(path, "folder") as url:
        image = loaded(url, transforms={"image": field})["image"][0]
    if want is None:
        return image
    border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    if border.any() and want.any():
        raise UnreadableError(f"wrong size, {w - 2} x {h - 2} expected")
    return image[1:-1, 1:-1]


def sound_theirs(path: Path) -> Any:
    import soundfile

    return soundfile.read(path, dtype="float32", always_2d=True)[0]


def sound_ours(path: Path, want: Any) -> Any:
    import stoker

    with alone(path, "audio") as url:
        return loaded(url, transforms={"audio": [stoker.audio.Decode()]})["audio"][0]


def sound_by_ffmpeg(path: Path) -> Any:
    import av

    with av.open(path) as file:
        stream = file.streams.audio[0]
        frames = [f.to_ndarray() for f in file.decode(stream)]
        channels, planar = stream.codec_context.channels, stream.codec_context.format.is_planar
    data = np.concatenate([f.T if planar else f.reshape(-1, channels) for f in frames])
    return data.astype(np.float32) / 32768 if data.dtype == np.int16 else data


def columns_theirs(path: Path) -> Any:
    from pyarrow import parquet

    table = parquet.read_table(path)
    return {name: table.column(name).to_pylist() for name in table.column_names}


def columns_ours(path: Path, want: Any) -> Any:
    """The columns that Stoker reads, without the columns that it reports as refused."""
    import stoker

    rows = len(next(iter(want.values()))) if want else 1
    try:
        with stoker.Loader(str(path), batch_size=max(rows, 1), threads=1, limits=stoker.Limits(timeout=120)) as loader:
            batch = next(iter(loader))
            out = {}
            for name, value in batch.items():
                out[name] = [value[i] for i in range(len(batch))]
            return out
    except (stoker.StokerError, StopIteration) as err:
        raise UnreadableError(str(err) or "no rows") from None


def video_theirs(path: Path) -> Any:
    import av

    with av.open(path) as file:
        return np.stack([f.to_ndarray(format="rgb24") for f in file.decode(video=0)])


def video_ours(path: Path, want: Any) -> Any:
    n = len(want) if want is not None else 1
    return loaded(f"{path}?frames={n}")["frames"][0]


# --- comparing ---------------------------------------------------------------


def scalar_same(a: Any, b: Any) -> bool:
    """Whether a value of Stoker's column is the value of the reference."""
    if b is None:  # documented: NaN, an empty text, an empty list
        return len(a) == 0 if hasattr(a, "__len__") else bool(np.isnan(a))
    if isinstance(b, str):
        b = b.encode()
    if isinstance(a, str):
        a = a.encode()
    if isinstance(b, bytes) or isinstance(a, bytes):
        return bytes(a) == b if isinstance(b, bytes) else False
    try:
        x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    except (TypeError, ValueError):
        return False
    return x.shape == y.shape and bool(np.array_equal(x, y, equal_nan=True))


def difference(got: Any, want: Any) -> float:
    """The largest difference of two arrays, infinity if their shapes differ."""
    if isinstance(want, dict):
        same = all(
            len(values) == len(want[name]) and all(scalar_same(a, b) for a, b in zip(values, want[name], strict=True))
            for name, values in got.items()
            if name in want
        )
        return 0.0 if same else np.inf
    if got.shape != want.shape:
        return np.inf
    if got.size == 0:
        return 0.0
    return float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max())


def classify(kind: Kind, path: Path, result: Result) -> None:
    """Reads one file on both sides."""
    want: Any = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = kind.theirs(path)
        except Exception as err:  # any library's own errors
            theirs = f"{type(err).__name__}: {err}"
        else:
            theirs = ""
    try:
        got = kind.ours(path, want)
    except UnreadableError as err:
        text = str(err).splitlines()[0]
        wrong_size = text.startswith("wrong size")
        result.counts["wrong" if wrong_size else "both" if theirs else "refused"] += 1
        if wrong_size:
            result.wrong.append(f"{path.name}: {text}")
        elif not theirs:
            result.reasons[f"{path.name}: {reason(text, path)}"] += 1
        return
    if theirs:
        result.counts["only"] += 1
        return
    far = difference(got, want)
    if far > kind.tolerance and kind.second is not None:
        with contextlib.suppress(Exception):  # then the first reference counts
            far = min(far, difference(got, kind.second(path)))
    if far == 0:
        result.counts["equal"] += 1
    elif far <= kind.tolerance and path.suffix.lower() in kind.lossy:
        result.counts["close"] += 1
    elif path.name in KNOWN:
        result.counts["only"] += 1
    else:
        result.counts["wrong"] += 1
        result.wrong.append(f"{path.name}: differs by {far:g} {kind.unit}")


def reason(text: str, path: Path) -> str:
    """The reason of an error, without the words around it that name the record."""
    for mark in ("cannot be used: ", f"{path.name}: ", f"{path.name}' "):
        if mark in text:
            text = text.split(mark)[-1]
    text = re.sub(r"/\S*/", "", text.split("; hint:")[0])  # folders of this machine
    return text if len(text) <= 150 else text[:147] + "..."


KINDS = [
    Kind(
        "pictures", "Pillow",
        (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".dib", ".webp", ".tif", ".tiff", ".avif", ".ppm", ".pgm"),
        (".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".avif"), 2, "levels", picture_theirs, picture_ours,
    ),
    Kind(
        "recordings", "soundfile, or PyAV if they differ",
        (".wav", ".flac", ".mp3", ".ogg", ".opus", ".aiff", ".aif", ".au", ".caf", ".w64"),
        (".mp3", ".ogg", ".opus"), 2e-4, "of full scale", sound_theirs, sound_ours, sound_by_ffmpeg,
    ),
    Kind("tables", "pyarrow", (".parquet",), (), 0, "", columns_theirs, columns_ours),
    Kind(
        "videos", "PyAV", (".mp4", ".mkv", ".webm", ".avi", ".mov", ".ts", ".flv"), (), 0, "levels",
        video_theirs, video_ours,
    ),
]  # fmt: skip


# --- generated files ---------------------------------------------------------


def generate(folder: Path) -> None:
    """Small files of each kind: modes, compressions, orientations, containers and types of samples."""
    for make in (pictures, sounds, tables, videos):
        out = folder / make.__name__
        out.mkdir(parents=True, exist_ok=True)
        for name, data in make():
            (out / name).write_bytes(data)


TIFF_COMPRESSIONS = (
    *(None, "packbits", "tiff_lzw", "tiff_adobe_deflate", "group3", "group4", "tiff_ccitt", "jpeg", "lzma", "zstd"),
    "webp",
)


def saved(im: Any, form: str, **options: Any) -> bytes | None:
    """A picture in a format, None if Pillow does not write this combination."""
    out = io.BytesIO()
    try:
        im.save(out, form, **options)
    except (OSError, ValueError, KeyError, RuntimeError, SystemError):
        return None
    return out.getvalue()


def pictures() -> Iterator[tuple[str, bytes]]:
    from PIL import Image

    y, x = np.mgrid[:45, :61]
    rgb = np.dstack([x * 4, y * 5, (x + y) * 2]).astype(np.uint8)
    base = Image.fromarray(rgb)
    alpha = Image.fromarray(np.dstack([rgb, (x * 3 + y) % 256]).astype(np.uint8))
    modes: dict[str, Any] = {
        "RGB": base, "RGBA": alpha, "L": base.convert("L"), "LA": alpha.convert("LA"), "P": base.quantize(64),
        "1": base.convert("1"), "CMYK": base.convert("CMYK"), "YCbCr": base.convert("YCbCr"),
        "I;16": Image.fromarray((x * 1000 + y).astype(np.uint16)),
        "I": Image.fromarray((x * 1000 + y).astype(np.int32)),
        "F": Image.fromarray((x / 7 + y).astype(np.float32)),
    }  # fmt: skip
    writers: dict[str, list[dict[str, Any]]] = {
        "jpeg": [
            {"quality": 90},
            {"quality": 80, "progressive": True},
            {"subsampling": 0},
            {"subsampling": 1},
            {"restart_marker_blocks": 2},
        ],
        "png": [{}, {"bits": 4}, {"compress_level": 0}],
        "gif": [{}, {"interlace": 1}],
        "bmp": [{}],
        "dib": [{}],
        "webp": [{"lossless": True}, {"quality": 80}],
        "tiff": [{"compression": c} for c in TIFF_COMPRESSIONS],
        "ppm": [{}],
        "avif": [{"quality": 90}, {"quality": 60, "subsampling": "4:4:4"}],
    }
    for form, variants in writers.items():
        for mode, im in modes.items():
            for i, options in enumerate(variants):
                if data := saved(im, form, **options):
                    yield f"{form}-{mode.replace(';', '_')}-{i}.{form}", data
    exif = Image.Exif()
    for turn in range(2, 9):
        exif[0x112] = turn
        for form, ending in (("jpeg", "jpg"), ("png", "png"), ("tiff", "tiff"), ("webp", "webp")):
            options = {"lossless": True} if form == "webp" else {}
            if data := saved(base, form, exif=exif, **options):
                yield f"{form}-turned-{turn}.{ending}", data
    frames = [base, base.rotate(180)]
    for form in ("gif", "webp", "png", "tiff", "avif"):
        if data := saved(base, form, save_all=True, append_images=frames[1:]):
            yield f"{form}-two-frames.{form}", data


def sounds() -> Iterator[tuple[str, bytes]]:
    import soundfile

    t = np.arange(2000) / 8000
    wave = np.stack([0.5 * np.sin(2 * np.pi * 440 * t), 0.3 * np.sin(2 * np.pi * 330 * t)], 1)
    endings = {"WAVEX": "wav", "RF64": "wav"}
    for container in ("WAV", "WAVEX", "RF64", "FLAC", "AIFF", "AU", "CAF", "W64", "OGG", "MP3"):
        for subtype in soundfile.available_subtypes(container):
            for channels in (1, 2):
                out = io.BytesIO()
                try:
                    soundfile.write(out, wave[:, :channels], 8000, format=container, subtype=subtype)
                except (soundfile.LibsndfileError, ValueError):
                    continue
                yield f"{container}-{subtype}-{channels}.{endings.get(container, container.lower())}", out.getvalue()


def tables() -> Iterator[tuple[str, bytes]]:
    import pyarrow as pa
    from pyarrow import parquet

    n = 20
    columns = {
        "int": pa.array(range(n), pa.int64()), "small": pa.array([i - 9 for i in range(n)], pa.int8()),
        "float": pa.array([i / 3 for i in range(n)], pa.float32()), "double": pa.array([i / 7 for i in range(n)]),
        "text": pa.array([f"row {i % 5}" for i in range(n)]), "list": pa.array([[i, i + 1] for i in range(n)]),
        "gap": pa.array([None if i % 4 == 0 else i for i in range(n)], pa.int32()),
    }  # fmt: skip
    table = pa.table(columns)
    for version in ("1.0", "2.6"):
        for page in ("1.0", "2.0"):
            for codec in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
                for dictionary in (True, False):
                    out = io.BytesIO()
                    options: dict[str, Any] = {"compression": codec, "use_dictionary": dictionary}
                    parquet.write_table(table, out, version=version, data_page_version=page, **options)
                    yield f"{version}-{page}-{codec}-{dictionary}.parquet", out.getvalue()


def videos() -> Iterator[tuple[str, bytes]]:
    import av

    y, x = np.mgrid[:64, :96]
    with tempfile.TemporaryDirectory() as folder:
        for codec, endings in (
            ("libx264", ("mp4", "mkv", "mov", "ts", "flv", "avi")), ("mpeg4", ("mp4", "mkv", "avi")),
            ("libx265", ("mp4", "mkv")), ("libvpx-vp9", ("webm", "mkv")), ("mpeg2video", ("ts",)),
        ):  # fmt: skip
            for ending in endings:
                if codec not in av.codecs_available:
                    continue
                path = Path(folder) / f"{codec}.{ending}"
                with av.open(path, "w") as file:
                    stream = file.add_stream(codec, rate=25)
                    stream.width, stream.height = 96, 64
                    stream.pix_fmt = "yuv420p"
                    for i in range(12):
                        rgb = np.stack([(x * 2 + i * 5) % 256, (y * 3) % 256, (x + y + i) % 256], -1).astype(np.uint8)
                        file.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
                    file.mux(stream.encode())
                yield path.name, path.read_bytes()


# --- collections -------------------------------------------------------------

COLLECTIONS = {
    "python-pillow/Pillow": "Tests/images",
    "image-rs/image": "tests",
    "image-rs/image-tiff": "tests",
    "golang/image": "",
    "AOMediaCodec/libavif": "tests/data",
    "recurser/exif-orientation-examples": "",
    "ietf-wg-cellar/flac-test-files": "",
    "apache/parquet-testing": "data",
}


def fetch(folder: Path) -> None:
    """Clones the collections that are not there."""
    for name in COLLECTIONS:
        to = folder / name.replace("/", "+")
        if not to.exists():
            print(f"cloning {name}", file=sys.stderr)
            subprocess.run(["git", "clone", "--quiet", "--depth=1", f"https://github.com/{name}", str(to)], check=True)


def measure(folder: Path, collection: str, only: str = "") -> list[Result]:
    """The results of all files below a folder."""
    results = []
    for kind in KINDS:
        if only and kind.name != only:
            continue
        result = Result(kind.name, collection)
        for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in kind.endings and p.is_file()):
            classify(kind, path, result)
        if result.counts:
            print(f"{collection} {kind.name}: {dict(result.counts)}", file=sys.stderr, flush=True)
            results.append(result)
    return results


# --- the page ----------------------------------------------------------------


def page(results: list[Result]) -> str:
    """docs/internals/reliability.md."""
    lines = [
        "# Reliability", "",
        "<!-- Written by `make bench SUITES=reliability`; edit bench/reliability.py instead. -->", "",
        "`make bench SUITES=reliability` reads test files with Stoker and with the library that people use for the "
        "same files.",
        "It compares all values. Generated files cover modes, compressions, orientations, containers and types.",
        "The collections are public repositories, which the command clones.", "",
        "- **equal**: the values are the same. **close**: lossy formats, within the tolerance of the table below.",
        "- **refused**: Stoker names the file and the reason. The reference reads the file.",
        "- **both**: neither reads the file. **only**: Stoker reads it, the reference does not, or wrongly.",
        "- **wrong**: the values differ.", "",
        "| files | collection | reference | " + " | ".join(CLASSES) + " |",
        "|---|---|---|" + "---:|" * len(CLASSES),
    ]  # fmt: skip
    names = {k.name: k for k in KINDS}
    total: Counter[str] = Counter()
    for r in results:
        total.update(r.counts)
        cells = " | ".join(str(r.counts[c]) for c in CLASSES)
        lines.append(f"| {r.kind} | {r.collection} | {names[r.kind].reference} | {cells} |")
    lines.append("| **all** | | | " + " | ".join(f"**{total[c]}**" for c in CLASSES) + " |")
    lines += ["", "## Tolerance", "", "| files | lossy formats | largest difference |", "|---|---|---|"]
    lines += [
        f"| {k.name} | {', '.join(e[1:] for e in k.lossy)} | {k.tolerance:g} {k.unit} |" for k in KINDS if k.lossy
    ]
    refused = [(r, text) for r in results for text in r.reasons]
    if refused:
        lines += ["", "## Files that Stoker refuses and the reference reads", "", "| collection | file and reason |"]
        lines.append("|---|---|")
        lines += [f"| {r.collection} | {text.replace('|', '/')} |" for r, text in refused]
    lines += ["", "## Files that the reference reads wrongly", "", "| file | reason |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in KNOWN.items()]
    wrong = [(r, text) for r in results for text in r.wrong]
    if wrong:
        lines += ["", "## Files with other values", "", "| collection | file |", "|---|---|"]
        lines += [f"| {r.collection} | {text.replace('|', '/')} |" for r, text in wrong]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reliability", description=__doc__.split("\n")[0])
    parser.add_argument("--collections", type=Path, help="folder of the public collections")
    parser.add_argument("--fetch", action="store_true", help="clone the collections that are not there")
    parser.add_argument("--only", default="", choices=["", *(k.name for k in KINDS)], help="one kind of files")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs/internals", help="where the page is written")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        generate(Path(made))
        results = measure(Path(made), "generated", a.only)
    if a.collections:
        if a.fetch:
            fetch(a.collections)
        for name, below in COLLECTIONS.items():
            results += measure(a.collections / name.replace("/", "+") / below, name, a.only)
    if not a.only:
        (a.docs / "reliability.md").write_text(page(results))
        stored.save(stored.FOLDER / "reliability.json", [vars(r) for r in results])
    wrong = [w for r in results for w in r.wrong]
    for text in wrong:
        print(text)
    if a.only:
        for r in results:
            print(*r.reasons, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
