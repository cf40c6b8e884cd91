"""States of stoker.torch.DataLoader: the next batch is the very next one."""

from __future__ import annotations

import gc
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402

from stoker.torch import DataLoader, _generator  # noqa: E402

# Other tests may have started JAX in this process.
pytestmark = pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called")

DATA = data.TensorDataset(torch.arange(103))


class Stream(data.IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(53))


class Stateful(data.Sampler):
    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Any:
        self.epoch += 1
        return iter(torch.randperm(103, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def __len__(self) -> int:
        return 103

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]


LOADERS: dict[str, Callable[[], Any]] = {
    "order": lambda: DataLoader(DATA, 8),
    "shuffle": lambda: DataLoader(DATA, 8, shuffle=True),
    "generator": lambda: DataLoader(DATA, 8, shuffle=True, generator=torch.Generator().manual_seed(5)),
    "drop_last": lambda: DataLoader(DATA, 8, shuffle=True, drop_last=True),
    "weighted": lambda: DataLoader(DATA, 8, sampler=data.WeightedRandomSampler(torch.arange(103.0), 90)),
    "replacement": lambda: DataLoader(DATA, 8, sampler=data.RandomSampler(DATA, replacement=True)),
    "batch_sampler": lambda: DataLoader(
        DATA, batch_sampler=data.BatchSampler(data.RandomSampler(DATA), batch_size=9, drop_last=False)
    ),
    "single": lambda: DataLoader(DATA, batch_size=None, shuffle=True),
    "iterable": lambda: DataLoader(Stream(), 8),
    "stateful sampler": lambda: DataLoader(DATA, 8, sampler=Stateful()),
    "workers": lambda: DataLoader(DATA, 8, shuffle=True, num_workers=1),
    "persistent": lambda: DataLoader(DATA, 8, shuffle=True, num_workers=1, persistent_workers=True),
}


def flat(batch: Any) -> list[int]:
    return torch.as_tensor(batch[0] if isinstance(batch, list | tuple) else batch).reshape(-1).tolist()


@pytest.mark.parametrize("name", LOADERS)
def test_the_very_next_batch(name: str) -> None:
    make = LOADERS[name]
    torch.manual_seed(1)
    loader = make()
    list(loader)
    states, batches = [], []
    for batch in loader:
        batches.append(flat(batch))
        states.append(json.loads(json.dumps(loader.state_dict())))
    after = [flat(b) for b in loader]
    for k in (0, 3, len(batches) - 3):
        torch.manual_seed(99)
        again = make()
        again.load_state_dict(states[k])
        iterator, seen = iter(again), []
        for _ in range(1):
            seen.append(flat(next(iterator)))
        second = again.state_dict()  # a second resume, of a resumed one
        seen += [flat(b) for b in iterator]
        assert seen == batches[k + 1 :]
        third = make()
        third.load_state_dict(second)
        assert [flat(b) for b in third] == batches[k + 2 :]
    if name != "iterable":
        assert states[-1]["batches"] == 0  # the next epoch begins
        if name in ("generator", "stateful sampler"):
            again.load_state_dict(states[1])
            list(again)
            assert [flat(b) for b in again] == after


def test_random_numbers_of_the_loop_are_left_alone() -> None:
    torch.manual_seed(1)
    loader = DataLoader(DATA, 8, shuffle=True)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    torch.manual_seed(7)
    loader.load_state_dict(state)
    list(loader)
    drawn = torch.rand(1)
    torch.manual_seed(7)
    assert drawn == torch.rand(1)


@pytest.mark.parametrize("name", LOADERS)
def test_a_state_has_at_most_256_bytes(name: str) -> None:
    torch.manual_seed(2**62 + 12345)
    loader = LOADERS[name]()
    for _ in range(3):
        list(loader)
    for _ in loader:
        state = loader.state_dict()
        assert len(json.dumps(state)) <= 256 and len(pickle.dumps(state)) <= 256, state


def test_numbers_that_a_program_draws_itself_are_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weighted order comes from the global random numbers, here after more draws than are searched."""
    monkeypatch.setattr(_generator, "_NEAR", 1000)
    torch.manual_seed(4)
    torch.empty(100_000, dtype=torch.int32).random_()
    loader = LOADERS["weighted"]()
    iterator = iter(loader)
    next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    assert len(json.dumps(state)) > 5000
    again = LOADERS["weighted"]()
    again.load_state_dict(state)
    assert [flat(b) for b in again] == [flat(b) for b in iterator]


def test_another_torch_may_have_other_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """If seeds cannot be drawn again, the whole state is saved."""
    monkeypatch.setattr(_generator, "about_to_draw", lambda numbers: torch.Generator().get_state())
    loader = LOADERS["shuffle"]()
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    assert not state["begun"]["global"].startswith("=")
    monkeypatch.undo()
    again = LOADERS["shuffle"]()
    again.load_state_dict(state)
    assert [flat(b) for b in again] == [flat(b) for b in iterator]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", ["shuffle", "generator", "weighted", "replacement", "batch_sampler", "eager", "lazy"])
def test_numbers_drawn_before_the_first_batch(name: str, workers: int) -> None:
    """The program draws numbers between ``iter`` and ``next``. Without workers the order is read after that."""

    def make() -> Any:
        generator = torch.Generator().manual_seed(5) if name == "generator" else None
        kinds: dict[str, Any] = {
            "shuffle": {"shuffle": True},
            "generator": {"shuffle": True, "generator": generator},
            "weighted": {"sampler": data.WeightedRandomSampler(torch.arange(103.0), 90)},
            "replacement": {"sampler": data.RandomSampler(DATA, replacement=True)},
            "batch_sampler": {"batch_sampler": data.BatchSampler(data.RandomSampler(DATA), 8, drop_last=False)},
            "eager": {"sampler": Rounds(True)},
            "lazy": {"sampler": Rounds(False)},
        }
        size = {} if name == "batch_sampler" else {"batch_size": 8}
        return DataLoader(DATA, **size, num_workers=workers, **kinds[name])

    torch.manual_seed(1)
    loader = make()
    iterator = iter(loader)
    if name != "lazy" or not workers:  # then it would draw in turns with the program
        torch.rand(7), random.random(), np.random.rand()
    if loader.generator is not None and not workers:
        torch.rand(7, generator=loader.generator)
    for _ in range(3):
        next(iterator)
    state, now = json.loads(json.dumps(loader.state_dict())), program_numbers()
    rest = [flat(b) for b in iterator]
    torch.manual_seed(9)
    again = make()
    again.load_state_dict(state)
    program_numbers(now)
    assert [flat(b) for b in again] == rest
    if loader.generator is not None:
        assert torch.equal(loader.generator.get_state(), again.generator.get_state())


@pytest.mark.parametrize("size", [8, 103])
@pytest.mark.parametrize("name", ["generator", "sampler", "replacement"])
@pytest.mark.parametrize("exhausted", [False, True])
def test_the_epoch_after_a_state_between_epochs(name: str, size: int, exhausted: bool) -> None:
    """A program that saves after each epoch has the orders of a run that was left alone."""

    def make() -> Any:
        generator = torch.Generator().manual_seed(5)
        if name == "generator":
            return DataLoader(DATA, size, shuffle=True, generator=generator)
        if name == "sampler":
            return DataLoader(DATA, size, sampler=Stateful())
        return DataLoader(DATA, size, sampler=data.RandomSampler(DATA, replacement=True, generator=generator))

    loader = make()
    list(loader)
    for _ in loader:
        state = json.loads(json.dumps(loader.state_dict()))  # of the last batch in the end
    if exhausted:
        state = json.loads(json.dumps(loader.state_dict()))
    assert state["batches"] == 0
    after = [[flat(b) for b in loader] for _ in range(2)]
    again = make()
    again.load_state_dict(state)
    assert json.loads(json.dumps(again.state_dict())) == state
    assert [[flat(b) for b in again] for _ in range(2)] == after


class Drawing(data.IterableDataset):
    """A stream in an order that it draws from all random numbers."""

    def __iter__(self) -> Any:
        order = torch.randperm(53).tolist()
        random.shuffle(order)
        np.random.shuffle(order)
        return iter(order)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_draws_its_order(workers: int) -> None:
    loader = DataLoader(Drawing(), 8, num_workers=workers)
    iterator = iter(loader)
    random.random()
    for _ in range(3):
        next(iterator)
    state, now = json.loads(json.dumps(loader.state_dict())), program_numbers()
    assert workers == 0 or len(json.dumps(state)) <= 256
    rest, after = [flat(b) for b in iterator], program_numbers()
    again = DataLoader(Drawing(), 8, num_workers=workers)
    again.load_state_dict(state)
    program_numbers(now)
    assert [flat(b) for b in again] == rest and str(program_numbers()) == str(after)
    other = DataLoader(Drawing(), 8, num_workers=2)
    other.load_state_dict(state)
    with pytest.raises(stoker.StateMismatch, match=f"num_workers={workers}, this loader has .*num_workers=2"):
        iter(other)


def of_rank(rank: int, ranks: int, batch_size: int, shuffle: bool) -> Any:
    sampler = data.DistributedSampler(DATA, ranks, rank, shuffle=shuffle, seed=3)
    sampler.set_epoch(2)
    return DataLoader(DATA, batch_size, sampler=sampler)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("ranks", "batch_size"), [(2, 8), (4, 4), (1, 16), (1, 8), (1, 4), (3, 16), (4, 12)])
def test_another_number_of_ranks(shuffle: bool, ranks: int, batch_size: int) -> None:
    """All ranks together continue after the records that all ranks have had: each record comes once."""
    seen: list[int] = []
    states = []
    for rank in range(2):
        loader = of_rank(rank, 2, 8, shuffle)
        iterator = iter(loader)
        for _ in range(3):
            seen += flat(next(iterator))
        states.append(json.loads(json.dumps(loader.state_dict())))
    assert len(set(seen)) == 48 and all(s["rows"] == 16 for s in states)
    rest: list[int] = []
    for rank in range(ranks):
        loader = of_rank(rank, ranks, batch_size, shuffle)
        loader.load_state_dict(states[rank % 2])
        second = iter(loader)
        rest += flat(next(second))
        again = of_rank(rank, ranks, batch_size, shuffle)
        again.load_state_dict(loader.state_dict())
        rest += [n for batch in again for n in flat(batch)]
    filled = -103 % ranks  # what DistributedSampler repeats of the beginning
    assert len(seen) + len(rest) == 103 + filled
    assert set(seen) | set(rest) == set(range(103))


def test_a_number_of_ranks_that_does_not_fit() -> None:
    loader = of_rank(0, 2, 8, True)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    other = of_rank(0, 4, 8, True)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(stoker.StateMismatch, match="48 records of all ranks, which is not a whole number of steps"):
        iter(other)


def test_what_is_refused() -> None:
    loader = DataLoader(DATA, 8, shuffle=True)
    with pytest.raises(stoker.StateMismatch, match="not a state"):
        loader.load_state_dict({"step": 3})
    with pytest.raises(stoker.StateMismatch, match="version"):
        loader.load_state_dict({"version": 99, "batches": 1, "begun": None})
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    state = loader.state_dict()
    small = DataLoader(data.TensorDataset(torch.arange(10)), 8, shuffle=True)
    small.load_state_dict(state)
    with pytest.raises(
        stoker.StateMismatch, match="another dataset: it was saved over 103 records, this loader has 10;"
    ):
        next(iter(small))
    others = {
        "RandomSampler, batch_size=8, this loader has RandomSampler, batch_size=4": DataLoader(DATA, 4, shuffle=True),
        "RandomSampler, batch_size=8, this loader has SequentialSampler": DataLoader(DATA, 8),
        "this loader has DistributedSampler": of_rank(0, 1, 8, True),
    }
    for text, other in others.items():
        other.load_state_dict(state)
        with pytest.raises(stoker.StateMismatch, match=text):
            iter(other)
    other = DataLoader(DATA, 8, shuffle=True, generator=torch.Generator())
    other.load_state_dict(state)
    with pytest.raises(stoker.StateMismatch, match="generators"):
        iter(other)


def test_the_epoch_of_a_sampler_that_is_told_it() -> None:
    loader = of_rank(0, 2, 8, True)
    next(iter(loader))
    state = loader.state_dict()
    loader.sampler.set_epoch(0)
    loader.load_state_dict(state)
    with pytest.raises(stoker.StateMismatch, match=r"epoch=0; call sampler.set_epoch\(2\)"):
        iter(loader)
    loader.sampler.set_epoch(2)
    loader.load_state_dict(state)
    assert len(list(loader)) == len(loader) - 1


def test_a_loader_that_was_not_begun() -> None:
    loader = DataLoader(DATA, 8)
    state = loader.state_dict()
    assert state["batches"] == 0
    other = DataLoader(DATA, 8)
    other.load_state_dict(state)
    assert len(list(other)) == len(other)


class Counted(data.Dataset):
    """Numbers that count the requests for them."""

    def __init__(self, n: int) -> None:
        self.n, self.asked = n, 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        self.asked += 1
        return i


@pytest.mark.parametrize("prepared", [False, True], ids=["", "accelerate"])
def test_far_into_an_epoch_and_again(prepared: bool) -> None:
    """Behind 100,000 steps the very next records come, none of those before is loaded, and a second time too."""
    steps, rows = 100_000, 8
    numbers = Counted(steps * rows + 100)

    accelerate: Any = pytest.importorskip("accelerate") if prepared else None

    def make() -> Any:
        torch.manual_seed(5)
        loader = DataLoader(numbers, rows, shuffle=True)
        if not prepared:
            return loader
        way = accelerate.DataLoaderConfiguration(use_stateful_dataloader=True)
        return accelerate.Accelerator(cpu=True, dataloader_config=way).prepare(loader)

    loader = make()
    begun = iter(loader)
    next(begun)
    first = loader.state_dict()
    if prepared:
        begun.close()  # a generator of Accelerate's
    # The order of the epoch, as torch's sampler draws it.
    torch.manual_seed(5)
    order = torch.cat(list(data.DataLoader(torch.arange(len(numbers)), 4096, shuffle=True)))
    state = json.loads(json.dumps(first)) | {"batches": steps}
    for since in (steps, steps + 1):
        loader, numbers.asked = make(), 0
        loader.load_state_dict(state)
        batches = iter(loader)
        assert flat(next(batches)) == order[since * rows :][:rows].tolist()
        assert numbers.asked <= 3 * rows  # Accelerate looks one batch ahead
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["batches"] == since + 1
        if prepared:
            batches.close()


class Rounds(data.Sampler):
    """Draws from Python's and NumPy's random numbers: all at its beginning, or one by one."""

    def __init__(self, eager: bool) -> None:
        self.eager = eager

    def draws(self) -> Any:
        return (int(np.random.randint(50)) + random.randrange(53) for _ in range(103))

    def __iter__(self) -> Any:
        return iter(list(self.draws())) if self.eager else self.draws()

    def __len__(self) -> int:
        return 103


def table() -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict({"n": list(range(103))}).with_format("torch")


def crops(*rest: Any) -> Any:
    transforms = pytest.importorskip("torchvision.transforms")
    steps = [transforms.RandomResizedCrop(24), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    return transforms.Compose([*steps, *rest])


def photos() -> Any:
    """Return images in memory, which the engine crops at random."""
    datasets = pytest.importorskip("torchvision.datasets")
    made = datasets.CIFAR10.__new__(datasets.CIFAR10)
    pixels = np.random.default_rng(0).integers(0, 255, (103, 32, 32, 3), np.uint8)
    made.__dict__.update(
        root="", transform=crops(), target_transform=None, transforms=None, data=pixels, targets=list(range(103)),
    )  # fmt: skip
    return made


class Shards(Stream):
    """A stream that workers share."""

    def __iter__(self) -> Any:
        info = data.get_worker_info()
        return iter(range(53) if info is None else range(info.id, 53, info.num_workers))


LEFT: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "own": (lambda: DATA, {"shuffle": True}),
    "engine": (photos, {"shuffle": True}),
    "table": (table, {"shuffle": True}),
    "iterable": (Shards, {}),
    "eager sampler": (lambda: DATA, {"sampler": Rounds(True)}),
    "lazy sampler": (photos, {"sampler": Rounds(False)}),
    "generator": (photos, {"shuffle": True, "generator": torch.Generator()}),
}
WORKERS = {
    "none": {}, "2": {"num_workers": 2}, "2, persistent": {"num_workers": 2, "persistent_workers": True},
}  # fmt: skip


def records(batch: Any) -> list[int]:
    return flat(batch["n"] if isinstance(batch, dict) else batch[-1] if isinstance(batch, list) else batch)


def program_numbers(new: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
    """Return the states of the program's random numbers, or set them."""
    if new is not None:
        torch.set_rng_state(new[0])
        random.setstate(new[1])
        np.random.set_state(new[2])
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", LEFT)
def test_a_state_taken_after_a_break(name: str, workers: str) -> None:
    """It does not depend on the iterator, which the loop has thrown away, and no epoch is cut short."""
    make, arguments = LEFT[name]

    def begun() -> Any:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        if "generator" in arguments:
            arguments["generator"].manual_seed(1)
        loader = DataLoader(make(), 8, **arguments, **WORKERS[workers])
        list(loader)
        return loader

    loader = begun()
    whole, after = [records(batch) for batch in loader], program_numbers()
    assert loader.state_dict()["batches"] == 0  # the next epoch begins
    loader, seen = begun(), []
    for batch in loader:
        seen.append(records(batch))
        if len(seen) == 3:
            break
    gc.collect()
    state, now = json.loads(json.dumps(loader.state_dict())), program_numbers()
    assert state["batches"] == 3
    for _ in range(2):
        torch.manual_seed(7)
        again = DataLoader(make(), 8, **arguments, **WORKERS[workers])
        again.load_state_dict(state)
        program_numbers(now)
        assert seen + [records(batch) for batch in again] == whole
        assert str(program_numbers()) == str(after)
        assert again.state_dict()["batches"] == 0
    loader.load_state_dict(state)  # the loader that has left the epoch goes on with it, too
    program_numbers(now)
    assert seen + [records(batch) for batch in loader] == whole


def test_errors_that_the_loop_survives_lie_behind_it() -> None:
    class Broken(data.Dataset):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, i: int) -> int:
            if i in (2, 3):
                raise LookupError(i)
            return i

    loader = DataLoader(Broken(), 1)
    iterator = iter(loader)
    assert [next(iterator).item() for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(LookupError):
            next(iterator)
    assert loader.state_dict()["batches"] == 2
    assert next(iterator).item() == 4
    loader.load_state_dict(loader.state_dict())
    assert next(iter(loader)).item() == 5


def test_the_next_epoch_draws_as_if_nothing_had_been_loaded() -> None:
    def epochs(load: bool) -> Any:
        torch.manual_seed(3)
        loader = DataLoader(DATA, 8, shuffle=True)
        if load:
            loader.load_state_dict(loader.state_dict())
        return [[flat(b) for b in loader] for _ in range(3)], torch.rand(1).item()

    assert epochs(True) == epochs(False)


def doubled(t: Any) -> Any:
    return t * 2


def cropped_files(folder: Path) -> Any:
    """Return images that the engine crops, and Python then changes."""
    datasets = pytest.importorskip("torchvision.datasets")
    image = pytest.importorskip("PIL.Image")
    (folder / "a").mkdir()
    for i in range(103):
        pixels = np.random.default_rng(i).integers(0, 255, (4, 4, 3), np.uint8)
        image.fromarray(pixels).resize((40, 40)).save(folder / "a" / f"{i:03d}.jpg")
    return datasets.ImageFolder(str(folder), crops(doubled))


# Batches of several sizes, and some of records that the engine is not asked for.
SIZES = [[i] * (1 + i % 3) for i in range(5, 20)] + [[-1, 2]] * 2 + [list(range(90)), [3], list(range(100)), [4, 5]]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", ["engine", "split"])
@pytest.mark.parametrize("batches", [{"shuffle": True, "batch_size": 8}, {"batch_sampler": SIZES}], ids=["", "sizes"])
def test_a_resumed_epoch_has_the_same_pixels(kind: str, workers: str, batches: Any, tmp_path: Path) -> None:
    dataset = photos() if kind == "engine" else cropped_files(tmp_path)

    def make() -> Any:
        return DataLoader(dataset, **batches, **WORKERS[workers])

    torch.manual_seed(2)
    loader = make()
    list(loader)  # the next epoch of persistent workers has another seed
    epoch, state = [], {}
    for batch in loader:
        epoch.append([part.clone() for part in batch])
        if len(epoch) == 4:
            state = json.loads(json.dumps(loader.state_dict()))
    torch.manual_seed(99)
    again = make()
    again.load_state_dict(state)
    resumed = list(again)
    assert type(again._stoker_path).__name__ == "EngineWay"
    assert len(resumed) == len(epoch) - 4
    for a, b in zip(resumed, epoch[4:], strict=True):
        assert torch.equal(a[1], b[1]) and torch.equal(a[0], b[0])
