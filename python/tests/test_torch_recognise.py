"""Loaders that the engine runs: the same batches as torch's, and nothing recognised that is not proven."""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")
tv = pytest.importorskip("torchvision")

import PIL.Image  # noqa: E402
import torch.utils.data as tud  # noqa: E402
from torchvision import datasets  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

from stoker.torch import DataLoader, _recognise  # noqa: E402
from stoker.torch._recognise import _datasets, _library, plan  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = 12


def picture(seed: int, width: int, height: int) -> PIL.Image.Image:
    small = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), np.uint8)
    return PIL.Image.fromarray(small).resize((width, height), PIL.Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of images of different sizes and formats in two classes."""
    root = tmp_path_factory.mktemp("folder")
    for i in range(IMAGES):
        place = root / "ab"[i % 2]
        place.mkdir(exist_ok=True)
        image = picture(i, 60 + 5 * i, 90 - 3 * i)
        if i == 7:
            image = image.convert("L")
        suffix = {3: "png", 5: "bmp", 8: "webp"}.get(i, "jpg")
        options = {"quality": 90} if suffix == "jpg" else {"lossless": True} if suffix == "webp" else {}
        image.save(place / f"{i:02d}.{suffix}", **options)
    return root


class Bare:
    """Makes datasets of torchvision without their files."""

    def __new__(cls, kind: type, transform: Any, **attributes: Any) -> Any:
        dataset = kind.__new__(kind)
        dataset.__dict__.update({"root": "", "transform": transform, "target_transform": None, "transforms": None})
        dataset.__dict__.update(attributes)
        return dataset


def pixels(*shape: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 255, shape, np.uint8)


def image_folder(folder: Path, t: Any) -> Any:
    return datasets.ImageFolder(str(folder), t)


def dataset_folder(folder: Path, t: Any) -> Any:
    return datasets.DatasetFolder(str(folder), datasets.folder.default_loader, (".jpg", ".png"), t)


def flowers(folder: Path, t: Any) -> Any:
    files = sorted(folder.glob("*/*"))
    return Bare(
        datasets.Flowers102,
        t,
        loader=datasets.folder.default_loader,
        _image_files=files,
        _labels=list(range(len(files))),
    )


def gtsrb(folder: Path, t: Any) -> Any:
    return Bare(datasets.GTSRB, t, _samples=[(str(p), i) for i, p in enumerate(sorted(folder.glob("*/*")))])


def subset(folder: Path, t: Any) -> Any:
    return tud.Subset(tud.Subset(image_folder(folder, t), range(1, IMAGES)), [4, 0, -1, 4, 2])


def concat(folder: Path, t: Any) -> Any:
    return tud.ConcatDataset([image_folder(folder, t), subset(folder, t)])


def split(folder: Path, t: Any) -> Any:
    return tud.random_split(image_folder(folder, t), [8, 4], torch.Generator().manual_seed(1))[0]


def cifar(_: Path, t: Any) -> Any:
    return Bare(datasets.CIFAR10, t, data=pixels(IMAGES, 32, 32, 3), targets=list(range(IMAGES)))


def cifar100(_: Path, t: Any) -> Any:
    return Bare(datasets.CIFAR100, t, data=pixels(IMAGES, 32, 32, 3), targets=list(range(IMAGES)))


def svhn(_: Path, t: Any) -> Any:
    return Bare(datasets.SVHN, t, data=pixels(IMAGES, 3, 32, 32), labels=np.arange(IMAGES))


def cifar_concat(folder: Path, t: Any) -> Any:
    return tud.ConcatDataset([cifar(folder, t), tud.Subset(cifar(folder, t), [3, 1])])


def mnist(_: Path, t: Any) -> Any:
    return Bare(datasets.MNIST, t, data=torch.from_numpy(pixels(IMAGES, 28, 28)), targets=torch.arange(IMAGES))


def fashion(_: Path, t: Any) -> Any:
    return Bare(datasets.FashionMNIST, t, data=torch.from_numpy(pixels(IMAGES, 28, 28)), targets=torch.arange(IMAGES))


class Preset:
    """Only calls the transform that it holds, like the presets of torchvision's references."""

    def __init__(self, *parts: Any) -> None:
        self.transforms = v1.Compose(parts)

    def __call__(self, img: Any) -> Any:
        return self.transforms(img)


FILES = [image_folder, dataset_folder, flowers, gtsrb, subset, concat, split]
ARRAYS = [cifar, cifar100, svhn, cifar_concat]
GRAY = [mnist, fashion]

# Transforms that give the same each time: of files, ...
EVEN: dict[str, Callable[[], Any]] = {
    "v1": lambda: v1.Compose([v1.Resize(48), v1.CenterCrop(40), v1.ToTensor(), v1.Normalize(MEAN, STD)]),
    "v1 bicubic": lambda: v1.Compose([v1.Resize((32, 44), v1.InterpolationMode.BICUBIC), v1.ToTensor()]),
    "v1 bytes": lambda: v1.Compose([v1.Resize([40]), v1.CenterCrop((30, 36)), v1.PILToTensor()]),
    "v1 gray": lambda: v1.Compose([v1.Resize((40, 40)), v1.Grayscale(), v1.ToTensor(), v1.Normalize([0.5], [0.25])]),
    "v2": lambda: v2.Compose(
        [v2.ToImage(), v2.Resize(48), v2.CenterCrop(40), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    ),
    "v2 pictures": lambda: v2.Compose(
        [v2.Resize((36, 40)), v2.RandomHorizontalFlip(1.0), v2.PILToTensor(), v2.ToDtype(torch.float32)]
    ),
    "nested": lambda: Preset(
        v1.Compose([v1.Resize(41)]),
        torch.nn.Sequential(v1.CenterCrop(50), torch.nn.Identity()),
        v1.PILToTensor(),
        v1.ConvertImageDtype(torch.float),
        v1.RandomVerticalFlip(1.0),
    ),
}
# ... of arrays of colours, and of gray ones.
EVEN_ARRAYS: dict[str, Callable[[], Any]] = {
    "v1": lambda: v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)]),
    "v1 resize": lambda: v1.Compose([v1.Resize(40), v1.ToTensor()]),
    "v1 pad": lambda: v1.Compose([v1.CenterCrop(36), v1.PILToTensor()]),
    "v2": lambda: v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.25])]),
}
EVEN_GRAY: dict[str, Callable[[], Any]] = {
    "v1": lambda: v1.Compose([v1.ToTensor(), v1.Normalize((0.1307,), (0.3081,))]),
    "v1 bytes": lambda: v1.Compose([v1.RandomHorizontalFlip(1.0), v1.PILToTensor()]),
    "v1 resize": lambda: v1.Compose([v1.Resize(32), v1.ToTensor()]),
}
PAIRS = [
    *((d, name, t) for d in FILES for name, t in EVEN.items()),
    *((d, name, t) for d in ARRAYS for name, t in EVEN_ARRAYS.items()),
    *((d, name, t) for d in GRAY for name, t in EVEN_GRAY.items()),
]


