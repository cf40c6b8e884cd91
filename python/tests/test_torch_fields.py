"""Transforms of torchvision in transforms= of stoker.Loader, and the errors for those that it does not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import PIL.Image  # noqa: E402
import torch.utils.data as tud  # noqa: E402
from torchvision import datasets  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import stoker  # noqa: E402
from stoker import transforms as T  # noqa: E402
from stoker.torch import DataLoader  # noqa: E402

BICUBIC, NEAREST = v1.InterpolationMode.BICUBIC, v1.InterpolationMode.NEAREST
IMAGES = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fields")
    for i in range(IMAGES):
        (root / "ab"[i % 2]).mkdir(exist_ok=True)
        small = PIL.Image.fromarray(np.random.default_rng(i).integers(0, 255, (7, 9, 3), np.uint8))
        small.resize((60, 50), PIL.Image.Resampling.BICUBIC).save(root / "ab"[i % 2] / f"{i}.png")
    return root


def loaded(folder: Path, fields: Any) -> Any:
    with stoker.Loader(folder, batch_size=IMAGES, transforms={"image": fields}, output="torch") as loader:
        return next(iter(loader))["image"].clone()


SAME = {
    "v1": v1.Compose([v1.CenterCrop(40), v1.ColorJitter(hue=(0.25, 0.25)), v1.ToTensor(), v1.Normalize([0.5], [0.25])]),
    "v2": v2.Compose([v2.ToImage(), v2.CenterCrop(40), v2.RandomInvert(1.0), v2.ToDtype(torch.float32, scale=True)]),
    "nested": v1.Compose([v1.CenterCrop(40), v1.Compose([v1.RandomRotation((33, 33)), v1.PILToTensor()])]),
    "gray": v1.Compose([v1.CenterCrop(40), v1.Grayscale(), v1.PILToTensor()]),
}


@pytest.mark.parametrize("name", SAME)
def test_values_are_torchvisions(folder: Path, name: str) -> None:
    data = datasets.ImageFolder(str(folder), SAME[name])
    expected = torch.stack([data[i][0] for i in range(IMAGES)])
    for fields in (SAME[name], [SAME[name]], list(SAME[name].transforms), stoker.Field("image", SAME[name])):
        got = loaded(folder, fields)
        assert got.dtype == expected.dtype and got.shape == expected.shape
        assert (got - expected).abs().max() <= (2e-6 if got.dtype == torch.float32 else 0)


def test_libraries_may_be_mixed(folder: Path) -> None:
    mixed = [
        v1.CenterCrop(40),
        T.RandomInvert(1.0),
        T.ToDtype("float32", scale=True),
        v1.Normalize([0.5], [0.5]),
    ]
    own = [T.CenterCrop(40), T.RandomInvert(1.0), T.ToDtype("float32", scale=True)]
    assert torch.equal(loaded(folder, mixed), loaded(folder, [*own, T.Normalize([0.5] * 3, [0.5] * 3)]))


def test_images_and_masks_move_alike(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for i in range(IMAGES):
        gray = np.random.default_rng(i).integers(0, 255, (50, 60), np.uint8)
        PIL.Image.fromarray(gray).save(tmp_path / "a" / f"{i}.png")
    moves = [v1.CenterCrop(40), v1.RandomRotation(60), v1.RandomPerspective(interpolation=NEAREST)]
    fields = {
        "image": stoker.Field("image", [*moves, v1.RandomApply([v1.RandomHorizontalFlip(1.0)])], mode="L"),
        "mask": stoker.Field(
            "image", [*moves, v1.RandomApply([v1.RandomHorizontalFlip(1.0)])], mask=True, follow="image"
        ),
    }
    with stoker.Loader(tmp_path, batch_size=IMAGES, transforms=fields, output="torch") as loader:
        batch = next(iter(loader))
        assert torch.equal(batch["image"].flatten(), batch["mask"].flatten())


def test_what_is_refused_says_what_to_write(folder: Path) -> None:
    def said(*fields: Any) -> str:
        with pytest.raises(stoker.ConfigError) as caught:
            loaded(folder, list(fields))
        return str(caught.value)

    assert "interpolation bicubic" in said(v1.RandomAffine(3, interpolation=BICUBIC))
    assert "write stoker.transforms.RandomAffine(...)" in said(v1.RandomAffine(3, interpolation=BICUBIC))
    assert "write stoker.transforms.RandAugment()" in said(v1.Compose([v1.CenterCrop(9), v1.AugMix()]))
    assert "map= or batch_map=" in said(v1.Compose([v1.CenterCrop(9), lambda image: image]))
    assert "map= or batch_map=" in said(lambda image: image)
    assert "write CenterCrop(...)" in said(v1.CenterCrop)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ToTensor", 'stoker.transforms.ToDtype("float32", scale=True)'),
        ("PILToTensor", "uint8"),
        ("InterpolationMode", 'interpolation="nearest"'),
        ("Lambda", "map="),
        ("DataLoader", "from stoker.torch import DataLoader"),
        ("RandomAfine", "did you mean 'stoker.transforms.RandomAffine'?"),
    ],
)
def test_names_that_there_are_not(name: str, hint: str) -> None:
    assert not hasattr(stoker, name)
    with pytest.raises(AttributeError, match="has no attribute") as caught:
        getattr(stoker, name)
    assert hint in str(caught.value)


class Mine(datasets.ImageFolder):
    """A name of its own."""


class Typed(Mine):
    classes: list[str]


class Crop(v1.CenterCrop):
    pass


class Other(datasets.ImageFolder):
    def __len__(self) -> int:
        return 3


class Longer(v1.CenterCrop):
    marks = "of its own"


BYTES = v1.Compose([Crop(40), v1.PILToTensor()])


@pytest.mark.parametrize("kind", [Mine, Typed])
def test_classes_that_add_nothing_are_their_bases(folder: Path, kind: Any) -> None:
    data = kind(str(folder), BYTES)
    loader = DataLoader(tud.Subset(data, range(IMAGES)), IMAGES)
    assert "dataset    engine" in loader.explain() and "CenterCrop" in loader.explain()
    assert torch.equal(next(iter(loader))[0], torch.stack([data[i][0] for i in range(IMAGES)]))


def test_classes_that_add_something_are_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "learns which JPEG files each record of Other opens" in DataLoader(Other(str(folder), BYTES), 2).explain()
    longer = v1.Compose([Longer(40), v1.PILToTensor()])
    assert "Longer is not known" in DataLoader(datasets.ImageFolder(str(folder), longer), 2).explain()
    loader = DataLoader(Mine(str(folder), BYTES), 2)
    assert "dataset    engine" in loader.explain()
    monkeypatch.setattr(Mine, "__len__", lambda self: 4, raising=False)
    assert "learns which JPEG files each record of Mine opens" in loader.explain() and len(list(loader)) == 2


class Numbers(tud.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        return i


@pytest.mark.parametrize("workers", [0, 2])
def test_each_part_that_python_runs_has_a_next_step(folder: Path, workers: int) -> None:
    def rows(dataset: Any, **options: Any) -> list[Any]:
        loader = DataLoader(dataset, 2, num_workers=workers, **options)
        loader.explain()
        way: Any = loader._stoker_path
        return list(way.rows(loader))

    def own(x: Any) -> Any:
        return x

    crop = v1.CenterCrop(9)
    every = [
        *rows(Numbers()),
        *rows(Numbers(), collate_fn=own),
        *rows(Mine(str(folder), v1.Compose([crop, own, v1.ToTensor()]))),
        *rows(Mine(str(folder), v1.Compose([crop, v1.ToTensor()]), own), collate_fn=own),
        *rows(Mine(str(folder), v1.Compose([own, crop, v1.ToTensor()]))),
        *rows(Other(str(folder), v1.Compose([crop, v1.ToTensor()]))),
    ]
    done = ("stacks are made", "once for each label")
    python = [row for row in every if row.where in ("torch", "this process", "2 workers") and row.part != "order"]
    assert len(python) > 5
    assert [row for row in python if not row.gain and not any(text in row.why for text in done)] == []


def test_random_numbers_of_the_engine_are_named_without_workers(folder: Path) -> None:
    data = datasets.ImageFolder(str(folder), v1.Compose([v1.RandomCrop(9), v1.ToTensor()]))
    said = [DataLoader(data, 2, num_workers=workers).explain() for workers in (0, 2)]
    assert "your generators do not advance" in said[0] and "generator=torch.Generator()" in said[0]
    assert "your generators" not in said[1]


def test_what_stays_in_python_names_the_next_step(folder: Path) -> None:
    def said(dataset: Any, **options: Any) -> str:
        return DataLoader(dataset, 2, **options).explain()

    def files(*parts: Any) -> Any:
        return datasets.ImageFolder(str(folder), v1.Compose(parts))

    pack = 'stoker.pack(dataset, "out")'
    assert pack in said(Numbers()) and pack in said(Numbers(), num_workers=1)
    assert "v2.PILToTensor()" in said(datasets.ImageFolder(str(folder)))
    assert "before AugMix" in said(files(v1.AugMix(), v1.CenterCrop(9), v1.ToTensor()))
    moved = said(files(v1.CenterCrop(9), v1.ToTensor(), v1.ColorJitter(0.5)))
    assert "move ColorJitter before ToTensor" in moved
