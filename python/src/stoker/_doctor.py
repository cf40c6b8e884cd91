"""``with stoker.doctor():`` - find the bottleneck of a part of this program."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _loaders
from ._binary import find_binary
from ._errors import ConfigError, StokerError, warn
from ._process import started

_END_SECONDS = 20.0
_FOREVER = "8760h"
_PR_SET_PTRACER = 0x59616D61
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class doctor:  # noqa: N801 - used as a statement: with stoker.doctor():
    """Watch this process and its workers while a block runs, and report what starves it.

    ::

        with stoker.doctor() as d:
            for images, labels in loader:
                ...
        print(d.verdict, d.gain)

    ``stoker doctor`` runs during the block and reads this process from outside. The loader may be any. During the
    block, PyTorch's DataLoaders also count their batches, and are compared with the loaders that ``stoker run`` can
    take over. At the end of the block the report is printed to stderr. A block of less than a few seconds gives a short
    report. An error of the doctor is a warning and never an error of the block.

    Args:
        save: a file to write the report into, as JSON.
        report: a file to write a self-contained HTML page into.
        quiet: do not print the report.

    Attributes:
        result: the report in the JSON form of docs/reference/doctor.md; empty until the block has ended.
        text: the printed report.
    """

    __module__ = "stoker"

    def __init__(
        self,
        *,
        save: str | os.PathLike[str] | None = None,
        report: str | os.PathLike[str] | None = None,
        quiet: bool = False,
    ) -> None:
        for name, value in (("save", save), ("report", report)):
            if value is not None and not Path(value).resolve().parent.is_dir():
                raise ConfigError(f"{name}={os.fspath(value)}: there is no folder {Path(value).resolve().parent}")
        self._save = None if save is None else os.path.abspath(save)
        self._page = None if report is None else os.path.abspath(report)
        self._quiet = quiet
        self._undo: Callable[[], None] = _nothing
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.result: dict[str, Any] = {}
        self.text = ""

    @property
    def verdict(self) -> str:
        """``"cpu"``, ``"storage"``, ``"network"``, ``"memory"``, ``"handoff"``, ``"accelerator"`` or ``"healthy"``."""
        return str(self.result.get("verdict", ""))

    @property
    def gain(self) -> float:
        """The factor by which the block would be faster without the bottleneck; 1 before there is a verdict."""
        return float(self.result.get("gain", 1.0))

    def __enter__(self) -> doctor:
        """Start to watch."""
        if self._child is not None:
            raise StokerError("this doctor is watching already; make another one")
        binary = find_binary()
        self.result, self.text = {}, ""
        self._folder = tempfile.TemporaryDirectory(prefix="stoker-doctor-")
        folder = Path(self._folder.name)
        command = ["doctor", f"--pid={os.getpid()}", f"--seconds={_FOREVER}", f"--save={folder / 'report.json'}"]
        if self._page is not None:
            command.append(f"--report={self._page}")
        try:
            with (folder / "text").open("wb") as out, (folder / "errors").open("wb") as errors:
                self._child = started("the doctor", binary, command, stdout=out, stderr=errors)
        except BaseException:
            self._folder.cleanup()
            self._folder = None
            raise
        _allow(self._child.pid)
        module = sys.modules.get("torch.utils.data.dataloader")
        if module is not None:
            self._undo = _loaders.watch(module, doctor=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End watching and report."""
        self._undo()
        self._undo = _nothing
        child, folder = self._child, self._folder
        self._child = self._folder = None
        if child is None or folder is None:
            return
        try:
            self._finish(child, Path(folder.name))
        finally:
            folder.cleanup()

    def _finish(self, child: subprocess.Popen[bytes], folder: Path) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        try:
            code = child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            warn(f"stoker doctor did not end within {_END_SECONDS:g} seconds", RuntimeWarning)
            return
        report = folder / "report.json"
        if not report.is_file():
            said = (folder / "errors").read_text(errors="replace").strip().splitlines()
            reason = said[0] if said else f"it ended with code {code}"
            warn(f"no report of stoker doctor: {reason}", RuntimeWarning)
            return
        self.result = json.loads(report.read_text())
        self.text = (folder / "text").read_text(errors="replace")
        if self._save is not None:
            try:
                Path(self._save).write_bytes(report.read_bytes())
            except OSError as error:
                warn(f"the report was not saved: {error}", RuntimeWarning)
        if not self._quiet:
            print(self.text, file=sys.stderr, end="", flush=True)


def _nothing() -> None:
    """Undo nothing."""


def _allow(pid: int) -> None:
    """Let a child read this process if the kernel lets only parents read their children."""
    try:
        restricted = _YAMA.read_text().strip() == "1"
    except OSError:
        return
    if not restricted:
        return
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
