"""How fast data is written and how large it becomes: stoker pack and convert compared with the writers of other
formats.

    make bench SUITES=writers                        5 minutes; writes a section of docs/internals/benchmarks.md
    python -m bench.writers [--photos FOLDER] [--rounds 3] [--mib 192] [--kinds photos,arrays,tokens]

MosaicML's MDSWriter, litdata.optimize, webdataset's ShardWriter and FFCV's DatasetWriter write the same records as
Stoker, in turns with it. The records are the bytes of photographs, arrays, and windows of tokens. Each run is a
separate process, and ends when everything is on the disk. `disk` writes the same number of bytes in large pieces,
which is the upper limit. Libraries that are not installed (bench/setup.sh) are left out. Inputs are read once before,
so that they are in memory. Starting Python and importing its libraries takes seconds and does not count. Starting
Stoker counts. Results go to bench/results/writers-<machine>-<commit>.json.
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

from . import stored

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/internals/benchmarks.md"
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
    """The function that litdata's workers call for each number."""

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


class Values:
    """The records by their number, as FFCV's workers take them."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path = kind, path
        self.count = Records(kind, path).count
        self.records: Records | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[Any, ...]:
        if self.records is None:
            self.records = Records(self.kind, self.path)
        r = self.records[i]
        return (np.frombuffer(r["image"], np.uint8), r["label"]) if self.kind == "photos" else (r["array"],)


def ffcv(kind: str, src: Path, out: Path) -> None:
    from ffcv.fields import BytesField, IntField, NDArrayField
    from ffcv.writer import DatasetWriter

    values = Values(kind, src)
    if kind == "photos":
        fields = {"image": BytesField(), "label": IntField()}  # an image's field would encode it again
    else:
        a = values[0][0]
        fields = {"array": NDArrayField(dtype=a.dtype, shape=a.shape)}
        values.records = None  # each worker opens its own
    out.mkdir()
    DatasetWriter(str(out / "x.beton"), fields, num_workers=CORES).from_indexed_dataset(values)


# By name: the module, the environment of bench/setup.sh for it, and the writer.
PYTHON: dict[str, tuple[str, str, Callable[[str, Path, Path], None]]] = {
    "MDSWriter": ("streaming", "mds", mds),
    "litdata.optimize": ("litdata", "side", litdata),
    "webdataset.ShardWriter": ("webdataset", "side", webdataset),
    "ffcv.DatasetWriter": ("ffcv.writer", "ffcv", ffcv),
}
# Stoker's own writers, whose speed has a target. The others write the formats of other libraries.
PACKS = ("stoker pack", "stoker pack --images keep")
BAR, DISK = 2.0, 0.9
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
    """Run one of Python's writers in the measured process, and print its start time."""
    library, _, write = PYTHON[name]
    try:
        __import__(library)
    except ImportError:
        print("missing", flush=True)
        return
    print("began", time.monotonic(), flush=True)
    write(kind, Path(src), Path(out))


def disk(total: int, out: Path) -> None:
    block = np.random.default_rng(1).bytes(8 << 20)
    with out.open("wb") as f:
        for at in range(0, total, len(block)):
            f.write(block[: total - at])


