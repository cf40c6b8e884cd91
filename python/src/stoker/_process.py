"""The engine as a child process that never outlives this one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ._binary import environment
from ._errors import EngineDied, StokerError

_LOG_TAIL = 4096
_LOG_LIMIT = 1 << 20
# The first line of a crash report of Go, of the C library or of a sanitizer. The earliest one explains the rest.
_CRASH = re.compile(
    r"^(panic: |fatal error: |SIG[A-Z]+: |runtime(/cgo)?: |malloc|free\(\): |double free|terminate|=+\d+=+ERROR)",
    re.MULTILINE,
)
# The text in a log if the system gives the engine no more threads.
_NO_THREADS = re.compile("pthread_create failed|failed to create new OS thread")
# The time that an engine may take to exit after its last client has disconnected, before it is killed.
_END_GRACE = 3.0


# The hint if the system gives this process too little to start the engine.
_LIMITS = {
    errno.EMFILE: "; raise the limit of open files (ulimit -n)",
    errno.ENFILE: "; close programs, or raise the system's limit of open files (fs.file-max)",
    errno.EAGAIN: "; raise the limit of processes (ulimit -u, or pids of the container)",
    errno.ENOMEM: "; free memory, or raise the limit of this process (ulimit -v)",
}


def anonymous_file(name: str) -> int:
    """Return the descriptor of a file in memory, without a name that could remain."""
    # Python builds for old C libraries, such as conda's, have no memfd_create, and sandboxes may refuse it.
    with contextlib.suppress(AttributeError, OSError):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        with tempfile.TemporaryFile(prefix=name) as f:
            return os.dup(f.fileno())
    except OSError as error:
        raise StokerError(
            f"no file for shared memory: memfd_create is refused, and a temporary file fails: {error.strerror or error}"
            + _LIMITS.get(error.errno or 0, "; set TMPDIR to a folder that can be written")
        ) from None


def when_forgotten(of: object, call: Callable[..., object], *args: Any) -> weakref.finalize[Any, Any]:
    """Call a function when an object is forgotten. In a forked child, what the object holds belongs to the parent."""
    return weakref.finalize(of, _in_parent, os.getpid(), call, *args)


def _in_parent(pid: int, call: Callable[..., object], *args: Any) -> None:
    if os.getpid() == pid:
        call(*args)


def started(what: str, binary: str, arguments: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start the binary, in a session of its own: Ctrl-C in the terminal reaches this process alone."""
    how = {"stdin": subprocess.DEVNULL, "env": environment(), **how}
    try:
        return subprocess.Popen([binary, *arguments], start_new_session=True, **how)
    except OSError as error:
        raise _not_started(what, binary, error) from None


def _not_started(what: str, binary: str, error: OSError) -> StokerError:
    hint = _LIMITS.get(error.errno or 0, "")
    return StokerError(f"{what} could not be started: {binary}: {error.strerror or error}{hint}")


def log_end(fd: int, start: int = 0, most: int = _LOG_TAIL) -> str:
    """Return the end of a log, at most so many bytes of it."""
    size = os.fstat(fd).st_size
    start = max(start, size - most)
    return os.pread(fd, max(size - start, 0), start).decode(errors="replace")


def with_log(text: str, log: str) -> str:
    """Return a text about an engine that has ended, with the end of its log."""
    return f"{text}\nits last words:\n" + "\n".join("  " + line for line in log.splitlines()) if log else text


# The state of an unresponsive process, by its letter in /proc.
_STATES = {
    "T": "is stopped (SIGSTOP or SIGTSTP)\nhint: kill -CONT {pid}",
    "t": "is stopped by a debugger",
    "D": "waits in the kernel for a disk or a network file system (state D)",
    "Z": "has ended (state Z)",
}


