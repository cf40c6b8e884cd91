"""Runs the files of tests in several processes, with one report: STOKER_TEST_PROCESSES=2 (scripts/python-tests.sh).

Most tests wait for other processes, so two at a time need little more than half the time. The processes are forked
after all files have been imported, which takes longer than most of the files need. Each process takes the next file
from a common queue: the tests of a file run in their order in one process, and share its fixtures.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import itertools
import os
import selectors
import signal
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

import pytest

# The files that take longest. They come first: a process that began one of them last would run alone at the end.
LONG = (
    "test_takeover.py",
    "test_docs.py",
    "test_run.py",
    "test_inspect_line.py",
    "test_quickstart.py",
    "test_doctor.py",
    "test_examples.py",
    "test_torch_loader.py",
    "test_torch_examples.py",
    "test_remote.py",
    "test_wheel.py",
    "test_adversary.py",
)
# The files whose tests import MONAI, JAX or Keras into their process. They come last: each fork copies the page tables.
LAST = ("test_functions.py", "test_volume_transforms.py", "test_text.py")


def run(session: pytest.Session, processes: int) -> bool:
    """Run the tests of a session in processes that end with it, and report what they report."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in session.items:
        files.setdefault(item.path, []).append(item)
    place = {name: i for i, name in enumerate((*LONG, "", *LAST))}
    groups = sorted(files.values(), key=lambda items: place.get(items[0].path.name, len(LONG)))
    queue, numbers = os.pipe()
    for i in range(len(groups)):
        os.write(numbers, i.to_bytes(2, "big"))
    os.close(numbers)
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    assert not others, f"a file of tests starts threads when it is imported, which a fork would lose: {others}"
    gc.collect()
    gc.freeze()
    base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    workers = []
    for i in range(min(processes, len(groups))):
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # numpy's threads survive a fork
            pid = os.fork()
        if pid == 0:
            os.close(read)
            _work(session, groups, queue, write, base / f"process{i}")
        os.close(write)
        workers.append(Worker(session, pid, read))
    os.close(queue)
    try:
        _report(session, workers)
    finally:
        for worker in workers:
            worker.end()
    return True


class Worker:
    """A process that runs tests, as its parent sees it."""

    def __init__(self, session: pytest.Session, pid: int, pipe: int) -> None:
        self.session, self.pid, self.pipe = session, pid, pipe
        self.text = b""
        self.runs = "no test yet"
        self.open = True

    def read(self) -> bool:
        """Report what the process has sent. Return False at its end."""
        data = os.read(self.pipe, 1 << 16)
        self.open = bool(data)
        *lines, self.text = (self.text + data).split(b"\n")
        hook, config = self.session.config.hook, self.session.config
        for line in lines:
            kind, value = ast.literal_eval(line.decode())
            if kind == "start":
                self.runs = value[0]
                hook.pytest_runtest_logstart(nodeid=value[0], location=value[1])
            elif kind == "report":
                hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=config, data=value))
            else:
                self.runs = ""
        return self.open

    def end(self) -> None:
        """Wait for the end of the process, which is interrupted if its reports do not matter any more."""
        os.close(self.pipe)
        if self.open:
            os.kill(self.pid, signal.SIGINT)
        _, status = os.waitpid(self.pid, 0)
        if self.runs and not self.open:
            self.session.testsfailed += 1
            code = os.waitstatus_to_exitcode(status)
            print(f"\nFAILED a process of tests ended with exit code {code}. It ran {self.runs}", flush=True)


def _report(session: pytest.Session, workers: list[Worker]) -> None:
    """Report as the processes do, until all have ended or as many tests have failed as --maxfail allows."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.pipe, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.read():
                    selector.unregister(key.fileobj)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)


class Reporter:
    """Sends the reports of a process to its parent, instead of printing them."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self.config, self.pipe = config, pipe

    def send(self, kind: str, value: Any) -> None:
        data = repr((kind, value)).encode() + b"\n"
        while data:
            data = data[os.write(self.pipe, data) :]

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.send("start", [nodeid, location])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.send("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def _work(session: pytest.Session, groups: list[list[pytest.Item]], queue: int, pipe: int, base: Path) -> NoReturn:
    """Run tests in this process until none is left, and exit."""
    config = session.config
    reporter = Reporter(config, pipe)
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(reporter)
    base.mkdir()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started this in the background
    config._tmp_path_factory._basetemp = base  # type: ignore[attr-defined]
    # What is captured goes to files. The processes must not share them.
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    try:
        while not (session.shouldfail or session.shouldstop) and (taken := os.read(queue, 2)):
            number = int.from_bytes(taken, "big")
            # A test of another file as the next one: pytest tears down the fixtures of this file after its last test.
            items = [*groups[number], groups[number - 1][0]]
            # That file may be in another folder than this one: what belongs to its folder ends here.
            session._setupstate.teardown_exact(items[0])
            for item, after in itertools.pairwise(items):
                config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if session.shouldfail or session.shouldstop:
                    break
        session._setupstate.teardown_exact(None)
        reporter.send("end", "")
        os._exit(0)
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):
            traceback.print_exception(error)
        with contextlib.suppress(BaseException):
            session._setupstate.teardown_exact(None)
    finally:
        os._exit(1)
