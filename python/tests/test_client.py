"""The loader against an engine that does what these tests want."""

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
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stoker
from conftest import SOURCE, alive, children, open_files
from stoker import _batch, _connection, _loader

pytestmark = pytest.mark.usefixtures("fake")
Make = Callable[..., stoker.Loader]
SLEEP = 0.05


def rows(loader: stoker.Loader) -> list[list[int]]:
    return [batch.index.tolist() for batch in loader]


def wait_for(what: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)


# --- connecting ------------------------------------------------------------


def test_an_engine_that_is_about_to_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "engine.sock"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Each pause between tries is one step of an engine that starts: no socket, one that does not
    # listen yet, one that does.
    steps = [lambda: server.bind(str(path)), server.listen]
    monkeypatch.setattr("stoker._connection.time.sleep", lambda _: steps.pop(0)())
    with server, _connection.connect(str(path)):
        assert not steps


def test_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker._connection._START_GRACE", 0)
    path = tmp_path / "engine.sock"
    hint = rf"{path}: No such file or directory\nhint: start one with: stoker serve --socket {path}"
    loader = stoker.Loader.__new__(stoker.Loader)
    assert repr(loader) == "Loader(not open)"
    with pytest.raises(stoker.StokerError, match=hint):
        loader.__init__("fake:", 8, socket=path)  # type: ignore[misc]
    assert repr(loader) == "Loader(not open)"  # as a traceback with local variables shows it


def test_a_loader_opens_one_engine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    opened = []
    engine = _loader.EngineProcess
    monkeypatch.setattr(_loader, "EngineProcess", lambda binary: opened.append(binary) or engine(binary))
    make("fake:", batch_size=2, output="torch")  # NCHW, and no fields to say it of
    assert len(opened) == 1


# --- batches ---------------------------------------------------------------


def test_batch_access(make: Make) -> None:
    loader = make("fake:len=20", batch_size=8, fields={"image": [stoker.CenterCrop(4)]})
    batch = next(iter(loader))
    assert batch["image"] is batch.image
    images, labels = batch
    assert images is batch.image
    assert labels is batch.label
    assert batch[0] is images
    assert batch[-1] is labels
    assert len(batch) == 2
    assert batch.keys() == ["image", "label", "index"]
    assert dict(**batch).keys() == {"image", "label", "index"}
    assert "index" in batch
    assert images.shape == (8, 2, 4, 3)
    assert images.dtype == np.uint8
    assert images.flags.writeable
    assert images.flags.c_contiguous
    assert batch.index.dtype == np.int64
    assert (images[:, 0, 0, 0] == batch.index).all()
    assert (batch.epoch, batch.step, batch.rows) == (0, 0, 8)
    assert repr(batch) == "Batch(epoch=0, step=0, image: uint8[8, 2, 4, 3], label: int64[8], index: int64[8])"
    with pytest.raises(KeyError, match="did you mean 'image'"):
        batch["imgae"]
    with pytest.raises(AttributeError, match="did you mean 'label'"):
        batch.lable  # noqa: B018
    again = pickle.loads(pickle.dumps(batch))
    assert (again.image == images).all()


def test_arrays_are_views_of_the_ring(make: Make) -> None:
    loader = make("fake:slots=2", batch_size=8)
    batch = next(iter(loader))
    assert not batch.image.flags.owndata
    own = batch.copy()
    assert own.image.flags.owndata
    assert (own.image == batch.image).all()


def test_order_without_fields_is_the_engines(make: Make) -> None:
    labels, images = next(iter(make("fake:", batch_size=2)))
    assert labels.dtype == np.int64
    assert images.ndim == 4


def test_short_last_batch(make: Make) -> None:
    assert [b.rows for b in make("fake:len=20", batch_size=8)] == [8, 8, 4]


def test_slot_returns_with_the_last_view(make: Make) -> None:
    loader = make("fake:len=100&slots=2", batch_size=1)
    it = iter(loader)
    batch = next(it)
    view = batch.image[0, ::2].T[1:]
    del batch
    assert loader.stats()["held"] == 1
    first = view.copy()
    for _ in range(50):  # with the other slot alone
        next(it)
    assert (view == first).all()
    del view
    assert loader.stats()["held"] == 0


