"""Uncached data on a local disk, compared with fio on the same files, with the same sizes of reads and no cache: a
pack in both orders, and a folder of many small files.

fio's queue is 32 deep. It opens, reads and closes each small file once, in 32 threads, in the order of their names,
which is its fastest. It has looked up all of them before its clock starts, like the loader after opening.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import datasets, runner
from . import servers

if TYPE_CHECKING:
    from .__main__ import Bench

RECORD, WINDOW, SMALL = 112 << 10, 8 << 20, 4 << 10
DEPTH = 32
FOLDERS = DEPTH  # of small files: one for each of fio's threads


def forget(folder: Path) -> None:
    """Drops the cached contents of a folder's files. The system keeps their names, because both fio and the loader
    look up all of them before the clock starts."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def fio(bench: Bench, jobs: list[list[str]], *once: str) -> dict[str, Any]:
    command = ["fio", "--direct=1", "--rw=randread", "--readonly", "--thread", "--group_reporting"]
    command += ["--output-format=json", *once]
    for n, job in enumerate(jobs):
        command += [f"--name=j{n}", *job]
    done = subprocess.run(bench.pinned(command), capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr[-500:]}
    said = done.stdout[done.stdout.index("{") :]  # after its lines about folders
    read = json.loads(said)["jobs"][0]["read"]
    return {"gb_s": read["bw_bytes"] / 1e9, "examples_s": read["iops"]}


def _pack(bench: Bench) -> Path:
    """A pack of the photographs, as many times as it takes."""
    data_set = bench.a.suite
    pack = bench.work / "packs" / data_set / f"disk-{bench.a.disk_bytes >> 20}"
    if (pack / "manifest.json").exists():
        return pack
    datasets.make(data_set, bench.work, bench.a.data, print)
    files = datasets.records(data_set, bench.work)
    links, n = bench.work / "remote/links", 0
    shutil.rmtree(links, ignore_errors=True)
    size = 0
    while size < bench.a.disk_bytes:
        file = files[n % len(files)]
        folder = links / f"{n % 100:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n:07d}{file.suffix}").symlink_to(file)
        size += file.stat().st_size
        n += 1
    pack.parent.mkdir(parents=True, exist_ok=True)
    command = [str(runner.ROOT / "bin/stoker"), "pack", str(links), str(pack), "--images", "keep"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(links)
    return pack


def _small(bench: Bench) -> Path:
    """A folder of small files."""
    count = bench.a.small_files
    folder = bench.work / "data" / f"small-{count}"
    if folder.exists():
        return folder
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    for n in range(FOLDERS):
        (part / f"{n:02d}").mkdir(parents=True)
    draw = random.Random(1)
    for n in range(count):
        (part / f"{n % FOLDERS:02d}" / f"{n:07d}.bin").write_bytes(draw.randbytes(SMALL))
    part.rename(folder)
    return folder


def measure(bench: Bench) -> None:
    if not shutil.which("fio"):
        raise servers.MissingError("fio is not there (Debian: fio)")
    pack, small = _pack(bench), _small(bench)
    python = runner.short(runner.python_of("project", bench.work))
    files = sorted(pack.glob("*.arrow"))
    size = sum(p.stat().st_size for p in files)

    def ours(folder: Path, path: str, order: str) -> dict[str, Any]:
        forget(folder)
        return bench.run(bench.pinned([python, "-m", "bench.remote.disk_arm", path, order]), "disk")

    def blocks(block: int) -> dict[str, Any]:
        forget(pack)
        names = ":".join(map(str, files))
        job = [f"--filename={names}", f"--bs={block}", "--ioengine=libaio", f"--iodepth={DEPTH}", f"--io_size={size}"]
        return fio(bench, [job])

    def opens() -> dict[str, Any]:
        forget(small)
        room = "--alloc-size=40000"  # which may be specified once
        # fio's state for each file exceeds its default memory (KiB in each of its 16 pools). Finding an unread file
        # takes it longer than reading one, so it reads the files in their order.
        how = [f"--bs={SMALL}", "--ioengine=psync", "--openfiles=1"]
        how += ["--file_service_type=sequential"]
        return fio(bench, [[f"--opendir={small / f'{n:02d}'}", *how] for n in range(FOLDERS)], room)

    # The first reader of a file sees a slower disk, on machines whose disk is a file of the host. This applies to the
    # pack and to the small files.
    blocks(WINDOW)
    bench.rounds(
        "disk",
        {
            "ours, full": lambda: ours(pack, runner.short(pack), "full"),
            "fio, 112 KiB": lambda: blocks(RECORD),
            "ours, window:64": lambda: ours(pack, runner.short(pack), "window:64"),
            "fio, 8 MiB": lambda: blocks(WINDOW),
        },
    )
    opens()
    bench.rounds(
        f"disk, {bench.a.small_files:,} files of {SMALL >> 10} KiB",
        {"ours": lambda: ours(small, f"files:{runner.short(small)}", "full"), "fio": opens},
    )