def run(name: str, kind: str, src: Path, out: Path, total: int) -> tuple[float, int] | None:
    """Return the seconds and the bytes of one run, None if the library is not installed."""
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
        from . import runner

        python = runner.python_of(PYTHON[name][1], ROOT / "bench/work")
        if not python.exists():
            return None
        args = ["-c", "import sys; from bench.writers import child; child(*sys.argv[1:])"]
        done = subprocess.run(
            [python, *args, name, kind, str(src), str(out)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if "missing" in done.stdout:
            return None
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


Found = dict[str, dict[str, Any]]


def judged(found: Found) -> dict[str, dict[str, Any]]:
    """By writer: its rate relative to the fastest library's and to the disk's, by the medians of rounds."""
    shares: dict[str, dict[str, Any]] = {}
    for name in STOKERS:
        if name not in found:
            continue
        rivals = [found[n]["seconds"] for n in PYTHON if n in found]
        own = found[name]["seconds"]
        times = [min(r[i] for r in rivals) / own[i] for i in range(len(own))] if rivals else []
        disk_share = [d / o for d, o in zip(found["disk"]["seconds"], own, strict=True)]
        shares[name] = {
            "times": statistics.median(times) if times else None,
            "spread": (min(times), max(times)) if times else None,
            "disk": statistics.median(disk_share),
        }
    return shares


HEAD = """## Writing

Packing and converting compared with other writers: the same records, {rounds} rounds in turns, each until all is on the
disk ({cores} cores, {cpu}, {time}, commit {commit}). `disk` writes the input's bytes in large pieces. Targets of
`stoker pack`: {bar:g} times the fastest library, or {disk:.0%} of the disk's rate. For `dct` the entropy code of
photographs is decoded, which no other writer does. `--images keep` stores them unchanged.
`make bench SUITES=writers` measures again."""


def text(result: dict[str, Any]) -> str:
    """The region of the page."""
    from .figures import table

    m = result["machine"]
    out = HEAD.format(
        rounds=result["rounds"], cores=m["cores"], cpu=m.get("cpu", ""), time=m["time"][:16], bar=BAR, disk=DISK,
        commit=result["commit"] + (" with local changes" if result["changed_files"] else ""),
    )  # fmt: skip
    for kind, got in result["kinds"].items():
        found, shares, rows = got["writers"], judged(got["writers"]), []
        for name in ("disk", *PYTHON, *STOKERS):
            if name not in found:
                if name in PYTHON:
                    rows.append([name, "not installed", "", "", "", ""])
                continue
            rate = got["bytes"] / statistics.median(found[name]["seconds"]) / 1e6
            row = [name, f"{rate:,.0f}", f"{found[name]['bytes'] / 1e6:,.0f}", "", "", ""]
            if name in shares:
                s = shares[name]
                if s["times"]:
                    row[3] = f"{s['times']:.1f} x ({s['spread'][0]:.1f}-{s['spread'][1]:.1f})"
                row[4] = f"{s['disk']:.0%}"
                if name in PACKS:
                    met = (s["times"] or 0) >= BAR or s["disk"] >= DISK
                    row[5] = "yes" if met else "**no**"
            rows.append(row)
        out += f"\n\n{got['what']}, {got['bytes'] / 1e6:,.0f} MB:\n\n"
        out += table([kind, "MB/s", "MB written", "of the fastest library", "of the disk", "bar met"], rows)
    return out + "\n"


def report() -> None:
    """Put the newest results into the page."""
    from . import regions

    found = [json.loads(p.read_text()) for p in (ROOT / "bench/results").glob("writers-*.json")]
    if not found:
        raise SystemExit("writers: no results yet; make bench SUITES=writers makes them")
    PAGE.write_text(regions.put(PAGE.read_text(), "writers", text(max(found, key=lambda r: r["machine"]["time"]))))
    print("writers: wrote the section of docs/internals/benchmarks.md")


WHAT = {
    "photos": "Photographs as JPEG files, with labels",
    "arrays": "Arrays of float32, 64 x 64, in a .npy file",
    "tokens": f"Tokens of uint16 in a .npy file, in windows of {WINDOW:,}",
}


def main() -> None:
    from . import procs
    from .run import _git, _slug

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", type=Path, default=ROOT / "bench" / "work" / "writers")
    p.add_argument("--photos", type=Path)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mib", type=int, default=192)
    p.add_argument("--kinds", default="photos,arrays,tokens")
    p.add_argument("--only", default="", help="writers whose names hold one of these, with commas between them")
    p.add_argument("--out", type=Path, help="result file")
    p.add_argument("--report", action="store_true", help="write the section of docs/internals/benchmarks.md, and end")
    args = p.parse_args()
    if args.report:
        report()
        return
    machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD")
    result: dict[str, Any] = {
        "machine": machine,
        "commit": commit,
        "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "rounds": args.rounds,
        "kinds": {},
    }
    for kind in args.kinds.split(","):
        src = make(kind, args.work / "in", args.mib, args.photos)
        total = size(src)
        for f in [src] if src.is_file() else src.rglob("*"):
            if f.is_file():
                f.read_bytes()
        names = [n for n in ["disk", *PYTHON, *STOKERS] if kind == "photos" or n != "stoker pack --images keep"]
        if args.only:
            names = [n for n in names if n == "disk" or any(part in n for part in args.only.split(","))]
        runs: dict[str, list[tuple[float, int]]] = {n: [] for n in names}
        for _ in range(args.rounds):  # in turns
            for n in names:
                if one := run(n, kind, src, args.work / "out", total):
                    runs[n].append(one)
        print(f"{kind}: {total / 1e6:,.0f} MB of input")
        found = {n: {"seconds": [s for s, _ in r], "bytes": r[0][1]} for n, r in runs.items() if len(r) == args.rounds}
        result["kinds"][kind] = {"what": WHAT[kind], "bytes": total, "writers": found}
        shares = judged(found)
        for n, got in found.items():
            rate = total / statistics.median(got["seconds"]) / 1e6
            beside = ""
            if n in shares:
                times = shares[n]["times"]
                beside = f"{times:6.1f} x the fastest library" if times else ""
                beside += f"{shares[n]['disk']:6.0%} of the disk"
            print(f"  {n:28s} {rate:7,.0f} MB/s  {got['bytes'] / 1e6:7,.0f} MB  {beside}", flush=True)
    path = args.out or ROOT / "bench/results" / f"writers-{_slug(machine)}-{commit}.json"
    stored.save(path, result)
    print(f"writers: all figures are in {os.path.relpath(path, ROOT)}")


if __name__ == "__main__":
    main()