def reason(loader: Any) -> str:
    """Return why a loader is not recognised."""
    answer = plan(loader)
    assert isinstance(answer, str), "it is recognised"
    return answer


def close(loader: Any) -> None:
    for stream in loader._stoker_path.plan._idle:
        stream.close()


def recognised(loader: Any) -> list[Any]:
    """Return all batches, which must come from the engine."""
    batches = list(loader)
    assert type(loader._stoker_path).__name__ == "EngineWay", loader.explain()
    close(loader)
    return batches


def levels(a: Any, b: Any, t: Any) -> float:
    """Return the largest difference in levels of 8 bits."""
    text = repr(getattr(t, "transforms", t))
    scale = torch.ones(1)
    if a.dtype == torch.float32 and (
        re.search(r"\b(Maybe)?ToTensor\(\)", text) or "scale=True" in text or "ConvertImageDtype" in text
    ):
        scale = torch.tensor(255.0)
        if "Normalize" in text:
            spread = [0.25] if "0.25" in text else [0.3081] if "0.3081" in text else STD
            scale = scale * torch.tensor(spread)[:, None, None]
    return float(((a.double() - b.double()).abs() * scale).max())


@pytest.mark.parametrize(("data", "name", "make"), PAIRS, ids=[f"{d.__name__}-{n}" for d, n, _ in PAIRS])
def test_pairs(folder: Path, data: Any, name: str, make: Any) -> None:
    transform = make()
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


def test_there_are_60_pairs() -> None:
    assert len(PAIRS) >= 60  # and those of timm, test_torch_recognise_timm.py, and of tables, ..._tables.py


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_floats_are_torchs(folder: Path, name: str) -> None:
    """Without a resize, values differ only by the rounding of floats."""
    data = cifar(folder, EVEN_ARRAYS[name]())
    (expected,), (got,) = list(tud.DataLoader(data, IMAGES)), recognised(DataLoader(data, IMAGES))
    assert float((got[0] - expected[0]).abs().max()) < 2e-6


