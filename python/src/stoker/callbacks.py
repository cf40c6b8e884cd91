"""Reports of the share of time that training waits for data: Lightning, Trainer, TensorBoard, W&B, MLflow.

::

    trainer = lightning.Trainer(callbacks=[stoker.callbacks.Lightning()])

``Waiting`` computes the values, and the other classes log them by the names of ``stoker top``. ``stoker/waiting`` is
the share of the time in which the loop waited since the last report. ``stoker/limit`` is the stage that limits. Every
loader of this package works, and so do others in ``stoker.watch``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from . import _connection, _step
from ._errors import StokerError, warn

__all__ = ["HuggingFace", "Lightning", "MLflow", "Report", "TensorBoard", "Waiting", "WeightsAndBiases"]

# From this share of waiting on a report calls the loader slower than the step: 1 - FedAU of internal/steptime.
_LIMITS = 0.03
# From this share on a run starves, if the report has so many waits. The first report is of the start: it is skipped.
_STARVES = 0.2
_WAITS = 5


@dataclass(frozen=True)
class Report:
    """The waits between two reports.

    Attributes:
        waiting: the share of the time in which the loop waited for a batch, 0 to 1.
        waits: the number of batches that the loop asked for.
        limit: the stage that limits, as in ``stoker top``: ``"read"``, ``"decode"``, ``"transform"``, ``"collate"``,
            ``"handoff"``, ``"accelerator"`` (the step) or ``"loader"`` (a loader without an engine).
        verdict: the same as a sentence.
    """

    waiting: float
    waits: int
    limit: str
    verdict: str

    @property
    def values(self) -> dict[str, float]:
        """The numbers, by the names that loggers get."""
        return {"stoker/waiting": self.waiting}


class Waiting:
    """Computes the share of waiting of this process, by its step log.

    ::

        waiting = stoker.callbacks.Waiting()
        for step, batch in enumerate(loader):
            train_step(batch)
            if step % 100 == 99:
                print(waiting.report().verdict)
    """

    def __init__(self) -> None:
        """Begin the first interval."""
        log = _step.log()
        self._next = 0 if log is None else log.head
        self._begun = time.monotonic_ns()
        self._from = 0  # of a wait that is not over
        self._reports = 0
        self._warned = False

    def report(self) -> Report:
        """Return the waits since the last report.

        If the loop starves for data, a ``RuntimeWarning`` says so once, and names the command to type next.
        """
        waited, waits, start = 0, 0, self._begun
        log = _step.log()
        records = [] if log is None else log.read(self._next)
        if log is not None:
            lost = log.head - self._next > len(records)
            if lost and records:  # the log holds only the last records
                start = max(start, records[0].ns)
            self._next = log.head if lost else self._next + len(records)
        for record in records:
            if record.kind == _step.WAIT_BEGIN:
                self._from = record.ns
            elif record.kind == _step.WAIT_END and self._from:
                waited += max(record.ns - max(self._from, start), 0)
                waits += 1
                self._from = 0
        self._begun = now = time.monotonic_ns()
        if self._from:
            waited += max(now - max(self._from, start), 0)
        share = min(waited / max(now - start, 1), 1.0)
        limit = "accelerator" if share <= _LIMITS else _limit()
        verdict = f"the loop waits for data {share:.0%} of the time"
        verdict += ": the training step limits" if limit == "accelerator" else f": {limit} limits"
        self._reports += 1
        if share >= _STARVES and waits >= _WAITS and self._reports > 1 and not self._warned:
            self._warned = True
            warn(f"{verdict}\nhint: stoker doctor --pid {os.getpid()}", RuntimeWarning)
        return Report(share, waits, limit, verdict)


def _limit() -> str:
    """Return the stage that limits, by the engine of this process that delivered most batches."""
    most, limit = -1, "loader"
    for connection in list(_connection._open_connections):
        stats: dict[str, Any] = {}
        if not connection.closed:
            with contextlib.suppress(StokerError, OSError):
                stats = connection.stats(1.0)
        # The loop waited, so an engine that was idle or faster was not the one it waited for.
        if stats.get("limit") not in (None, "idle", "accelerator") and stats["batches"] > most:
            most, limit = stats["batches"], stats["limit"]
    return limit


class _Logged(Waiting):
    """Gives reports to a logger: call ``log(step)`` at each interval."""

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self._logger = logger

    def log(self, step: int) -> Report:
        """Log the waits since the last report."""
        report = self.report()
        self._write(report, step)
        return report

    def _write(self, report: Report, step: int) -> None:
        raise NotImplementedError


class TensorBoard(_Logged):
    """Writes reports with a ``SummaryWriter``, or what has ``add_scalar``: call ``log(step)`` at each interval."""

    def _write(self, report: Report, step: int) -> None:
        for name, value in report.values.items():
            self._logger.add_scalar(name, value, step)


class WeightsAndBiases(_Logged):
    """Logs reports to a run of Weights & Biases, by default the current one: call ``log(step)`` at each interval."""

    def __init__(self, run: Any = None) -> None:
        """Take a run."""
        super().__init__(importlib.import_module("wandb") if run is None else run)

    def _write(self, report: Report, step: int) -> None:
        self._logger.log({**report.values, "stoker/limit": report.limit}, step=step)


class MLflow(_Logged):
    """Logs reports to the active run of MLflow: call ``log(step)`` at each interval."""

    def __init__(self, client: Any = None) -> None:
        """Take an object with ``log_metrics``; the default is the module ``mlflow``."""
        super().__init__(importlib.import_module("mlflow") if client is None else client)

    def _write(self, report: Report, step: int) -> None:
        self._logger.log_metrics(report.values, step=step)


@functools.cache
def _with_base(cls: type[_Callback]) -> type[_Callback]:
    """Return a class of callbacks with the base class of its framework."""
    for place in cls._bases[:-1]:
        with contextlib.suppress(ImportError):
            base = getattr(importlib.import_module(place), cls._bases[-1])
            return type(cls.__name__, (cls, base), {"__module__": cls.__module__, "__doc__": cls.__doc__})
    raise ModuleNotFoundError(f"{cls.__name__} needs {cls._bases[0]}, which is not installed")


class _Callback:
    """A callback. Its framework is imported when the first one is made."""

    _bases: ClassVar[tuple[str, ...]]  # modules that may have the base class, and its name
    _waiting: Waiting

    def __new__(cls) -> Any:
        return object.__new__(_with_base(cls))  # type: ignore[arg-type]

    def __reduce__(self) -> Any:
        return type(self).__mro__[1], (), self.__dict__


class Lightning(_Callback):
    """Logs ``stoker/waiting`` to the loggers of a Lightning Trainer, every ``log_every_n_steps``."""

    _bases = ("lightning.pytorch", "pytorch_lightning", "Callback")

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Begin the first interval."""
        self._waiting = Waiting()

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """Log at the end of an interval."""
        step = trainer.global_step
        if trainer.log_every_n_steps and step and step % trainer.log_every_n_steps == 0:
            values = self._waiting.report().values
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step)


class HuggingFace(_Callback):
    """Adds ``stoker/waiting`` to the logs of a Hugging Face Trainer.

    Callbacks that come later in the list, and ``trainer.state.log_history``, have the value.
    """

    _bases = ("transformers", "TrainerCallback")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin the first interval."""
        self._waiting = Waiting()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Add the value to the logs of training."""
        if logs is not None and "loss" in logs:
            values = self._waiting.report().values
            logs.update(values)
            if state.log_history:
                state.log_history[-1].update(values)
