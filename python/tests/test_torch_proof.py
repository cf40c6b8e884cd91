"""Functions of the libraries that were replaced, at whatever depth and by whatever, are seen and run as Python."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
tv = pytest.importorskip("torchvision")
pytest.importorskip("datasets")
pytest.importorskip("timm")

import numpy as np  # noqa: E402
import PIL.Image  # noqa: E402
import PIL.ImageFile  # noqa: E402
import PIL.JpegImagePlugin  # noqa: E402
import torch.nn.modules.module as nn_module  # noqa: E402
import torch.utils.data as tud  # noqa: E402
from torch.utils.data._utils import collate  # noqa: E402
from torchvision import datasets, tv_tensors  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import _functional_pil, _functional_tensor, v2  # noqa: E402
from torchvision.transforms import functional as f1  # noqa: E402
from torchvision.transforms.v2 import functional as f2  # noqa: E402

from stoker.torch import DataLoader  # noqa: E402
from stoker.torch._recognise import _known, _plan, _proof, plan  # noqa: E402

_V2 = importlib.import_module("torchvision.transforms.v2._geometry")
_REGISTRY = importlib.import_module("torchvision.transforms.v2.functional._utils")._KERNEL_REGISTRY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("proof")
    (root / "a").mkdir()
    for i in range(6):
        PIL.Image.new("RGB", (50 + i, 40), (40 * i, 9, 200)).save(root / "a" / f"{i}.jpg")
    return root


def old(folder: Path) -> Any:
    parts = [v1.Resize((20, 24)), v1.CenterCrop(20), v1.ToTensor(), v1.Normalize([0.5] * 3, [0.2] * 3)]
    return datasets.ImageFolder(str(folder), v1.Compose(parts))


def new(folder: Path) -> Any:
    floats = v2.ToDtype(torch.float32, scale=True)
    parts = [v2.ToImage(), v2.RandomResizedCrop(20), floats, v2.Normalize([0.5] * 3, [0.2] * 3)]
    return datasets.ImageFolder(str(folder), v2.Compose(parts))


def answer(data: Any) -> str:
    """Return why all of a loader, or the end of its transforms, runs as Python; "" if nothing does."""
    found = plan(DataLoader(data, 3))
    if isinstance(found, str):
        return found
    found.close()
    return "collate" if found.found.collate == "program" else str(found.found.program.why)


class Called:
    """A callable that is not a function."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self._inner(*args, **more)


# A module with a file that defines its functions.
_FROM_A_FILE = importlib.import_module("torch_data")


def replacements(value: Any) -> Iterator[Any]:
    """Yield typical replacements of a function."""

    @functools.wraps(value)
    def wrapped(*args: Any, **more: Any) -> Any:
        return value(*args, **more)

    yield lambda *args, **more: value(*args, **more)
    yield wrapped
    yield functools.wraps(value)(_FROM_A_FILE.wrap(value))
    yield _FROM_A_FILE.wrap(value)
    yield functools.partial(value)
    yield Called(value)
    yield f1.pil_to_tensor if value is not f1.pil_to_tensor else f1.to_tensor  # another one of a library
    yield len


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next check prove everything again."""
    for memory in ("_PROVEN", "_PARTS", "_CLASSES"):
        monkeypatch.setattr(_proof, memory, {})


def test_each_name_on_the_path_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name that functions on the path call is replaced in turn."""
    seen: set[tuple[str, str]] = set()
    missed: list[str] = []
    for root in _plan.everything():
        _proof.check(root)
        proven = _proof._PROVEN[root]
        owners: dict[str, Any] = {f"{c.__module__}.{c.__qualname__}": c for c, *_ in proven.classes.values()}
        for where, name, value in [(w, n, v) for w, values in [*proven.names.values()] for n, v in [*values.items()]]:
            function = next(_proof.functions_of(value), None)
            module = str(where.get("__name__", where.get("__module__")))
            if function is None or id(function) not in proven.functions or not _proof._in_scope(module):
                continue
            owner = owners.get(f"{module}.{function.__qualname__.rpartition('.')[0]}", sys.modules[module])
            if (repr(owner), name) in seen or vars(owner).get(name) is not value or name == "_wrapped_call_impl":
                continue  # the last one is called by another name, __call__, which is replaced, too
            seen.add((repr(owner), name))
            by = [*replacements(function)][len(seen) % 8]
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, by)
                try:
                    _proof.check(root)
                except _proof.Unknown:
                    continue
            missed.append(f"{owner}.{name} of {root} by {by}")
    assert not missed
    assert len(seen) > 500