RANDOM: dict[str, Callable[[], Any]] = {
    "v1": lambda: v1.Compose(
        [v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ColorJitter(0.4, 0.4, 0.4, 0.1), v1.ToTensor()]
    ),
    "v2": lambda: v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(24, (0.2, 0.9), antialias=True),
            v2.RandomGrayscale(0.3),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    ),
    "crop": lambda: v1.Compose([v1.RandomCrop(56, 6, True, 9), v1.RandomVerticalFlip(0.3), v1.ToTensor()]),
    "erase": lambda: v1.Compose([v1.RandomCrop(48), v1.ToTensor(), v1.RandomErasing(0.7)]),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_transforms_have_torchs_distributions(folder: Path, name: str) -> None:
    """Means and corners of the results of random transforms are distributed alike."""
    stats = pytest.importorskip("scipy.stats")
    data = tud.Subset(image_folder(folder, RANDOM[name]()), [9])  # the same picture again and again
    count = 1500
    sampler = tud.RandomSampler(data, replacement=True, num_samples=count)
    torch.manual_seed(5)
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


def test_every_sampler_keeps_its_order(folder: Path) -> None:
    class Odd(tud.Sampler[int]):
        def __iter__(self) -> Any:
            for _ in range(9):
                yield int(torch.randint(0, IMAGES, ()))  # draws from the global numbers while it runs

        def __len__(self) -> int:
            return 9

    class Sizes:
        def __iter__(self) -> Any:
            yield from ([1], [2, 3, 4], [np.int64(5), torch.tensor(6)], [-1], list(range(IMAGES)) * 8)

    data = cifar(folder, EVEN_ARRAYS["v1"]())
    weights = list(range(1, IMAGES + 1))
    for arguments in (
        {"shuffle": True, "batch_size": 5},
        {"batch_size": 5, "drop_last": True},
        {"sampler": tud.WeightedRandomSampler(weights, 20), "batch_size": 3},
        {"sampler": tud.SubsetRandomSampler([3, 1, 7]), "batch_size": 2},
        {"sampler": tud.DistributedSampler(data, 2, 1, seed=4), "batch_size": 4},
        {"sampler": Odd(), "batch_size": 2},
        {"batch_sampler": Sizes()},
    ):
        torch.manual_seed(1)
        theirs = tud.DataLoader(data, **arguments)
        expected = [*theirs, *theirs]
        after = torch.rand(3)
        torch.manual_seed(1)
        ours = DataLoader(data, **arguments)
        got = [*ours, *ours]
        assert torch.equal(torch.rand(3), after)
        assert type(ours._stoker_path).__name__ == "EngineWay"
        assert [g[1].tolist() for g in got] == [e[1].tolist() for e in expected]
        assert all(torch.allclose(g[0], e[0], atol=2e-6) for g, e in zip(got, expected, strict=True))
        close(ours)


def test_same_seed_same_pixels(folder: Path) -> None:
    def run() -> Any:
        torch.manual_seed(3)
        return torch.cat([b[0] for b in recognised(DataLoader(image_folder(folder, RANDOM["v1"]()), 4, shuffle=True))])

    assert torch.equal(run(), run())


def test_two_epochs_draw_anew_and_batches_may_be_kept(folder: Path) -> None:
    loader = DataLoader(image_folder(folder, RANDOM["v1"]()), 1)
    kept = [b for _ in range(8) for b in loader]  # far more than the engine has room for
    assert len(kept) == 8 * IMAGES
    assert not torch.equal(kept[0][0], kept[IMAGES][0])
    assert len({float(b[0].sum()) for b in kept}) > 7 * IMAGES
    close(loader)


def test_two_loops_over_one_loader(folder: Path) -> None:
    loader = DataLoader(cifar(folder, EVEN_ARRAYS["v1"]()), 5)
    for (a, i), (b, j) in zip(loader, loader, strict=True):
        assert torch.equal(a, b) and torch.equal(i, j)
    for _ in loader:
        break  # a loop that is left early
    assert len(list(loader)) == 3
    close(loader)


