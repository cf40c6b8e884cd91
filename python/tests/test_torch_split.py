"""Loaders whose first operations the engine runs and Python the rest: Python gets the same input as with torch."""

from __future__ import annotations

import copy
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import PIL.Image  # noqa: E402
import PIL.ImageOps  # noqa: E402
import torch.utils.data as tud  # noqa: E402
from test_torch_recognise import (  # noqa: E402
    IMAGES,
    MEAN,
    STD,
    cifar,
    concat,
    flowers,
    folder,
    image_folder,
    levels,
    picture,
    reason,
    subset,
)  # fmt: skip
from torchvision import transforms as v1  # noqa: E402
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

from stoker.torch import DataLoader  # noqa: E402
from stoker.torch._recognise import _samples  # noqa: E402

__all__ = ["folder"]  # a fixture

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", r"ignore:os\.fork\(\) was called")


class Darker:
    """Somebody's own transform."""

    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, image: Any) -> Any:
        assert type(image) is PIL.Image.Image and image.mode == "RGB" and not image.readonly
        return image.point(lambda v: max(0, v - self.by))


def to_array(image: Any) -> Any:
    return np.asarray(image, np.float32) / 255


def draws(_: Any) -> Any:
    info = tud.get_worker_info()
    about = (-1, -1, -1) if info is None else (info.id, info.num_workers, info.seed)
    return random.random(), np.random.rand(2).tolist(), torch.rand(3).tolist(), torch.initial_seed(), about


def as_list(batch: list[Any]) -> list[Any]:
    return batch


def describe(sample: Any) -> Any:
    """Everything that a function can see of a sample, except for its pixels."""
    value = sample[0] if isinstance(sample, tuple) else sample
    if isinstance(value, PIL.Image.Image):
        return type(value), value.mode, value.size, dict(value.info), value.format, value.readonly
    return type(value), value.dtype, tuple(value.shape)


