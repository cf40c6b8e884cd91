"""The same faults with Stoker and with other loaders."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import ground
from .ground import Outcome, descendants, environment, job, run, wait_for

NAMES = {
    "stoker": "Stoker",
    "torch": "PyTorch DataLoader",
    "webdataset": "WebDataset",
    "litdata": "LitData",
    "mds": "MDS",
}
VENVS = {"litdata": "side", "mds": "mds"}
WORK = Path(os.environ.get("STOKER_BENCH_WORK", ground.ROOT / "bench/work"))


def pythons() -> dict[str, str]:
    """Return the interpreter of each loader that is installed."""
    found = {"stoker": sys.executable}
    for name, module in (
        ("torch", "torch"),
        ("webdataset", "webdataset"),
        ("litdata", "litdata"),
        ("mds", "streaming"),
    ):
        python = str(WORK / "venv" / VENVS[name] / "bin/python") if name in VENVS else sys.executable
        if (
            shutil.which(python)
            and not subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode
        ):
            found[name] = python
    return found


def make(folder: Path, have: dict[str, str]) -> None:
    """Write the images in the format of each loader."""
    files = sorted((folder / "tree").rglob("*.jpg"))
    if "webdataset" in have:
        (folder / "webdataset").mkdir()
        for shard in range(4):
            with tarfile.open(folder / f"webdataset/{shard}.tar", "w") as tar:
                for n in range(shard, len(files), 4):
                    for ending, data in (("jpg", files[n].read_bytes()), ("cls", str(n).encode())):
                        info = tarfile.TarInfo(f"{n:05}.{ending}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
    for name, code in (
        ("mds", "from streaming import MDSWriter\nwith MDSWriter(out=out, columns={'jpg': 'bytes', 'cls': 'int'}, size_limit=1 << 19) as w:\n"
                "    for n, f in enumerate(files): w.write({'jpg': open(f, 'rb').read(), 'cls': n})"),
        ("litdata", "from litdata.streaming.writer import BinaryWriter\nw = BinaryWriter(out, chunk_bytes=1 << 19)\n"
                    "for n, f in enumerate(files): w[n] = {'jpg': open(f, 'rb').read(), 'cls': n}\nw.done()\nw.merge()"),
    ):  # fmt: skip
        if name in have:
            (folder / name).mkdir()
            code = "import sys\nout, files = sys.argv[1], sys.argv[2:]\n" + code
            done = subprocess.run(
                [have[name], "-c", code, str(folder / name), *map(str, files)],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
            )
            if done.returncode:
                print(f"hostile: {name} is left out: {done.stderr.strip()[-300:]}", file=sys.stderr)
                del have[name]


class World:
    def __init__(self, folder: Path, have: dict[str, str]) -> None:
        self.folder, self.have = folder, have

    def at(self, loader: str, copy: str = "") -> Path:
        """Return the data of a loader, or a copy that may be damaged."""
        path = self.folder / {"stoker": "pack", "torch": "tree"}.get(loader, loader)
        if not copy:
            return path
        to = self.folder / f"{copy}-{loader}"
        shutil.copytree(path, to)
        return to

    def run(
        self,
        loader: str,
        path: Path,
        *options: object,
        during: Callable[[subprocess.Popen[bytes]], None] | None = None,
        limit: float = 60,
    ) -> Outcome:
        return run(
            job(loader, path, *options, python=self.have[loader]), environment(TMPDIR=str(self.folder)), limit, during
        )


def rows(outcome: Outcome) -> int:
    return sum(line.get("rows", 0) for line in outcome.lines)


def shards(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.suffix in (".arrow", ".jpg", ".tar", ".mds", ".bin"))


# --- the faults --------------------------------------------------------------


def killed_worker(w: World, loader: str) -> str:
    """kill -9 of one process that makes batches."""
    hit = []

    def kill(process: subprocess.Popen[bytes]) -> None:
        wait_for(lambda: workers(process.pid), 60)
        time.sleep(0.3)
        for pid in workers(process.pid)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                hit.append(pid)

    outcome = w.run(loader, w.at(loader), "--epochs", 3, "--pause", 0.2, "--batch", 8, during=kill)
    if not hit:
        return "-"
    return "continues, all batches the same" if outcome.ended and rows(outcome) == 3 * 192 else outcome.why()


def workers(pid: int) -> list[int]:
    """Return the processes that make batches, without Python's own servers."""
    found = []
    for p in descendants(pid):
        with contextlib.suppress(OSError):
            if b"resource_tracker" not in Path(f"/proc/{p}/cmdline").read_bytes():
                found.append(p)
    return found


