"""Failures between the loader and a fake engine."""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import _batch
from stoker import transforms as T
from support import children, rows, wait_for

pytestmark = pytest.mark.usefixtures("fake")
Make = Callable[..., stoker.Loader]


def test_errors_show_no_internal_frames(make: Make) -> None:
    loader = make("fake:fail_at=4", batch_size=2)

    def loop() -> None:
        for _ in loader:
            pass

    for act in (
        loop,
        lambda: make("fake:refuse=1"),
        lambda: make("fake:", batchsize=1),
        lambda: loader.load_state_dict({}),
        lambda: T.Resize(siz=3),
        lambda: T.Resize("big"),
        lambda: loader.set_epoch(-1),
    ):
        with pytest.raises(stoker.StokerError) as caught:
            act()
        frames = traceback.extract_tb(caught.value.__traceback__)
        inside = [f for f in frames if "/stoker/" in f.filename]
        assert len(inside) <= 1, inside
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_bad_record(make: Make) -> None:
    loader = make("fake:fail_at=4", batch_size=2)
    seen = []
    with pytest.raises(stoker.RecordError, match=r'a/b.jpg.*truncated\nhint: on_error="skip"') as caught:
        for batch in loader:
            seen.append(batch.step)
    assert seen == [0, 1], "what lies before the bad record is delivered"
    assert (caught.value.record, caught.value.name, caught.value.reason) == (4, "a/b.jpg", "truncated")
    assert next(iter(loader)).epoch == 1


def test_stream_failure(make: Make) -> None:
    loader = make("fake:stream_fail_at=2", batch_size=2)
    with pytest.raises(stoker.StokerError, match=r"x.arrow: input/output error"):
        list(loader)


