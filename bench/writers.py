"""How fast data is written and how large it becomes: stoker pack and convert beside the writers of other formats.

    python -m bench.writers [--out FOLDER] [--photos FOLDER] [--rounds 3] [--mib 256] [--kinds photos,arrays,tokens]

MosaicML's MDSWriter, litdata.optimize and webdataset's ShardWriter write the same records (the bytes of photographs,
arrays, windows of tokens), in turns with Stoker; each run is a process of its own, and ends when everything is on the
disk. `disk` writes as many bytes in large pieces: more than that cannot be had. What is not installed is left out.
Inputs are read once before, so that they are in memory. Starting Python and importing its libraries, seconds, does not
count; starting Stoker does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
STOKER = os.environ.get("STOKER_BINARY", str(ROOT / "bin" / "stoker"))
WINDOW = 1024
CORES = len(os.sched_getaffinity(0))


def make(kind: str, folder: Path, mib: int, photos: Path | None) -> Path:
    """Make the input, which is a folder of photographs or a .npy file."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "photos":
        if photos:
            return photos
        out = folder / "photos"
        if not out.exists():
            count = str(mib * 9)  # of about 110 KB
            args = ["gen", "images", str(out), "--count", count, "--classes", "100", "--seed", "1", "--tree"]
            subprocess.run([STOKER, *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return out
    out = folder / f"{kind}-{mib}.npy"
    if not out.exists():
        rng = np.random.default_rng(1)
        if kind == "arrays":
            np.save(out, rng.standard_normal((mib << 6, 64, 64), dtype=np.float32))
        else:
            np.save(out, rng.integers(0, 50257, mib << 19, dtype=np.uint16))
    return out


# The records of each kind, as all writers take them.


class Records:
    """The records of an input by their number: a dictionary of values each."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        if kind == "photos":
            self.files = sorted(p for p in path.rglob("*") if p.is_file())
            self.classes = {name: n for n, name in enumerate(sorted({p.parent.name for p in self.files}))}
            self.count = len(self.files)
            return
        self.array = np.load(path, mmap_mode="r")
        if kind == "tokens":
            self.array = self.array[: len(self.array) // WINDOW * WINDOW].reshape(-1, WINDOW)
        self.count = len(self.array)

    def __getitem__(self, i: int) -> dict[str, Any]:
        if self.kind == "photos":
            path = self.files[i]
            return {"image": path.read_bytes(), "label": self.classes[path.parent.name]}
        return {"array": np.ascontiguousarray(self.array[i])}


class OneRecord:
    """What litdata's workers call for each number."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path, self.records = kind, path, None

    def __call__(self, i: int) -> dict[str, Any]:
        if self.records is None:
            self.records = Records(self.kind, self.path)
        return self.records[i]

    def __getstate__(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.path, "records": None}


def mds(kind: str, src: Path, out: Path) -> None:
    import streaming

    records = Records(kind, src)
    if kind == "photos":
        columns = {"image": "bytes", "label": "int"}  # bytes as they are: pictures would be made first
    else:
        a = records[0]["array"]
        columns = {"array": f"ndarray:{a.dtype.name}:{','.join(map(str, a.shape))}"}
    with streaming.MDSWriter(out=str(out), columns=columns) as writer:
        for i in range(records.count):
            writer.write(records[i])


def litdata(kind: str, src: Path, out: Path) -> None:
    import litdata as ld

    inputs = list(range(Records(kind, src).count))
    ld.optimize(
        fn=OneRecord(kind, src),
        inputs=inputs,
        output_dir=str(out),
        chunk_bytes="64MB",
        num_workers=CORES,
        verbose=False,
    )


def webdataset(kind: str, src: Path, out: Path) -> None:
    import webdataset as wds

    records = Records(kind, src)
    out.mkdir()
    with wds.ShardWriter(str(out / "shard-%05d.tar"), maxsize=256 << 20, maxcount=10**9, verbose=0) as writer:
        for i in range(records.count):
            r = records[i]
            sample = {"jpg": r["image"], "cls": r["label"]} if kind == "photos" else {"npy": r["array"]}
            writer.write({"__key__": f"{i:09d}", **sample})


PYTHON: dict[str, tuple[str, Callable[[str, Path, Path], None]]] = {
    "MDSWriter": ("streaming", mds),
    "litdata.optimize": ("litdata", litdata),
    "webdataset.ShardWriter": ("webdataset", webdataset),
}
STOKERS: dict[str, list[str]] = {
    "stoker pack": ["pack", "{src}", "{out}"],
    "stoker pack --images keep": ["pack", "{src}", "{out}", "--images", "keep"],
    **{
        f"stoker convert {f}:": ["convert", "{src}", f"{f}:{{out}}"]
        for f in ("mds", "tar", "tfrecord", "arrow", "lmdb")
    },
    "stoker convert parquet:": ["convert", "{src}", "parquet:{out}", "--compress", "none"],
    "stoker convert hdf5:": ["convert", "{src}", "{out}.h5"],
}


def sync(path: Path) -> None:
    """Wait until everything below a path is on the disk."""
    for p in [path, *path.rglob("*")] if path.is_dir() else [path]:
        fd = os.open(p, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def size(path: Path) -> int:
    return sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file())


def child(name: str, kind: str, src: str, out: str) -> None:
    """Run one of Python's writers, as the process that is measured; print when it began."""
    library, write = PYTHON[name]
    __import__(library)
    print("began", time.monotonic(), flush=True)
    write(kind, Path(src), Path(out))


def disk(total: int, out: Path) -> None:
    block = np.random.default_rng(1).bytes(8 << 20)
    with out.open("wb") as f:
        for at in range(0, total, len(block)):
            f.write(block[: total - at])


def run(name: str, kind: str, src: Path, out: Path, total: int) -> tuple[float, int] | None:
    """Return the seconds and the bytes of one run, None where the library is not there."""
    shutil.rmtree(out, ignore_errors=True)
    written = out
    start = time.monotonic()
    if name == "disk":
        disk(total, out)
    elif name in STOKERS:
        src_text = f"{src}?window={WINDOW}" if kind == "tokens" else str(src)
        args = [a.format(src=src_text, out=out) for a in STOKERS[name]]
        written = out.with_name(out.name + ".h5") if "{out}.h5" in STOKERS[name] else out
        subprocess.run([STOKER, *args], check=True, capture_output=True)
    else:
        try:
            __import__(PYTHON[name][0])
        except ImportError:
            return None
        args = ["-c", f"import sys; sys.path[:] = {sys.path!r}; from bench.writers import child; child(*sys.argv[1:])"]
        done = subprocess.run(
            [sys.executable, *args, name, kind, str(src), str(out)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.stderr.write(f"{name}: {done.stderr.strip().splitlines()[-1:]}\n")
            return None
        start = float(done.stdout.partition("began ")[2].split()[0])  # one clock for all processes
    sync(written)
    seconds = time.monotonic() - start
    result = seconds, size(written)
    if written.is_file():
        written.unlink()
    shutil.rmtree(out, ignore_errors=True)
    return result


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=ROOT / "bench" / "work" / "writers")
    p.add_argument("--photos", type=Path)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mib", type=int, default=256)
    p.add_argument("--kinds", default="photos,arrays,tokens")
    p.add_argument("--only", default="", help="writers whose names hold one of these, with commas between them")
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    report = {}
    for kind in args.kinds.split(","):
        src = make(kind, args.out / "in", args.mib, args.photos)
        total = size(src)
        for f in [src] if src.is_file() else src.rglob("*"):
            if f.is_file():
                f.read_bytes()
        names = [n for n in ["disk", *PYTHON, *STOKERS] if kind == "photos" or n != "stoker pack --images keep"]
        if args.only:
            names = [n for n in names if any(part in n for part in args.only.split(","))]
        runs: dict[str, list[tuple[float, int]]] = {n: [] for n in names}
        for _ in range(args.rounds):  # in turns
            for n in names:
                if one := run(n, kind, src, args.out / "out", total):
                    runs[n].append(one)
        print(f"{kind}: {total / 1e6:,.0f} MB of input")
        rates = {n: total / statistics.median(s for s, _ in r) / 1e6 for n, r in runs.items() if r}
        best = max((rates[n] for n in PYTHON if n in rates), default=0)
        for n, rate in rates.items():
            beside = f"{rate / best:6.1f} x the fastest library" if n in STOKERS and best else ""
            print(f"  {n:28s} {rate:7,.0f} MB/s  {runs[n][0][1] / 1e6:7,.0f} MB  {beside}", flush=True)
        report[kind] = {
            n: {"mb_per_s": rate, "bytes": runs[n][0][1], "seconds": [s for s, _ in runs[n]]}
            for n, rate in rates.items()
        }
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
