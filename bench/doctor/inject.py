"""Makes resources scarce for one process tree, and takes everything back.

Every injection is a context manager on an ExitStack that the runner owns. If a runner is killed, the next one removes
its control groups, mounts and swap. Nothing here outlives `Injections.close`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PREFIX = "stoker-matrix-"
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "blkio", "memory")
CONDITIONS = ("quota", "busy", "bps", "iops", "fuse", "http", "memory", "swap", "cold")


class Unavailable(Exception):  # noqa: N818 - not an error: the matrix goes on without these cells
    """This machine cannot make an injection. The message has the reason."""


# --- control groups ------------------------------------------------------------


def own_group(controller: str) -> Path:
    """The folder of this process's own group: ours are made below it, so that no limit is escaped."""
    base = CGROUPS / controller
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            # In a container the path is the host's, and the mount shows the group itself.
            inside = base / path.lstrip("/")
            return inside if inside.is_dir() else base
    return base


class Group:
    """One group in each of the version-1 hierarchies. Members join by `command`."""

    def __init__(self, name: str, limits: dict[str, dict[str, str]]) -> None:
        self.folders: list[Path] = []
        self.controllers = list(limits)
        for controller, files in limits.items():
            folder = own_group(controller) / f"{PREFIX}{os.getpid()}-{name}"
            folder.mkdir(exist_ok=True)
            self.folders.append(folder)
            for file, text in files.items():
                (folder / file).write_text(text)

    def has(self, controllers: Iterable[str]) -> bool:
        return any(c in self.controllers for c in controllers)

    def join(self, pid: int, only: Iterable[str] = CONTROLLERS, but: Iterable[str] = ()) -> None:
        """Puts a process into the group of some of the controllers."""
        for controller, folder in zip(self.controllers, self.folders, strict=True):
            if controller in only and controller not in but:
                with contextlib.suppress(ProcessLookupError):
                    (folder / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        for folder in self.folders:
            remove_group(folder)
        self.folders, self.controllers = [], []


def remove_group(folder: Path) -> None:
    """Kills the processes of a group and removes it. A dead process may take a moment to leave."""
    for _ in range(100):
        try:
            pids = (folder / "cgroup.procs").read_text().split()
        except OSError:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.05)
    print(f"bench-doctor: cannot remove {folder}", file=sys.stderr)


def block_device(path: Path) -> str:
    """MAJOR:MINOR of the disk under a path: throttling knows whole disks."""
    number = os.stat(path).st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    entry = Path("/sys/dev/block") / name
    if not entry.exists():
        raise Unavailable(f"{path} is on no block device, so its reads cannot be throttled")
    if (entry / "partition").exists():
        return (entry.resolve().parent / "dev").read_text().strip()
    return name


def check(condition: str, work: Path) -> None:
    """Raises Unavailable if this machine cannot make a condition."""
    if condition in ("quota", "bps", "iops", "memory", "swap"):
        controller = {"quota": "cpu", "bps": "blkio", "iops": "blkio"}.get(condition, "memory")
        file = {
            "quota": "cpu.cfs_quota_us",
            "bps": "blkio.throttle.read_bps_device",
            "iops": "blkio.throttle.read_iops_device",
        }.get(condition, "memory.limit_in_bytes")
        if not (CGROUPS / controller / file).exists() and not (own_group(controller) / file).exists():
            raise Unavailable(f"no control group of version 1 has {file}")
        if not os.access(own_group(controller), os.W_OK):
            raise Unavailable(f"{own_group(controller)} is not writable (not root?)")
    if condition in ("bps", "iops"):
        block_device(work)
    if condition == "fuse":
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            raise Unavailable("/dev/fuse is not there or not writable")
        if os.geteuid() != 0:
            raise Unavailable("mounting needs root")
    if condition == "swap" and os.geteuid() != 0:
        raise Unavailable("swapon needs root")
    if condition in ("fuse", "http") and shutil.which("go") is None:
        raise Unavailable("go is not there to build bench/doctor/slow")


