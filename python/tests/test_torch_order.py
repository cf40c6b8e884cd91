"""Order and random numbers of stoker.torch.DataLoader: samplers are read exactly when torch's loader reads them."""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.utils.data as tud  # noqa: E402

from stoker.torch import DataLoader  # noqa: E402

# Other tests may have started JAX in this process.
pytestmark = pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called")

RECORDS = 43
BATCH = 4


class Own(tud.Dataset[Any]):
    """An unknown dataset of images and their numbers."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return torch.zeros(3, 2, 2), i % RECORDS


def arrays(_: Any) -> Any:
    """Return images in memory, which the engine reads."""
    datasets = pytest.importorskip("torchvision.datasets")
    transforms = pytest.importorskip("torchvision.transforms")
    dataset = datasets.CIFAR10.__new__(datasets.CIFAR10)
    dataset.__dict__.update(
        root="", transform=transforms.ToTensor(), target_transform=None, transforms=None,
        data=np.zeros((RECORDS, 32, 32, 3), np.uint8), targets=list(range(RECORDS)),
    )  # fmt: skip
    return dataset


def files(tmp_path: Any) -> Any:
    """Return images whose first operations the engine runs, and Python the rest."""
    datasets = pytest.importorskip("torchvision.datasets")
    transforms = pytest.importorskip("torchvision.transforms")
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "a").mkdir()
    for i in range(RECORDS):
        image.new("RGB", (8, 8), (i, i, i)).save(tmp_path / "a" / f"{i:03d}.jpg")
    steps = [transforms.Resize((8, 8)), transforms.ToTensor(), functools.partial(torch.mul, other=2)]
    dataset = datasets.ImageFolder(str(tmp_path), transforms.Compose(steps))
    dataset.samples = [(path, i) for i, (path, _) in enumerate(dataset.samples)]
    return dataset


def table(_: Any) -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"number": list(range(RECORDS))}).with_format("torch")


class Lazy(tud.Sampler[int]):
    """Draws each record when it is asked for it."""

    def __init__(self, draw: Callable[[], int]) -> None:
        self.draw = draw

    def __iter__(self) -> Iterator[int]:
        for _ in range(RECORDS):
            yield self.draw()

    def __len__(self) -> int:
        return RECORDS


class Eager(Lazy):
    """Draws all records when it is iterated, and may be changed then."""

    def __iter__(self) -> Iterator[int]:
        self.order = [self.draw() for _ in range(RECORDS)]
        return iter(self.order)


class Skips(Lazy):
    """Reads a list and leaves some of it out."""

    def __iter__(self) -> Iterator[int]:
        for record in [self.draw() for _ in range(2 * RECORDS)]:
            if record % 3:
                yield record


class Batches(Lazy):
    """A batch sampler, of batches of several sizes."""

    def __iter__(self) -> Any:
        return iter([[self.draw() for _ in range(1 + size % 5)] for size in range(14)])


class Ends(Lazy):
    """Raises an error in the middle."""

    def __iter__(self) -> Iterator[int]:
        for i in range(RECORDS):
            if i == 6 * BATCH + 1:
                raise LookupError("no more records")
            yield self.draw()


def by(g: Any) -> Callable[[], int]:
    return lambda: int(torch.randint(RECORDS, (), generator=g))


def batched(sampler: Any, **more: Any) -> dict[str, Any]:
    return {"sampler": sampler, "batch_size": BATCH, **more}


NUMBERS = range(RECORDS)
WEIGHTS = [1.0 + i % 5 for i in NUMBERS]
SAMPLERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "shuffle": lambda _: {"shuffle": True, "batch_size": BATCH},
    "generator": lambda g: {"shuffle": True, "batch_size": BATCH, "generator": g},
    "default generator": lambda _: {"shuffle": True, "batch_size": BATCH, "generator": torch.default_generator},
    "sampler's generator": lambda g: batched(tud.RandomSampler(NUMBERS, generator=g)),
    "even": lambda g: batched(tud.RandomSampler(NUMBERS, num_samples=40, generator=g), drop_last=True),
    "several rounds": lambda g: batched(tud.RandomSampler(NUMBERS, num_samples=100, generator=g)),
    "replacement": lambda g: batched(tud.RandomSampler(NUMBERS, replacement=True, generator=g)),
    "replacement, global": lambda _: batched(tud.RandomSampler(NUMBERS, replacement=True, num_samples=90)),
    "replacement, default": lambda _: batched(
        tud.RandomSampler(NUMBERS, replacement=True, generator=torch.default_generator)
    ),
    "subset": lambda g: batched(tud.SubsetRandomSampler(list(NUMBERS)[::-1], generator=g)),
    "weighted": lambda g: batched(tud.WeightedRandomSampler(WEIGHTS, 50, generator=g), drop_last=True),
    "distributed": lambda _: batched(tud.DistributedSampler(NUMBERS, 2, 1)),
    "lazy": lambda g: batched(Lazy(by(g))),
    "lazy, global": lambda _: batched(Lazy(by(None))),
    "lazy, random": lambda _: batched(Lazy(functools.partial(random.randrange, RECORDS))),
    "lazy, own": lambda _: batched(Lazy(functools.partial(random.Random(5).randrange, RECORDS))),
    "eager": lambda g: batched(Eager(by(g))),
    "eager, numpy": lambda _: batched(Eager(lambda: int(np.random.randint(RECORDS)))),
    "skips": lambda g: batched(Skips(by(g))),
    "batches": lambda g: {"batch_sampler": Batches(by(g))},
    "ends": lambda g: batched(Ends(by(g))),
}  # fmt: skip


def grows(loader: Any) -> None:
    loader.batch_sampler.batch_size += 1


def reverses(loader: Any) -> None:
    loader.sampler.indices.reverse()


def reorders(loader: Any) -> None:
    loader.sampler.order.reverse()


# The changes that programs make while an epoch runs.
CHANGES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "batch size": ("generator", grows), "indices": ("subset", reverses), "list": ("eager", reorders),
}  # fmt: skip
# The number of batches after which each epoch is left, and whether the loop draws numbers in it.
EPOCHS = ((99, True), (1, False), (3, True), (99, False))
# Each epoch starts the workers that are not persistent, which takes longer than all else: one is enough for the order.
WORKERS = {"none": (0, False), "1": (1, False), "2, persistent": (2, True)}


def numbers_of(batch: Any) -> list[int]:
    return (batch["number"] if isinstance(batch, dict) else batch[1]).tolist()


def history(kind: Any, dataset: Any, name: str, workers: str, change: Any = None) -> list[Any]:
    """Run some epochs, and return their batches and random numbers."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    g = torch.Generator().manual_seed(3)
    count, persistent = WORKERS[workers]
    loader = kind(dataset, num_workers=count, persistent_workers=persistent, **SAMPLERS[name](g))
    out: list[Any] = []

    def note() -> None:
        states = g.get_state(), torch.get_rng_state()
        out.append([zlib.crc32(s.numpy().tobytes()) for s in states])
        out.append((random.getstate()[1][-1], np.random.get_state()[2]))

    for batches, draws in EPOCHS:
        try:
            for i, batch in enumerate(loader):
                out.append(numbers_of(batch))
                note()
                if draws:
                    out += [torch.rand(1).item(), int(torch.randint(99, (), generator=g)), random.random()]
                if change is not None and i in (1, 4):
                    change(loader)
                if i + 1 == batches:
                    break
        except LookupError as error:
            out.append(str(error))
        note()
    if kind is DataLoader:
        loader.explain()  # it chooses the way, where it has not been chosen
        assert type(loader._stoker_path).__name__ == {Own: "WorkerWay" if count else "TorchWay"}.get(
            type(dataset), "EngineWay"
        )
    return out


