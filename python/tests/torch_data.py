"""Datasets of every shape that torch's contract knows, for the tests of stoker.torch."""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils.data as tud


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of this file that calls another one."""

    def wrapped(*args: Any, **more: Any) -> Any:
        return function(*args, **more)

    return wrapped


class Made(tud.Dataset):
    """Records that a function makes from their number."""

    def __init__(self, make: Callable[[int], Any], n: int = 23) -> None:
        self.make, self.n = make, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        if not 0 <= i < self.n:
            raise IndexError(i)
        return self.make(i)


class Point(NamedTuple):
    x: Any
    y: Any


class Table(collections.OrderedDict):
    """A mapping with a type of its own."""


class Several(Made):
    """Returns the samples of a whole batch in one call."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(self.make(i), torch.tensor(len(indices))) for i in indices]


class Stream(tud.IterableDataset):
    """Shards itself over workers, unevenly."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        info = tud.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, self.n if first == 0 else self.n // 2, step):
            yield torch.tensor(i), np.float32(i), f"record {i}"


class Unsharded(tud.IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(11))


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    name: str

    def pin_memory(self) -> Sample:
        return self


def megabytes(i: int) -> torch.Tensor:
    return torch.full((300_000,), i)


def generator(i: int) -> torch.Generator:
    return torch.Generator().manual_seed(i)


def image(i: int) -> torch.Tensor:
    return torch.randint(0, 256, (3, 40, 30), generator=generator(i), dtype=torch.uint8)


def random_numbers(i: int) -> tuple[float, Any, torch.Tensor, int]:
    return random.random(), np.random.rand(3), torch.rand(4), torch.initial_seed()


def worker_info(i: int) -> Any:
    info = tud.get_worker_info()
    return (-1, -1, -1, -1) if info is None else (info.id, info.num_workers, info.seed, len(info.dataset))


def views(i: int) -> tuple[torch.Tensor, ...]:
    whole = torch.arange(600).view(20, 30) + i
    return whole[3:9, ::2], whole.t(), whole[:, 4], whole[1:1], whole[2].expand(4, 30)


def as_samples(batch: list[tuple[torch.Tensor, int]]) -> Sample:
    return Sample(torch.stack([image for image, _ in batch]), ",".join(str(n) for _, n in batch))


def as_list(batch: list[Any]) -> list[Any]:
    return batch


def detection(i: int) -> tuple[torch.Tensor, dict[str, Any]]:
    return image(i), {"boxes": torch.rand(i % 4, 4, generator=generator(i)), "labels": torch.arange(i % 4), "id": i}


def zipped(batch: list[Any]) -> tuple[Any, ...]:
    return tuple(zip(*batch, strict=True))


def padded(batch: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(t) for t in batch])
    return torch.nn.utils.rnn.pad_sequence(batch, batch_first=True), lengths


def shared_rows(batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    whole = torch.stack(batch)
    return {"whole": whole, "first": whole[:, 0], "last": whole[:, 1:]}


def mixed(i: int) -> dict[str, Any]:
    return {
        "bool": i % 2 == 0,
        "int": i,
        "float": i / 3,
        "str": f"r{i}",
        "bytes": bytes([i]),
        "np": np.arange(i, i + 3, dtype=np.int16),
        "scalar": np.float16(i),
        "nested": [(i, i + 1), {"deep": torch.tensor(i)}],
    }


def on_init(worker: int) -> None:
    random.seed(1000 + worker)
    torch.manual_seed(2000 + worker)


def fresh(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], dict[str, Any]]:
    """Return a function that makes a loader's arguments again, with a generator in the same state."""

    def arguments() -> dict[str, Any]:
        made = dict(kwargs)
        if "seed" in made:
            made["generator"] = torch.Generator().manual_seed(made.pop("seed"))
        return {"dataset": make(*args), **made}

    return arguments


# A name for each, and the arguments of a loader.
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "tensors": fresh(tud.TensorDataset, torch.arange(50.0).view(25, 2), torch.arange(25), batch_size=4),
    "images": fresh(Made, image, batch_size=5, shuffle=True, seed=3),
    "images, one by one": fresh(Made, image, batch_size=1, shuffle=True, seed=4),
    "big images, last one dropped": fresh(
        Made, lambda i: (torch.full((3, 224, 224), i / 7), i), 19, batch_size=4, drop_last=True
    ),
    "mappings": fresh(Made, mixed, batch_size=6),
    "named tuples": fresh(Made, lambda i: Point(torch.tensor([i]), Point(i, str(i))), batch_size=4),
    "own mapping": fresh(Made, lambda i: Table(a=torch.ones(2) * i, b=np.int64(i)), batch_size=4),
    "numpy": fresh(Made, lambda i: np.full((33, 45), i, np.float64), batch_size=7),
    "numpy types": fresh(
        Made, lambda i: [np.full(2000, i, t) for t in ("u1", "i2", "f2", "f4", "c8", "?", "u2")], batch_size=4
    ),
    "torch types": fresh(
        Made,
        lambda i: [torch.full((2000,), i % 2).to(t) for t in (torch.bfloat16, torch.half, torch.complex64, torch.bool)],
        batch_size=4,
    ),
    "floats": fresh(Made, float, batch_size=8),
    "texts": fresh(Made, lambda i: "é" * 9000 + str(i), batch_size=8),
    "no batches": fresh(Made, lambda i: (np.full(3000, i), {"n": i}), batch_size=None),
    "no batches, sampler": fresh(Made, image, batch_size=None, sampler=[3, 5, 7]),
    "batch sampler": fresh(Made, image, batch_sampler=[[1, 2], [3], [7, 5, 4], [22]]),
    "weighted": lambda: {
        "dataset": Made(int),
        "sampler": tud.WeightedRandomSampler(torch.ones(23), 40, generator=generator(5)),
        "batch_size": 9,
    },
    "getitems": fresh(Several, image, batch_size=4),
    "subset": fresh(tud.Subset, Made(image), [5, 3, 9, 1, 0], batch_size=2),
    "concatenated": fresh(tud.ConcatDataset, [Made(int, 5), Made(int, 9)], batch_size=4),
    "list": fresh(list, range(17), batch_size=4, shuffle=True, seed=9),
    "stream": fresh(Stream, 31, batch_size=4),
    "stream, dropping": fresh(Stream, 31, batch_size=4, drop_last=True),
    "stream, no batches": fresh(Stream, 9, batch_size=None),
    "stream of all, twice": fresh(Unsharded, batch_size=3),
    "objects with a collate": fresh(Made, lambda i: (image(i), i), batch_size=4, collate_fn=as_samples),
    "lists": fresh(Made, detection, batch_size=4, collate_fn=zipped),
    "many small ones": fresh(Made, detection, 300, batch_size=150, collate_fn=as_list),
    "padded": fresh(Made, lambda i: torch.arange(i * 40), batch_size=5, collate_fn=padded),
    "views of one": fresh(Made, image, batch_size=4, collate_fn=shared_rows),
    "odd views": fresh(Made, views, batch_size=1, collate_fn=as_list),
    "growing": fresh(Made, lambda i: torch.full((i * i * 50,), i), batch_size=None),
    "random numbers": fresh(Made, random_numbers, batch_size=4, seed=11),
    "random numbers, set": fresh(Made, random_numbers, batch_size=4, seed=11, worker_init_fn=on_init),
    "worker's info": fresh(Made, worker_info, batch_size=4, seed=12),
    "empty": fresh(Made, int, 0, batch_size=4),
}
