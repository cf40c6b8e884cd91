"""Random histories of a loop with stoker.torch.DataLoader: it is stopped and resumed, and engines are killed.

The program draws random numbers in each step, and saves them with the state, as training loops do. Then all later
batches, also those of later epochs, are those of a loop that was left alone.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker import _restarts

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402

from stoker.torch import DataLoader  # noqa: E402

# Other tests may have started JAX in this process.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called"),
    pytest.mark.filterwarnings("ignore::stoker.EngineRestarted"),
]

EPOCHS = 3
RECORDS = 41


class Own(data.Sampler):
    """Draws its order from Python's, NumPy's and torch's random numbers when it begins."""

    def __iter__(self) -> Any:
        order = torch.randperm(RECORDS).tolist()
        random.shuffle(order)
        np.random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return RECORDS


class Counting(data.Sampler):
    """Counts its epochs, and says so in a state."""

    epoch = 0

    def __iter__(self) -> Any:
        self.epoch += 1
        yield from torch.randperm(RECORDS, generator=torch.Generator().manual_seed(self.epoch)).tolist()

    def __len__(self) -> int:
        return RECORDS

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]


class Stream(data.IterableDataset):
    """A stream in an order that it draws."""

    def __iter__(self) -> Any:
        order = torch.randperm(RECORDS).tolist()
        random.shuffle(order)
        info = data.get_worker_info()
        return iter(order if info is None else order[info.id :: info.num_workers])


def numbers() -> Any:
    return data.TensorDataset(torch.arange(RECORDS))


def joined() -> Any:
    parts = [data.TensorDataset(torch.arange(k * 20, k * 20 + 20)) for k in range(3)]
    return data.Subset(data.ConcatDataset(parts), list(range(3, 3 + RECORDS)))


def photos() -> Any:
    """Return images in memory, which the engine crops at random."""
    datasets, transforms = pytest.importorskip("torchvision.datasets"), pytest.importorskip("torchvision.transforms")
    made = datasets.CIFAR10.__new__(datasets.CIFAR10)
    pixels = np.random.default_rng(0).integers(0, 255, (RECORDS, 32, 32, 3), np.uint8)
    steps = [transforms.RandomResizedCrop(24), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    made.__dict__.update(
        root="", transform=transforms.Compose(steps), target_transform=None, transforms=None, data=pixels,
        targets=list(range(RECORDS)),
    )  # fmt: skip
    return made


def generator() -> Any:
    return torch.Generator().manual_seed(8)


KINDS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "order": lambda: (numbers(), {"batch_size": 4}),
    "shuffle": lambda: (joined(), {"batch_size": 4, "shuffle": True}),
    "drop_last": lambda: (numbers(), {"batch_size": 4, "shuffle": True, "drop_last": True}),
    "generator": lambda: (joined(), {"batch_size": 4, "shuffle": True, "generator": generator()}),
    "photos": lambda: (photos(), {"batch_size": 4, "shuffle": True}),
    "photos, generator": lambda: (photos(), {"batch_size": 4, "shuffle": True, "generator": generator()}),
    "weighted": lambda: (numbers(), {"batch_size": 4, "sampler": data.WeightedRandomSampler([1.0] * RECORDS, 30)}),
    "subset": lambda: (numbers(), {"batch_size": 4, "sampler": data.SubsetRandomSampler(range(3, 30))}),
    "replacement": lambda: (
        numbers(),
        {"batch_size": 4, "sampler": data.RandomSampler(range(RECORDS), True, 70, generator=generator())},
    ),
    "batch_sampler": lambda: (numbers(), {"batch_sampler": data.BatchSampler(data.RandomSampler(range(9)), 2, False)}),
    "own sampler": lambda: (photos(), {"batch_size": 4, "sampler": Own()}),
    "counting sampler": lambda: (numbers(), {"batch_size": 4, "sampler": Counting()}),
    "single": lambda: (numbers(), {"batch_size": None, "shuffle": True}),
    "stream": lambda: (Stream(), {"batch_size": 4}),
}
WORKERS = {
    "none": {}, "2": {"num_workers": 2}, "2, persistent": {"num_workers": 2, "persistent_workers": True},
}  # fmt: skip


def program(new: Any = None) -> Any:
    """Return the random numbers of the program, or set them."""
    if new is not None:
        torch.set_rng_state(new[0])
        random.setstate(new[1])
        np.random.set_state(new[2])
    return copy.deepcopy((torch.get_rng_state(), random.getstate(), np.random.get_state()))


class Loop:
    """A training loop over some epochs."""

    def __init__(self, kind: str, workers: str) -> None:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        self.kind, self.workers = kind, workers
        self.seen: list[str] = []
        self.epoch = 0
        self.begin()
        self.saved: Any = None

    def begin(self) -> None:
        dataset, options = KINDS[self.kind]()
        self.loader = DataLoader(dataset, **options, **WORKERS[self.workers])

    def save(self, inside: bool = False) -> None:
        state = self.loader.state_dict()
        # After the last batch of an epoch, the state is that of the next one.
        epoch = self.epoch + (inside and state["batches"] == 0)
        self.saved = json.dumps(state), program(), epoch, len(self.seen)

    def resume(self) -> None:
        """Be another process, which has the checkpoint only."""
        state, numbers, self.epoch, count = self.saved
        del self.seen[count:]
        self.begin()
        self.loader.load_state_dict(json.loads(state))
        program(numbers)

    def run(self, steps: int, rng: random.Random | None = None) -> None:
        """Take so many batches, and save between some of them."""
        while self.epoch < EPOCHS:
            batches = iter(self.loader)
            while (batch := next(batches, None)) is not None:
                parts = [batch] if isinstance(batch, torch.Tensor) else batch
                self.seen.append(hashlib.sha256(b"".join(p.numpy().tobytes() for p in parts)).hexdigest())
                torch.rand(3), random.random(), np.random.rand()
                steps -= 1
                if rng is not None and rng.random() < 0.4:
                    self.save(inside=True)
                if rng is not None and rng.random() < 0.1:
                    kill_engines()
                if steps == 0:
                    return
            self.epoch += 1
            if rng is not None and rng.random() < 0.5:
                self.save()


KILLED: list[int] = []


def kill_engines() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for pid in children:
        with contextlib.suppress(OSError):
            if b"\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
                KILLED.append(int(pid))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_histories(kind: str, workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_restarts, "_WINDOW", 0.0)
    if (kind, workers) == ("stream", "2, persistent"):
        pytest.skip("workers draw from random numbers that go on from epoch to epoch, as with torch")
    whole = Loop(kind, workers)
    whole.run(-1)
    assert len({*whole.seen}) > len(whole.seen) / EPOCHS / 4
    for number in range(int(os.environ.get("STOKER_HISTORIES", 2))):
        rng = random.Random(number)
        loop = Loop(kind, workers)
        loop.save()
        while loop.epoch < EPOCHS:
            loop.run(rng.randint(1, 25), rng)
            if loop.epoch < EPOCHS:
                loop.resume()
        assert loop.seen == whole.seen, number