def test_all_slots_held(make: Make) -> None:
    loader = make("fake:len=100&slots=3", batch_size=1)
    it = iter(loader)
    held = [next(it) for _ in range(3)]
    with pytest.raises(stoker.BatchesHeld, match=r"all 3 batches[\s\S]*copy\(\)[\s\S]*prefetch"):
        next(it)
    held.pop()
    assert next(it).index.tolist() == [3]


def test_slots_held_by_garbage_come_back(make: Make) -> None:
    loader = make("fake:len=20&slots=3", batch_size=1)
    gc.disable()
    try:
        for batch in loader:
            cycle: list[object] = [batch]
            cycle.append(cycle)
            del batch
    finally:
        gc.enable()


def test_slots_held_by_another_thread_come_back(make: Make) -> None:
    loader = make("fake:len=100&slots=2", batch_size=1)
    it = iter(loader)
    held = [next(it), next(it)]
    timer = threading.Timer(0.3, held.clear)
    timer.start()
    assert next(it).index.tolist() == [2]
    timer.join()


def test_numpy_has_no_bfloat16(make: Make) -> None:
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        with pytest.raises(stoker.ConfigError, match='output="torch"'):
            make("fake:dtype=bfloat16", batch_size=2)


def test_torch(make: Make) -> None:
    torch = pytest.importorskip("torch")
    loader = make("fake:slots=3&len=60", batch_size=2, output="torch", layout="NHWC")
    batch = next(iter(loader))
    assert batch.image.dtype == torch.uint8
    assert batch.image.shape == (2, 2, 4, 3)
    assert batch.index.dtype == torch.int64
    assert batch.image.numpy().base is not None, "a copy"
    kept = batch.image[1:].permute(0, 3, 1, 2)
    before = kept.clone()
    del batch
    assert loader.stats()["held"] == 1
    for _ in loader:
        del _
    assert torch.equal(kept, before)
    del kept
    assert loader.stats()["held"] == 0
    assert repr(next(iter(loader))).startswith("Batch(epoch=2, step=0, label: int64[2], image: uint8[2, 2, 4, 3]")


def test_torch_bfloat16_and_channels_last(make: Make) -> None:
    torch = pytest.importorskip("torch")
    batch = next(iter(make("fake:dtype=bfloat16", batch_size=3, output="torch", layout="channels_last")))
    assert batch.image.dtype == torch.bfloat16
    assert batch.image.shape == (3, 3, 2, 4)
    assert batch.image.is_contiguous(memory_format=torch.channels_last)
    assert (batch.image == 1).all()
    own = batch.copy()
    assert own.image.data_ptr() != batch.image.data_ptr()


# --- epochs and state ------------------------------------------------------


def test_epochs_advance(make: Make) -> None:
    loader = make("fake:len=4", batch_size=2)
    assert len(loader) == 2
    assert rows(loader) == [[0, 1], [2, 3]]
    assert rows(loader) == [[1, 2], [3, 0]]
    assert loader.epoch == 2
    loader.set_epoch(0)
    assert rows(loader) == [[0, 1], [2, 3]]
    assert loader.stats()["engine"]["gen"] == 2, "the stream went on over the first epoch boundary by itself"


@pytest.mark.parametrize("after", [0, 1, 2])
def test_break_then_next_epoch(make: Make, after: int) -> None:
    loader = make("fake:len=6", batch_size=2)
    it = iter(loader)
    for _ in range(after + 1):
        next(it)
    assert rows(loader) == [[1, 2], [3, 4], [5, 0]]
    assert rows(loader) == [[2, 3], [4, 5], [0, 1]]


def test_iterator_ends_once(make: Make) -> None:
    it = iter(make("fake:len=2", batch_size=2))
    next(it)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(it)


