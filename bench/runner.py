"""Runs one arm in its own process, pinned, with a time limit, and leaves nothing of it running."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import procs
from .suite import Arm, Suite

ROOT = Path(__file__).resolve().parent.parent


def scrub(text: str) -> str:
    """Results are published: no path of this machine."""
    text = text.replace(str(ROOT), ".").replace(str(Path.home()), "~")
    return re.sub(r"/(?:tmp|usr/local|usr/lib)/[^\s'\",)]*/", ".../", text)


def python_of(env: str, work: Path) -> Path:
    return ROOT / ".venv/bin/python" if env == "project" else work / "venv" / env / "bin/python"


def short(path: Path) -> str:
    """The path in a form that can be typed in a command."""
    return os.path.relpath(path, ROOT)


def broken_env(env: str, work: Path) -> str:
    """Why an environment cannot be used, or nothing."""
    if not python_of(env, work).exists():
        return (
            ".venv is not there; run make test once" if env == "project" else "not installed; run bench/setup.sh " + env
        )
    error = work / "setup" / f"{env}.err"
    return scrub(error.read_text()) if error.exists() else ""


def arm_command(arm: Arm, suite: Suite, work: Path, workers: int, cores: str) -> list[str]:
    """The command that a reader can repeat."""
    command = ["taskset", "-c", cores, short(python_of(arm.env, work)), "-m", f"bench.arms.{arm.module}"]
    command += ["--data", short(work / arm.folder(suite.data_set)), "--workers", str(workers)]
    if arm.batch != 256:
        command += ["--batch", str(arm.batch)]
    if suite.size not in (0, 224):
        command += ["--size", str(suite.size)]
    if arm.decode:
        command += ["--decode", arm.decode]
    if arm.geometry != "random":
        command += ["--geometry", arm.geometry]
    for option in arm.options:
        command += ["--option", option]
    return command


def _session(sid: int) -> list[int]:
    """Live processes of the session that run() started."""
    stats = ((int(entry), procs.stat(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [pid for pid, fields in stats if fields and fields[3] == str(sid) and fields[0] != "Z"]


def _leftovers(before: set[str]) -> list[str]:
    """Shared memory that appeared while an arm ran and has no owner any more, by the loaders' names for it."""
    left = []
    for name in set(os.listdir("/dev/shm")) - before:
        owner = re.match(r"torch_(\d+)_", name)
        if (owner and not Path(f"/proc/{owner[1]}").exists()) or re.match(r"\d{6}_\w+$", name):
            left.append(name)
            Path("/dev/shm", name).unlink(missing_ok=True)
    return left


def run(
    command: Sequence[str], limit: float, log: Path, variables: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> dict[str, Any]:
    """Runs a command in its own session, with variables added to its environment, and returns its last line of JSON,
    or {"error": ...}.

    A command that has not ended after limit seconds is killed and reported."""
    before = set(os.listdir("/dev/shm"))
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore", OPENCV_LOG_LEVEL="ERROR")
    environment |= variables or {}
    environment.setdefault("STOKER_BINARY", str(ROOT / "bin/stoker"))
    with open(log, "w") as err, open(log.with_suffix(".out"), "w") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, cwd=cwd, env=environment
        )
        try:
            process.wait(limit)
            hung = False
        except subprocess.TimeoutExpired:
            hung = True
        except BaseException:
            _end(process)
            raise
    left = _end(process)
    shm = _leftovers(before)
    lines = [x for x in log.with_suffix(".out").read_text(errors="replace").splitlines() if x.startswith("{")]
    if hung:
        result: dict[str, Any] = {"error": f"still running after {limit:.0f} s: killed", "log": _tail(log)}
    elif lines and process.returncode == 0:
        result = json.loads(lines[-1])
    else:
        result = {"error": _tail(log) or f"exit {process.returncode} without a word"}
    result["wall_s"] = time.monotonic() - start
    if left:
        result["processes_left"] = left
    if shm:
        result["shm_left"] = len(shm)
    return result


def short_result(got: dict[str, Any]) -> dict[str, Any]:
    """A result without the fields that only its own arm's table uses."""
    return {k: v for k, v in got.items() if k not in ("stats", "versions", "gc_in_steady_epochs", "first_records")}


def _end(process: subprocess.Popen[bytes]) -> int:
    """Ends the command's session. Returns the number of processes that remained 0.3 s after its leader exited."""
    if process.poll() is not None:
        time.sleep(0.3)
    left = [pid for pid in _session(process.pid) if pid != process.pid]
    if process.poll() is None:
        process.kill()
        process.wait()
    # Its child processes may start more processes while they are being ended.
    while more := _session(process.pid):
        for pid in more:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return len(left)


def _tail(log: Path) -> str:
    lines = [x for x in log.read_text(errors="replace").splitlines() if x.strip()]
    return scrub("\n".join(lines[-6:]))[-900:]
