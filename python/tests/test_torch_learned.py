"""The program's own datasets, whose files Stoker learns: the engine's batches compared with torch's."""

from __future__ import annotations

import gc
import importlib
import io
import os
import random
import sys
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
from PIL import Image  # noqa: E402
from PIL.Image import open as open_by_name  # noqa: E402
from test_torch_recognise import MEAN, STD, picture  # noqa: E402
from torchvision import datasets as tvd  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

from stoker.torch import DataLoader  # noqa: E402
from stoker.torch._recognise import _learned, _tally, plan  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", r"ignore:os\.fork\(\) was called")
IMAGES = 14
EVAL = v1.Compose([v1.Resize(48), v1.CenterCrop(40), v1.ToTensor(), v1.Normalize(MEAN, STD)])
GRAY = v1.Compose([v1.Resize((32, 40)), v1.ToTensor(), v1.Normalize([0.5], [0.25])])
TRAIN = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor()])
CHOICE = v1.Compose([v1.CenterCrop(24), v1.RandomChoice([v1.RandomInvert(1.0), v1.Pad(0)]), v1.ToTensor()])
MASK = v1.Compose([v1.Resize((24, 24), v1.InterpolationMode.NEAREST), v1.PILToTensor()])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """JPEG files, one of them gray, which were not written just now."""
    monkeypatch.setattr(_learned, "_CLOCK", 0)
    folder = tmp_path / "class"
    folder.mkdir()
    for i in range(IMAGES):
        picture(i, 60 + 5 * i, 90 - 3 * i).convert("L" if i == 7 else "RGB").save(folder / f"{i:02}.jpg", quality=90)
    return [str(folder / f"{i:02}.jpg") for i in range(IMAGES)]


class Own(tud.Dataset):
    """A typical dataset of a program; a function of the test defines its use of a file."""

    def __init__(self, files: list[str], transform: Any, item: Callable[[Any, int], Any]) -> None:
        self.files, self.transform, self.item = files, transform, item

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        return self.item(self, i)


def plain(self: Any, i: int) -> Any:
    return self.transform(Image.open(self.files[i]).convert("RGB")), i


def with_statement(self: Any, i: int) -> Any:
    with Image.open(self.files[i]) as image:
        return self.transform(image.convert("RGB")), image.size


def left_before(self: Any, i: int) -> Any:
    with Image.open(self.files[i]) as image:
        image = image.convert("RGB")
    return self.transform(image), image.size


def of_a_file(self: Any, i: int) -> Any:
    with open(self.files[i], "rb") as file:
        image = Image.open(file)
        return self.transform(image.convert("RGB")), i


def never_closed(self: Any, i: int) -> Any:
    return self.transform(Image.open(open(self.files[i], "rb")).convert(mode="RGB")), i


def a_path(self: Any, i: int) -> Any:
    return self.transform(open_by_name(Path(self.files[i])).convert("RGB")), i


def relative(self: Any, i: int) -> Any:
    return self.transform(Image.open(os.path.relpath(self.files[i])).convert("RGB")), i


def with_the_generator(self: Any, i: int) -> Any:
    torch.rand(0, generator=torch.random.default_generator)
    return plain(self, i)


def as_a_dict(self: Any, i: int) -> Any:
    image = Image.open(self.files[i]).convert("RGB")
    return {"image": self.transform(image), "size": torch.tensor(image.size), "path": self.files[i], "n": {"i": i}}


def two_images(self: Any, i: int) -> Any:
    other = (5 * i + 1) % len(self)
    return self.transform(open_by_name(self.files[i]).convert("RGB")), plain(self, other)


def the_same_twice(self: Any, i: int) -> Any:
    image = Image.open(self.files[i]).convert("RGB")
    return self.transform(image), self.transform(image.copy()), plain(self, i)


def image_and_mask(self: Any, i: int) -> Any:
    mask = MASK(Image.open(self.files[-i - 1]).convert("L"))
    return self.transform(Image.open(self.files[i]).convert("RGB")), mask


