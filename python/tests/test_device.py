"""Batches on a device, which is a fake one that holds the loader to the rules of real ones."""

from __future__ import annotations

import gc
import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_device import Fake

import stoker
from stoker import transforms as T
from support import CHECKOUT

torch = pytest.importorskip("torch")
Make = Callable[..., stoker.Loader]


OPS = {"image": [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, stoker.Strings):
        return list(a) == list(b)
    if isinstance(a, stoker.Ragged):
        return torch.equal(a.values, b.values) and torch.equal(a.offsets, b.offsets)
    return bool(torch.equal(a, b))


@pytest.mark.parametrize("layout", ["NCHW", "channels_last"])
def test_batches_are_those_of_the_host(make: Make, photos: Path, fake_device: Fake, layout: str) -> None:
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3}
    options["transforms"] = {"image": stoker.Field("image", OPS["image"], layout=layout)}
    want = [[b.copy() for b in make(photos, output="torch", **options)] for _ in range(2)]
    loader = make(photos, device="cuda", limits=stoker.Limits(prefetch=3), **options)
    fake_device.watch(lambda: loader._epochs.connection)
    assert loader.output == "torch"
    assert list(fake_device.pinned.values()) == [loader._epochs.connection.ring()[0]]
    for epoch in range(2):
        got = []
        for batch in loader:
            assert {id(v) for n, v in batch.items() if n != "index"} <= fake_device.owned
            assert batch.image.stride() == want[0][len(got)].image.stride()
            assert batch.repeated.tolist() == [False] * len(batch)
            got.append(batch.copy())
        if epoch == 0:
            assert len(got) == len(want[0]) == len(loader)
            assert all(same(a[k], b[k]) for a, b in zip(got, want[0], strict=True) for k in a.keys())  # noqa: SIM118
    assert fake_device.most_flying <= 2
    loader.close()
    assert not fake_device.pinned
    assert not fake_device.copies


def test_slots_go_back(make: Make, photos: Path, fake_device: Fake) -> None:
    """Also if the ring has no more slots than the copies in flight may hold."""
    loader = make(photos, 8, device="cuda", limits=stoker.Limits(prefetch=2), transforms=OPS)
    fake_device.watch(lambda: loader._epochs.connection)
    kept = list(loader)  # of which none holds a slot
    assert len({tuple(b.index.tolist()) for b in kept}) == len(loader)
    plain = make(photos, 8, output="torch", transforms=OPS)
    assert all(torch.equal(a.image, b.image) for a, b in zip(kept, plain, strict=True))


def test_state_is_that_of_the_loop(make: Make, photos: Path, fake_device: Fake) -> None:
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 1, "transforms": OPS}
    whole = [b.index.tolist() for b in make(photos, device="cuda", **options)]
    for stop in (1, 2, len(whole) - 1, len(whole)):
        loader = make(photos, device="cuda", **options)
        it = iter(loader)
        got = [next(it).index.tolist() for _ in range(stop)]
        state = loader.state_dict()
        other = make(photos, device="cuda", **options)
        other.load_state_dict(state)
        rest = [b.index.tolist() for b in other] if stop < len(whole) else []
        assert got + rest == whole
        loader.close()
        other.close()


def test_break_then_next_epoch(make: Make, photos: Path, fake_device: Fake) -> None:
    loader = make(photos, 8, device="cuda", shuffle=True, transforms=OPS)
    plain = make(photos, 8, output="torch", shuffle=True, transforms=OPS)
    for batch in loader:
        assert batch.epoch == 0
        break
    next(iter(plain))
    assert [b.index.tolist() for b in loader] == [b.index.tolist() for b in plain]
    assert loader.epoch == 2


def test_another_loop_ends_this_one(make: Make, photos: Path, fake_device: Fake) -> None:
    loader = make(photos, 8, device="cuda", transforms=OPS)
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    with pytest.raises(stoker.StokerError, match="another `for` over this loader has begun"):
        next(first)


