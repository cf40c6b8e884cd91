"""timm's transforms, dataset and collate in the engine, together with functions of the program."""

from __future__ import annotations

import functools
import random
import shutil
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
timm = pytest.importorskip("timm.data")

import timm.data.transforms as tt  # noqa: E402
import torch.utils.data as tud  # noqa: E402
from test_torch_recognise import (  # noqa: E402
    IMAGES,
    cifar,
    close,
    concat,
    dataset_folder,
    flowers,
    folder,
    gtsrb,
    image_folder,
    levels,
    mnist,
    reason,
    recognised,
    split,
    subset,
    svhn,
)  # fmt: skip
from timm.data.loader import _worker_init, fast_collate  # noqa: E402
from torchvision import transforms as v1  # noqa: E402

from stoker.torch import DataLoader  # noqa: E402
from stoker.torch._recognise import plan  # noqa: E402

__all__ = ["folder"]  # a fixture

# timm leaves the files that it opens to the collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:This DataLoader will create",
    r"ignore:os\.fork\(\) was called",
)


def timm_folder(folder: Path, t: Any) -> Any:
    return timm.ImageDataset(str(folder), transform=t)


EVEN: dict[str, Callable[[], Any]] = {
    "eval": lambda: timm.create_transform(40, is_training=False, crop_pct=0.8),
    "eval bicubic": lambda: timm.create_transform((3, 32, 40), interpolation="bicubic", crop_mode="squash"),
    "prefetcher": lambda: timm.create_transform(40, use_prefetcher=True),
    "numpy": lambda: v1.Compose([v1.Resize((36, 40)), v1.RandomHorizontalFlip(1.0), tt.ToNumpy()]),
    "floats": lambda: v1.Compose([v1.Resize(30), v1.CenterCrop(30), tt.ToTensor()]),
}
FILES = [timm_folder, image_folder, dataset_folder, flowers, gtsrb, subset, concat, split]
PAIRS = [(d, name) for d in FILES for name in EVEN] + [(d, n) for d in (cifar, svhn) for n in ("numpy", "floats")]


@pytest.mark.parametrize(("data", "name"), PAIRS, ids=[f"{d.__name__}-{n}" for d, n in PAIRS])
def test_pairs(folder: Path, data: Any, name: str) -> None:
    transform = EVEN[name]()
    theirs, ours = (
        kind(data(folder, transform), 5, shuffle=True, generator=torch.Generator().manual_seed(3))
        for kind in (tud.DataLoader, DataLoader)
    )
    expected, got = list(theirs), recognised(ours)
    assert len(got) == len(expected)
    for e, g in zip(expected, got, strict=True):
        assert type(g) is type(e) and type(g[0]) is type(e[0])
        assert g[0].dtype == e[0].dtype and g[0].shape == e[0].shape and g[0].stride() == e[0].stride()
        assert g[1].dtype == e[1].dtype and torch.equal(g[1], e[1])
        assert levels(g[0], e[0], transform) <= 1.01


@pytest.mark.parametrize("name", ["prefetcher", "numpy"])
@pytest.mark.parametrize("data", [timm_folder, image_folder, subset])
@pytest.mark.parametrize("workers", [0, 2])
def test_fast_collate(folder: Path, data: Any, name: str, workers: int) -> None:
    init = functools.partial(_worker_init, worker_seeding="all")
    arguments = {"batch_size": 5, "collate_fn": fast_collate, "num_workers": workers, "worker_init_fn": init}
    dataset = data(folder, EVEN[name]())
    expected, got = list(tud.DataLoader(dataset, **arguments)), recognised(DataLoader(dataset, **arguments))
    for e, g in zip(expected, got, strict=True):
        assert type(g) is type(e) is tuple
        assert g[0].dtype == torch.uint8 and g[0].stride() == e[0].stride()
        assert g[1].dtype == e[1].dtype and torch.equal(g[1], e[1])
        assert levels(g[0], e[0], dataset.transform if hasattr(dataset, "transform") else None) <= 1.01