def test_known_functions_are_those_of_the_installed_versions() -> None:
    found = _proof.digests(_plan.everything())
    assert found.keys() == _known.KNOWN.keys()
    for name, digests in found.items():
        assert digests <= set(_known.KNOWN[name]), f"run scripts/known.py: {name}"
    assert _proof.files() <= _known.FILES, "run scripts/known.py"


@pytest.mark.parametrize("name", ["torchvision.transforms.functional.resize", "PIL.Image.open"])
def test_another_version_is_not_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _proof.check(name)
    text, _, uses = _known.KNOWN[name][0].partition(".")
    for digest, why in ((f"0{text}.{uses}", "is not a version of it that"), (f"{text}.0{uses}", "is another one in")):
        monkeypatch.setitem(_known.KNOWN, name, [digest])
        forget(monkeypatch)
        with pytest.raises(_proof.Unknown, match=why):
            _proof.check(name)


PATCHES: dict[str, tuple[Callable[[Path], Any], Any, str, Callable[[Any], Any]]] = {
    "partial": (old, f1, "resize", functools.partial),
    "callable": (old, f1, "resize", Called),
    "another function of the library": (old, f1, "to_tensor", lambda _: f1.pil_to_tensor),
    "_functional_pil": (old, _functional_pil, "resize", lambda own: lambda *a, **k: own(*a, **k)),
    "_functional_tensor": (old, _functional_tensor, "normalize", lambda own: lambda *a, **k: own(*a, **k)),
    "module in a module": (old, f1, "F_pil", lambda _: _functional_tensor),
    "defaults": (old, f1.resize, "__defaults__", lambda _: (f1.InterpolationMode.NEAREST, None, True)),
    "code": (old, f1.resize, "__code__", lambda _: f1.center_crop.__code__),
    "query_size": (new, _V2, "query_size", lambda own: lambda *a, **k: own(*a, **k)),
    "Image.convert": (old, PIL.JpegImagePlugin.JpegImageFile, "convert", lambda own: lambda *a, **k: own(*a, **k)),
    "ImageFile.load": (old, PIL.ImageFile.ImageFile, "load", lambda own: lambda *a, **k: own(*a, **k)),
    "__getattribute__": (old, v1.Resize, "__getattribute__", lambda own: lambda self, name: own(self, name)),
    "a base": (old, torch.nn.Module, "__call__", lambda own: lambda self, *a: own(self, *a)),
    "tensors": (old, torch.Tensor, "sub_", lambda own: lambda self, other: own(self, other)),
    "permute": (old, torch.Tensor, "permute", lambda own: lambda self, *a: own(self, *a)),
    "stack": (old, torch, "stack", lambda own: lambda *a, **k: own(*a, **k)),
    "from_numpy": (old, torch, "from_numpy", lambda own: lambda *a, **k: own(*a, **k)),
    "open": (old, PIL.Image.builtins, "open", lambda own: lambda *a, **k: own(*a, **k)),
    "a built-in in a module": (old, f1, "isinstance", lambda _: lambda *a: False),
    "an attribute that is a class": (old, _functional_pil.Image, "Image", lambda own: type("Image", (own,), {})),
    "a constant": (old, f1, "pil_modes_mapping", lambda own: {**own, f1.InterpolationMode.BILINEAR: 0}),
    "metaclass": (old, v1.Resize, "__call__", lambda _: Called(len)),
}  # fmt: skip