class Others:
    """The number of cores used by other processes, and by the hypervisor. If they are large, a measurement has little
    value. This process and its children count themselves in their own group."""

    def __init__(self) -> None:
        self.home = own_group("cpuacct")
        self.folder: Path | None = self.home / f"{PREFIX}{os.getpid()}-all"
        try:
            self.folder.mkdir(exist_ok=True)
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            self.folder = None

    def reading(self) -> tuple[float, float]:
        """(seconds since some time, CPU seconds that others and the hypervisor have used)."""
        stolen = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
        if self.folder is None:
            return time.monotonic(), stolen
        every = int((CGROUPS / "cpuacct" / "cpuacct.usage").read_text())
        return time.monotonic(), stolen + (every - int((self.folder / "cpuacct.usage").read_text())) / 1e9

    def cores(self, since: tuple[float, float]) -> float:
        now = self.reading()
        return (now[1] - since[1]) / max(1e-3, now[0] - since[0])

    def close(self) -> None:
        if self.folder is not None:
            (self.home / "cgroup.procs").write_text(str(os.getpid()))
            remove_group(self.folder)


# --- the page cache ----------------------------------------------------------


def files_of(path: Path) -> Iterable[Path]:
    return [path] if path.is_file() else (p for p in path.rglob("*") if p.is_file())


def evict(path: Path) -> None:
    """Drops the pages of these files from the page cache, and no others."""
    for file in files_of(path):
        fd = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def warm(path: Path) -> None:
    """Reads the files, so that they are in the page cache."""
    buffer = bytearray(1 << 20)
    for file in files_of(path):
        with open(file, "rb", buffering=0) as f:
            while f.readinto(buffer):
                pass


# --- swap -----------------------------------------------------------------------


class Swap:
    """A swap file. While the machine has free memory, only a group that reaches its memory limit uses it."""

    def __init__(self, folder: Path, size: int) -> None:
        self.file = folder / f"{PREFIX}{os.getpid()}.swap"
        with open(self.file, "wb") as f:
            os.posix_fallocate(f.fileno(), 0, size)
        os.chmod(self.file, 0o600)
        for command in (["mkswap", str(self.file)], ["swapon", str(self.file)]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                self.file.unlink()
                raise Unavailable(f"{command[0]}: {done.stderr.strip()}")

    def close(self) -> None:
        subprocess.run(["swapoff", str(self.file)], capture_output=True, check=False, timeout=60)
        self.file.unlink(missing_ok=True)


# --- slow file system and slow server ---------------------------------------------


class Slow:
    """bench/doctor/slow: it ends when its standard input is closed, also when this process is killed."""

    def __init__(self, binary: Path, kind: str, folder: Path, latency_ms: float, bandwidth: float, mount: Path) -> None:
        command = [str(binary), kind, f"-latency={latency_ms}ms", f"-bandwidth={bandwidth}", str(folder)]
        self.mount = None
        if kind == "fs":
            mount.mkdir(parents=True, exist_ok=True)
            self.mount = mount
            command.append(str(mount))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline().split()
        if len(first) != 2:
            self.close()
            raise Unavailable(f"{' '.join(command)} did not start")
        self.address = first[1]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self.mount is not None:
            unmount(self.mount)


def unmount(path: Path) -> None:
    """Unmounts, in any case out of sight (MNT_DETACH), and removes the mount point."""
    if os.path.ismount(path) or not _stat_works(path):
        ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(path), 2)
    with contextlib.suppress(OSError):
        path.rmdir()


def _stat_works(path: Path) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


# --- antagonists ----------------------------------------------------------------


class Antagonists:
    """Processes of other users that compute without end, each in its own session."""

    def __init__(self, count: int) -> None:
        code = f"import os\nwhile os.getppid() == {os.getpid()}:\n    for _ in range(1000000): pass"
        self.processes = [
            subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True) for _ in range(count)
        ]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


# --- leftovers -----------------------------------------------------------------


def sweep(work: Path) -> None:
    """Removes the remains of dead runners."""

    def dead(name: str) -> bool:
        number = name[len(PREFIX) :].split("-")[0].split(".")[0]
        return number.isdigit() and not Path(f"/proc/{number}").exists()

    for controller in CONTROLLERS:
        # Anywhere: the group that the dead one was in need not be ours.
        for folder in list((CGROUPS / controller).rglob(PREFIX + "*")):
            if folder.is_dir() and dead(folder.name):
                remove_group(folder)
    for entry in work.glob(PREFIX + "*"):
        if not dead(entry.name):
            continue
        if entry.suffix == ".swap":
            subprocess.run(["swapoff", str(entry)], capture_output=True, check=False)
            entry.unlink(missing_ok=True)
        elif entry.name.endswith("-files"):
            shutil.rmtree(entry, ignore_errors=True)
        else:
            unmount(entry)
