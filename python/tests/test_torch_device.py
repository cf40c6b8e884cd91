"""``stoker.torch.DataLoader(device=)``: the batches of a loader without it, on a device that holds it to the rules."""

from __future__ import annotations

import collections
import gc
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_device import Fake

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch.utils.data as tud  # noqa: E402
from torchvision import datasets, transforms  # noqa: E402

import stoker  # noqa: E402
from stoker.torch import DataLoader  # noqa: E402

Pair = collections.namedtuple("Pair", "image more")


class Numbers(tud.Dataset[Any]):
    """Tensors anywhere in mappings, lists and named tuples."""

    def __init__(self, n: int = 37) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        if i == self.n - 1 and self.n == 30:
            raise LookupError("the last one")
        image = torch.full((3, 4, 5), i, dtype=torch.uint8)
        return Pair(image, {"label": i % 4, "name": f"n{i}", "boxes": [torch.tensor([i, 1.5]), i * 2.0]})


class Stream(tud.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (torch.full((2, 3), float(i)) for i in range(23))


def folder(photos: Path) -> Any:
    parts = [transforms.RandomResizedCrop(24), transforms.PILToTensor()]
    return datasets.ImageFolder(str(photos), transforms.Compose(parts))


def leaves(data: Any) -> list[Any]:
    if isinstance(data, dict):
        return [x for v in data.values() for x in leaves(v)]
    return [x for v in data for x in leaves(v)] if isinstance(data, (list, tuple)) else [data]


def copied(data: Any) -> list[Any]:
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in leaves(data)]


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(a, b, strict=True)
    )


WAYS: dict[str, dict[str, Any]] = {
    "torch": {"num_workers": 0},
    "workers": {"num_workers": 2},
    "persistent": {"num_workers": 1, "persistent_workers": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_any_dataset(fake_device: Fake, way: str) -> None:
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, **WAYS[way]}
    plain, ours = (
        DataLoader(Numbers(), generator=torch.Generator().manual_seed(5), **options, **more)
        for more in ({}, {"device": "cuda"})
    )
    for _ in range(2):
        want, got = [copied(b) for b in plain], []
        for batch in ours:
            assert type(batch) is Pair and type(batch.more) is dict
            tensors = [x for x in leaves(batch) if isinstance(x, torch.Tensor)]
            assert {id(t) for t in tensors} <= fake_device.owned and len(tensors) == 4
            got.append(copied(batch))
        assert len(got) == len(want) and all(map(same, got, want))
    assert not fake_device.copies


@pytest.mark.parametrize("workers", [0, 2])
def test_engine(fake_device: Fake, photos: Path, workers: int) -> None:
    """Batches of the engine are copied out of its ring, which is registered."""
    data = folder(photos)
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "num_workers": workers}
    plain, ours = (
        DataLoader(data, generator=torch.Generator().manual_seed(5), **options, **more)
        for more in ({}, {"device": "cuda"})
    )
    fake_device.watch(lambda: connection(ours))
    for _ in range(2):
        want = [copied(b) for b in plain]
        got = [copied(b) for b in ours]
        assert all(map(same, got, want)) and len(got) == len(want)
    assert type(ours._stoker_path).__name__ == "EngineWay"
    assert list(fake_device.pinned.values()) == [connection(ours).ring()[0]]
    assert len(fake_device.staged) == 2 * len(got)  # the labels, which this process has made
    ours = None
    gc.collect()
    assert not fake_device.pinned