def stopped(pid: int) -> str:
    """Return why a process cannot answer, from its state in /proc; empty if that shows no reason."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            state = f.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""
    text = _STATES.get(state)
    return "" if text is None else f"the engine (process {pid}) {text.format(pid=pid)}"


# The exit code of an engine that crashed: of Go's runtime after a signal in C code and after a panic.
CRASHED = 2


class Engine:
    """The process of an engine: its end, and its last words.

    Attributes:
        pid, pidfd: the process; the descriptor is -1 without one (before Linux 5.3, or not in this Python). Then the
            connection alone tells of the engine's end.
    """

    KILLED = "; if no person or program did that on purpose, the system ran out of memory (see dmesg)"

    def __init__(self, binary: str) -> None:
        self.binary = binary
        self.pid = self.pidfd = self._log = self._in_flight = -1
        self._log_start = 0
        self._socket: socket.socket

    def take_socket(self) -> socket.socket:
        """Return the connection; the caller closes it."""
        return self._socket

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, or None when the engine still runs after ``seconds``."""
        raise NotImplementedError

    def end(self) -> None:
        """Give the engine up after its connection was closed."""
        raise NotImplementedError

    def died(self) -> EngineDied:
        """Say how the engine ended, which it has or is about to."""
        raise NotImplementedError

    def note_in_flight(self, fd: int) -> None:
        """Take over the file in which the engine notes the records that it decodes."""
        if self._in_flight >= 0:
            os.close(self._in_flight)
        self._in_flight = fd

    def forget(self) -> None:
        """Close the descriptors: at the end in the parent, immediately in a forked child."""
        for fd in (self.pidfd, self._log, self._in_flight):
            if fd >= 0:
                os.close(fd)
        self.pidfd = self._log = self._in_flight = -1

    def _ended(self, seconds: float) -> bool:
        """Wait for the end of the process."""
        waiter = select.poll()
        waiter.register(self.pidfd, select.POLLIN)
        return bool(waiter.poll(seconds * 1000))

    def _died(self, how: str, code: int | None) -> EngineDied:
        log = self.log_tail()
        if _NO_THREADS.search(log):
            how += "; the system gave it no more threads" + _LIMITS[errno.EAGAIN]
        error = EngineDied(with_log(f"the engine (process {self.pid}) {how}", log), code, log)
        error.in_flight = self._records_in_flight()
        return error

    def _records_in_flight(self) -> tuple[int, ...]:
        """Return the records that an engine which has ended was decoding: docs/reference/protocol.md."""
        if self._in_flight < 0:
            return ()
        raw = os.pread(self._in_flight, os.fstat(self._in_flight).st_size, 0)
        return tuple(number - 1 for (number,) in struct.iter_unpack("<q", raw[: len(raw) // 8 * 8]) if number > 0)

    def _log_text(self) -> str:
        return log_end(self._log, self._log_start, _LOG_LIMIT) if self._log >= 0 else ""

    def crash(self) -> str:
        """Return the report of a crash in the log, empty without one."""
        text = self._log_text()
        found = _CRASH.search(text)
        # A crash of the Go runtime gives its cause in the first lines and its location in the next.
        return text[found.start() :][:_LOG_TAIL].strip() if found else ""

    def log_tail(self) -> str:
        """Return the end of the engine's log, or a crash report from its first line on."""
        return self.crash() or self._log_text()[-_LOG_TAIL:].strip()


class EngineProcess(Engine):
    """A running ``stoker serve --fd``.

    The engine exits automatically when the connection or this process ends. Its stderr goes into a file without a name.
    """

    def __init__(self, binary: str) -> None:
        """Start the engine; ``take_socket`` returns this side's end of the connection."""
        super().__init__(binary)
        self._log = anonymous_file("stoker-log")
        # The engine notes here which records it decodes.
        self._in_flight = anonymous_file("stoker-in-flight")
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self.forget()
            raise _not_started("the engine", binary, error) from None
        self._socket = ours
        try:
            with theirs:
                fds = [theirs.fileno(), self._in_flight]
                command = ["serve", f"--fd={fds[0]}", f"--parent={os.getpid()}", f"--in-flight={fds[1]}"]
                self._child = started("the engine", binary, command, stdout=self._log, stderr=self._log, pass_fds=fds)
        except BaseException:
            ours.close()
            self.forget()
            raise
        self.pid = self._child.pid
        with contextlib.suppress(OSError, AttributeError):
            self.pidfd = os.pidfd_open(self.pid)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, or None when the engine still runs after ``seconds``."""
        deadline = time.monotonic() + seconds
        pause = 0.0005
        while True:
            code = self._child.poll()
            left = deadline - time.monotonic()
            if code is not None or left <= 0:
                return code
            if self.pidfd >= 0:
                self._ended(left)
            else:
                time.sleep(min(pause, left))
                pause = min(2 * pause, 0.05)

    def end(self) -> None:
        """Wait for the exit of the engine after its connection was closed, and kill it if necessary."""
        try:
            if self.wait(_END_GRACE) is None:
                self._child.kill()
                # A process in an uninterruptible read of a dead disk cannot even be killed: the
                # kernel ends it when the read returns.
                self.wait(_END_GRACE)
        finally:
            self.forget()

    def died(self) -> EngineDied:
        """Say how the engine ended, which it has or is about to."""
        code = self.wait(_END_GRACE)
        if code is None:
            self._child.kill()
            code = self.wait(_END_GRACE)
            how = "closed the connection without ending"
        elif code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = "unknown"
            how = f"was killed by signal {-code} ({name})"
            if -code == signal.SIGKILL:
                how += self.KILLED
        else:
            how = f"ended with exit code {code}"
        return self._died(how, code)