def test_two_loops_at_once_are_refused(make: Make) -> None:
    loader = make("fake:len=6", batch_size=2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    with pytest.raises(stoker.StokerError, match="one loop at a time"):
        next(first)
    assert next(second).epoch == 1


def test_empty_epoch(make: Make) -> None:
    loader = make("fake:steps=0", batch_size=2)
    assert rows(loader) == []


def test_state_counts_what_was_delivered(make: Make) -> None:
    loader = make("fake:len=40&slots=8", batch_size=2, seed=3)
    assert loader.state_dict()["position"] == 0
    it = iter(loader)
    for _ in range(3):
        next(it)
    time.sleep(SLEEP)  # the engine is ahead by now
    state = loader.state_dict()
    assert (state["epoch"], state["position"], state["seed"]) == (0, 6, 3)
    text = json.dumps(state)
    assert len(text) < 400
    rest = rows_of(it)
    other = make("fake:len=40&slots=2", batch_size=2, seed=3)
    other.load_state_dict(json.loads(text))
    assert other.state_dict() == state
    assert rows(other) == rest
    assert rows(other)[0] == [1, 2], "then the next epoch"


def rows_of(it: object) -> list[list[int]]:
    return [b.index.tolist() for b in it]  # type: ignore[attr-defined]


def test_state_with_another_batch_size(make: Make) -> None:
    loader = make("fake:len=12", batch_size=4)
    next(iter(loader))
    other = make("fake:len=12", batch_size=2)
    other.load_state_dict(loader.state_dict())
    assert rows(other) == [[4, 5], [6, 7], [8, 9], [10, 11]]


def test_state_at_the_end_of_an_epoch(make: Make) -> None:
    loader = make("fake:len=4", batch_size=2)
    it = iter(loader)
    next(it)
    next(it)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)
    loader.load_state_dict(state)
    with pytest.raises(stoker.StokerError, match="state was loaded"):
        next(it)
    assert rows(loader)[0] == [1, 2]


def test_set_epoch_after_loading_a_state_keeps_the_position(make: Make) -> None:
    loader = make("fake:len=6", batch_size=2)
    state = {**loader.state_dict(), "epoch": 5, "position": 4}
    loader.load_state_dict(state)
    loader.set_epoch(5)
    assert rows(loader) == [[3, 4]]
    loader.load_state_dict(state)
    loader.set_epoch(6)
    assert len(rows(loader)) == 3


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"seed": 1}, "seed=1"),
        ({"records": 7}, "7 records"),
        ({"fingerprint": "beef"}, "fingerprint beef"),
        ({"version": 2}, "version 2"),
        ({"shuffle": True}, "shuffle=True"),
        ({"position": -1}, "position is -1"),
        ({"epoch": "one"}, "epoch is 'one'"),
        ({"seed": None}, "seed is None"),
    ],
)
def test_state_of_something_else(make: Make, change: dict, error: str) -> None:
    loader = make("fake:len=6", batch_size=2)
    with pytest.raises(stoker.StateMismatch, match=error):
        loader.load_state_dict({**loader.state_dict(), **change})
    with pytest.raises(stoker.StateMismatch, match="lacks"):
        loader.load_state_dict({"epoch": 1})
    assert len(rows(loader)) == 3


# --- configuration ---------------------------------------------------------


def test_config_reaches_the_engine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    loader = make(
        "fake:",
        batch_size=2,
        seed=2**63,
        memory="1.5GiB",
        num_workers=3,
        prefetch=5,
        lookahead="256MiB",
        cache=False,
        cache_dir="/some/where",
        cache_limit="5GB",
        on_error="skip",
        layout="NCHW",
        drop_last=True,
        shuffle=True,
        fields={"image": stoker.RandomResizedCrop(224), "b": stoker.Field("image", [stoker.Resize(8)], layout="NHWC")},
    )
    config = loader.info["config"]
    assert config.pop("outputs") == [
        {
            "name": "image",
            "field": "image",
            "layout": "NCHW",
            "ops": [
                {
                    "op": "RandomResizedCrop",
                    "size": [224, 224],
                    "scale": [0.08, 1.0],
                    "ratio": [0.75, 4 / 3],
                    "interpolation": "bilinear",
                    "antialias": True,
                }
            ],
        },
        {
            "name": "b",
            "field": "image",
            "layout": "NHWC",
            "ops": [{"op": "Resize", "size": 8, "interpolation": "bilinear", "max_size": None, "antialias": True}],
        },
    ]
    assert config == {
        "source": "fake:",
        "batch_size": 2,
        "shuffle": True,
        "seed": 2**63,
        "drop_last": True,
        "uneven": "exact",
        "rank": 1,
        "world_size": 4,
        "local_world_size": 0,
        "threads": 3,
        "memory": 3 << 29,
        "prefetch": 5,
        "lookahead": 1 << 28,
        "on_error": "skip",
        "cache": "off",
        "cache_dir": "/some/where",
        "cache_limit": 5_000_000_000,
        "layout": "NCHW",
        "fields": [],
        "batch_ops": [],
        "apply_orientation": False,
        "sequence": None,
        "view": {},
        "pad": {},
        "bucket": None,
    }
    assert next(iter(loader)).keys() == ["image", "b", "label", "index"]
    assert "rank=1, world_size=4" in repr(loader)