def spoil(folder: Path, into: Path) -> dict[str, bytes]:
    """Return damaged and unusual files, by Pillow's result for them."""
    good = (folder / "a" / "00.jpg").read_bytes()
    exif = b"\xff\xe1\x00\x12Exif\x00\x00MM\x00*\xff\xff\xff\xff"
    return {
        "junk behind.jpg": good + b"\0junk" * 40,
        "exif.jpg": good[:2] + exif + good[2:],
        "restart.jpg": good[:-40] + bytes(38) + good[-2:],  # data that ends early: Pillow warns and goes on
    }


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_images_that_only_pillow_takes(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    for name, content in spoil(folder, tmp_path).items():
        (tmp_path / "c" / name).write_bytes(content)
    picture(3, 50, 40).save(tmp_path / "c" / "x.ppm")
    data = image_folder(tmp_path, EVEN["v1"]())
    (expected,), (got,) = list(tud.DataLoader(data, 9)), list(DataLoader(data, 9))
    assert len(expected[0]) == 4
    assert levels(got[0], expected[0], data.transform) <= 1.01


@pytest.mark.parametrize("how", ["cut", "empty", "text", "gone", "changed"])
def test_images_that_pillow_refuses(folder: Path, tmp_path: Path, how: str) -> None:
    (tmp_path / "c").mkdir()
    good = (folder / "a" / "00.jpg").read_bytes()
    for i in range(6):
        (tmp_path / "c" / f"{i}.jpg").write_bytes(good)
    bad = tmp_path / "c" / "4.jpg"
    data = image_folder(tmp_path, v1.Compose([v1.RandomResizedCrop(16), v1.ToTensor()]))
    loader = DataLoader(data, 3)
    assert len(list(loader)) == 2
    if how == "gone":
        bad.unlink()
    elif how == "changed":
        picture(77, 200, 200).save(bad)
    else:
        bad.write_bytes({"cut": good[: len(good) * 2 // 3], "empty": b"", "text": b"no image"}[how])
    if how == "changed":
        assert len(list(loader)) == 2
        return
    with pytest.raises(OSError) as expected:
        list(tud.DataLoader(data, 3))
    batches = iter(loader)
    next(batches)  # those before it come
    before = random.getstate(), torch.get_rng_state()
    with pytest.raises(type(expected.value)):
        next(batches)
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])


class Mine(v1.RandomHorizontalFlip):
    def forward(self, img: Any) -> Any:
        return img


class MyFolder(datasets.ImageFolder):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


class Almost:
    """Does more than to call the transform that it holds."""

    def __init__(self, inner: Any) -> None:
        self.transforms = inner

    def __call__(self, img: Any) -> Any:
        return self.transforms(img) * 2


def test_what_is_not_recognised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = [v1.Resize((20, 20)), v1.ToTensor()]

    def said(transform: Any = None, data: Any = None, **arguments: Any) -> str:
        data = image_folder(folder, transform or v1.Compose(good)) if data is None else data
        return reason(DataLoader(data, 4, **arguments))

    assert "Mine" in said(v1.Compose([Mine(), *good]))
    assert "Almost" in said(Almost(v1.Compose(good)))
    assert "lambda" in said(v1.Compose([lambda x: x, *good]))
    assert "pictures" in said(v1.Resize((20, 20)))
    assert "size differs" in said(v1.ToTensor())
    assert "lanczos" in said(v1.Compose([v1.Resize((9, 9), v1.InterpolationMode.LANCZOS), *good]))
    assert "antialias" in said(v2.Compose([v2.ToImage(), v2.Resize((9, 9), antialias=False)]))
    assert "before the conversion" in said(v1.Compose([v1.ToTensor(), v1.Resize((9, 9))]))
    assert "worker_init_fn" in said(worker_init_fn=print, num_workers=1)
    derived = plan(DataLoader(MyFolder(str(folder), v1.Compose(good)), 4))
    assert not isinstance(derived, str) and derived.learns  # as it is for datasets of the program's own
    assert "loaded by" in said(data=datasets.ImageFolder(str(folder), v1.Compose(good), loader=lambda p: p))
    assert "pictures" in said(data=image_folder(folder, None))
    flip = v1.RandomHorizontalFlip()
    flip.forward = lambda x: x  # type: ignore[method-assign]
    assert "forward" in said(v1.Compose([flip, *good]))
    hooked = v1.RandomHorizontalFlip()
    hooked.register_forward_hook(lambda *_: None)
    assert "hooks" in said(v1.Compose([hooked, *good]))
    both = tud.ConcatDataset([image_folder(folder, v1.Compose(good)), image_folder(folder, v1.ToTensor())])
    assert "different transforms" in said(data=both)
    for where, name in (
        (datasets.DatasetFolder, "__getitem__"), (v1.Resize, "forward"), (PIL.Image, "open"),
        (PIL.Image.Image, "convert"), (datasets.folder, "pil_loader"), (v1.functional, "resize"),
        (tud.Subset, "__getitems__"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(where, name, lambda *a, **k: None)
            data = tud.Subset(image_folder(folder, v1.Compose(good)), [1, 2])
            assert "replaced" in said(data=data), name
    with monkeypatch.context() as patch:
        patch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 100)
        assert "MAX_IMAGE_PIXELS" in said()
    torch.set_default_dtype(torch.float64)
    try:
        assert "dtype" in said()
    finally:
        torch.set_default_dtype(torch.float32)


def test_changes_between_epochs_are_seen(folder: Path) -> None:
    data = image_folder(folder, v1.Compose([v1.Resize((20, 20)), v1.ToTensor()]))
    loader = DataLoader(data, 4)
    assert next(iter(loader))[0].shape[-1] == 20
    data.transform.transforms[0].size = (24, 30)
    assert next(iter(loader))[0].shape[-2:] == (24, 30)
    data.samples[0] = (data.samples[5][0], 77)
    images, labels = next(iter(loader))
    assert labels[0] == 77
    assert torch.equal(images[0], DataLoader(tud.Subset(data, [5]), 1)._get_iterator().__next__()[0][0])
    data.target_transform = lambda t: t + 1000
    assert min(next(iter(loader))[1]) >= 1000
    data.transform = lambda image: torch.tensor(1)
    assert next(iter(loader))[0].tolist() == [1] * 4
    array = cifar(folder, v1.ToTensor())
    loader = DataLoader(array, 4)
    first = next(iter(loader))[0]
    array.data[[0, 1]] = array.data[[1, 0]]
    assert torch.equal(next(iter(loader))[0][[1, 0]], first[:2])


@pytest.mark.filterwarnings("ignore::stoker.EngineRestarted")
def test_the_engine_is_started_again(folder: Path) -> None:
    loader = DataLoader(cifar(folder, EVEN_ARRAYS["v1"]()), 2, num_workers=1)
    expected = list(loader)
    batches = iter(loader)
    got = [next(batches)]
    os.kill(batches._batches._stream._connection._process.pid, 9)  # type: ignore[attr-defined]
    got += list(batches)
    assert len(got) == len(expected)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(got, expected, strict=True))
    close(loader)


@pytest.mark.filterwarnings("ignore::stoker.EngineRestarted")
def test_ranks_share_an_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loaders, as ranks of a job have them, get the same batches as alone, also after the engine was killed."""
    make = [
        lambda: DataLoader(cifar(folder, EVEN_ARRAYS["v1"]()), 2, num_workers=1),
        lambda: DataLoader(image_folder(folder, EVEN["v1"]()), 2, num_workers=1),
    ]
    expected = [list(m()) for m in make]
    with tempfile.TemporaryDirectory(prefix="stk") as runtime:
        os.chmod(runtime, 0o700)  # noqa: PTH101
        for name, value in {
            "STOKER_RUNTIME_DIR": runtime,
            "STOKER_TEST_LINGER": "100ms",
            "LOCAL_WORLD_SIZE": "2",
        }.items():
            monkeypatch.setenv(name, value)
        loaders = [m() for m in make]
        loops = [iter(loader) for loader in loaders]
        got = [[next(loop)] for loop in loops]
        engines = {loop._batches._stream._connection._process for loop in loops}  # type: ignore[attr-defined]
        assert len({engine.pid for engine in engines}) == 1
        os.kill(engines.pop().pid, 9)
        for some, loop in zip(got, loops, strict=True):
            some += list(loop)
        for a, b in zip(got, expected, strict=True):
            assert all(torch.equal(x[0], y[0]) for x, y in zip(a, b, strict=True))
        for loader in loaders:
            close(loader)


def test_lists_of_paths(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Paths may be relative, lead up, and through links."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path / "deep")
    for root in ("../link", "../link/a/..", ".././/link", str(folder) + "//"):
        data = datasets.ImageFolder(root, EVEN["v1"]())
        loader = DataLoader(data, IMAGES)
        assert len(recognised(loader)[0][0]) == IMAGES
        assert loader._stoker_path.plan.by_python == 0


def test_every_dataset_that_is_known_exists() -> None:
    """A torchvision without one of them is fine. Without this test a wrong name here would never be noticed."""
    for name in _datasets._KNOWN:
        module, _, kind = name.rpartition(".")
        found = getattr(__import__(module, fromlist=[kind]), kind)
        assert _library.qualified(found) == name
        assert module.partition(".")[0] in _recognise.PACKAGES
