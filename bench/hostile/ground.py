"""What hostile places are made of: control groups, namespaces, a process that is watched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
JOB = str(Path(__file__).with_name("job.py"))
GROUPS = Path("/sys/fs/cgroup")


class UnavailableError(Exception):
    """This machine cannot make the place; the text is the reason."""


def engine() -> str:
    """Return the program of the engine."""
    return os.environ.get("STOKER_BINARY") or str(ROOT / "bin/stoker")


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a job. It has a cache of its own only if the job asks for one."""
    own = ("AWS_", "STOKER_SOCKET", "STOKER_TEST_", "STOKER_RUNTIME_DIR")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    found = os.pathsep.join(filter(None, [str(ROOT / "python/src"), os.environ.get("PYTHONPATH", "")]))
    quiet = {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**kept, "STOKER_BINARY": engine(), "STOKER_CACHE": "off", "PYTHONPATH": found, **quiet, **more}


# --- control groups ----------------------------------------------------------

# The files of limits, in version 2 and 1.
FILES = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max", "pids.max"),
    "cpus": ("cpuset.cpus", "cpuset.cpus"),
}


@dataclass
class Group:
    """Control groups of one job, of version 2 or 1."""

    folders: dict[str, Path] = field(default_factory=dict)

    def set(self, controller: str, value: str) -> None:
        """Limit the group: memory in bytes, pids, cores, cpus."""
        at = self._folder({"cores": "cpu", "cpus": "cpuset"}.get(controller, controller))
        v2 = (at / "cgroup.controllers").exists()
        try:
            if controller == "cores":
                quota = str(int(float(value) * 100_000))
                if v2:
                    (at / "cpu.max").write_text(f"{quota} 100000")
                else:
                    (at / "cpu.cfs_quota_us").write_text(quota)
                return
            if controller == "cpus" and not v2:
                (at / "cpuset.mems").write_text((at.parent / "cpuset.mems").read_text())
            (at / FILES[controller][0 if v2 else 1]).write_text(value)
            if controller == "memory":  # swap would hide what does not fit
                for name in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
                    with contextlib.suppress(OSError):
                        (at / name).write_text("0" if v2 else value)
        except OSError as err:
            raise UnavailableError(f"the control group {controller} cannot be set: {err}") from None

    def _folder(self, controller: str) -> Path:
        if controller not in self.folders:
            v1 = GROUPS / controller
            parent = v1 if v1.is_dir() else GROUPS
            if parent is GROUPS:
                have = GROUPS / "cgroup.controllers"
                if not have.exists() or controller not in have.read_text().split():
                    raise UnavailableError(f"there is no control group {controller}")
                with contextlib.suppress(OSError):
                    (GROUPS / "cgroup.subtree_control").write_text(f"+{controller}")
            at = parent / f"stoker-hostile-{os.getpid()}-{id(self)}"
            try:
                at.mkdir(exist_ok=True)
            except OSError as err:
                raise UnavailableError(f"no control group can be made (root is needed): {err}") from None
            self.folders[controller] = at
        return self.folders[controller]

    def wrap(self, command: list[str]) -> list[str]:
        """Return the command, run in the group."""
        enter = "".join(f"echo $$ >{at}/cgroup.procs && " for at in set(self.folders.values()))
        return ["sh", "-c", f'{enter}exec "$@"', "sh", *command]

    def number(self, *names: str) -> int:
        """Return the first of these counters that the group has."""
        for at in self.folders.values():
            for name in names:
                name, _, key = name.partition(":")
                with contextlib.suppress(OSError, ValueError, KeyError):
                    text = (at / name).read_text()
                    return int(dict(line.split() for line in text.splitlines())[key] if key else text)
        return -1

    @property
    def peak(self) -> int:
        """The largest memory use, with the page cache."""
        return self.number("memory.peak", "memory.max_usage_in_bytes")

    @property
    def kills(self) -> int:
        """The processes that the kernel killed because of the limit."""
        return self.number("memory.events:oom_kill", "memory.oom_control:oom_kill")

    def close(self) -> None:
        """Remove the groups, once all processes have exited."""
        for at in set(self.folders.values()):
            for _ in range(100):
                try:
                    at.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)


# --- namespaces --------------------------------------------------------------