@pytest.mark.parametrize("later", [False, True], ids=["before", "later"])
@pytest.mark.parametrize("name", PATCHES)
def test_replaced(folder: Path, name: str, later: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    make, where, attribute, by = PATCHES[name]
    data = make(folder)
    if later:
        assert not answer(data)
    else:
        forget(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(where, attribute, by(getattr(where, attribute, None)), raising=False)
        assert answer(data)
    assert not answer(data)


TABLES: dict[str, tuple[Callable[[Path], Any], dict[Any, Any], Any, Any]] = {
    "hooks": (old, nn_module._global_forward_hooks, 77, lambda module, args, result: result * 0),
    "hooks before": (old, nn_module._global_forward_pre_hooks, 77, lambda module, args: args),
    "a kernel of tensors": (new, _REGISTRY[f2.resized_crop], tv_tensors.Image, lambda *a, **k: None),
    "a kernel of pictures": (new, _REGISTRY[f2.to_dtype], torch.Tensor, lambda *a, **k: None),
    "a format": (old, PIL.Image.OPEN, "JPEG", (lambda *a: None, None)),
    "a factory": (old, PIL.Image.OPEN, "JPEG", (PIL.JpegImagePlugin.JpegImageFile, lambda prefix: True)),
    "a format of its own": (old, PIL.Image.OPEN, "MINE", (lambda *a: None, lambda prefix: False)),
}


@pytest.mark.parametrize("later", [False, True], ids=["before", "later"])
@pytest.mark.parametrize("name", TABLES)
def test_registries(folder: Path, name: str, later: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    make, table, key, value = TABLES[name]
    data = make(folder)
    if later:
        assert not answer(data)
    else:
        forget(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setitem(table, key, value)
        assert answer(data)
    assert not answer(data)


class Doubled(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_settings(folder: Path) -> None:
    data = new(folder)
    with tv_tensors.set_return_type("TVTensor"):
        assert "set_return_type" in answer(data)
    with Doubled():
        assert "Doubled" in answer(data)
    assert not answer(data)
    data = old(folder)
    with torch.device("meta"):
        assert not answer(data)


@pytest.mark.parametrize("kind", [tuple, torch.Tensor, tv_tensors.Image, int])
def test_default_collate_fn_map(folder: Path, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of one's own, of whatever type: the batches are torch's."""

    def mine(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return {"mine": [str(type(x).__name__) for x in batch]}

    parts = [v2.Resize((8, 9)), v2.ToImage()]
    data = datasets.ImageFolder(str(folder), v2.Compose(parts))
    assert not answer(data)
    for _ in range(2):  # with what was proven before, and without
        with monkeypatch.context() as patch:
            patch.setitem(collate.default_collate_fn_map, kind, mine)
            expected = list(tud.DataLoader(data, 3))
            got = list(DataLoader(data, 3))
        assert repr(got) == repr(expected)
        assert not answer(data)


def ending(batches: Any) -> Any:
    """Return the shapes of an epoch's batches, or its exception."""
    try:
        return [(type(x).__name__, tuple(x.shape), x.dtype) for x, _ in batches]
    except Exception as error:
        return type(error), str(error)


def changed(transform: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(transform, name, value)
    return transform


# Parameters that the library reads in its own way, or refuses.
FLOATS = [v1.Resize((8, 8)), v1.ToTensor()]
ODD: dict[str, Callable[[], list[Any]]] = {
    "a number": lambda: [*FLOATS, v1.Normalize(0.1307, 0.3081)],
    "numbers of NumPy": lambda: [*FLOATS, v1.Normalize(np.float64(0.2), np.float32(0.5))],
    "means as columns": lambda: [*FLOATS, v1.Normalize(np.ones((3, 1, 1)), np.ones((3, 1, 1)))],
    "means of pixels": lambda: [*FLOATS, v1.Normalize(torch.zeros(3, 8, 8), torch.ones(3, 8, 8))],
    "four means": lambda: [*FLOATS, v1.Normalize([0.5] * 4, [0.5] * 4)],
    "a text as mean": lambda: [*FLOATS, v1.Normalize("0.5", "0.5")],
    "no deviation": lambda: [*FLOATS, v1.Normalize([0.5], [0.0])],
    "no deviation in 32 bits": lambda: [*FLOATS, v1.Normalize([0.5], [1e-50])],
    "None as mean": lambda: [*FLOATS, changed(v1.Normalize([0.5], [0.5]), mean=None)],
    "a size later": lambda: [changed(v1.RandomResizedCrop(20, (1.0, 1.0), (0.5, 0.5)), size=24), v1.ToTensor()],
    "a crop's size later": lambda: [v1.Resize((40, 40)), changed(v1.RandomCrop(20), size=24), v1.ToTensor()],
    "a middle's size later": lambda: [changed(v1.CenterCrop(20), size=24), v1.ToTensor()],
    "a text as size": lambda: [changed(v1.Resize((20, 20)), size="24"), v1.CenterCrop(9), v1.ToTensor()],
    "texts as size": lambda: [changed(v1.Resize((20, 20)), size=["24", "24"]), v1.ToTensor()],
    "floats as size": lambda: [changed(v1.Resize((20, 20)), size=(20.0, 20.5)), v1.ToTensor()],
    "numbers of NumPy as size": lambda: [changed(v1.Resize(20), size=(np.int64(20), np.int64(21))), v1.ToTensor()],
    "one side": lambda: [changed(v1.Resize((20, 20)), size=np.int64(20)), v1.CenterCrop(9), v1.ToTensor()],
    "no side": lambda: [changed(v1.Resize((20, 20)), size=[]), v1.ToTensor()],
    "a side below zero": lambda: [v1.Resize((-4, 8)), v1.ToTensor()],
    "fills of tensors": lambda: [
        v2.ToImage(), v2.Resize((30, 30)), changed(v1.RandomCrop(32, padding=2), fill=(1, 2, 3)),
        v2.ToDtype(torch.float32),
    ],
    "a text as p": lambda: [v1.Resize((8, 8)), changed(v1.RandomHorizontalFlip(), p="1"), v1.ToTensor()],
    "None as p": lambda: [v1.Resize((8, 8)), changed(v1.RandomHorizontalFlip(), p=None), v1.ToTensor()],
    "scales of text": lambda: [changed(v1.RandomResizedCrop(9), scale=("a", "b")), v1.ToTensor()],
    "a text as interpolation": lambda: [changed(v1.Resize((8, 8)), interpolation="bilinear"), v1.ToTensor()],
    "brightness of text": lambda: [v1.Resize((8, 8)), changed(v1.ColorJitter(0.1), brightness="ab"), v1.ToTensor()],
    "erasing of five": lambda: [
        v1.Resize((8, 8)), v1.ToTensor(), changed(v1.RandomErasing(1.0), value=[1.0, 2.0, 3.0, 4.0, 5.0])
    ],
}  # fmt: skip


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", ODD)
def test_parameters_are_read_as_the_library_reads_them(folder: Path, name: str, workers: int) -> None:
    data = datasets.ImageFolder(str(folder), v1.Compose(ODD[name]()))
    torch.manual_seed(1)
    expected = ending(tud.DataLoader(data, 2))
    torch.manual_seed(1)
    found = ending(DataLoader(data, 2, num_workers=workers))
    if isinstance(expected, list):
        assert found == expected
    else:
        assert found[0] is expected[0]
        assert expected[1] in found[1]


def test_normalize_by_a_number(folder: Path) -> None:
    data = datasets.ImageFolder(str(folder), v1.Compose(ODD["a number"]()))
    assert not answer(data)
    for (ours, _), (theirs, _) in zip(DataLoader(data, 3), tud.DataLoader(data, 3), strict=True):
        assert float((ours - theirs).abs().max()) < 1.01 / 255 / 0.3081


def test_any_exception_means_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("what is this?\nand that?")

    data = old(folder)
    loader = DataLoader(data, 3)
    assert len(list(loader)) == 2
    monkeypatch.setattr(_plan._transforms, "recognise", broken)
    assert len(list(loader)) == 2
    assert "it was not recognised: RuntimeError: what is this?  " in loader.explain()


class Own(list):  # type: ignore[type-arg]
    """A list that is read in another way than it seems."""

    def __iter__(self) -> Any:
        return iter([*list.__iter__(self), v1.Lambda(lambda x: x * 0)])


class ByProperty:
    def __init__(self, t: Any) -> None:
        self.__dict__["t"] = t

    def __call__(self, x: Any) -> Any:
        return self.t(x)

    @property
    def t(self) -> Any:
        return lambda x: vars(self)["t"](x) * 0


class ByGetattribute:
    def __init__(self, t: Any) -> None:
        self.t = t

    def __call__(self, x: Any) -> Any:
        return self.t(x)

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return (lambda x: value(x) * 0) if name == "t" else value


class ByBase(ByProperty):
    pass


class Slots:
    __slots__ = ("t",)

    def __init__(self, t: Any) -> None:
        self.t = t

    def __call__(self, x: Any) -> Any:
        return self.t(x)


class ItsDict:
    def __init__(self, t: Any) -> None:
        self.t = t

    def __call__(self, x: Any) -> Any:
        return self.t(x)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return {"t": v1.Compose([v1.Resize((5, 5)), v1.ToTensor()])}


def own_list(parts: list[Any]) -> Any:
    made = v1.Compose(parts)
    made.transforms = Own(parts)
    return made


def named_as_compose(parts: list[Any]) -> Any:
    kind = type("Compose", (v1.Compose,), {"__call__": lambda self, x: v1.Compose.__call__(self, x) * 0})
    kind.__module__ = v1.Compose.__module__
    return kind(parts)


WRAPPERS: list[Callable[[list[Any]], Any]] = [
    own_list, named_as_compose, lambda parts: v1.Compose(t for t in parts),
    *(lambda parts, k=k: k(v1.Compose(parts)) for k in (ByProperty, ByGetattribute, ByBase, Slots, ItsDict)),
]  # fmt: skip


@pytest.mark.parametrize("which", range(len(WRAPPERS)))
def test_objects_that_are_not_what_they_look_like(folder: Path, which: int) -> None:
    made = [WRAPPERS[which]([v1.Resize((12, 9)), v1.ToTensor()]) for _ in range(2)]
    theirs, ours = (datasets.ImageFolder(str(folder), transform) for transform in made)
    try:
        expected = next(iter(tud.DataLoader(theirs, 6)))[0]
    except TypeError:  # as a generator is empty after one record
        with pytest.raises(TypeError):
            list(DataLoader(ours, 6))
        return
    assert torch.equal(next(iter(DataLoader(ours, 6)))[0], expected)


class Backwards(list):  # type: ignore[type-arg]
    def __getitem__(self, i: Any) -> Any:
        return list.__getitem__(self, -1 - i)


def test_samples_and_indices_are_plain_lists(folder: Path) -> None:
    data = old(folder)
    good = list(data.samples)
    data.samples = Backwards(good)
    assert "Backwards" in answer(data)
    data.samples = [(p, t, 5) for p, t in good]
    assert "pairs" in answer(data)
    data.samples = good
    assert "Backwards" in answer(tud.Subset(data, Backwards([0, 1, 2, 3])))
    both = tud.ConcatDataset([data, old(folder)])
    both.datasets = Backwards(both.datasets)
    assert "Backwards" in answer(both)
    data.__getitems__ = lambda indices: []
    assert "__getitems__" in answer(data)


def test_targets_of_all_kinds_are_collated_as_torch_does(folder: Path) -> None:
    for kind in (str, float, lambda t: None, lambda t: (t, "a"), lambda t: [t], lambda t: {"t": t}, torch.tensor):
        data = old(folder)
        data.target_transform = kind
        try:
            expected = repr([y for _, y in tud.DataLoader(data, 4)])
        except TypeError:
            with pytest.raises(TypeError):
                list(DataLoader(data, 4))
            continue
        loader = DataLoader(data, 4)
        assert repr([y for _, y in loader]) == expected
        assert type(loader._stoker_path).__name__ == "EngineWay"


LABELS: dict[str, list[Any]] = {
    "int": [3, -1, 2**40, 0], "mixed": [3, True, 1, 0], "bool": [True, False, True, True],
    "float": [0.5, 1.0, 2.0, 3.0], "numpy": [*np.arange(4)], "text": ["a", "b", "c", "d"], "large": [1, 2, 3, 2**63],
}  # fmt: skip
NUMBERS = {
    "int64": torch.arange(4), "uint8": torch.arange(4, dtype=torch.uint8), "float": torch.tensor([0.5, 1.5, -0.5, 3]),
    "rows": torch.arange(4)[:, None], "bool": torch.tensor([True, False, True, True]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*LABELS, *(f"tensor, {name}" for name in NUMBERS)])
def test_a_datasets_own_targets_are_collated_as_torch_does(folder: Path, name: str) -> None:
    """With workers, the targets of an epoch are one array, if they are whole numbers."""
    if name in LABELS:
        data: Any = old(folder)
        data.samples = [(path, target) for (path, _), target in zip(data.samples, LABELS[name], strict=False)]
    else:
        data = tv.datasets.MNIST.__new__(tv.datasets.MNIST)
        data.__dict__ |= {"root": "", "transform": v1.ToTensor(), "target_transform": None, "transforms": None}
        data.__dict__ |= {"data": torch.zeros(4, 8, 8, dtype=torch.uint8), "targets": NUMBERS[name.partition(", ")[2]]}
    loader = DataLoader(data, 2, num_workers=1)

    def targets(of: Any) -> Any:
        try:
            return [(type(y), repr(y)) for _, y in of]
        except Exception as error:
            return type(error)

    assert targets(loader) == targets(tud.DataLoader(data, 2, num_workers=1))
    assert type(loader._stoker_path).__name__ == "EngineWay"


def test_what_one_proof_has_compared_is_compared_again_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs share the functions and classes that they have looked at, as long as these are the same."""
    import PIL.Image

    _proof.check("PIL.Image.Image.convert")  # which reaches load, too
    load: Any = PIL.Image.Image.load
    changes: list[Callable[[Any], None]] = [
        lambda patch: patch.setattr(load, "__code__", PIL.Image.Image.getbands.__code__),
        lambda patch: patch.setattr(load, "__defaults__", (1,)),
        lambda patch: patch.setattr(load, "__kwdefaults__", {"other": 1}),
        lambda patch: patch.setattr(PIL.Image.Image, "load", lambda self: None),
        lambda patch: patch.setattr(PIL.Image.Image, "_ensure_mutable", lambda self: None),
        lambda patch: patch.setattr(PIL.Image.Image._crop, "__code__", PIL.Image.Image.getbands.__code__),
        lambda patch: patch.setattr(PIL.Image, "_decompression_bomb_check", lambda size: None),
        lambda patch: patch.setattr(PIL.Image, "abs", lambda value: 1, raising=False),
    ]
    for number, change in enumerate(changes):
        with monkeypatch.context() as patch:
            patch.setattr(_proof, "_PROVEN", {})
            change(patch)
            with pytest.raises(_proof.Unknown):
                _proof.check("PIL.Image.Image.crop")
                raise AssertionError(number)
        _proof.check("PIL.Image.Image.crop")
