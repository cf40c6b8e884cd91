"""A pack on a local disk that is not in memory, beside fio with the same files, sizes of reads and reads in flight."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import datasets, runner
from . import servers

if TYPE_CHECKING:
    from .__main__ import Bench

RECORD, WINDOW = 112 << 10, 8 << 20


def forget(folder: Path) -> None:
    """Has the system forget what it has in memory of a folder's files."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def fio(bench: Bench, folder: Path, block: int, size: int) -> dict[str, Any]:
    files = ":".join(str(p) for p in sorted(folder.glob("*.arrow")))
    command = ["fio", "--name=x", f"--filename={files}", "--rw=randread", f"--bs={block}", "--direct=1"]
    command += ["--ioengine=libaio", "--iodepth=32", "--readonly", f"--io_size={size}", "--output-format=json"]
    done = subprocess.run(bench.pinned(command), capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr}
    job = json.loads(done.stdout)["jobs"][0]
    return {"gb_s": job["read"]["bw_bytes"] / 1e9, "examples_s": job["read"]["iops"]}


def measure(bench: Bench) -> None:
    if not shutil.which("fio"):
        raise servers.MissingError("fio is not there (Debian: fio)")
    data_set = bench.a.suite
    datasets.make(data_set, bench.work, bench.a.data, print)
    pack = bench.work / "packs" / data_set / "stoker-keep"
    if not pack.exists():
        pack.parent.mkdir(parents=True, exist_ok=True)
        source = bench.work / "data" / data_set
        command = [str(runner.ROOT / "bin/stoker"), "pack", str(source), str(pack), "--images", "keep"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    size = sum(p.stat().st_size for p in pack.glob("*.arrow"))

    def ours(order: str) -> dict[str, Any]:
        forget(pack)
        arm = [runner.short(bench_python(bench)), "-m", "bench.remote.bytes_arm", runner.short(pack), order]
        got = bench.run(bench.pinned(arm), "disk")
        if "error" not in got:
            got["gb_s"] = got["bytes"] / got["epoch_s"] / 1e9  # of the first one: the second is in memory
        return got

    arms = {
        "ours, full": lambda: ours("full"),
        "fio, 112 KiB": lambda: (forget(pack), fio(bench, pack, RECORD, size))[1],
        "ours, window:64": lambda: ours("window:64"),
        "fio, 8 MiB": lambda: (forget(pack), fio(bench, pack, WINDOW, size))[1],
    }
    bench.rounds("disk", arms)


def bench_python(bench: Bench) -> Path:
    return runner.python_of("project", bench.work)
