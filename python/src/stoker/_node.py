"""The engine that the loaders of a user on this machine share."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import socket
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import _wire as wire
from ._binary import PACKAGES, environment
from ._distributed import job, ranks_here
from ._errors import EngineDied, StokerError, warn
from ._process import CRASHED, Engine, EngineProcess

# A process holds the lock while it connects, and while it starts an engine.
_LOCK_WAIT = 60.0
_LOCK_PAUSE = 0.005
# The time in which an engine that has closed a connection exits.
_END_GRACE = 6.0
# Variables whose values an engine uses. Loaders with other values have another engine.
_VARIABLES = (
    "STOKER_", "AWS_", "GOOGLE_", "CLOUDSDK_", "AZURE_", "HF_", "SSL_CERT_", "XDG_", "GOMAXPROCS", "GOMEMLIMIT",
    "GODEBUG", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "CONDA_PREFIX",
)  # fmt: skip
# Those of them that name the program and its libraries. They also differ between installations of one version.
_OF_PROGRAM = ("STOKER_BINARY", PACKAGES, "LD_LIBRARY_PATH", "CONDA_PREFIX")
# The files of the limits of a control group, by controller. Version 2 has no name there.
_LIMITS = {"": ("memory.max", "cpu.max"), "memory": ("memory.limit_in_bytes",), "cpu": ("cpu.cfs_quota_us",)}


@dataclass(frozen=True)
class Sharing:
    """Whose engine a loader shares.

    Args:
        job: the job whose ranks share it, "" for all loaders of the user.
        asked: the user has asked for it. Otherwise an engine for this loader also does.
    """

    job: str
    asked: bool

    def engine(self, binary: str) -> Engine:
        """Return a connection to the engine, or an engine for this loader if that is impossible."""
        try:
            return NodeEngine(binary, self.job)
        except StokerError as error:
            if self.asked:
                raise
            why = str(error).partition("\n")[0]
            warn(
                f"this rank has an engine of its own, because ranks cannot share one: {why}\n"
                "hint: limits=stoker.Limits(shared=False) gives each rank its own without this warning",
                RuntimeWarning,
            )
            return EngineProcess(binary)


def sharing(shared: bool | None) -> Sharing | None:
    """Return whose engine a loader with ``Limits(shared=shared)`` shares, None for an engine of its own."""
    if shared is None:
        return Sharing(job(os.environ), asked=False) if ranks_here() > 1 else None
    return Sharing("", asked=True) if shared else None


def engine(binary: str, shared: Sharing | None) -> Engine:
    """Return the engine that is shared, or a new one for a loader alone."""
    return EngineProcess(binary) if shared is None else shared.engine(binary)


class NodeEngine(Engine):
    """A connection to the shared engine, which is started if there is none.

    Eight ranks that begin at the same time start one engine: they take a lock in turns. The engine exits when it has
    had no client for ten seconds. It is not a child of a trainer.
    """

    def __init__(self, binary: str, of: str = "") -> None:
        """Connect to the engine; ``take_socket`` returns the connection. ``of`` names the job that has the engine."""
        super().__init__(binary)
        env = environment()
        path = runtime_folder(env) / _name(binary, env, of)
        with _locked(f"{path}.lock"):
            self._socket = _connect(path) or _start(binary, path, env)
            try:
                self.pid, user = _peer(self._socket)
                if user != os.getuid():
                    raise StokerError(f"the engine at {path} belongs to user {user}; this process does not use it")
                with contextlib.suppress(OSError, AttributeError):
                    self.pidfd = os.pidfd_open(self.pid)
                with contextlib.suppress(OSError):
                    self._log = os.open(f"{path}.log", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except BaseException:
                self._socket.close()
                self.forget()
                raise
        self._log_start = os.fstat(self._log).st_size if self._log >= 0 else 0
        _warn_of_another_version(path)

    def wait(self, seconds: float) -> int | None:
        """Return a code if the engine has ended within ``seconds``, or None. The code of its exit is not known."""
        return self._code() if self._gone(seconds) else None

    def end(self) -> None:
        """Leave the engine to the others."""
        self.forget()

    def died(self) -> EngineDied:
        """Say how the engine ended, from its log."""
        if not self._gone(_END_GRACE):
            return EngineDied(f"the shared engine (process {self.pid}) closed the connection without ending", None)
        code = self._code()
        how = "crashed" if code == CRASHED else f"was killed{self.KILLED}"
        return self._died(how, code)

    def _code(self) -> int:
        return CRASHED if self.crash() else -9

    def _gone(self, seconds: float) -> bool:
        """Return whether the process has ended."""
        if self.pidfd >= 0:
            return self._ended(seconds)
        deadline = time.monotonic() + seconds
        while True:
            try:
                os.kill(self.pid, 0)
            except OSError:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)


def runtime_folder(env: dict[str, str]) -> Path:
    """Return the folder of the sockets, which other users cannot enter (internal/runfolder has the same rule)."""
    chosen = env.get("STOKER_RUNTIME_DIR", "")
    user = os.getuid()
    places = [Path(chosen)]
    if chosen == "off":
        raise StokerError(
            "STOKER_RUNTIME_DIR=off, and shared=True needs a folder for the socket: name one, or remove shared=True"
        )
    if not chosen:
        run = env.get("XDG_RUNTIME_DIR", "")
        places = [Path(run) / "stoker"] if Path(run).is_absolute() else []
        places += [Path(f"/run/user/{user}/stoker"), Path(tempfile.gettempdir()) / f"stoker-{user}"]
    for place in places:
        with contextlib.suppress(OSError):
            place.mkdir(0o700)
        with contextlib.suppress(OSError):
            found = os.lstat(place)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077:
                return place
    raise StokerError(
        f"no folder for the socket of the shared engine that only this user can enter: {', '.join(map(str, places))}\n"
        "hint: set STOKER_RUNTIME_DIR to a folder of yours with mode 0700, or remove shared=True"
    )


def _name(binary: str, env: dict[str, str], of: str = "") -> str:
    """Return the name of the socket: one hash of the settings, container and limits, one of the program.

    The engine has the cores, the memory limit and the groups of the process that starts it.
    """
    found = Path(binary).stat()
    used = sorted((k, v) for k, v in env.items() if k.startswith(_VARIABLES) or k.lower().endswith("_proxy"))
    program = [os.path.realpath(binary), str(found.st_mtime_ns), str(found.st_size), str(wire.VERSION)]
    program += [f"{k}={v}" for k, v in used if k in _OF_PROGRAM]
    parts = [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("mnt", "net", "pid")]
    parts += [f"{k}={v}" for k, v in used if k not in _OF_PROGRAM]
    parts += [str(sorted(os.sched_getaffinity(0))), str(sorted(os.getgroups())), str(os.getegid()), *_limited(), of]
    return f"shared-{_hash(parts, 16)}-{_hash(program, 8)}"


def _hash(parts: list[str], length: int) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:length]


_warned = False


def _warn_of_another_version(path: Path) -> None:
    """Warn once if an engine of another version serves this user, which would be shared if its version were ours.

    Each lock file has the version of the engine that was started last.
    """
    global _warned
    ours = () if _warned else _version(f"{path}.lock")
    if not ours:
        return
    for lock in sorted(path.parent.glob(f"{path.name.rpartition('-')[0]}-*.lock")):
        theirs = _version(str(lock))
        if theirs not in ((), ours) and (pid := _serving(lock.with_suffix(""))):
            _warned = True
            warn(_other_version(ours, theirs, pid), RuntimeWarning)
            return


def _version(lock: str) -> tuple[int, ...]:
    """Return the version of the engine with this lock file, without the commit; () if there is none."""
    with contextlib.suppress(OSError, UnicodeDecodeError), open(lock) as f:
        if found := re.match(r"\d+(\.\d+)*", f.read(100)):
            return tuple(map(int, found[0].split(".")))
    return ()


def _serving(path: Path) -> int:
    """Return the process that serves at ``path``, 0 if there is none."""
    try:
        sock = _connect(path)
    except StokerError:
        return 0
    if sock is None:
        return 0
    with sock:
        return _peer(sock)[0]


def _other_version(ours: tuple[int, ...], theirs: tuple[int, ...], pid: int) -> str:
    """Return the text of the warning."""
    mine, other = (".".join(map(str, v)) for v in (ours, theirs))
    side = "this program's" if ours < theirs else "the other program's"
    return (
        f"this program does not share the engine of this user (process {pid}): that one is of Stoker {other}, and this "
        f"program has Stoker {mine}. It has an engine of its own version\n"
        f"hint: upgrade {side} Stoker: pip install --upgrade stoker"
    )


def _limited(proc: Path = Path("/proc/self"), root: Path = Path("/sys/fs/cgroup")) -> list[str]:
    """Return the control groups that limit the memory or the CPU time of this process.

    Other control groups do not matter: each terminal has one.
    """
    found, lines = [], []
    with contextlib.suppress(OSError):
        lines = (proc / "cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for name in [n for c in controllers.split(",") for n in _LIMITS.get(c, ())]:
            for group in (Path(path), *Path(path).parents):
                with contextlib.suppress(OSError):
                    value = (root / controllers / group.relative_to("/") / name).read_text().split()[0]
                    # Version 1 has -1, or a number close to 2^63, for no limit.
                    if value not in ("max", "-1") and len(value) < 18:
                        found.append(f"{controllers}:{group}/{name}")
    return found


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold the lock of the engine's socket."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StokerError(f"the lock {path} of the shared engine cannot be opened: {error.strerror}") from None
    try:
        deadline = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StokerError(
                        f"another process has held {path} for {_LOCK_WAIT:.0f} s while it starts the shared engine\n"
                        f"hint: find it with: fuser {path}"
                    ) from None
                time.sleep(_LOCK_PAUSE)
        yield
    finally:
        os.close(fd)


def _connect(path: Path) -> socket.socket | None:
    """Connect to the engine at ``path``; None if there is none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):  # refused: a killed engine left the socket
        sock.close()
        return None
    except OSError as error:
        sock.close()
        why = "its path is too long" if error.strerror is None else error.strerror
        raise StokerError(
            f"the shared engine at {path} cannot be reached: {why}\n"
            "hint: set STOKER_RUNTIME_DIR to a folder with a short path"
        ) from None
    except BaseException:
        sock.close()
        raise
    return sock


def _start(binary: str, path: Path, env: dict[str, str]) -> socket.socket:
    """Start an engine and connect to it."""
    try:
        done = subprocess.run(
            [binary, "serve", "--shared", str(path)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=env, timeout=_LOCK_WAIT / 2,
            check=False,
        )  # fmt: skip
    except OSError as error:
        raise StokerError(f"the shared engine could not be started: {binary}: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise StokerError(f"the shared engine did not start within {_LOCK_WAIT / 2:.0f} s: {binary}") from None
    if done.returncode:
        raise StokerError(f"the shared engine could not be started: {done.stderr.strip()[-2000:]}")
    sock = _connect(path)
    if sock is None:
        raise StokerError(f"the shared engine at {path} ended while it started; its log: {path}.log")
    return sock


def _peer(sock: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end."""
    pid, user, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, user