@functools.cache
def torchs(name: str, workers: str, change: str = "") -> list[Any]:
    return history(tud.DataLoader, Own(), name, workers, CHANGES[change][1] if change else None)


DATASETS = {"own": lambda _: Own(), "arrays": arrays, "files": files, "table": table}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", DATASETS)
def test_numbers_are_drawn_when_torch_draws_them(kind: str, workers: str, tmp_path: Any) -> None:
    dataset = DATASETS[kind](tmp_path)
    for name in SAMPLERS:
        assert history(DataLoader, dataset, name, workers) == torchs(name, workers), name


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("change", CHANGES)
def test_changes_while_an_epoch_runs(kind: str, workers: str, change: str, tmp_path: Any) -> None:
    name, function = CHANGES[change]
    assert history(DataLoader, DATASETS[kind](tmp_path), name, workers, function) == torchs(name, workers, change)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_drawn_is_foreseen(workers: int) -> None:
    """The engine works ahead of a sampler that has drawn a list, without reading the sampler."""
    for name in SAMPLERS:
        if name in ("batches", "distributed"):
            continue
        g = torch.Generator().manual_seed(3)
        loader = DataLoader(arrays(None), num_workers=workers, **SAMPLERS[name](g))
        iterator = iter(loader)
        next(iterator)
        epoch = iterator._batches
        asked = len(epoch._waiting) + len(epoch._foreseen)
        if "lazy" in name or name == "ends":
            assert asked == 2 * workers, name
        elif "replacement" in name:  # 32 records at a time
            assert asked == 32 // BATCH - 1, name
        elif name == "several rounds":
            assert asked == RECORDS // BATCH - 1
        elif name != "skips":
            assert asked == len(loader) - 1, name