def damaged(skip: bool) -> Callable[[World, str], str]:
    def fault(w: World, loader: str) -> str:
        if skip and loader not in ("stoker", "webdataset"):
            return "-"
        path = w.at(loader, f"damaged{int(skip)}")
        file = shards(path)[0]
        data = bytearray(file.read_bytes())
        at = data.find(b"\xff\xd8\xff", 100 if loader != "torch" else 0)
        data[at : at + 2000] = bytes(2000)
        file.write_bytes(data)
        outcome = w.run(loader, path, *(("--skip",) if skip else ()))
        shutil.rmtree(path)
        n = rows(outcome)
        if skip:
            return (
                f"continues, {192 - n} of 192 rows missing"
                if outcome.ended and n < 192
                else "continues, the record is replaced"
                if outcome.ended
                else outcome.why()
            )
        if outcome.ended:
            return "not noticed"
        text = outcome.why()
        named = file.name in outcome.errors or "record " in text
        return ("names the record: " if named else "") + text

    return fault


def truncated(w: World, loader: str) -> str:
    """The last third of a shard, or of a file, is missing."""
    path = w.at(loader, "short")
    file = shards(path)[-1]
    os.truncate(file, file.stat().st_size * 2 // 3)
    outcome = w.run(loader, path)
    shutil.rmtree(path)
    if outcome.ended:
        n = rows(outcome)
        return f"not noticed, {192 - n} of 192 rows missing" if n < 192 else "not noticed"
    named = file.name in outcome.errors
    return ("names the file: " if named else "") + outcome.why()


def crashing(w: World, loader: str) -> str:
    """A record whose decoder crashes the process (SIGSEGV)."""
    if loader not in ("stoker", "torch"):
        return "-"
    if loader == "torch":
        outcome = w.run(loader, w.at(loader), "--crash", 17)
    else:
        outcome = run(job(loader, w.at(loader), "--skip"), environment(STOKER_TEST_CRASH="17"), 60)
    return "continues, the record is replaced" if outcome.ended and rows(outcome) == 192 else outcome.why()


def killed_trainer(w: World, loader: str) -> str:
    """kill -9 of the trainer: what is left after 10 seconds."""
    shm = set(os.listdir("/dev/shm"))
    family: list[int] = []

    def kill(process: subprocess.Popen[bytes]) -> None:
        wait_for(lambda: workers(process.pid), 60)
        time.sleep(1.5)
        family.extend(descendants(process.pid))
        os.kill(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not any(map(ground.alive, family)), 10)
        family[:] = [p for p in family if ground.alive(p)]

    w.run(loader, w.at(loader), "--epochs", 50, "--pause", 0.3, "--batch", 16, during=kill)
    mine = {"stoker": "stoker", "torch": "torch_", "webdataset": "torch_", "litdata": "torch_", "mds": ""}[loader]
    new = [
        n
        for n in set(os.listdir("/dev/shm")) - shm
        if n.startswith(mine) and not n.startswith(("stoker-probe", "stoker-fuzz"))
    ]
    left = [f"{len(v)} {k}" for k, v in (("processes", family), ("names in /dev/shm", new)) if v]
    for name in new:  # so that the next loader begins as this one did
        if loader != "stoker":
            with contextlib.suppress(OSError):
                os.unlink(f"/dev/shm/{name}")
    return "passes: nothing left" if not left else "left: " + ", ".join(left)


FAULTS: dict[str, Callable[[World, str], str]] = {
    "kill -9 of the engine, or of a worker": killed_worker,
    "kill -9 of the trainer": killed_trainer,
    "damaged record": damaged(False),
    "damaged record, to be skipped": damaged(True),
    "shard or file cut off": truncated,
    "record that crashes the decoder (SIGSEGV)": crashing,
}


def results(folder: Path) -> Iterator[dict[str, object]]:
    """Apply each fault to each loader."""
    have = pythons()
    make(folder, have)
    w = World(folder, have)
    for fault, apply in FAULTS.items():
        yield {"fault": fault, **{NAMES[name]: apply(w, name) if name in have else "-" for name in NAMES}}