# Transforms whose first operations the engine runs. Python functions follow.
EVEN: dict[str, Callable[[], Any]] = {
    "own class": lambda: v1.Compose(
        [v1.Resize(48), v1.CenterCrop(40), Darker(9), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    ),
    "lambda": lambda: v1.Compose([v1.Resize((40, 44)), v1.ToTensor(), lambda t: t * 2 - 1]),
    "function that gives arrays": lambda: v1.Compose([v1.Resize((30, 30)), to_array]),
    "images of v2": lambda: v2.Compose([
        v2.ToImage(), v2.Resize((40, 40)), v2.ToDtype(torch.float32, scale=True),
        lambda t: t.flip(0) if type(t) is tv_tensors.Image else None, v2.Normalize(MEAN, STD),
    ]),
    "bytes": lambda: v1.Compose([v1.CenterCrop(40), v1.PILToTensor(), lambda t: t // 2]),
    "nested": lambda: v1.Compose(
        [v1.Compose([v1.Resize((33, 41))]), torch.nn.Sequential(v2.Lambda(PIL.ImageOps.invert)), v1.ToTensor()]
    ),
    "gray": lambda: v1.Compose([v1.Resize((40, 40)), v1.Grayscale(), PIL.ImageOps.invert, v1.ToTensor()]),
}  # fmt: skip


def batches(dataset: Any, **arguments: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return our loader, torch's batches and ours, which must have been made by both."""
    made = []
    for kind in (tud.DataLoader, DataLoader):
        loader = kind(dataset, generator=torch.Generator().manual_seed(3), **arguments)
        made.append(list(loader))
    way = loader._stoker_path
    assert type(way).__name__ == "EngineWay" and way.plan.samples is not None, loader.explain()
    way.plan.close()
    return loader, *made


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", EVEN)
def test_batches_equal_torchs(folder: Path, name: str, workers: int) -> None:
    transform = EVEN[name]()
    loader, expected, got = batches(image_folder(folder, transform), batch_size=5, shuffle=True, num_workers=workers)
    assert len(got) == len(expected)
    for e, g in zip(expected, got, strict=True):
        assert type(g) is type(e) and type(g[0]) is type(e[0])
        assert g[0].dtype == e[0].dtype and g[0].shape == e[0].shape
        assert torch.equal(g[1], e[1])
        scale = 2.01 if name == "lambda" else 1.01
        assert levels(g[0], e[0], transform) <= scale
    assert loader._stoker_path.plan.by_python == 0


@pytest.mark.parametrize("make", [subset, concat, flowers])
@pytest.mark.parametrize("workers", [0, 2])
def test_datasets(folder: Path, make: Any, workers: int) -> None:
    dataset = make(folder, EVEN["own class"]())
    _, expected, got = batches(dataset, batch_size=4, num_workers=workers)
    for e, g in zip(expected, got, strict=True):
        assert torch.equal(g[1], e[1]) and levels(g[0], e[0], EVEN["own class"]()) <= 1.01


@pytest.mark.parametrize("workers", [0, 2])
def test_functions_draw_what_they_draw_with_torch(folder: Path, workers: int) -> None:
    """If the engine's part draws nothing, the numbers of the rest equal torch's, bit by bit, also in the collate."""

    def collate(batch: list[Any]) -> Any:
        return [sample for sample, _ in batch], draws(None)

    dataset = image_folder(folder, v1.Compose([v1.Resize((20, 20)), draws]))
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    made = []
    for kind in (tud.DataLoader, DataLoader):
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
        loader = kind(dataset, 5, shuffle=True, num_workers=workers, collate_fn=collate)
        made.append((list(loader), torch.rand(2)))
    assert loader._stoker_path.plan.samples is not None
    loader._stoker_path.plan.close()
    assert made[0][0] == made[1][0]
    assert torch.equal(made[0][1], made[1][1])


@pytest.mark.parametrize("workers", [0, 2])
def test_collates_get_the_samples_that_they_expect(folder: Path, workers: int) -> None:
    for transform in (
        v1.Compose([v1.Resize((20, 24)), v1.ToTensor(), v1.Normalize(MEAN, STD)]),
        v1.Compose([v1.Resize((20, 24)), v1.PILToTensor()]),
        v2.Compose([v2.Resize((20, 24)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
        v2.Compose([v2.Resize((20, 24)), v2.ToImage(), v2.ToPureTensor()]),
        v1.Resize((20, 24)),
        v1.Compose([v1.Resize((20, 24)), Darker(1)]),
    ):
        dataset = image_folder(folder, transform)
        dataset.target_transform = str
        _, expected, got = batches(dataset, batch_size=5, num_workers=workers, collate_fn=as_list)
        for e, g in zip(expected, got, strict=True):
            assert [describe(s) for s in g] == [describe(s) for s in e]
            assert [s[1] for s in g] == [s[1] for s in e]
            for a, b in zip(g, e, strict=True):
                floats = isinstance(a[0], torch.Tensor) and a[0].dtype == torch.float32
                difference = np.abs(np.asarray(a[0], np.float32) - np.asarray(b[0], np.float32)).max()
                assert difference <= (1.01 / 255 / min(STD) if floats else 1.01)


def test_what_files_say_beside_their_pixels(folder: Path, tmp_path: Path) -> None:
    """The metadata of a file is read on access."""
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "a text"
    (tmp_path / "a").mkdir()
    for i in range(3):
        picture(i, 50, 40).save(tmp_path / "a" / f"{i}.jpg", exif=exif, dpi=(72, 72))
    for function in (
        lambda i: i.getexif()[0x010E], lambda i: sorted(i.info), lambda i: sorted(i.copy().info.items()),
        lambda i: "dpi" in i.resize((3, 3)).info, lambda i: len(i.info), lambda i: i.info.get("dpi"),
        lambda i: sorted(pickle.loads(pickle.dumps(i)).info), lambda i: sorted(copy.deepcopy(i).info),
        lambda i: {**i.info},
        lambda i: PIL.ImageOps.exif_transpose(i).size, lambda i: sorted(dict(i.info)), lambda i: bool(i.info),
        lambda i: dict(i.info) == i.info, lambda i: i.info.setdefault("dpi", 3), lambda i: i.info | {"x": 1},
    ):  # fmt: skip
        dataset = image_folder(tmp_path, v1.Compose([v1.Resize((20, 24)), function]))
        _, expected, got = batches(dataset, batch_size=3, collate_fn=as_list)
        assert got == expected


def test_files_are_opened_once_for_what_is_beside_pixels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    own = _samples._Beside.read
    asks = lambda i: (i.info, i.copy(), i.resize((3, 3)).info)[0]  # noqa: E731
    for function, times in ((lambda i: i.getpixel((0, 0)), 0), (asks, 4)):
        dataset = image_folder(folder, v1.Compose([v1.Resize((20, 24)), function]))
        loader = DataLoader(dataset, batch_sampler=[[0, 1, 2, 4]], collate_fn=as_list)
        batches = iter(loader)
        opened.clear()
        with monkeypatch.context() as patch:
            # PIL.Image.open itself cannot count: once it was replaced, all runs as Python.
            patch.setattr(_samples._Beside, "read", lambda self: opened.append(self._path) or own(self))
            assert len(next(batches)) == 4
        assert len([path for path in opened if path is not None]) == times
        loader._stoker_path.plan.close()


def test_random_beginnings_have_torchs_distributions(folder: Path) -> None:
    stats = pytest.importorskip("scipy.stats")
    turn = v1.RandomRotation(30, v1.InterpolationMode.BICUBIC)  # which is Python's
    transform = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), turn, v1.ToTensor()])
    data = tud.Subset(image_folder(folder, transform), [9])  # the same picture again and again
    sampler = tud.RandomSampler(data, replacement=True, num_samples=1500)
    torch.manual_seed(5)
    _, (expected,), (got,) = batches(data, batch_size=1500, sampler=sampler, num_workers=1)
    for statistic in (
        lambda x: x.mean((1, 2, 3)),
        lambda x: x.std((1, 2, 3)),
        lambda x: x[:, 0, :8, :8].mean((1, 2)) - x[:, 2, -8:, -8:].mean((1, 2)),
    ):
        a, b = (statistic(x[0].double()).numpy() for x in (expected, got))
        assert stats.ks_2samp(a, b).pvalue > 0.01


def seeds(value: Any) -> Any:
    torch.manual_seed(3)
    random.seed(3)
    return value


def seeds_secretly(value: Any) -> Any:
    getattr(torch, "manual_" + "seed")(5)
    return value


def seeds_and_stacks(batch: list[Any]) -> Any:
    return tud.default_collate(seeds(batch))


# The random beginnings, and the places where programs set the numbers that these draw.
CROP = [v1.CenterCrop(40), v1.RandomCrop(12), v1.ToTensor()]
CHOICE = [v1.CenterCrop(40), v1.RandomChoice([v1.RandomSolarize(t, 1.0) for t in range(1, 250)]), v1.ToTensor()]
PLACES: dict[str, dict[str, Any]] = {
    "rest": {"rest": [seeds]},
    "target": {"target": seeds},
    "collate": {"collate_fn": seeds_and_stacks},
    "init": {"worker_init_fn": seeds},
    "rest secretly": {"rest": [seeds_secretly]},
    "target secretly": {"target": seeds_secretly},
    "loop": {},
}


@pytest.mark.parametrize(
    ("place", "parts", "workers"),
    [
        *((p, parts, 1) for p in list(PLACES)[:4] for parts in (CROP, CHOICE)), ("rest secretly", CROP, 0),
        ("rest secretly", CROP, 1), ("target secretly", CROP, 0), ("target secretly", CROP, 1), ("loop", CROP, 0),
    ],
)  # fmt: skip
def test_random_numbers_that_the_program_sets(folder: Path, place: str, workers: int, parts: list[Any]) -> None:
    """The transforms draw from there: all records but the first one are torch's."""
    more = dict(PLACES[place])
    transform = v1.Compose([*parts, *more.pop("rest", ())])
    data = image_folder(folder, transform)
    data.target_transform = more.pop("target", None)

    def run(kind: Any) -> tuple[Any, list[Any]]:
        same = tud.Subset(data, [9] * 6)
        loader = kind(same, 1, num_workers=workers, generator=torch.Generator().manual_seed(3), **more)
        epochs = []
        for _ in range(2):
            seeds(None)
            epochs.append([seeds_secretly(x) if place == "loop" else x.clone() for x, _ in loader])
        return loader, epochs

    (_, expected), (loader, got) = run(tud.DataLoader), run(DataLoader)
    for ours, theirs in zip(got, expected, strict=True):
        assert len(ours) == 6 and all(map(torch.equal, ours[1:], theirs[1:]))
    assert "random numbers" in loader.explain() or (workers and "secretly" in place)


@pytest.mark.parametrize("rest", [[], [lambda t: t]], ids=["engine", "split"])
def test_epochs_of_persistent_workers_draw_anew(folder: Path, rest: list[Any]) -> None:
    transform = v1.Compose([v1.RandomResizedCrop(24, (0.1, 0.5)), v1.ToTensor(), *rest])
    loader = DataLoader(image_folder(folder, transform), 4, num_workers=1, persistent_workers=True)
    epochs = [torch.cat([b[0] for b in loader]) for _ in range(3)]
    assert not torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[1], epochs[2])
    for _ in loader:
        break  # and one that is left early
    assert len(torch.cat([b[0] for b in loader])) == IMAGES
    del loader._iterator
    loader._stoker_path.plan.close()


class Keeps:
    """Keeps its input, and lets it change the next one."""

    def __init__(self) -> None:
        self.before: Any = None

    def __call__(self, t: Any) -> Any:
        before, self.before = self.before, t
        return t if before is None else before


@pytest.mark.parametrize("workers", [0, 1])
def test_what_functions_keep_stays(folder: Path, workers: int) -> None:
    dataset = image_folder(folder, v1.Compose([v1.Resize((20, 24)), v1.ToTensor(), Keeps()]))
    for leaf in range(1, 3):
        dataset.transform.transforms[-1].before = None
        loader = DataLoader(dataset, leaf, num_workers=workers)
        got = torch.cat([b[0] for b in loader])
        loader._stoker_path.plan.close()
        dataset.transform.transforms[-1].before = None
        expected = torch.cat([b[0] for b in tud.DataLoader(dataset, leaf)])
        assert float((got - expected).abs().max()) <= 1.01 / 255


def test_any_batches(folder: Path) -> None:
    class Sizes:
        def __iter__(self) -> Any:
            yield from ([1], [2, 3, 4], (np.int64(5), torch.tensor(6)), [-1], list(range(IMAGES)) * 8)

    dataset = image_folder(folder, EVEN["own class"]())
    _, expected, got = batches(dataset, batch_sampler=Sizes(), num_workers=2)
    assert [g[1].tolist() for g in got] == [e[1].tolist() for e in expected]
    loader = DataLoader(dataset, batch_sampler=[[0, 1], [IMAGES]], num_workers=1)
    found = iter(loader)
    next(found)
    with pytest.raises(IndexError, match=f"record {IMAGES}"):
        next(found)


def raises(image: Any) -> Any:
    if image.getpixel((0, 0))[0] >= 0:
        raise LookupError("no such colour")


def test_exceptions_say_which_record_and_where(folder: Path) -> None:
    dataset = image_folder(folder, v1.Compose([v1.Resize((20, 24)), raises]))
    with pytest.raises(LookupError, match=r"(?s)DataLoader worker process 0, record 3.*in raises.*no such colour"):
        list(DataLoader(dataset, batch_sampler=[[3, 4]], num_workers=1))
    with pytest.raises(LookupError, match="no such colour"):
        list(DataLoader(dataset, 2))


@pytest.mark.parametrize("workers", [0, 2])
def test_images_that_the_engine_cannot_make(folder: Path, tmp_path: Path, workers: int) -> None:
    (tmp_path / "c").mkdir()
    for i in range(5):
        picture(i, 50, 40).save(tmp_path / "c" / f"{i}.{'ppm' if i == 1 else 'jpg'}")
    dataset = image_folder(tmp_path, EVEN["own class"]())
    _, expected, got = batches(dataset, batch_size=3, num_workers=workers)
    for e, g in zip(expected, got, strict=True):
        assert torch.equal(g[1], e[1]) and levels(g[0], e[0], dataset.transform) <= 1.01
    (tmp_path / "c" / "4.jpg").write_bytes(b"no image")
    found = iter(DataLoader(dataset, 3, num_workers=workers))
    next(found)
    with pytest.raises(PIL.UnidentifiedImageError):
        next(found)


class Dies:
    """Exits its process once for each of some records."""

    def __init__(self, marks: Path, records: int) -> None:
        self.marks, self.records = marks, records

    def __call__(self, t: Any) -> Any:
        mark = self.marks / f"{float(t.sum()):.6f}"
        if len(list(self.marks.iterdir())) < self.records and not mark.exists():
            mark.touch()
            os._exit(7)
        return t


def test_workers_that_die_are_started_again(folder: Path, tmp_path: Path) -> None:
    """Also when more records of a batch do that than one of them may."""
    dataset = image_folder(folder, v1.Compose([v1.Resize((20, 24)), v1.ToTensor(), Dies(tmp_path, 5)]))
    with pytest.warns(RuntimeWarning, match=r"exit code 7 while it made batch \d \(at record \d+ of its 6\)"):
        got = list(DataLoader(dataset, 6, num_workers=2))
    assert 5 <= len(list(tmp_path.iterdir())) <= 6  # two may end at the same time
    expected = list(tud.DataLoader(dataset, 6))
    for e, g in zip(expected, got, strict=True):
        assert torch.equal(g[1], e[1]) and float((g[0] - e[0]).abs().max()) <= 1.01 / 255


@pytest.mark.filterwarnings("ignore::stoker.EngineRestarted")
def test_an_engine_that_dies_is_started_again(folder: Path) -> None:
    dataset = image_folder(folder, v1.Compose([v1.Resize((20, 24)), v1.ToTensor(), lambda t: t]))
    expected = list(tud.DataLoader(dataset, 1))
    loader = DataLoader(dataset, 1, num_workers=2)
    found = iter(loader)
    got = [next(found)]
    os.kill(found._stream._connection._process.pid, 9)  # type: ignore[attr-defined]
    got += list(found)
    for e, g in zip(expected, got, strict=True):
        assert torch.equal(g[1], e[1]) and float((g[0] - e[0]).abs().max()) <= 1.01 / 255
    loader._stoker_path.plan.close()


def test_other_start_methods(folder: Path) -> None:
    pytest.importorskip("cloudpickle")
    by = 7
    dataset = subset(folder, v1.Compose([v1.Resize((20, 24)), Darker(5), v1.ToTensor(), lambda t: t + by]))
    loader = DataLoader(dataset, 3, num_workers=1, multiprocessing_context="forkserver")
    got = list(loader)
    assert loader._stoker_path.plan.samples is not None
    for e, g in zip(tud.DataLoader(dataset, 3), got, strict=True):
        assert torch.equal(g[1], e[1]) and float((g[0] - e[0]).abs().max()) <= 1.01 / 255


def test_it_says_where_it_is_split(folder: Path) -> None:
    transform = v1.Compose([v1.RandomResizedCrop(20), v1.RandomHorizontalFlip(), v1.AugMix(), v1.ToTensor()])
    loader = DataLoader(image_folder(folder, transform), 4, num_workers=2, collate_fn=as_list)
    said = loader.explain()
    assert "RandomResizedCrop, RandomHorizontalFlip" in said and "split before AugMix" in said
    assert "AugMix, ToTensor" in said and said.count("2 workers") == 2
    loader._stoker_path.plan.close()


def test_what_is_not_split(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(transform: Any, data: Any = image_folder, **arguments: Any) -> str:
        return reason(DataLoader(data(folder, transform), 4, num_workers=1, **arguments))

    # Nothing that is known comes first, or pictures of several sizes would have to be handed on.
    assert "lambda" in said(v1.Compose([lambda x: x, v1.Resize((20, 20)), v1.ToTensor()]))
    assert "lambda" in said(v1.Compose([v1.Resize(20), lambda x: x, v1.CenterCrop(20), v1.ToTensor()]))
    assert "pictures" in said(v1.Resize(20), collate_fn=as_list)
    # Pixels that are in memory already.
    assert "lambda" in said(v1.Compose([v1.RandomCrop(24), lambda x: x, v1.ToTensor()]), cifar)
    # A class of torchvision v1 that gets images of v2 stays in Python.
    floats = v2.ToDtype(torch.float32, scale=True)
    mixed = v1.Compose([v2.ToImage(), v2.Resize((20, 20)), floats, v1.Normalize(MEAN, STD)])
    assert "class" in said(mixed, collate_fn=as_list)
    # Functions of one dataset and of another.
    both = tud.ConcatDataset(
        [image_folder(folder, v1.Compose([v1.Resize((20, 20)), Darker(k), v1.ToTensor()])) for k in (1, 2)]
    )
    assert "different" in reason(DataLoader(both, 4, num_workers=1))