def test_skipped_records_are_reported(make: Make) -> None:
    loader = make("fake:len=4&skipped=1", batch_size=2)
    with pytest.warns(
        stoker.SkippedRecords, match=r"epoch 0: 1 record was replaced[\s\S]*a.jpg\): truncated"
    ) as caught:
        for _ in loader:
            pass
    assert caught[0].filename == __file__
    assert loader.stats()["skipped"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(stoker.SkippedRecords):
            rows(loader)
    with pytest.warns(stoker.SkippedRecords):
        assert rows(loader) == [[2, 3], [0, 1]]


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_engine_is_started_again(make: Make, tmp_path: Path, sig: signal.Signals) -> None:
    loader = make(f"fake:len=12&die_at=6&signal={int(sig)}&unless={tmp_path}/once", batch_size=2)
    with pytest.warns(stoker.EngineRestarted, match=rf"signal {int(sig)} \({sig.name}\).*another engine") as caught:
        seen = [batch.index.tolist() for batch in loader]
    assert [w.filename for w in caught] == [__file__]
    assert seen == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert rows(loader)[0] == [1, 2]
    assert loader.stats()["restarts"] == 1


def test_engine_that_ends_again_while_it_starts(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on, and the next loop begins at the next epoch."""
    loader = make(f"fake:len=12&die_at=6&unless={tmp_path}/once", batch_size=2)
    epochs = loader._epochs
    connect = epochs.connect

    def connect_and_kill() -> None:
        monkeypatch.setattr(epochs, "connect", connect)
        connect()
        process = epochs.live()._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(60) is not None

    monkeypatch.setattr(epochs, "connect", connect_and_kill)
    with pytest.warns(stoker.EngineRestarted):
        assert rows(loader) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert rows(loader)[0] == [1, 2]
    assert loader.stats()["restarts"] == 2


def test_restart_as_an_error(make: Make, tmp_path: Path) -> None:
    loader = make(f"fake:len=12&die_at=6&unless={tmp_path}/once", batch_size=2)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(stoker.EngineRestarted):
            for batch in loader:
                seen.append(batch.index.tolist())
    assert seen == [[0, 1], [2, 3], [4, 5]]
    assert loader.state_dict()["position"] == 6
    assert rows(loader) == [[6, 7], [8, 9], [10, 11]]


def test_engine_that_always_dies(make: Make) -> None:
    loader = make("fake:len=12&die_at=6", batch_size=2)
    seen = []
    with (
        pytest.warns(stoker.EngineRestarted),
        pytest.raises(stoker.EngineDied, match=r"5 times within 60 s[\s\S]*s ago: [\s\S]*something is wrong") as caught,
    ):
        for batch in loader:
            seen.append(batch.index.tolist())
    assert str(caught.value).count("s ago: the engine (process") == 5
    assert caught.value.returncode == -signal.SIGSEGV
    assert "something is wrong" in caught.value.log
    assert seen == [[0, 1], [2, 3], [4, 5]]
    assert loader.state_dict()["position"] == 6


def test_engine_killed_while_waiting(make: Make, tmp_path: Path) -> None:
    loader = make(f"fake:len=4&stuck_at=2&unless={tmp_path}/once", batch_size=2)
    it = iter(loader)
    batch = next(it)
    timer = threading.Timer(0.2, os.kill, (loader.info["pid"], signal.SIGKILL))
    timer.start()
    with pytest.warns(stoker.EngineRestarted):  # and not a timeout
        assert next(it).index.tolist() == [2, 3]
    timer.join()
    assert batch.index.tolist() == [0, 1], "what was delivered stays"


def test_engine_dies_while_opening(make: Make, tmp_path: Path) -> None:
    with pytest.warns(stoker.EngineRestarted, match="exit code 2"):
        loader = make(f"fake:len=4&die_open=1&unless={tmp_path}/once", batch_size=2)
    assert rows(loader) == [[0, 1], [2, 3]]
    with (
        pytest.warns(stoker.EngineRestarted),
        pytest.raises(stoker.EngineDied, match=r"exit code 2[\s\S]*panic: cannot open") as caught,
    ):
        make("fake:die_open=1")
    assert caught.value.log.startswith("panic: cannot open")


def test_stopped_engine(make: Make) -> None:
    loader = make("fake:stuck_at=2", batch_size=2)
    it = iter(loader)
    next(it)
    pid = loader.info["pid"]
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    loader.timeout = 0.3
    text = rf"no batch within 0.3 s; the engine \(process {pid}\) is stopped .*\nhint: kill -CONT {pid}$"
    try:
        with pytest.raises(stoker.StokerTimeout, match=text) as caught:
            next(it)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "is stopped" in caught.value.waiting


def test_timeout(make: Make) -> None:
    loader = make("fake:stuck_at=2", batch_size=2)
    it = iter(loader)
    next(it)
    loader.timeout = 0.3  # opening takes as long as it takes
    with pytest.raises(stoker.StokerTimeout, match=r"no batch within 0.3 s.*reading x.arrow for 3 s") as caught:
        next(it)
    assert caught.value.waiting == "fetch: reading x.arrow for 3 s"
    assert isinstance(caught.value, TimeoutError)
    # The next `for` asks for the same batch again.
    with pytest.raises(stoker.StokerTimeout):
        next(iter(loader))
    assert loader.state_dict()["position"] == 2


@pytest.mark.usefixtures("impatient")
def test_timeout_while_opening(make: Make) -> None:
    with pytest.raises(stoker.StokerTimeout, match="did not open"):
        make("fake:hang_open=1", limits=stoker.Limits(timeout=0.3))
    wait_for(lambda: not children(os.getpid()))


def test_garbage(make: Make) -> None:
    loader = make("fake:garbage_at=2", batch_size=2)
    it = iter(loader)
    next(it)
    with pytest.raises(stoker.StokerError, match=r"version 97 of the protocol, .* version 3: upgrade this package \("):
        next(it)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("rows_said=3", r"BATCH of 3 rows; batch_size is 2\)"),
        ("rows_said=4294967295", "BATCH of 4294967295 rows"),
        ("skipped=-5", "EPOCH_END with -5 records"),
        ("info_size=4294967295", "a description of 4294967295 bytes"),
        ("slot_bytes=65537", "slots of 65537 bytes, 65536 apart"),
        ("slot_bytes=8200", r"'image' with 2 rows of \[2, 4, 3\] uint8, for which a slot of 8200 bytes has no room"),
    ],
)
def test_counts_that_the_engine_may_not_send(make: Make, what: str, error: str) -> None:
    with pytest.raises(stoker.StokerError, match=error + r"[\s\S]*same version"):
        list(make(f"fake:len=2&{what}", batch_size=2))


def test_ragged_rows_beyond_their_room() -> None:
    described = {"name": "t", "kind": "tokens", "dtype": "int32", "shape": [], "ragged": True}
    described |= {"offset": 64, "capacity": 8, "offsets": 0}
    spec = _batch.ArraySpec(described)
    spec.check(1, 72)
    with pytest.raises(stoker.StokerError, match="no room"):
        spec.check(8, 71)
    slot = np.zeros(80, np.uint8)
    views = _batch.numpy_views([spec])
    slot.view("<i8")[1] = 2
    assert len(views(slot, 1)["t"][0]) == 2
    for n in (3, -1, 1 << 62):
        slot.view("<i8")[1] = n
        with pytest.raises(stoker.StokerError, match=f"1 rows of 't' have {n} elements"):
            views(slot, 1)


def test_answers_that_nobody_asked_for(make: Make) -> None:
    loader = make("fake:", batch_size=2)
    for _ in range(5):
        assert loader.stats()["engine"]
    assert not loader._epochs.connection._stats


def test_no_binary(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STOKER_BINARY", str(tmp_path / "none"))
    with pytest.raises(stoker.EngineNotFound, match="STOKER_BINARY is set to"):
        make("fake:")
    monkeypatch.delenv("STOKER_BINARY")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "stoker").write_text("#!/usr/bin/python\n")
    (tmp_path / "stoker").chmod(0o755)
    monkeypatch.setattr("stoker._binary._HERE", tmp_path / "a" / "b" / "c")
    with pytest.raises(stoker.EngineNotFound, match=r"searched:\n  .*/a/b/c/bin/stoker\n  stoker on the PATH"):
        make("fake:")


def test_binary_that_cannot_run(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/nowhere/sh\n")
    broken.chmod(0o755)
    monkeypatch.setenv("STOKER_BINARY", str(broken))
    with pytest.raises(stoker.StokerError, match="could not be started"):
        make("fake:")
