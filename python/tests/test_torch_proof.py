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
from stoker.torch._recognise import _known, _proof, plan  # noqa: E402

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
    """Something that can be called and is no function."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self._inner(*args, **more)


def replacements(value: Any) -> Iterator[Any]:
    """Yield what people put in a function's place."""

    @functools.wraps(value)
    def wrapped(*args: Any, **more: Any) -> Any:
        return value(*args, **more)

    yield lambda *args, **more: value(*args, **more)
    yield wrapped
    yield functools.partial(value)
    yield Called(value)
    yield f1.pil_to_tensor if value is not f1.pil_to_tensor else f1.to_tensor  # another one of a library
    yield len


def test_each_name_on_the_path_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all names that functions on the path call, each one is replaced in turn."""
    seen: set[tuple[str, str]] = set()
    missed: list[str] = []
    for root in _proof.everything():
        _proof.check(root)
        proven = _proof._PROVEN[root]
        owners: dict[str, Any] = {f"{c.__module__}.{c.__qualname__}": c for c, *_ in proven.classes.values()}
        for where, name, value in [*proven.names.values()]:
            function = next(_proof.functions_of(value), None)
            module = str(where.get("__name__", where.get("__module__")))
            if function is None or id(function) not in proven.functions or not _proof._in_scope(module):
                continue
            owner = owners.get(f"{module}.{function.__qualname__.rpartition('.')[0]}", sys.modules[module])
            if (repr(owner), name) in seen or vars(owner).get(name) is not value or name == "_wrapped_call_impl":
                continue  # the last one is called by another name, __call__, which is replaced, too
            seen.add((repr(owner), name))
            by = [*replacements(function)][len(seen) % 6]
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
    found = _proof.digests(_proof.everything())
    assert found.keys() == _known.KNOWN.keys()
    for name, digests in found.items():
        assert digests <= set(_known.KNOWN[name]), f"run scripts/known.py: {name}"


@pytest.mark.parametrize("name", ["torchvision.transforms.functional.resize", "PIL.Image.open"])
def test_another_version_is_not_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _proof.check(name)
    text, _, uses = _known.KNOWN[name][0].partition(".")
    for digest, why in ((f"0{text}.{uses}", "is not a version of it that"), (f"{text}.0{uses}", "is another one in")):
        monkeypatch.setitem(_known.KNOWN, name, [digest])
        monkeypatch.setattr(_proof, "_PROVEN", {})
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
        monkeypatch.setattr(_proof, "_PROVEN", {})
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
        monkeypatch.setattr(_proof, "_PROVEN", {})
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