@pytest.mark.parametrize("training", [True, False])
def test_create_loader(folder: Path, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only timm's own call, with our class in place of torch's."""
    dataset = timm.create_dataset("", str(folder), class_map="")
    monkeypatch.setattr(timm.loader.torch.utils.data, "DataLoader", DataLoader)
    loader = timm.create_loader(
        dataset, (3, 32, 32), 4, is_training=training, use_prefetcher=False, num_workers=2, persistent_workers=False,
        interpolation="bilinear",
    )  # fmt: skip
    assert len(recognised(loader)) == (len(dataset) // 4 if training else -(-len(dataset) // 4))


def test_training_transforms_have_timms_distributions(folder: Path) -> None:
    stats = pytest.importorskip("scipy.stats")
    transform = timm.create_transform(24, is_training=True, scale=(0.2, 0.9))
    data = tud.Subset(timm_folder(folder, transform), [9])  # the same picture again and again
    count = 1500
    sampler = tud.RandomSampler(data, replacement=True, num_samples=count)
    torch.manual_seed(5)
    random.seed(6)
    (expected,), (got,) = (
        list(tud.DataLoader(data, count, sampler=sampler)),
        recognised(DataLoader(data, count, sampler=sampler)),
    )
    for statistic in (
        lambda x: x.mean((1, 2, 3)),
        lambda x: x.std((1, 2, 3)),
        lambda x: x[:, 0, :8, :8].mean((1, 2)) - x[:, 2, -8:, -8:].mean((1, 2)),
    ):
        a, b = (statistic(x[0].double()).numpy() for x in (expected, got))
        assert stats.ks_2samp(a, b).pvalue > 0.01


def test_images_that_cannot_be_read_are_replaced_as_timm_does(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    dataset = timm_folder(tmp_path / "copy", EVEN["eval"]())
    Path(dataset.reader.samples[4][0]).write_bytes(b"no image")
    dataset.reader.samples[5] = (dataset.reader.samples[5][0], 77)
    expected, got = list(tud.DataLoader(dataset, 3)), recognised(DataLoader(dataset, 3))
    assert [g[1].tolist() for g in got] == [e[1].tolist() for e in expected]
    assert got[1][1].tolist()[1] == 77  # with the target of the one that comes in its place
    assert all(levels(g[0], e[0], dataset.transform) <= 1.01 for g, e in zip(got, expected, strict=True))


class MyCrop(tt.RandomResizedCropAndInterpolation):
    """A look-alike."""

    marks = "of its own"


class MyDataset(timm.ImageDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


def test_look_alikes_are_not_recognised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crop, end = tt.RandomResizedCropAndInterpolation, tt.MaybeToTensor()

    def said(*parts: Any, data: Any = None, **arguments: Any) -> str:
        data = timm_folder(folder, v1.Compose(parts or (crop(20), end))) if data is None else data
        return reason(DataLoader(data, 4, **arguments))

    assert "random interpolation" in said(crop(20, interpolation="random"), end)
    assert "lanczos" in said(crop(20, interpolation="lanczos"), end)
    assert "with scale" in said(crop(20, scale=(0.5, 1.5)), end)
    assert "MyCrop" in said(MyCrop(20), end)
    assert "MyDataset" in said(data=MyDataset(str(folder), transform=v1.Compose([crop(20), end])))
    assert "fast_collate of a float tensor" in said(collate_fn=fast_collate)
    for change in ({"load_bytes": True}, {"input_img_mode": "L"}, {"additional_features": ["x"]}):
        data = timm_folder(folder, v1.Compose([crop(20), end]))
        vars(data).update(change)
        assert "other modes" in said(data=data)
    data = timm_folder(folder, v1.Compose([crop(20), end]))

    class Reader(type(data.reader)):  # type: ignore[misc]
        pass

    data.reader.__class__ = Reader
    assert "its reader is Reader" in said(data=data)
    for where, name in (
        (tt.RandomResizedCropAndInterpolation, "__call__"), (tt.RandomResizedCropAndInterpolation, "get_params"),
        (timm.ImageDataset, "__getitem__"), (v1.functional, "resized_crop"),
        (type(timm_folder(folder, None).reader), "__getitem__"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(where, name, lambda *a, **k: None)
            assert "replaced" in said(), name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_follows_a_crop_is_left_to_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crop, end = tt.RandomResizedCropAndInterpolation, tt.MaybeToTensor()

    def split_at(transform: Any, batches: int = 0, **arguments: Any) -> str:
        loader = DataLoader(timm_folder(folder, transform), 4, **arguments)
        said = loader.explain()
        if batches:
            assert len(list(loader)) == batches
        loader._stoker_path.plan.close()
        return said.partition("split before ")[2].partition(":")[0]

    for arguments in ({"auto_augment": "rand-m9-mstd0.5"}, {"auto_augment": "augmix-m5-w4-d2"}):
        transform = timm.create_transform(20, is_training=True, **arguments)
        assert split_at(transform, 3, num_workers=1).endswith(("RandAugment", "AugMixAugment"))
    transform = timm.create_transform(20, is_training=True, re_prob=0.5)
    assert split_at(transform, 3, num_workers=1) == "RandomErasing"
    transform = timm.create_transform(20, is_training=True, auto_augment="rand-m9", use_prefetcher=True)
    assert split_at(transform, 3, num_workers=1, collate_fn=fast_collate) == "RandAugment"
    assert split_at(v1.Compose([v1.Resize((20, 20)), tt.ToNumpy(), v1.RandomHorizontalFlip()])) == "ToNumpy"
    monkeypatch.setattr(tt.MaybeToTensor, "__call__", lambda self, image: torch.ones(2))
    assert split_at(v1.Compose([crop(20), end]), 3) == "MaybeToTensor"


# --- functions of the program together with the engine ----------------------------------------------------------------


def as_dict(batch: list[Any]) -> dict[str, Any]:
    return {"pixel_values": torch.stack([x for x, _ in batch]), "labels": torch.tensor([y for _, y in batch])}


@pytest.mark.parametrize("data", [image_folder, subset, cifar, mnist])
@pytest.mark.parametrize("as_array", [False, True])
def test_collates_of_the_program(folder: Path, data: Any, as_array: bool) -> None:
    """Without workers, torch calls them in this process too."""
    seen: list[Any] = []

    def collate(batch: list[Any]) -> dict[str, Any]:
        seen.append((type(batch), [(type(s), type(s[0]), s[0].dtype, s[0].shape) for s in batch]))
        return as_dict([(torch.as_tensor(np.ascontiguousarray(x)) if as_array else x, y) for x, y in batch])

    transform = v1.Compose([v1.Resize((30, 30)), tt.ToNumpy() if as_array else v1.ToTensor()])
    dataset = data(folder, transform)
    expected = list(tud.DataLoader(dataset, 5, collate_fn=collate))
    theirs = list(seen)
    seen.clear()
    loader = DataLoader(dataset, 5, collate_fn=collate)
    assert "this process" in loader.explain()
    got = recognised(loader)
    assert seen == theirs
    for e, g in zip(expected, got, strict=True):
        assert torch.equal(g["labels"], e["labels"])
        assert levels(g["pixel_values"], e["pixel_values"], transform) <= 1.01


def test_a_collate_that_keeps_and_changes_what_it_gets(folder: Path) -> None:
    kept: list[Any] = []

    def collate(batch: list[Any]) -> Any:
        kept.append(batch[0][0])
        for image, _ in batch:
            image.mul_(2)
        return batch

    dataset = cifar(folder, v1.ToTensor())
    for _ in range(3):
        for batch in DataLoader(dataset, 2, collate_fn=collate):
            assert torch.equal(batch[0][0], kept[-1])
    expected = [dataset[i][0] * 2 for i in range(0, IMAGES, 2)] * 3
    assert all(torch.allclose(k, e) for k, e in zip(kept, expected, strict=True))


def seeds(worker_id: int) -> None:
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def narrows(worker_id: int) -> None:
    tud.get_worker_info().dataset.data = None


def test_worker_init_fn(folder: Path) -> None:
    def said(init: Any, workers: int = 2) -> Any:
        answer = plan(DataLoader(cifar(folder, v1.ToTensor()), 4, num_workers=workers, worker_init_fn=init))
        if isinstance(answer, str):
            return answer
        for stream in answer._idle:
            stream.close()
        return None

    held = {"dataset": None}
    other = types.FunctionType((lambda i: seed(i)).__code__, {"seed": print})  # noqa: F821
    assert said(seeds) is None  # it only sets random numbers
    assert said(narrows, 0) is None  # it is never called
    for init in (narrows, print, lambda i: held.clear(), other, functools.partial(seeds),
                 functools.partial(_worker_init, worker_seeding=lambda info: 1)):  # fmt: skip
        assert "worker_init_fn may change the dataset" in said(init)


@pytest.mark.parametrize("sampler", [["a", "b"], [None], [100], [1.5], [[1]]])
def test_samplers_that_yield_nonsense(folder: Path, sampler: list[Any]) -> None:
    """They raise torch's exception, also if the engine builds the batches."""
    dataset = image_folder(folder, EVEN["eval"]())
    for arguments in ({"sampler": sampler, "batch_size": 2}, {"batch_sampler": [[0], sampler]}, {"batch_sampler": [3]}):
        with pytest.raises(Exception) as expected:
            list(tud.DataLoader(dataset, **arguments))
        loader = DataLoader(dataset, **arguments)
        with pytest.raises(type(expected.value)):
            list(loader)
        close(loader)