def test_ragged_and_texts(make: Make, tmp_path: Path, fake_device: Fake) -> None:
    lines = [f'{{"text": "t{i}", "tokens": {list(range(i % 5))}, "x": {i}}}\n' for i in range(20)]
    (tmp_path / "x.jsonl").write_text("".join(lines))
    url = f"{tmp_path / 'x.jsonl'}?text:text&tokens:ragged&x:int"
    for batch in make(url, 6, device="cuda"):
        for k, i in enumerate(batch.index.tolist()):
            assert batch.text[k] == f"t{i}"
            assert batch.tokens[k].tolist() == list(range(i % 5))
            assert int(batch.x[k]) == i


def test_limit_of_locked_memory(make: Make, photos: Path, fake_device: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "LIMIT", 200_000)
    with pytest.warns(RuntimeWarning, match=r"[1-9] of \d+ slots of the ring could be registered .*ulimit -l"):
        loader = make(photos, 16, device="cuda", limits=stoker.Limits(prefetch=6), transforms=OPS)
    stride = loader._epochs.connection.stride
    assert 0 < sum(fake_device.pinned.values()) <= 200_000 < stride * 6
    assert sum(len(b) for b in loader) == loader.num_records


def test_failure_comes_after_what_was_made(make: Make, photos: Path, fake_device: Fake, tmp_path: Path) -> None:
    plain = make(photos, 8, output="torch", transforms=OPS)
    first = next(iter(plain)).index.tolist()
    loader = make(
        photos, 8, device="cuda", transforms=OPS, limits=stoker.Limits(prefetch=3)
    )  # so that not all are made by then
    it = iter(loader)
    assert next(it).index.tolist() == first
    os.kill(loader._epochs.connection._process.pid, signal.SIGKILL)
    with pytest.warns(stoker.EngineRestarted):
        assert 1 + sum(1 for _ in it) == len(loader)


def test_forgotten_loader_unpins(photos: Path, fake_device: Fake) -> None:
    loader = stoker.Loader(photos, 8, device="cuda", transforms=OPS)
    next(iter(loader))
    del loader
    gc.collect()
    assert not fake_device.pinned


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("cuda", "sees no CUDA device"),
        ("mps", 'it is "cuda" or the CPU'),
        ("nonsense", "nonsense"),
        (3.5, "3.5"),
    ],
)
def test_devices_that_are_not_there(make: Make, photos: Path, device: Any, says: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(stoker.ConfigError, match=says):
        make(photos, 8, device=device)


def test_cpu_is_where_batches_are(make: Make, photos: Path) -> None:
    batch = next(iter(make(photos, 8, device="cpu", transforms=OPS)))
    assert batch.image.device.type == "cpu"
    assert isinstance(batch.image.numpy(), np.ndarray)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_real_device(make: Make, photos: Path) -> None:
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3, "transforms": OPS}
    want = [b.copy() for b in make(photos, output="torch", **options)]
    loader = make(photos, device="cuda", **options)
    got = []
    for batch in loader:
        assert batch.image.is_cuda
        got.append(batch.image.cpu())
    assert all(torch.equal(a, b.image) for a, b in zip(got, want, strict=True))


def test_bench_copies_by_this_path(photos: Path, make: Make, fake_device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path that `make bench SUITES=gpu` measures."""
    if not (CHECKOUT / "bench" / "gpu.py").is_file():
        pytest.skip("bench is not in this tree")
    monkeypatch.syspath_prepend(str(CHECKOUT))
    held_batches = importlib.import_module("bench.gpu").held_batches
    batches = held_batches(
        make(photos, 8, output="torch", limits=stoker.Limits(prefetch=4), transforms=OPS), fake_device
    )
    got = []
    for _ in range(9):
        (image,) = next(batches)
        got.append(image.clone())
    batches.close()
    assert not fake_device.pinned
    assert torch.equal(got[0], got[3]) and not torch.equal(got[0], got[1])
