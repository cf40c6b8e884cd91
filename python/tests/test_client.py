"""The loader against a fake engine: connecting, and the contents of batches."""

from __future__ import annotations

import gc
import pickle
import socket
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import _connection, _node
from stoker import transforms as st

pytestmark = pytest.mark.usefixtures("fake")
Make = Callable[..., stoker.Loader]


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
    monkeypatch.setenv("STOKER_SOCKET", str(path))
    hint = rf"{path}: No such file or directory\nhint: start one with: stoker serve --socket {path}"
    loader = stoker.Loader.__new__(stoker.Loader)
    assert repr(loader) == "Loader(not open)"
    with pytest.raises(stoker.StokerError, match=hint):
        loader.__init__("fake:", 8)  # type: ignore[misc]
    assert repr(loader) == "Loader(not open)"  # as a traceback with local variables shows it


def test_a_loader_opens_one_engine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    opened = []
    engine = _node.EngineProcess
    monkeypatch.setattr(_node, "EngineProcess", lambda binary: opened.append(binary) or engine(binary))
    make("fake:", batch_size=2, output="torch")  # NCHW, and no fields to say it of
    assert len(opened) == 1


# --- batches ---------------------------------------------------------------


def test_batch_access(make: Make) -> None:
    loader = make("fake:len=20", batch_size=8, transforms={"image": [st.CenterCrop(4)]})
    batch = next(iter(loader))
    assert batch["image"] is batch.image
    images, labels = batch
    assert images is batch.image
    assert labels is batch.label
    assert batch[0] is images
    assert batch[-1] is labels
    assert len(batch) == 8
    assert batch.keys() == ["image", "label", "index"]
    assert dict(**batch).keys() == {"image", "label", "index"}
    assert "index" in batch
    assert images.shape == (8, 2, 4, 3)
    assert images.dtype == np.uint8
    assert images.flags.writeable
    assert images.flags.c_contiguous
    assert batch.index.dtype == np.int64
    assert (images[:, 0, 0, 0] == batch.index).all()
    assert (batch.epoch, batch.step, len(batch)) == (0, 0, 8)
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
    assert [len(b) for b in make("fake:len=20", batch_size=8)] == [8, 8, 4]


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


@pytest.mark.usefixtures("impatient")
def test_all_slots_held(make: Make) -> None:
    loader = make("fake:len=100&slots=2", batch_size=1)
    it = iter(loader)
    held = [next(it) for _ in range(2)]
    with pytest.raises(stoker.BatchesHeld, match=r"all 2 batches[\s\S]*copy\(\)[\s\S]*prefetch"):
        next(it)
    held.pop()
    assert next(it).index.tolist() == [2]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("slots", [3, 4, 8])
def test_who_keeps_all_batches_gets_copies(make: Make, slots: int) -> None:
    loader = make(f"fake:len=40&slots={slots}", batch_size=1)
    with pytest.warns(RuntimeWarning, match=rf"keeps {slots - 1} batches[\s\S]*hint: keep .copy") as warned:
        batches = list(loader)
    assert [b.index.tolist() for b in batches] == [[i] for i in range(40)]
    assert loader.stats()["held"] == slots - 1
    first = [b.image.copy() for b in batches]
    images = [b.image for b in loader]  # the slots are still held
    assert len(images) == 40
    for a, b in zip(first, batches, strict=True):
        assert (a == b.image).all()
    assert len([w for w in warned if "batches, for which" in str(w.message)]) == 1
    del batches, images
    gc.collect()
    for batch in loader:  # as before
        assert loader.stats()["held"] <= 2
        del batch


@pytest.mark.usefixtures("impatient")
def test_concatenating_all_batches(make: Make) -> None:
    loader = make("fake:len=40&slots=3", batch_size=4)
    with pytest.warns(RuntimeWarning, match="copies"):
        index = np.concatenate([b.index for b in loader])
    assert index.tolist() == list(range(40))


@pytest.mark.usefixtures("impatient")
def test_who_uses_a_few_batches_is_not_warned(make: Make) -> None:
    loader = make("fake:len=40&slots=4", batch_size=1)
    last: list[object] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in loader:
            last = [*last, batch][-2:]
            del batch


@pytest.mark.usefixtures("impatient")
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
    loader = make(
        "fake:slots=3&len=60", batch_size=2, output="torch", transforms={"image": stoker.Field("image", layout="NHWC")}
    )
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
    assert repr(next(iter(loader))).startswith("Batch(epoch=2, step=0, image: uint8[2, 2, 4, 3], label: int64[2]")


def test_torch_bfloat16_and_channels_last(make: Make) -> None:
    torch = pytest.importorskip("torch")
    last = {"image": stoker.Field("image", layout="channels_last")}
    batch = next(iter(make("fake:dtype=bfloat16", batch_size=3, output="torch", transforms=last)))
    assert batch.image.dtype == torch.bfloat16
    assert batch.image.shape == (3, 3, 2, 4)
    assert batch.image.is_contiguous(memory_format=torch.channels_last)
    assert (batch.image == 1).all()
    own = batch.copy()
    assert own.image.data_ptr() != batch.image.data_ptr()