def mounted(script: str, command: list[str]) -> list[str]:
    """Return the command with mounts of its own, which the script makes."""
    return ["unshare", "-m", "sh", "-c", f'{script} && exec "$@"', "sh", *command]


def limited(option: str, value: int, command: list[str]) -> list[str]:
    """Return the command under a limit of the shell, such as -n 64."""
    return ["bash", "-c", f'ulimit {option} {value} && exec "$@"', "sh", *command]


def can_mount() -> None:
    """Raise if mounts cannot be made."""
    done = subprocess.run(mounted("mount -t tmpfs none /mnt", ["true"]), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError("mounts cannot be made (root is needed): " + done.stderr.strip()[:100])


# --- jobs --------------------------------------------------------------------


@dataclass
class Outcome:
    """How a job ended."""

    lines: list[dict[str, Any]]
    returncode: int | None  # None: it hung and was killed
    errors: str
    seconds: float

    @property
    def sums(self) -> list[Any]:
        """The checksums of all batches."""
        return [line["sum"] for line in self.lines if "sum" in line]

    @property
    def ended(self) -> bool:
        """Whether the loop came to its end."""
        return self.returncode == 0 and any("end" in line for line in self.lines)

    def why(self) -> str:
        """Return why the job failed, in one line."""
        if self.returncode is None:
            return f"hangs: no end within {self.seconds:.0f} s"
        lines = [s.strip() for s in self.errors.splitlines() if s.strip()]
        named = [s for s in lines if "Error" in s.split(":")[0] or "Exception" in s.split(":")[0]] or lines
        text = named[-1] if named else ""
        if self.returncode < 0:
            text = f"killed by {signal.Signals(-self.returncode).name}" + (f"; {text}" if text else "")
        return text or f"exit code {self.returncode}"


def job(loader: str, path: object, *options: object, python: str = "") -> list[str]:
    """Return the command of a job."""
    return [python or sys.executable, JOB, loader, str(path), *map(str, options)]


def lines_of(text: str) -> list[dict[str, Any]]:
    """Return the lines that a job has printed, without the part of one that was being written."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            if isinstance(value := json.loads(line), dict):
                found.append(value)
    return found


def run(
    command: list[str],
    env: dict[str, str],
    limit: float = 120,
    during: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> Outcome:
    """Run a job in a process group of its own, and kill what is left of it."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=err, start_new_session=True, cwd="/")
        code: int | None = None
        try:
            if during is not None:
                during(process)
            code = process.wait(max(1, limit - (time.monotonic() - begun)))
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds = time.monotonic() - begun
        out.seek(0)
        err.seek(0)
        return Outcome(
            lines_of(out.read().decode(errors="replace")), code, err.read().decode(errors="replace"), seconds
        )


def descendants(pid: int) -> list[int]:
    """Return the processes that descend from one, the engine's session included."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents.setdefault(int(fields[1]), []).append(int(entry))
    found = list(parents.get(pid, []))
    for p in found:
        found += parents.get(p, [])
    return found


def alive(pid: int) -> bool:
    """Report whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def engines(pid: int) -> list[int]:
    """Return the engines below a process."""
    found = []
    for p in descendants(pid):
        with contextlib.suppress(OSError, IndexError):
            if Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")[1] == b"serve":
                found.append(p)
    return found


def wait_for(what: Callable[[], Any], seconds: float = 120) -> Any:
    """Wait until it is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen within the time")
        time.sleep(0.01)
    return value


# --- data --------------------------------------------------------------------


@contextlib.contextmanager
def data(images: int = 192, size: str = "160x140") -> Iterator[Path]:
    """Make a folder of JPEG images (tree) and a pack of them."""
    folder = Path(tempfile.mkdtemp(prefix="stoker-hostile-"))
    try:
        gen(folder / "tree", images, size)
        stoker("pack", folder / "tree", folder / "pack", "--images", "keep")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def gen(out: Path, images: int, size: str) -> None:
    stoker("gen", "images", out, "--count", images, "--classes", 4, "--seed", 5, "--size", size, "--tree")


def stoker(*arguments: object) -> str:
    """Run the program, and return its output."""
    done = subprocess.run(
        [engine(), *map(str, arguments)], capture_output=True, text=True, check=False, env=environment()
    )
    if done.returncode:
        raise RuntimeError(f"stoker {arguments[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout
