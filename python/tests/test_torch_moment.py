"""Changes that a program makes while loaders run: each part of a record dates from the same moment as with torch."""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tv = pytest.importorskip("torchvision")

import PIL.Image  # noqa: E402
import PIL.ImageFile  # noqa: E402
import torch.utils.data as tud  # noqa: E402
from torchvision import datasets  # noqa: E402
from torchvision import transforms as v1  # noqa: E402

from stoker import Cache  # noqa: E402
from stoker.torch import DataLoader  # noqa: E402
from stoker.torch._recognise import _memory, _proof  # noqa: E402

IMAGES = 16


def draw(path: Path, gray: int, **more: Any) -> None:
    PIL.Image.new("RGB", (24, 24), (gray,) * 3).save(path, **more)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder of gray images. The gray level identifies the image."""
    (tmp_path / "data" / "a").mkdir(parents=True)
    for i in range(IMAGES):
        draw(tmp_path / "data" / "a" / f"{i:02d}.png", 10 * i)
    return tmp_path / "data"


def transform(size: int = 8) -> Any:
    return v1.Compose([v1.Resize((size, size)), v1.ToTensor()])


def numbered(root: Path, t: Any = None) -> Any:
    """Return a dataset whose targets are the grays of the images."""
    data = datasets.ImageFolder(str(root), t or transform())
    data.samples = [(p, 10 * i) for i, (p, _) in enumerate(data.samples)]
    return data


def made(kind: type, t: Any, **attributes: Any) -> Any:
    data = kind.__new__(kind)
    data.__dict__.update({"root": "", "transform": t, "target_transform": None, "transforms": None, **attributes})
    return data


def cifar(_: Path) -> Any:
    pixels = np.random.default_rng(2).integers(0, 256, (IMAGES, 32, 32, 3), np.uint8)
    return made(datasets.CIFAR10, v1.ToTensor(), data=pixels, targets=list(range(IMAGES)))


def mnist(_: Path) -> Any:
    pixels = np.random.default_rng(2).integers(0, 256, (IMAGES, 28, 28), np.uint8)
    return made(datasets.MNIST, v1.ToTensor(), data=torch.from_numpy(pixels), targets=torch.arange(IMAGES))


def svhn(_: Path) -> Any:
    pixels = np.random.default_rng(2).integers(0, 256, (IMAGES, 3, 32, 32), np.uint8)
    return made(datasets.SVHN, v1.ToTensor(), data=pixels, labels=np.arange(IMAGES))


def told(batch: Any) -> Any:
    """Return the compared parts of a batch: the shape, the gray levels of images, and everything else."""
    images, targets = batch
    grays = (images.float().flatten(1).mean(1) * 255).round().tolist()
    # Resized pixels may differ by one level.
    levels = (images.flatten(1) * 255).round().long() if images.shape[-1] > 24 else torch.zeros(len(images), 1).long()
    sums = (levels * torch.arange(levels.shape[1])).sum(1).tolist()
    return tuple(images.shape), grays, sums, repr(targets)


def epoch(loader: Any, between: Callable[[int], None] | None = None) -> list[Any]:
    """Return all batches of an epoch, and the error that ended it."""
    out: list[Any] = []
    try:
        for i, batch in enumerate(loader):
            out.append(told(batch))
            if between is not None:
                between(i)
    except Exception as error:
        out.append(type(error).__name__)
    return out


def compare(run: Callable[[Any], Iterator[Any]]) -> None:
    """Run something with torch's class and with ours, each from the same random numbers.

    torch's part runs in a process of its own at the same time.
    """

    def result(kind: Any) -> list[Any]:
        torch.manual_seed(1)
        random.seed(1)
        return list(run(kind))

    with _beside(lambda: result(tud.DataLoader)) as later:
        ours = result(DataLoader)
        theirs = later()
    for got, expected in zip(ours, theirs, strict=True):
        assert got == expected


@contextlib.contextmanager
def _beside(make: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Call a function in a forked process, and yield a function that waits for its result."""
    context = torch.multiprocessing.get_context("fork")
    mine, other = context.Pipe(duplex=False)

    def main() -> None:
        torch.set_num_threads(1)
        try:
            other.send((make(), None))
        except BaseException as error:
            other.send((None, repr(error)))

    process = context.Process(target=main)
    process.start()
    other.close()

    def later() -> Any:
        made, error = mine.recv()
        assert error is None, error
        return made

    try:
        yield later
    finally:
        mine.close()
        process.join()


def by_engine(loader: Any) -> bool:
    return type(loader._stoker_path).__name__ == "EngineWay"


WORKERS = pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])

EDITS: dict[str, Callable[[Any], None]] = {
    "sort": lambda d: d.samples.sort(key=lambda s: -s[1]),
    "shuffle": lambda d: random.shuffle(d.samples),
    "reverse": lambda d: d.samples.reverse(),
    "assign": lambda d: setattr(d, "samples", d.samples[::-1]),
    "filter": lambda d: setattr(d, "samples", [s for s in d.samples if s[1] % 20]),
    "delete": lambda d: d.samples.__delitem__(3),
    "insert": lambda d: d.samples.insert(0, d.samples[-1]),
    "append": lambda d: d.samples.append(d.samples[0]),
    "clear": lambda d: d.samples.clear(),
    "relabel": lambda d: d.samples.__setitem__(IMAGES - 1, (d.samples[-1][0], 999)),
    "repath": lambda d: d.samples.__setitem__(IMAGES - 1, (d.samples[0][0], 150)),
    "relabel all": lambda d: setattr(d, "samples", [(p, t + 1) for p, t in d.samples]),
    "size": lambda d: setattr(d.transform.transforms[0], "size", (12, 12)),
    "append a transform": lambda d: d.transform.transforms.append(v1.Normalize([0.5], [0.5])),
    "transform": lambda d: setattr(d, "transform", transform(16)),
    "other transform": lambda d: setattr(d, "transform", v1.Compose([v1.ToTensor(), lambda x: x[:, :4]])),
    "target_transform": lambda d: setattr(d, "target_transform", lambda t: t + 7),
    "loader": lambda d: setattr(d, "loader", lambda _: PIL.Image.new("RGB", (9, 9), (33, 33, 33))),
    "class": lambda d: setattr(d, "__class__", Other),
}


class Other(datasets.ImageFolder):
    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 8, 8), 0.25), 77


@WORKERS
def test_edits_of_a_folder(root: Path, options: dict[str, Any]) -> None:
    """Each change, in the second batch of an epoch, and its effect on the next epoch."""

    def run(kind: Any) -> Iterator[Any]:
        for name, edit in EDITS.items():
            data = numbered(root)
            loader = kind(data, 3, **options)
            yield name, epoch(loader, lambda i, d=data, e=edit: e(d) if i == 1 else None)
            yield name, epoch(loader)
            if kind is DataLoader and name == "sort":
                assert by_engine(loader), loader.explain()

    compare(run)


@WORKERS
def test_lists_as_records(root: Path, options: dict[str, Any]) -> None:
    """Records that are lists are changed in place, and targets that are tensors, lists or dicts."""

    def run(kind: Any) -> Iterator[Any]:
        data = numbered(root)
        data.samples = [[p, torch.tensor([t, t])] for p, t in data.samples]
        loader = kind(data, 4, **options)

        def edit(i: int) -> None:
            if i == 1:
                for sample in data.samples:
                    sample[0] = data.samples[0][0]
                    sample[1] += 1

        yield epoch(loader, edit)
        yield epoch(loader)
        data.samples[5][0] = data.samples[9][0]
        data.samples[6][1] = torch.tensor([7, 7])
        yield epoch(loader)
        for sample in data.samples:
            sample[:] = [data.samples[2][0], {"t": 3, "l": [1, 2]}]
        yield epoch(loader)
        data.samples[1].append("a third value")
        yield epoch(loader)

    compare(run)


@WORKERS
def test_two_lists(root: Path, options: dict[str, Any]) -> None:
    """A dataset of files and labels, which are changed one by one and together."""

    def run(kind: Any) -> Iterator[Any]:
        files = sorted(root.glob("*/*"))
        attributes = {"_image_files": files, "_labels": [10 * i for i in range(IMAGES)]}
        data = made(datasets.Flowers102, transform(), loader=datasets.folder.default_loader, **attributes)
        loader = kind(data, 3, **options)
        yield epoch(loader, lambda i: data._labels.reverse() if i == 1 else None)
        yield epoch(loader, lambda i: data._image_files.reverse() if i == 1 else None)
        yield epoch(loader)
        data._labels.append(5)
        yield epoch(loader)
        data._image_files = data._image_files[2:]
        yield epoch(loader)

    compare(run)


class Counts:
    """A target_transform with a state."""

    def __init__(self) -> None:
        self.more = 0

    def __call__(self, target: int) -> int:
        self.more += 1
        return target + self.more


@WORKERS
def test_target_transforms(root: Path, options: dict[str, Any]) -> None:
    """Functions that read data that the loop changes, count, draw, or make other kinds of values."""
    names: dict[str, Any] = {"more": 100, "map": {10 * i: i for i in range(IMAGES)}}
    functions: list[Any] = [
        lambda t: t + names["more"], lambda t: names["map"][t], names["map"].get, Counts(), lambda t: t + 1,
        lambda t: [t, str(t)], lambda t: torch.tensor(t), torch.tensor, float, lambda t: 1 // (t - 100),
    ]  # fmt: skip

    def run(kind: Any) -> Iterator[Any]:
        for function in functions:
            names.update(more=100, map=dict.fromkeys(names["map"], 1))
            data = numbered(root)
            data.target_transform = Counts() if isinstance(function, Counts) else function
            loader = kind(data, 3, **options)

            def edit(i: int) -> None:
                if i == 1:
                    names["more"] = 5
                    names["map"].update(dict.fromkeys(names["map"], 8))

            yield epoch(loader, edit)
            yield epoch(loader)

    compare(run)


SETTINGS: dict[str, Callable[[], Any]] = {
    "truncated": lambda: setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", not PIL.ImageFile.LOAD_TRUNCATED_IMAGES),
    "pixels": lambda: setattr(PIL.Image, "MAX_IMAGE_PIXELS", 10),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "mode": lambda: Black().__enter__(),
}


class Black(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
    """Makes ToTensor return zeros."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        return made * 0 if function is torch.Tensor.div else made


@pytest.fixture
def settings() -> Iterator[None]:
    """Restore the settings of Pillow and torch."""
    before = PIL.Image.MAX_IMAGE_PIXELS
    yield
    PIL.Image.MAX_IMAGE_PIXELS = before
    PIL.ImageFile.LOAD_TRUNCATED_IMAGES = False
    torch.set_default_dtype(torch.float32)
    while _proof.modes():
        _proof.modes()[-1].__exit__(None, None, None)


@WORKERS
@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("change", SETTINGS)
def test_settings_of_libraries(
    root: Path, options: dict[str, Any], change: str, truncated: bool, settings: None
) -> None:
    """Workers have the settings of the time when they started. Python reads the last image: the engine refuses it."""
    PIL.Image.effect_noise((64, 64), 80).convert("RGB").save(root / "a" / "99.jpg")
    whole = (root / "a" / "99.jpg").read_bytes()
    (root / "a" / "99.jpg").write_bytes(whole[: len(whole) // 2])
    pixels = PIL.Image.MAX_IMAGE_PIXELS

    def run(kind: Any) -> Iterator[Any]:
        PIL.Image.MAX_IMAGE_PIXELS = pixels
        PIL.ImageFile.LOAD_TRUNCATED_IMAGES = truncated
        torch.set_default_dtype(torch.float32)
        loader = kind(numbered(root), 3, **options)
        yield epoch(loader, lambda i: SETTINGS[change]() if i == 0 else None)
        yield epoch(loader)

    compare(run)


def test_libraries_that_change_in_an_epoch(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python makes records that the engine cannot read, and warns if torch's workers would use another library."""
    (root / "a" / "99.png").write_bytes((root / "a" / "00.png").read_bytes()[:-20])
    monkeypatch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    to_tensor = v1.ToTensor.__call__
    batches = iter(DataLoader(numbered(root), 3, num_workers=1))
    next(batches)
    monkeypatch.setattr(v1.ToTensor, "__call__", lambda self, image: to_tensor(self, image) * 0)
    with pytest.warns(RuntimeWarning, match="were replaced during an epoch"):
        assert len(list(batches)) == 5


def test_settings_that_new_processes_may_not_have(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(numbered(root), 3, num_workers=1, multiprocessing_context="spawn")
    assert "ImageFolder: 16 records" in loader.explain()
    monkeypatch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    loader = DataLoader(numbered(root), 3, num_workers=1, multiprocessing_context="spawn")
    assert "LOAD_TRUNCATED_IMAGES is set" in loader.explain()


def test_functions_whose_results_depend_on_their_process(root: Path) -> None:
    """target_transform is called in workers if it asks for its process, or if a new process may have other globals."""
    data = numbered(root)
    for function, method, where in (
        (lambda t: t + 1, "fork", "this process"),
        (lambda t: t + 1, "spawn", "1 workers"),
        (lambda t: (t, torch.utils.data.get_worker_info()), "fork", "1 workers"),
        (lambda t: (t, multiprocessing.process.parent_process()), "fork", "1 workers"),
    ):
        data.target_transform = function
        loader = DataLoader(data, 3, num_workers=1, multiprocessing_context=method)
        (row,) = (line for line in loader.explain().splitlines() if line.startswith("target_transform"))
        assert where in row, row


def test_targets_that_cannot_be_copied_run_as_python(root: Path) -> None:
    data = numbered(root)
    data.samples = [(p, Counts()) for p, _ in data.samples]
    loader = DataLoader(data, 4, num_workers=1, collate_fn=None)
    assert "Counts" in loader.explain() and "worker" in loader.explain()


def parts(root: Path) -> Any:
    a, b = numbered(root), numbered(root)
    b.samples = [(p, 500 + t) for p, t in b.samples]
    return a, b


@WORKERS
def test_parts_of_a_concatenation(root: Path, options: dict[str, Any]) -> None:
    """Sizes are those of the construction, whatever becomes of the parts; nested, and of subsets."""

    def other(a: Any, *_: Any) -> None:
        a.samples = [(p, t + 2000) for p, t in a.samples[:5]]

    edits: dict[str, Callable[..., Any]] = {
        "grow": lambda a, b, s, c: a.samples.extend(a.samples[:3]),
        "shrink": lambda a, b, s, c: a.samples.__delitem__(slice(5)),
        "shrink the last": lambda a, b, s, c: b.samples.__delitem__(slice(5)),
        "both": lambda a, b, s, c: (a.samples.append(a.samples[0]), b.samples.pop(0)),
        "assign": other,
        "indices": lambda a, b, s, c: s.indices.extend([1, 2]),
        "fewer indices": lambda a, b, s, c: s.indices.pop(),
        "swap indices": lambda a, b, s, c: s.indices.reverse(),
        "other dataset": lambda a, b, s, c: setattr(s, "dataset", b),
        "other part": lambda a, b, s, c: c.datasets.__setitem__(0, b),
        "one part more": lambda a, b, s, c: c.datasets.append(a),
        "one part less": lambda a, b, s, c: c.datasets.pop(),
        "sizes": lambda a, b, s, c: setattr(c, "cumulative_sizes", [3, 6, 9]),
    }

    def run(kind: Any) -> Iterator[Any]:
        for name, edit in edits.items():
            a, b = parts(root)
            s = tud.Subset(a, [5, -1, 3, 7])
            c = tud.ConcatDataset([a, tud.ConcatDataset([s, b]) if name != "sizes" else s, b])
            loader = kind(c, 5, **options)
            yield epoch(loader, lambda i, e=edit, p=(a, b, s, c): e(*p) if i == 0 else None)
            yield name, len(loader), epoch(loader)
            if name == "grow" and kind is DataLoader:
                assert by_engine(loader)

    compare(run)


def test_splits(root: Path) -> None:
    """random_split and Subset follow their lists, and samplers their counts."""

    def run(kind: Any) -> Iterator[Any]:
        data = numbered(root)
        one, two = tud.random_split(data, [10, 6], torch.Generator().manual_seed(1))
        loaders = [
            kind(one, 4), kind(two, 4, num_workers=1), kind(data, 4, sampler=tud.SubsetRandomSampler(range(9))),
            kind(data, 4, sampler=tud.WeightedRandomSampler([1.0] * IMAGES, 12)),
            kind(data, 4, sampler=tud.DistributedSampler(data, 2, 1)),
        ]  # fmt: skip
        for _ in range(2):
            for loader in loaders:
                yield len(loader), epoch(loader)
            data.samples.extend((p, t + 1000) for p, t in data.samples[:4])
            one.indices[0] = IMAGES + 1
            two.indices.append(0)
        del data.samples[7:]
        for loader in loaders:
            yield epoch(loader)

    compare(run)


@pytest.mark.parametrize("make", [cifar, mnist, svhn])
@WORKERS
def test_pixels_in_memory(root: Path, make: Callable[[Path], Any], options: dict[str, Any]) -> None:
    """Each byte counts, in its place: between epochs, and while one runs."""

    def turn(d: Any, axis: int) -> None:
        d.data = torch.flip(d.data, [axis]) if isinstance(d.data, torch.Tensor) else np.flip(d.data, axis).copy()

    def inside(d: Any, to: Any) -> None:
        d.data[:] = to

    def permute(d: Any) -> None:
        new = list(range(IMAGES))[::-1]
        d.data = d.data[new]
        name = "labels" if hasattr(d, "labels") else "targets"
        old = getattr(d, name)
        setattr(d, name, [old[i] for i in new] if isinstance(old, list) else old[new])

    def one_byte(d: Any) -> None:
        view = d.data.numpy() if isinstance(d.data, torch.Tensor) else d.data
        view[-1].reshape(-1)[-1] ^= 1

    def swap(d: Any) -> None:
        view = d.data.numpy() if isinstance(d.data, torch.Tensor) else d.data
        row = view[11].reshape(-1)
        row[[0, 8]] = row[[8, 0]]

    edits: list[Callable[[Any], None]] = [
        lambda d: turn(d, 1), lambda d: turn(d, 2), lambda d: inside(d, d.data[0] * 0), one_byte, swap, permute,
        lambda d: setattr(d, "data", d.data[:5]), lambda d: setattr(d, "transform", v1.Compose([v1.ToTensor()] * 1)),
    ]  # fmt: skip

    def run(kind: Any) -> Iterator[Any]:
        for number, edit in enumerate(edits):
            data = make(root)
            loader = kind(data, 4, **options)
            yield epoch(loader, lambda i, d=data, e=edit: e(d) if i == 1 else None)
            yield number, epoch(loader)
            if kind is DataLoader and edit is swap:
                assert by_engine(loader)

    compare(run)


@WORKERS
def test_another_folder(root: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths are resolved at the time of reading."""
    other = root.parent / "run" / "data" / "a"
    other.mkdir(parents=True)
    for i in range(IMAGES):
        draw(other / f"{i:02d}.png", 5 + 10 * i)

    def run(kind: Any) -> Iterator[Any]:
        monkeypatch.chdir(root.parent)
        loader = kind(numbered(Path("data")), 4, **options)
        yield epoch(loader, lambda i: os.chdir("run") if i == 1 else None)
        yield epoch(loader)
        os.chdir("/")
        yield epoch(loader)
        os.chdir(root.parent)
        yield epoch(loader)
        if kind is DataLoader:
            assert by_engine(loader)

    compare(run)


def rewrite(folder: Path, to: int, how: str) -> None:
    for i, path in enumerate(sorted(folder.glob("*.jpg"))):
        before = path.stat()
        new = path.with_suffix(".new")
        draw(new, to + i, format="JPEG", quality=95)
        with new.open("ab") as file:  # which decoders do not look at
            file.truncate(4096) if how.startswith("equal") else None
        if how.endswith("in place"):
            path.write_bytes(new.read_bytes())
            new.unlink()
        else:
            new.replace(path)
        if "time" in how:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "how", ["by name", "in place", "equal by name", "equal in place", "equal time by name", "equal time in place"]
)
@pytest.mark.parametrize("cache", [False, True])
def test_files_that_are_written_again(tmp_path: Path, how: str, cache: bool) -> None:
    """Before each epoch, and while one runs without workers; two epochs in a row have the same files."""

    def run(kind: Any) -> Iterator[Any]:
        folder = tmp_path / kind.__module__ / "a"
        folder.mkdir(parents=True)
        for i in range(IMAGES):
            (folder / f"{i:02d}.jpg").touch()
        rewrite(folder, 3, how.replace("time", ""))
        data = datasets.ImageFolder(str(folder.parent), transform())
        more = {"cache": Cache(True, dir=tmp_path / "cache")} if kind is DataLoader and cache else {}
        for workers in (0, 1):
            loader = kind(data, 4, num_workers=workers, **more)
            for gray in (3, 40, 80, 80, 120):
                rewrite(folder, gray, how)
                yield epoch(loader)
                yield epoch(loader)
        loader = kind(data, 2, **more)
        yield epoch(loader, lambda i: rewrite(folder, 200, how) if i == 1 else None)
        yield epoch(loader, lambda i: (folder / "09.jpg").unlink() if i == 1 else None)

    compare(run)


def test_files_are_looked_at_again_after_a_change(root: Path) -> None:
    """An epoch of files that have changed is made by Python, and the next one by the engine again."""
    for path in root.glob("*/*.png"):
        path.rename(path.with_suffix(".jpg"))
    rewrite(root / "a", 10, "by name")
    loader = DataLoader(datasets.ImageFolder(str(root), transform()), 4)
    counts = []
    for number in range(5):
        if number in (1, 3):
            rewrite(root / "a", 50 * number, "by name")
        epoch(loader)
        counts.append(loader._stoker_path.plan.by_python)  # type: ignore[union-attr]
    assert counts == [0, IMAGES, IMAGES, 2 * IMAGES, 2 * IMAGES]


class Own(tud.Dataset):  # type: ignore[type-arg]
    """A dataset as most programs have one, which Stoker learns."""

    def __init__(self, files: list[str], t: Any) -> None:
        self.files, self.transform = files, t

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        return self.transform(PIL.Image.open(self.files[i]).convert("RGB")), i


def listed(files: list[str], t: Any) -> Any:
    samples = [(path, i) for i, path in enumerate(files)]
    return made(datasets.ImageFolder, t, loader=datasets.folder.default_loader, samples=samples)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [listed, Own])
@pytest.mark.parametrize("how", ["written again", "folder swapped", "links swapped"])
def test_files_that_change_before_their_batch(tmp_path: Path, how: str, make: Callable[..., Any], workers: int) -> None:
    """The engine reads ahead; torch opens a file when its batch is given to a worker, or when the loop asks for it."""
    many = 40
    for name, gray in (("old", 0), ("new", 130)):
        (tmp_path / name).mkdir()
        for i in range(many):
            draw(tmp_path / name / f"{i:02d}.jpg", gray + 3 * i)

    def lead_to(now: Path, name: str) -> None:
        # Nothing is missing in between: a worker may open a file at this moment.
        new = now.with_suffix(".new")
        if how == "folder swapped":
            new.symlink_to(tmp_path / name)
            new.replace(now)
            return
        now.mkdir(exist_ok=True)
        for i in range(many):
            file = f"{i:02d}.jpg"
            if how == "links swapped":
                new.symlink_to(tmp_path / name / file)
            else:
                new.write_bytes((tmp_path / name / file).read_bytes())
            new.replace(now / file)

    def run(kind: Any) -> Iterator[Any]:
        now = tmp_path / kind.__module__
        lead_to(now, "old")
        names = [f"{now}/{i:02d}.jpg" for i in range(many)]
        loader = kind(make(names, transform()), 2, num_workers=workers)
        yield epoch(loader)
        got = epoch(loader, lambda i: lead_to(now, "new") if i == 1 else None)
        yield got[:1], got[8:]  # the batches between them may have been read before, or not

    compare(run)


def test_fork_in_an_epoch(root: Path) -> None:
    """A child that was forked in the middle of an epoch makes the rest of it, and so does its parent."""

    def run(kind: Any) -> Iterator[Any]:
        iterator = iter(kind(numbered(root), 2))
        yield told(next(iterator))
        ours, theirs = os.pipe()
        if (child := os.fork()) == 0:
            rest: Any = []
            with contextlib.suppress(BaseException):
                rest = [y.tolist() for _, y in iterator]
            os.write(theirs, repr(rest).encode())
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as file:
            yield file.read()
        os.waitpid(child, 0)
        yield [told(batch) for batch in iterator]

    compare(run)


def test_only_waiting_for_files_counts_as_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files on a slow file system are asked for by threads. A busy machine is no reason for them."""
    paths = [tmp_path / f"{i:02d}" for i in range(64)]
    for path in paths[1:]:
        path.touch()
    own = _memory._stat

    def busy(path: Any) -> Any:
        until = time.perf_counter() + 2 * _memory._SLOW
        while time.perf_counter() < until:
            pass
        return own(path)

    def slow(path: Any) -> Any:
        time.sleep(2 * _memory._SLOW)
        return own(path)

    expected = [None, *map(os.stat, paths[1:])]
    monkeypatch.setattr(_memory, "_POOL", None)
    for stat, pool in ((busy, False), (slow, True), (slow, True), (own, False)):
        monkeypatch.setattr(_memory, "_stat", stat)
        for _ in range(1 if stat is slow else _memory._OFTEN):
            assert _memory.stats(paths) == expected
        assert (_memory._POOL is not None) == pool


def test_rows_are_compared_byte_by_byte() -> None:
    held = np.random.default_rng(3).integers(0, 256, (IMAGES, 5, 4, 3), np.uint8)
    now, rows, records = held.copy(), [3, -1, 0], np.array([3, IMAGES - 1, 0])
    assert _memory.are_rows(now, rows, held, records)
    assert _memory.are_rows(np.asfortranarray(now), rows, held, records)
    assert not _memory.are_rows(now, rows, held, records[::-1])
    for strange in (now[:, :4], now.astype(np.int16) + 256, now[:3], now[:0]):
        with contextlib.suppress(IndexError):
            assert not _memory.are_rows(strange, rows, held, records)
    for row in rows:
        for at in ((0, 0, 0), (4, 3, 2)):
            other = now.copy()
            other[(row, *at)] ^= 1
            assert not _memory.are_rows(other, rows, held, records)
            assert not _memory.are_rows(np.asfortranarray(other), rows, held, records)
            assert _memory.are_rows(other, [1, 2], held, np.array([1, 2]))