def looks_at_pixels(self: Any, i: int) -> Any:
    image = Image.open(self.files[i]).convert("RGB")
    return self.transform(image), float(np.asarray(image).mean()), image.getpixel((3, 2))


def changes_pixels(self: Any, i: int) -> Any:
    image = Image.open(self.files[i]).convert("RGB")
    if i % 3 == 0:
        image.putpixel((5, 5), (255, 0, 255))
        image.paste((0, 0, 0), (0, 0, 40, 40))
    return self.transform(image), i


def crops(self: Any, i: int) -> Any:
    image = Image.open(self.files[i]).convert("RGB")
    return self.transform(image.crop((1, 2, 50, 45)) if i % 3 == 0 else image), i


def drafts(self: Any, i: int) -> Any:
    image = Image.open(self.files[i])
    if i % 5 == 0:
        image.draft("RGB", (image.width // 2, image.height // 2))
    elif i % 5 == 1:
        image.load()
    return self.transform(image.convert("RGB")), image.size


def gray_and_back(self: Any, i: int) -> Any:
    image = Image.open(self.files[i])
    return self.transform((image.convert("L") if i % 3 == 0 else image).convert("RGB")), i


def turned(self: Any, i: int) -> Any:
    image = PIL.ImageOps.exif_transpose(Image.open(self.files[i]))
    return self.transform(image.convert("RGB")), i


GOOD = [
    plain, with_statement, left_before, of_a_file, never_closed, a_path, with_the_generator, relative, as_a_dict,
    two_images, the_same_twice, image_and_mask, looks_at_pixels, changes_pixels, crops, drafts, gray_and_back,
]  # fmt: skip


def close(got: Any, want: Any) -> bool:
    if isinstance(want, dict):
        return list(got) == list(want) and all(close(got[k], want[k]) for k in want)
    if isinstance(want, list | tuple):
        return len(got) == len(want) and all(map(close, got, want))
    if isinstance(want, torch.Tensor):
        scale = 1.01 / 255 / min(STD) if want.dtype == torch.float32 else 0
        same = got.shape == want.shape and got.dtype == want.dtype and got.stride() == want.stride()
        return same and float((got.double() - want.double()).abs().max()) <= scale
    return bool(got == want)


def state(loader: Any) -> Any:
    return loader._stoker_path.plan._state


def epochs(loader: Any, n: int = 3) -> list[Any]:
    """Return the batches of some epochs, each in an order of its own."""
    got = []
    for epoch in range(n):
        loader.generator.manual_seed(epoch)
        got.append(list(loader))
    return got


def both(data: Any, n: int = 3, **arguments: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return our loader, and torch's and our batches of some epochs."""
    made = []
    for kind in (tud.DataLoader, DataLoader):
        loader = kind(data, generator=torch.Generator(), **{"batch_size": 5, "shuffle": True, **arguments})
        made.append(epochs(loader, n))
    return loader, *made


@pytest.mark.filterwarnings("ignore:unclosed file")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("item", GOOD)
def test_batches_equal_torchs(files: list[str], item: Any, workers: int) -> None:
    loader, expected, got = both(Own(files, EVAL, item), num_workers=workers)
    assert close(got, expected)
    given, answered = state(loader).tally.sums()
    per = int(state(loader).count.max())
    assert given == 2 * int(state(loader).count.sum()) and 2 * answered > given, loader.explain()
    if item in (plain, with_statement, left_before, of_a_file, a_path, relative, as_a_dict, two_images):
        # The gray one's row was converted as the others were.
        assert answered == given == 2 * per * IMAGES
    assert "Resize, CenterCrop, ToTensor, Normalize" in loader.explain()
    loader._stoker_path.plan.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_gray(files: list[str], workers: int) -> None:
    def item(self: Any, i: int) -> Any:
        return self.transform(Image.open(self.files[i]).convert("L")), i

    loader, expected, got = both(Own(files, GRAY, item), num_workers=workers)
    assert close(got, expected) and got[0][0][0].shape[1] == 1
    assert state(loader).tally.sums() == (2 * IMAGES, 2 * IMAGES)
    # Unmodified from the file: one of them is gray.
    loader, expected, got = both(
        Own(files, v1.Compose([v1.Resize((9, 9)), v1.ToTensor()]), lambda self, i: opened(self, i)), 2, batch_size=1
    )
    assert close(got, expected)
    assert state(loader).tally.sums() == (IMAGES - 1, IMAGES - 1)


def opened(self: Any, i: int) -> Any:
    return self.transform(Image.open(self.files[i]))


@pytest.mark.parametrize("persistent", [False, True])
def test_wrapped_and_split_transforms(files: list[str], persistent: bool) -> None:
    own = v1.Lambda(lambda x: x * 2)
    for transform in (
        v1.Compose([v1.Resize(48), v1.CenterCrop(40), v1.ToTensor(), own]),
        v2.Compose([v2.Resize((33, 44)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
        v1.Compose([v1.CenterCrop(30), v1.PILToTensor()]),
    ):
        loader, expected, got = both(Own(files, transform, plain), num_workers=2, persistent_workers=persistent)
        scale = 2 if own in transform.transforms else 1
        for ours, theirs in zip(got, expected, strict=True):
            assert close([[x / scale, y] for x, y in ours], [[x / scale, y] for x, y in theirs])
        assert state(loader).tally.sums() == (2 * IMAGES, 2 * IMAGES)


class Renamed(tvd.ImageFolder):
    """Has a method of its own."""

    def __getitem__(self, i: int) -> Any:
        return super().__getitem__(i)


@pytest.mark.parametrize("workers", [0, 2])
def test_classes_derived_from_known_ones_and_subsets(files: list[str], workers: int) -> None:
    folder = Renamed(str(Path(files[0]).parents[1]), EVAL)
    subset = tud.Subset(Own(files, EVAL, plain), [9, 3, 7, 3, 0])
    parts = tud.ConcatDataset([folder, Own(files, EVAL, plain), subset])
    for data in (folder, subset, parts, tud.Subset(subset, [4, 1]), tud.random_split(folder, [0.5, 0.5])[0]):
        loader, expected, got = both(data, num_workers=workers)
        assert close(got, expected)
        assert state(loader).tally.sums() == (2 * len(data), 2 * len(data)), loader.explain()


def imports_a_format(self: Any, i: int) -> Any:
    importlib.import_module("PIL.DdsImagePlugin")  # as Pillow imports TIFF to read EXIF data
    return plain(self, i)


def registers_a_format(self: Any, i: int) -> Any:
    Image.register_open("OWN", opened, lambda prefix: False)  # Pillow asks it before it opens other files
    return plain(self, i)


@pytest.mark.parametrize("item", [imports_a_format, registers_a_format])
@pytest.mark.parametrize("persistent", [False, True])
def test_formats_that_workers_register(
    files: list[str], monkeypatch: pytest.MonkeyPatch, item: Any, persistent: bool
) -> None:
    Image.preinit()
    monkeypatch.setattr(Image, "OPEN", Image.OPEN.copy())
    monkeypatch.setattr(Image, "ID", Image.ID.copy())
    Image.OPEN.pop("DDS", None)
    Image.ID[:] = [name for name in Image.ID if name != "DDS"]
    monkeypatch.setattr(Image, "DECODERS", {k: v for k, v in Image.DECODERS.items() if k != "dds_rgb"})
    monkeypatch.delitem(sys.modules, "PIL.DdsImagePlugin", raising=False)
    loader, got, expected = both(
        Own(files, EVAL, item),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="fork",
        persistent_workers=persistent,
    )
    assert close(got, expected)
    given, answered = state(loader).tally.sums()
    if item is imports_a_format:
        assert answered == given == 2 * IMAGES, loader.explain()
    else:
        assert answered <= 4  # the first batches of a worker, before it registers one


def test_persistent_workers_learn(files: list[str]) -> None:
    loader, expected, got = both(Own(files, EVAL, plain), 4, num_workers=2, persistent_workers=True)
    assert close(got, expected)
    assert state(loader).tally.sums() == (3 * IMAGES, 3 * IMAGES)
    del loader
    gc.collect()


def test_what_is_known_grows(files: list[str]) -> None:
    """An epoch that ends early, and another loader of the same dataset, lose nothing."""
    data = Own(files, EVAL, plain)
    first = DataLoader(data, 5, num_workers=0)
    next(iter(first))
    assert "Stoker learns" in first.explain() or "5 of 14" in first.explain()
    again = DataLoader(data, 5, num_workers=2)
    assert close(list(again), list(tud.DataLoader(data, 5)))
    assert state(again) is state(first) and int((state(again).first >= 0).sum()) >= 5
    assert close(list(again), list(tud.DataLoader(data, 5)))
    assert "14 of 14 records" in again.explain()


def test_random_transforms(files: list[str]) -> None:
    """They have torchvision's distributions, differ by epoch and record, and repeat themselves with a seed."""
    data = Own(files, TRAIN, the_same_twice)

    def run() -> Any:
        torch.manual_seed(7)
        loader = DataLoader(data, 5, num_workers=2)
        return loader, [list(loader) for _ in range(3)]

    loader, got = run()
    given, answered = state(loader).tally.sums()
    assert given == answered == 2 * 2 * IMAGES  # the copy is drawn by Python
    for x, y, (z, _) in got[1]:
        assert not torch.equal(x, y) and not torch.equal(x, z)
    assert not torch.equal(got[1][0][0], got[2][0][0])
    _, again = run()
    assert torch.equal(again[1][0][0], got[1][0][0]) or torch.equal(again[2][0][0], got[2][0][0])


def seeds(self: Any, i: int) -> Any:
    torch.manual_seed(i)
    return plain(self, i)


def pairs(self: Any, i: int) -> Any:
    kept = torch.get_rng_state()
    first = plain(self, i)[0]
    torch.set_rng_state(kept)
    return first, plain(self, i)[0]


def forks(self: Any, i: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        first = plain(self, i)[0]
    return first, plain(self, i)[0]


def by_its_name(self: Any, i: int) -> Any:
    torch.default_generator.manual_seed(i)
    return plain(self, i)


ALIAS = torch.default_generator


def by_another_name(self: Any, i: int) -> Any:
    ALIAS.manual_seed(i)
    return plain(self, i)


def of_python(self: Any, i: int) -> Any:
    random.seed(i)
    return plain(self, i)


class Named(Own):
    """Has the code in its class."""

    def __getitem__(self, i: int) -> Any:
        return by_its_name(self, i)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("item", [seeds, pairs, forks, by_its_name, by_another_name, of_python])
def test_programs_that_set_random_numbers(files: list[str], item: Any, workers: int) -> None:
    """Their random transforms stay Python's, their deterministic ones do not."""
    torch.manual_seed(1)
    loader, expected, got = both(Own(files, CHOICE if item is of_python else TRAIN, item), num_workers=workers)
    if item in (pairs, forks):
        assert all(torch.equal(x, y) for batches in got for x, y in batches)
    else:
        ours, theirs = ([x for batches in made for x, _ in batches] for made in (got, expected))
        assert all(map(torch.equal, ours, theirs)) and len(ours) == len(theirs)
    assert "random numbers" in loader.explain() or "default_generator" in loader.explain()
    loader, expected, got = both(Own(files, EVAL, item), num_workers=workers)
    assert close(got, expected) and state(loader).tally.sums()[1] > 0


def pairs_by_seed(self: Any, i: int) -> Any:
    plain(self, i)
    torch.manual_seed(i)
    first = plain(self, i)[0]
    torch.manual_seed(i)
    return first, plain(self, i)[0]


@pytest.mark.parametrize("later", [pairs, pairs_by_seed])
@pytest.mark.parametrize("workers", [0, 2])
def test_random_numbers_that_are_set_only_later(files: list[str], workers: int, later: Any) -> None:
    """A pair that is cropped alike from the second epoch on is cropped alike: the item is made again."""
    calls = Path(files[0]).with_name("epoch")

    def item(self: Any, i: int) -> Any:
        if not calls.exists():
            return plain(self, i)[0], plain(self, i)[0]
        return later(self, i)

    loader = DataLoader(Own(files, TRAIN, item), 5, num_workers=workers, shuffle=True)
    list(loader)
    calls.touch()
    for x, y in list(loader) + list(loader):
        assert torch.equal(x, y)
    list(loader)
    assert "reads or sets the state" in loader.explain()


def test_a_wrong_guess_is_given_up(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tally, "_ENOUGH", 10)
    order = list(files)

    class Shuffled(Own):
        def __getitem__(self, i: int) -> Any:
            return plain(self, i)

    data = Shuffled(order, EVAL, plain)
    loader = DataLoader(data, 5)
    list(loader)
    random.Random(3).shuffle(order)
    assert close(list(loader), list(tud.DataLoader(data, 5)))
    assert close(list(loader), list(tud.DataLoader(data, 5)))
    assert "other files than before" in loader.explain()
    assert type(loader._stoker_path).__name__ == "TorchWay"


def test_a_difference_is_given_up(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some records of each epoch are compared with Pillow's."""
    for transform, workers in ((EVAL, 0), (TRAIN, 2)):
        data = Own(list(files), transform, plain)
        loader = DataLoader(data, 5, num_workers=workers, persistent_workers=workers > 0)
        list(loader)
        assert len(list(loader)) == 3
        monkeypatch.setattr(_learned.LearnedPlan, "_expected", lambda *_: torch.zeros(3, 40, 40))
        with pytest.warns(RuntimeWarning, match="not Pillow's"):
            got = list(loader)
        monkeypatch.undo()
        assert transform is TRAIN or close(got, list(tud.DataLoader(data, 5)))
        assert "not Pillow's" in loader.explain()


@pytest.mark.parametrize("workers", [0, 2])
def test_files_that_change_and_files_that_nobody_reads(files: list[str], workers: int) -> None:
    data = Own(files, EVAL, plain)
    loader = DataLoader(data, 5, num_workers=workers)
    list(loader)
    picture(77, 90, 80).save(files[3], quality=85)
    Path(files[4]).unlink()
    picture(78, 80, 80).save(files[4], quality=85)
    picture(79, 70, 70).save(files[5], "PNG")
    assert close(list(loader), list(tud.DataLoader(data, 5)))
    for broken in (b"", b"no image", Path(files[3]).read_bytes()[:300]):
        Path(files[8]).write_bytes(broken)
        errors = []
        for kind in (tud.DataLoader, DataLoader):
            with pytest.raises((OSError, PIL.UnidentifiedImageError)) as caught:
                list(kind(data, 5, num_workers=workers) if kind is tud.DataLoader else loader)
            errors.append(caught.type)
        assert errors[0] is errors[1]
    Path(files[8]).unlink()
    with pytest.raises(FileNotFoundError):
        list(loader)


def test_files_that_a_dataset_writes(files: list[str]) -> None:
    """The engine's earlier read of a file is not used after the dataset has written the file again."""
    written = Path(files[0]).with_name("written.jpg")

    def item(self: Any, i: int) -> Any:
        picture(int(torch.randint(1000, ())), 70, 60).save(written)
        image = Image.open(written).convert("RGB")
        return self.transform(image), EVAL(Image.fromarray(np.asarray(image)))

    loader = DataLoader(Own(files, EVAL, item), 5)
    for _ in range(3):
        for x, y in loader:
            assert torch.equal(x, y)


def test_exceptions_are_caught_where_they_were(files: list[str]) -> None:
    """If a program replaces a record that cannot be read, the loader does the same."""

    def item(self: Any, i: int) -> Any:
        try:
            image = Image.open(self.files[i]).convert("RGB")
        except OSError:
            return item(self, 0)
        return self.transform(image), i

    Path(files[2]).write_bytes(Path(files[2]).read_bytes()[:400])
    for workers in (0, 2):
        _, expected, got = both(Own(files, EVAL, item), num_workers=workers)
        assert close(got, expected)


def test_workers_that_are_not_forked(files: list[str]) -> None:
    pytest.importorskip("cloudpickle")
    data = Own(files, EVAL, plain)
    loader = DataLoader(data, 5, num_workers=1, multiprocessing_context="spawn", persistent_workers=True)
    expected = list(tud.DataLoader(data, 5))
    assert close([list(loader) for _ in range(2)], [expected, expected])
    assert state(loader).tally.sums() == (IMAGES, IMAGES)


def test_what_is_changed_is_seen(files: list[str]) -> None:
    data = Own(files, EVAL, plain)
    loader = DataLoader(data, 5, num_workers=2)
    for transform in (EVAL, EVAL, GRAY_OF_RGB, GRAY_OF_RGB, EVAL):
        data.transform = transform
        assert close(list(loader), list(tud.DataLoader(data, 5)))
    EVAL.transforms[1].size = (36, 36)
    try:
        assert close(list(loader), list(tud.DataLoader(data, 5)))
    finally:
        EVAL.transforms[1].size = (40, 40)


GRAY_OF_RGB = v1.Compose([v1.Grayscale(), v1.Resize((20, 20)), v1.ToTensor()])


def test_what_is_not_learned(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def said(data: Any, **arguments: Any) -> str:
        answer = plan(DataLoader(data, **{"batch_size": 4, **arguments}))
        assert isinstance(answer, str), answer
        return answer

    assert "no transform at hand" in said(Own(files, None, plain))
    assert "AugMix is not known" in said(Own(files, v1.Compose([v1.AugMix(), v1.ToTensor()]), plain))
    assert "no batch sampler" in said(Own(files, EVAL, plain), batch_size=None)

    class Batches(Own):
        def __getitems__(self, indices: list[int]) -> Any:
            return [self[i] for i in indices]

    assert "__getitems__ of its own" in said(Batches(files, EVAL, plain))
    for item, why in ((lambda self, i: (EVAL, i), "0 of 14"), (turned, "0 of 14"), (in_memory, "0 of 14")):
        data = Own(files, EVAL, item)
        loader = DataLoader(data, 5, collate_fn=list)
        expected = list(tud.DataLoader(data, 5, collate_fn=list))
        for _ in range(2):
            assert str(list(loader)) == str(expected)
        assert why in loader.explain()


def in_memory(self: Any, i: int) -> Any:
    return self.transform(Image.open(io.BytesIO(Path(self.files[i]).read_bytes())).convert("RGB")), i


def test_nothing_is_left_replaced(files: list[str]) -> None:
    before = PIL.Image.OPEN["JPEG"], PIL.Image.Image.convert, torch.random.default_generator, v1.Compose.__call__
    loader = DataLoader(Own(files, EVAL, plain), 5)
    kept = [x for _ in range(3) for x in loader]
    now = PIL.Image.OPEN["JPEG"], PIL.Image.Image.convert, torch.random.default_generator, v1.Compose.__call__
    assert all(a is b for a, b in zip(before, now, strict=True)) and len(kept) == 9

    def fails(self: Any, i: int) -> Any:
        plain(self, i)
        raise LookupError(i)

    with pytest.raises(LookupError):
        list(DataLoader(Own(files, EVAL, fails), 5))
    assert PIL.Image.OPEN["JPEG"] is before[0]


@pytest.mark.filterwarnings("ignore:unclosed file")
def test_images_that_are_kept_have_their_pixels(files: list[str]) -> None:
    """Also after the batch, and if their file is gone by then."""
    kept: list[Any] = []

    def item(self: Any, i: int) -> Any:
        image = Image.open(self.files[i]).convert("RGB")
        kept.append((image, Image.open(self.files[i])))
        return self.transform(image)

    data = Own(files, EVAL, item)
    loader = DataLoader(data, 5)
    list(loader)
    kept.clear()
    list(loader)
    assert state(loader).tally.sums()[1] == IMAGES
    for (converted, other), name in zip(kept, files, strict=True):
        expected = np.asarray(Image.open(name).convert("RGB"))
        Path(name).unlink()
        assert (np.asarray(converted) == expected).all()
        assert (np.asarray(other.convert("RGB")) == expected).all()
