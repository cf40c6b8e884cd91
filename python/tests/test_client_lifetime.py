"""Signals, threads, forks, and the end of the loader and of a fake engine."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import random
import re
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

import stoker
from support import SOURCE, alive, open_files, wait_for

pytestmark = pytest.mark.usefixtures("fake")
Make = Callable[..., stoker.Loader]


def run_script(body: str, **kwargs: object) -> subprocess.Popen[str]:
    script = "import os, signal, sys, time, stoker\n" + body
    env = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True, **kwargs)  # type: ignore[call-overload,no-any-return]


def test_ctrl_c(make: Make) -> None:
    loader = make("fake:stuck_at=4&len=12", batch_size=2)
    it = iter(loader)
    next(it)
    next(it)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):  # and not a timeout
        next(it)
    timer.join()
    assert next(iter(loader)).epoch == 1, "the loader goes on"


def test_ctrl_c_in_the_terminal_does_not_reach_the_engine(make: Make) -> None:
    loader = make("fake:", batch_size=2)
    assert os.getpgid(loader.info["pid"]) != os.getpgrp()
    assert os.getsid(loader.info["pid"]) != os.getsid(0)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_interrupt_at_any_moment_loses_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """KeyboardInterrupt out of the middle of anything: no slot and no batch is lost."""
    # An interrupt may hit a finalizer that the collector calls while the loader takes a batch. Pytest's hook keeps such
    # exceptions, and with their frames the batch, as a program that keeps it would.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    loader = make("fake:len=600&slots=3", batch_size=1)
    rng = random.Random(7)
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupted = 0
    seen: list[int] = []
    it = iter(loader)
    batch = None
    try:
        while len(seen) < 500:
            try:
                if rng.random() < 0.3:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 2e-4))
                batch = next(it)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
                # A batch that the interrupt kept from being assigned was delivered all the same.
                seen = seen[: loader.state_dict()["position"]]
                seen += range(len(seen), loader.state_dict()["position"])
            else:
                seen.append(batch.step)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert interrupted > 10
    assert seen == list(range(500))
    # All slots work: none was lost on the way.
    del batch
    gc.collect()
    held = [next(it) for _ in range(3)]
    assert [b.step for b in held] == [500, 501, 502]
    # An interrupt while an engine was being started leaves it to the collector.
    gc.collect()


def test_batch_whose_callback_was_interrupted_is_released(make: Make) -> None:
    """An interrupt can end the callback of a dropped batch: the batch counts as held no longer all the same."""
    loader = make("fake:len=30&slots=3", batch_size=1)
    it = iter(loader)
    batch = next(it)
    connection = loader._epochs.connection
    assert connection is not None
    connection._held = {lease: (slot, weakref.ref(root())) for lease, (slot, root) in connection._held.items()}
    del batch
    kept = next(it)
    assert [b.step for b in it] == list(range(2, 30)), "no batch is a copy, which would warn"
    assert kept.step == 1


def test_close(make: Make) -> None:
    before = open_files()
    loader = make("fake:len=100", batch_size=2)
    pid = loader.info["pid"]
    it = iter(loader)
    batch = next(it)
    loader.close()
    loader.close()
    assert not alive(pid)
    assert batch.index.tolist() == [0, 1]
    with pytest.raises(stoker.StokerError, match="closed"):
        next(it)
    with pytest.raises(stoker.StokerError, match="closed"):
        iter(loader)
    assert "closed" in repr(loader)
    assert loader.stats()["engine"] == {}
    del batch
    assert open_files() == before


def test_with_block_and_forgotten_loader(make: Make) -> None:
    with stoker.Loader("fake:", batch_size=2) as loader:
        pid = loader.info["pid"]
        next(iter(loader))
    assert not alive(pid)
    loader = stoker.Loader("fake:", batch_size=2)
    pid = loader.info["pid"]
    batch = next(iter(loader))
    del loader
    gc.collect()
    assert not alive(pid)
    assert batch.index.tolist() == [0, 1]


def test_close_from_another_thread(make: Make) -> None:
    loader = make("fake:stuck_at=2", batch_size=2)
    it = iter(loader)
    next(it)
    timer = threading.Timer(0.2, loader.close)
    timer.start()
    with pytest.raises(stoker.StokerError, match="closed"):
        next(it)
    timer.join()


def test_stats_from_another_thread(make: Make) -> None:
    loader = make("fake:stuck_at=2", batch_size=2)
    it = iter(loader)
    next(it)
    loader.timeout = 2  # opening takes as long as it takes
    answers: list[dict] = []

    def ask() -> None:
        for _ in range(20):
            answers.append(loader.stats()["engine"])

    thread = threading.Thread(target=ask)
    thread.start()
    with pytest.raises(stoker.StokerTimeout):
        next(it)
    thread.join()
    assert len(answers) == 20
    assert all(a["waiting"].startswith("fetch") for a in answers)


def test_two_threads_in_one_loop(make: Make) -> None:
    loader = make("fake:stuck_at=2", batch_size=2)
    it = iter(loader)
    next(it)
    loader.timeout = 1  # opening takes as long as it takes
    errors: list[Exception] = []

    def take() -> None:
        try:
            next(it)
        except stoker.StokerError as error:
            errors.append(error)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert any("two threads" in str(e) for e in errors)


def test_batches_move_between_threads(make: Make) -> None:
    """A thread iterates, others drop the batches: slots come back from any thread."""
    import queue

    loader = make("fake:len=2000&slots=4", batch_size=2)
    q: queue.Queue[stoker.Batch | None] = queue.Queue(2)
    seen: list[int] = []

    def consume() -> None:
        while (batch := q.get()) is not None:
            seen.append(batch.step)
            del batch

    threads = [threading.Thread(target=consume, daemon=True) for _ in range(2)]
    for t in threads:
        t.start()
    for batch in loader:
        q.put(batch)
        del batch
    for _ in threads:
        q.put(None)
    for t in threads:
        t.join()
    assert sorted(seen) == list(range(1000))


def test_pickling_is_refused(make: Make) -> None:
    loader = make("fake:", batch_size=2)
    for refuse in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            refuse(loader)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork(make: Make) -> None:
    loader = make("fake:len=100&slots=3", batch_size=2)
    it = iter(loader)
    batch = next(it)
    kept = batch.image.copy()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # A failure in here must not run the rest of the tests a second time.
        try:
            out = []
            for act in (lambda: next(it), lambda: iter(loader)):
                try:
                    act()
                except stoker.StokerError as error:
                    out.append(str(error))
            out.append(str((batch.image == kept).all()))
            del batch
            gc.collect()
            loader.close()
            del loader, it
            gc.collect()
            os.write(writer, json.dumps(out).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    said = json.loads(os.read(reader, 10000))
    os.close(reader)
    assert len(said) == 3
    assert all("forked child cannot use it" in s for s in said[:2])
    assert said[2] == "True"
    # The child has not released the parent's slot, and the parent's engine lives.
    assert loader.stats()["held"] == 1
    for _ in it:
        pass
    assert (batch.image == kept).all()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_engine_death_is_seen_in_spite_of_forked_children(make: Make, tmp_path: Path) -> None:
    """A forked child that lives on holds copies of open files. The loader does not wait for it."""
    loader = make(f"fake:stuck_at=2&unless={tmp_path}/once", batch_size=2)
    it = iter(loader)
    next(it)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        select.select([reader], [], [])
        os._exit(0)
    os.close(reader)
    try:
        os.kill(loader.info["pid"], signal.SIGKILL)
        with pytest.warns(stoker.EngineRestarted):
            assert next(it).index.tolist() == [2, 3]
    finally:
        os.close(writer)
        os.waitpid(pid, 0)


def test_exit_ends_the_engine(make: Make) -> None:
    script = (
        "l = stoker.Loader('fake:len=100', batch_size=2); it = iter(l); b = next(it); print(l.info['pid'], flush=True)"
    )
    with run_script(script) as trainer:
        out, _ = trainer.communicate(timeout=120)
    assert trainer.returncode == 0
    assert not alive(int(out))


def test_killed_trainer_leaves_no_engine() -> None:
    script = (
        "l = stoker.Loader('fake:len=100', batch_size=2); print(l.info['pid'], flush=True)\nfor b in l: time.sleep(9)"
    )
    with run_script(script) as trainer:
        assert trainer.stdout is not None
        pid = int(trainer.stdout.readline())
        assert alive(pid)
        trainer.kill()
        trainer.wait()
        wait_for(lambda: not alive(pid))


def test_nothing_is_written_on_exit() -> None:
    script = "l = stoker.Loader('fake:len=100', batch_size=2)\nfor b in l: break\nl2 = stoker.Loader('fake:')"
    with run_script(script, stderr=subprocess.PIPE) as trainer:
        _, err = trainer.communicate(timeout=120)
    assert trainer.returncode == 0
    assert err == ""


def test_messages_read_well(make: Make) -> None:
    """Every line of a message is short enough to read and starts with the failure."""
    with pytest.warns(stoker.EngineRestarted), pytest.raises(stoker.EngineDied) as caught:
        make("fake:die_open=1")
    first = str(caught.value).splitlines()[0]
    assert re.fullmatch(r"the engine \(process \d+\) ended with exit code 2", first)