class Half:
    """A function that is not known: the engine runs the operations before it."""

    def __call__(self, image: Any) -> Any:
        return image.point(lambda value: value // 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_half_in_the_engine(fake_device: Fake, photos: Path, workers: int) -> None:
    parts = [transforms.Resize((24, 24)), Half(), transforms.ToTensor()]
    data = datasets.ImageFolder(str(photos), transforms.Compose(parts))
    plain, ours = (DataLoader(data, 16, num_workers=workers, **more) for more in ({}, {"device": "cuda"}))
    want, got = [copied(b) for b in plain], [copied(b) for b in ours]
    assert len(got) == len(want) and all(map(same, got, want))
    assert "split before" in ours.explain()


def connection(loader: Any) -> Any:
    plan = loader._stoker_path and loader._stoker_path.plan
    return plan._idle[0].connection if plan and plan._idle else None


def test_kept_batches_hold_no_slots(fake_device: Fake, photos: Path) -> None:
    loader = DataLoader(folder(photos), 8, device="cuda")
    kept = list(loader)
    assert sum(len(y) for _, y in kept) == 203
    assert torch.equal(torch.cat([y for _, y in kept]), torch.tensor(loader.dataset.targets))


def test_on_device(fake_device: Fake, photos: Path) -> None:
    of = stoker.OnDevice(mean=0.5, std=0.25, flip=0.5, mixup=0.3, num_classes=4)
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True}
    data = folder(photos)
    plain = DataLoader(data, generator=torch.Generator().manual_seed(5), **options)
    ours = DataLoader(data, generator=torch.Generator().manual_seed(5), device=of, **options)
    seen = set()
    for (x, y), (image, label) in zip(plain, ours, strict=True):
        assert image.shape == x.shape and image.dtype == torch.float32 and label.shape == (len(y), 4)
        row = int((y != y.roll(1)).nonzero()[0])  # whose share can be seen
        s = float(label[row, y[row]])
        seen.add(round(s, 4))
        hot = torch.nn.functional.one_hot(y, 4).float()
        assert torch.allclose(label, s * hot + (1 - s) * hot.roll(1, 0), atol=1e-6)
        # Mirroring changes no sum.
        sums = (x.float().sum((2, 3)) / 255 - 0.5 * 24 * 24) / 0.25
        assert torch.allclose(image.sum((2, 3)), s * sums + (1 - s) * sums.roll(1, 0), rtol=1e-4, atol=0.05)
    assert len(seen) > 3


def test_on_device_by_name(fake_device: Fake) -> None:
    data = [{"pixels": torch.full((1, 2, 2), i, dtype=torch.uint8), "x": torch.zeros(1, 2, 2)} for i in range(6)]
    loader = DataLoader(data, 3, device=stoker.OnDevice(images="pixels", scale=False))
    assert [b["pixels"][:, 0, 0, 0].tolist() for b in loader] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(stoker.ConfigError, match="has no tensor 'image'"):
        next(iter(DataLoader(data, 3, device=stoker.OnDevice(images="image"))))
    with pytest.raises(stoker.ConfigError, match="looks like images"):
        next(iter(DataLoader([1, 2], 2, device=stoker.OnDevice())))


def test_persistent_workers_flip_anew(fake_device: Fake) -> None:
    data = [torch.arange(8, dtype=torch.uint8).reshape(1, 1, 8) for _ in range(64)]
    options: dict[str, Any] = {"num_workers": 1, "persistent_workers": True}
    loader = DataLoader(data, 64, device=stoker.OnDevice(flip=0.5, scale=False), **options)
    first, second = (next(iter(loader))[:, 0, 0, 0] > 0 for _ in range(2))
    assert 10 < int(first.sum()) < 54 and (first != second).any()


@pytest.mark.parametrize("workers", [0, 2])
def test_states(fake_device: Fake, workers: int) -> None:
    """A state is that of the loop, although one more batch is on its way. Random numbers continue as well."""
    options: dict[str, Any] = {
        "batch_size": 4, "shuffle": True, "num_workers": workers,
        "device": stoker.OnDevice(flip=0.5, images=0, scale=False),
    }  # fmt: skip
    torch.manual_seed(3)
    loader = DataLoader(Numbers(), **options)
    whole, states = [], []
    for batch in loader:
        whole.append(copied(batch))
        states.append(loader.state_dict())
    for at in (1, 4, len(whole) - 1):
        other = DataLoader(Numbers(), **options)
        other.load_state_dict(states[at - 1])
        assert all(map(same, [copied(b) for b in other], whole[at:]))