def test_large_config(make: Make) -> None:
    fields = {f"view{i}": stoker.Field("image", [stoker.RandomResizedCrop(96)] * 20) for i in range(30)}
    loader = make("fake:", batch_size=2, fields=fields)
    assert len(loader.info["config"]["outputs"]) == 30


def test_python_without_memfd_and_pidfd(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As conda builds it."""
    before = open_files()
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.delattr(os, "pidfd_open")
    fields = {f"view{i}": stoker.Field("image", [stoker.RandomResizedCrop(96)] * 20) for i in range(30)}
    loader = make("fake:len=6&die_at=4", batch_size=2, fields=fields)
    with pytest.raises(stoker.EngineDied, match="something is wrong"):
        rows(loader)
    loader.close()
    gc.collect()  # the exception holds the frame that holds the last batch
    assert open_files() == before


def test_paths_become_absolute(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make("train/", batch_size=2).info["config"]["source"] == str(tmp_path / "train")
    assert make(Path("x"), batch_size=2).source == str(tmp_path / "x")
    assert make("file:///data", batch_size=2).source == "file:///data"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batchsize": 2}, "did you mean 'batch_size'"),
        ({"pin_memory": True}, "shared memory"),
        ({"prefetch_factor": 2}, "use prefetch="),
        ({"wibble": 2}, "there are: apply_orientation, batch_size"),
    ],
)
def test_unknown_arguments(make: Make, arguments: dict, error: str) -> None:
    with pytest.raises(TypeError, match=error) as caught:
        make("fake:", **arguments)
    assert isinstance(caught.value, stoker.StokerError)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.5}, "whole number"),
        ({"batch_size": True}, "whole number"),
        ({"seed": -1}, "seed=-1"),
        ({"memory": "2 parsecs"}, "units are B, KB"),
        ({"memory": 0}, "memory=0"),
        ({"prefetch": 0}, "prefetch=0"),
        ({"threads": "all"}, "threads"),
        ({"on_error": "skp"}, "did you mean 'skip'"),
        ({"output": "jax"}, "numpy, torch"),
        ({"layout": "NWHC"}, "did you mean 'NHWC'"),
        ({"layout": "channels_last"}, 'output="torch"'),
        ({"timeout": 0}, "seconds"),
        ({"rank": 1}, "world_size="),
        ({"rank": 2, "world_size": 2}, "rank=2"),
        ({"fields": {"image": [stoker.Resize]}}, r"write Resize\(...\)"),
        ({"fields": {"image": [lambda x: x]}}, "not a stoker transform"),
        ({"fields": {"image": 5}}, "list of transforms"),
        ({"fields": {"index": []}}, "record numbers"),
        ({"fields": "image"}, "dict such as"),
        ({"socket": "/nowhere/s"}, "stoker serve --socket /nowhere/s"),
    ],
)
def test_wrong_arguments(make: Make, arguments: dict, error: str) -> None:
    with pytest.raises(stoker.StokerError, match=error):
        make("fake:", **arguments)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"RANK": "3"}, (0, 1)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (1, 2)),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, (1, 4)),
        # The batch script itself, which is one process.
        ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (1, 2)),
    ],
)
def test_rank_from_the_environment(env: dict, expected: tuple[int, int]) -> None:
    from stoker._distributed import rank_and_world

    assert rank_and_world(None, None, env) == expected
    assert rank_and_world(5, 6, env) == (5, 6)


@pytest.mark.parametrize(("env", "expected"), [({}, 0), ({"LOCAL_WORLD_SIZE": "8"}, 8), ({"LOCAL_WORLD_SIZE": "x"}, 0)])
def test_local_world_size(env: dict[str, str], expected: int) -> None:
    from stoker._distributed import local_world_size

    assert local_world_size(env) == expected


def test_source_refused(make: Make) -> None:
    with pytest.raises(stoker.ConfigError, match=r"no such folder: /x\nhint: make it"):
        make("fake:refuse=1")
    wait_for(lambda: not children(os.getpid()))


# --- failures --------------------------------------------------------------


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
        lambda: stoker.Resize(siz=3),
        lambda: stoker.Resize("big"),
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
        rows(loader)
    assert caught[0].filename == __file__
    assert loader.stats()["skipped"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(stoker.SkippedRecords):
            rows(loader)
    with pytest.warns(stoker.SkippedRecords):
        assert rows(loader) == [[2, 3], [0, 1]]


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_engine_dies(make: Make, tmp_path: Path, sig: signal.Signals) -> None:
    loader = make(f"fake:len=12&die_at=6&signal={int(sig)}&unless={tmp_path}/once", batch_size=2)
    seen = []
    with pytest.raises(
        stoker.EngineDied, match=rf"signal {int(sig)} \({sig.name}\)[\s\S]*something is wrong"
    ) as caught:
        for batch in loader:
            seen.append(batch.index.tolist())
    assert caught.value.returncode == -sig
    assert "something is wrong" in caught.value.log
    assert seen == [[0, 1], [2, 3], [4, 5]]
    state = loader.state_dict()
    # The next `for` starts a new engine and goes on.
    assert rows(loader) == [[6, 7], [8, 9], [10, 11]]
    assert rows(loader)[0] == [1, 2]
    assert state["position"] == 6


def test_engine_killed_while_waiting(make: Make) -> None:
    loader = make("fake:stuck_at=2", batch_size=2)
    it = iter(loader)
    batch = next(it)
    timer = threading.Timer(0.2, os.kill, (loader.info["pid"], signal.SIGKILL))
    timer.start()
    with pytest.raises(stoker.EngineDied):  # and not a timeout
        next(it)
    timer.join()
    assert batch.index.tolist() == [0, 1], "what was delivered stays"


def test_engine_dies_while_opening(make: Make) -> None:
    with pytest.raises(stoker.EngineDied, match=r"exit code 2[\s\S]*panic: cannot open") as caught:
        make("fake:die_open=1")
    assert caught.value.log.startswith("panic: cannot open")


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


def test_timeout_while_opening(make: Make) -> None:
    with pytest.raises(stoker.StokerTimeout, match="did not open"):
        make("fake:hang_open=1", timeout=0.3)
    wait_for(lambda: not children(os.getpid()))


def test_garbage(make: Make) -> None:
    loader = make("fake:garbage_at=2", batch_size=2)
    it = iter(loader)
    next(it)
    with pytest.raises(stoker.StokerError, match="same version"):
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
    assert not loader._connection._stats


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


# --- signals, threads, forks, the end --------------------------------------


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


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_at_any_moment_loses_nothing(make: Make) -> None:
    """KeyboardInterrupt out of the middle of anything: no slot and no batch is lost."""
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
    held = [next(it) for _ in range(3)]
    assert [b.step for b in held] == [500, 501, 502]
    # An interrupt while an engine was being started leaves it to the collector.
    gc.collect()


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
        # Whatever goes wrong in here must not run the rest of the tests a second time.
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
    # The parent's slot was not given back by the child, and its engine lives.
    assert loader.stats()["held"] == 1
    for _ in it:
        pass
    assert (batch.image == kept).all()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_engine_death_is_seen_in_spite_of_forked_children(make: Make) -> None:
    """A forked child that lives on holds copies of what was open; nobody waits for it."""
    loader = make("fake:stuck_at=2", batch_size=2)
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
        with pytest.raises(stoker.EngineDied):
            next(it)
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
    """Every line of a message is short enough to read and starts with what happened."""
    with pytest.raises(stoker.EngineDied) as caught:
        make("fake:die_open=1")
    first = str(caught.value).splitlines()[0]
    assert re.fullmatch(r"the engine \(process \d+\) ended with exit code 2", first)