def test_state_of_a_stream(fake_device: Fake) -> None:
    loader = DataLoader(Stream(), 4, device="cuda")
    it = iter(loader)
    first = [next(it)[:, 0, 0].tolist() for _ in range(2)]
    other = DataLoader(Stream(), 4, device="cuda")
    other.load_state_dict(loader.state_dict())
    assert first + [b[:, 0, 0].tolist() for b in other] == [b[:, 0, 0].tolist() for b in DataLoader(Stream(), 4)]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_comes_behind_what_was_made(fake_device: Fake, workers: int) -> None:
    seen = 0
    with pytest.raises(LookupError, match="the last one"):
        for _ in DataLoader(Numbers(30), 6, num_workers=workers, device="cuda"):
            seen += 1
    assert seen == 4


def test_break_and_begin_again(fake_device: Fake, photos: Path) -> None:
    loader = DataLoader(folder(photos), 16, num_workers=1, device="cuda")
    fake_device.watch(lambda: connection(loader))
    for _ in range(3):
        for _, y in loader:
            assert y.tolist() == loader.dataset.targets[:16]
            break
    assert sum(len(y) for _, y in loader) == 203


def test_nothing_is_made_before_it_is_asked_for_in_this_process(fake_device: Fake) -> None:
    made = []

    class Counts(Numbers):
        def __getitem__(self, i: int) -> Any:
            made.append(i)
            return i

    it = iter(DataLoader(Counts(), 2, device="cuda"))
    next(it)
    assert made == [0, 1]


def test_made_again(fake_device: Fake) -> None:
    """A loader can be made again from its signature and attributes, and by pickle."""
    theirs = inspect.signature(tud.DataLoader).parameters
    ours = inspect.signature(DataLoader).parameters
    assert [*ours] == [*theirs, "device", "cache"]
    assert all(ours[name] == theirs[name] for name in theirs)
    loader = DataLoader(Numbers(), 4, device="cuda")
    names = [n for n in ours if n in vars(loader) and n not in ("batch_sampler", "sampler")]
    again = DataLoader(**{n: getattr(loader, n) for n in names if getattr(loader, n) is not ours[n].default})
    assert again._stoker_target is not None
    assert pickle.loads(pickle.dumps(loader))._stoker_target is not None
    plain = DataLoader(Numbers(), 4)
    assert plain._stoker_target is None and not hasattr(plain, "device")


def test_accelerate(fake_device: Fake) -> None:
    accelerate = pytest.importorskip("accelerate")
    loader = accelerate.Accelerator(cpu=True).prepare(DataLoader(Numbers(), 4, device="cuda"))
    assert loader.base_dataloader._stoker_target is not None
    assert sum(len(b.image) for b in loader) == 37


def test_refused() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(stoker.ConfigError, match="sees no CUDA device"):
            DataLoader(Numbers(), device="cuda")
    with pytest.raises(stoker.ConfigError, match="set num_classes="):
        DataLoader(Numbers(), device=stoker.OnDevice(mixup=1, device="cpu"))
    of = stoker.OnDevice("float16", layout="channels_last", device="cpu")
    batch = next(iter(DataLoader(Numbers(), 4, device=of)))
    assert batch.image.dtype == torch.float16 and batch.image.is_contiguous(memory_format=torch.channels_last)
    assert DataLoader(Numbers(), device="cpu")._stoker_target is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("workers", [0, 2])
def test_on_a_real_device(photos: Path, workers: int) -> None:
    data = folder(photos)
    plain, ours = (
        DataLoader(data, 16, True, num_workers=workers, generator=torch.Generator().manual_seed(5), **more)
        for more in ({}, {"device": "cuda"})
    )
    for (x, y), (image, label) in zip(plain, ours, strict=True):
        assert image.is_cuda and torch.equal(image.cpu(), x) and torch.equal(label.cpu(), y)
