"""The public names, and the attributes that describe each of them."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from stoker.transforms import Transform

OWN = {
    "Batch", "BatchesHeld", "Buckets", "Column", "ConfigError", "EngineDied", "EngineNotFound", "EngineRestarted",
    "Feeders", "Field", "Loader", "Padded", "Cache", "Limits", "OnError", "Ranks",
    "RecordError",
    "Ragged", "SkippedRecords", "StateMismatch", "StokerError", "StokerTimeout", "Strings", "UnknownArgument",
    "__version__", "BenchResult", "HeadroomResult", "Plan", "ProfileResult", "Profiler", "StudyResult", "bench",
    "OnDevice", "PackResult", "doctor", "headroom", "pack",
    "plan", "profile", "stage", "step", "study", "watch", "Dataset", "FieldInfo", "Record", "concat", "open",
    "ConvertResult", "InspectResult", "VerifyResult", "convert", "inspect", "verify", "commit_pack", "mix",
}  # fmt: skip
MODULES = {"audio", "transforms", "video", "volume"}
BASIC = {
    "CenterCrop", "Normalize", "RandomCrop", "RandomHorizontalFlip", "RandomResizedCrop", "RandomVerticalFlip",
    "Resize", "ToDtype", "Transform",
}  # fmt: skip


def test_names() -> None:
    names = set(stoker.__all__)
    assert names == OWN | MODULES | {"cache", "callbacks"}
    assert set(T.__all__) >= BASIC
    for module in MODULES:
        for name in getattr(stoker, module).__all__:
            assert issubclass(getattr(getattr(stoker, module), name), Transform), name
    visible = {n for n in dir(stoker) if not n.startswith("_")}
    frameworks = {"jax", "keras", "tf", "torch"}  # where something has imported them
    assert visible - names <= {"annotations", *frameworks}


# The arguments of the public classes and functions with the most of them.
ARGUMENTS = {
    "Loader": [
        "source", "batch_size", "shuffle", "seed", "drop_last", "bucket", "align", "transforms", "output", "device",
        "map", "batch_map", "workers", "threads", "cache", "limits", "ranks", "on_error", "apply_orientation",
        "metrics", "feeders",
    ],
    "Cache": ["disk", "dir", "limit", "memory", "stage", "peers", "peers_self"],
    "Limits": ["memory", "prefetch", "lookahead", "timeout", "cores", "cpu_limit", "shared", "weight"],
    "Ranks": ["rank", "world_size", "uneven", "audit"],
    "OnError": ["action", "max_bad", "quarantine", "repair_from"],
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str) -> None:
    of = getattr(stoker, name)
    assert list(inspect.signature(of).parameters) == ARGUMENTS[name]
    documented = set(re.findall(r"^        (\w+): ", of.__doc__.partition("Args:")[2].partition("Raises:")[0], re.M))
    assert set(ARGUMENTS[name]) == documented


@pytest.mark.parametrize(
    ("module", "names"),
    [("torch", ["DataLoader"]), ("jax", ["batches", "ranks"]), ("keras", ["Dataset"]), ("tf", ["batches", "dataset"])],
)
def test_frameworks_export_what_users_need(module: str, names: list[str]) -> None:
    file = Path(stoker.__file__).parent / ("torch/__init__.py" if module == "torch" else f"{module}.py")
    tree = ast.parse(file.read_text())
    listed = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert listed == [names]
    assert any(isinstance(node, ast.FunctionDef) and node.name == "__dir__" for node in tree.body)


def test_names_are_where_they_are_looked_for() -> None:
    """Names that mypy and editors read are the names that are imported on request."""
    tree = ast.parse(Path(stoker.__file__).read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    read = {
        (node.module, alias.name)
        for node in ast.walk(checked)
        if isinstance(node, ast.ImportFrom) and node.module and node.names[0].name != "*"
        for alias in node.names
    }
    assert read == {(module, name) for module, names in stoker._NAMES.items() for name in names}
    listed = next(node.value for node in checked.body if isinstance(node, ast.Assign))
    assert isinstance(listed, ast.List)
    names = {node.value for node in listed.elts if isinstance(node, ast.Constant)}
    assert names == set(stoker.__all__) <= set(dir(stoker))
    with pytest.raises(AttributeError, match="module 'stoker' has no attribute 'load'"):
        stoker.load  # noqa: B018


def test_nothing_is_imported_that_is_not_used() -> None:
    code = "import stoker, sys; print(sum(name.startswith('stoker.') for name in sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "1\n"  # the version


@pytest.mark.parametrize(
    "name",
    [
        *sorted(OWN - {"__version__"}),
        *(f"{module}.{name}" for module in sorted(MODULES) for name in getattr(stoker, module).__all__),
    ],
)
def test_documented(name: str) -> None:
    thing = functools.reduce(getattr, name.split("."), stoker)
    assert inspect.getdoc(thing), name
    for member, value in vars(thing).items():
        if not member.startswith("_") and callable(value):
            assert inspect.getdoc(value), f"{name}.{member}"


def test_every_argument_of_loader_is_documented() -> None:
    text = inspect.getdoc(stoker.Loader) or ""
    for name in inspect.signature(stoker.Loader.__init__).parameters:
        if name not in ("self", "unknown"):
            assert re.search(rf"^    {name}: ", text, re.MULTILINE), name


def test_errors_have_one_base() -> None:
    for name in OWN - {"EngineRestarted", "SkippedRecords"}:  # warnings
        thing = getattr(stoker, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            assert issubclass(thing, stoker.StokerError)
            assert thing.__module__ == "stoker"


@pytest.mark.parametrize(
    ("transform", "text", "config"),
    [
        (T.Resize(256), "Resize(256)", {"size": 256, "interpolation": "bilinear"}),
        (T.Resize([3, 4], "bicubic"), "Resize((3, 4), interpolation='bicubic')", {"size": [3, 4]}),
        (T.CenterCrop(5), "CenterCrop(5)", {"size": 5}),
        (T.RandomHorizontalFlip(), "RandomHorizontalFlip()", {"p": 0.5}),
        (T.RandomVerticalFlip(p=1), "RandomVerticalFlip(p=1.0)", {"p": 1.0}),
        (T.RandomCrop(8, padding=(1, 2)), "RandomCrop(8, padding=(1, 2))", {"padding": [1, 2]}),
        (T.ToDtype(np.float16, scale=True), "ToDtype(dtype='float16', scale=True)", {"dtype": "float16"}),
        (T.Normalize([0.5], [2]), "Normalize((0.5,), (2.0,))", {"mean": [0.5], "std": [2.0]}),
    ],
)
def test_transforms(transform: Transform, text: str, config: dict) -> None:
    assert repr(transform) == text
    assert eval(text, vars(T)) == transform
    described = transform.to_config()
    assert described["op"] == type(transform).__name__
    assert config.items() <= described.items()


def test_torch_and_torchvision_values() -> None:
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    assert T.ToDtype(torch.bfloat16).dtype == "bfloat16"
    assert T.Resize(5, v2.InterpolationMode.BICUBIC) == T.Resize(5, "bicubic")
    # The same arguments mean the same: names and defaults are torchvision's.
    for name in BASIC - {"Transform"}:
        theirs = inspect.signature(getattr(v2, name).__init__).parameters
        ours = inspect.signature(getattr(T, name).__init__).parameters
        missing = set(theirs) - set(ours) - {"inplace"}
        assert not missing, f"{name} lacks {missing}"
        order = [n for n in theirs if n in ours]
        assert [n for n in ours if n in theirs] == order, name


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: T.Resize(0), "size must be a whole number from 1 to 65500"),
        (lambda: T.Resize((1, 2, 3)), "height, width"),
        (lambda: T.Resize(2.5), "size must be .*, not 2.5"),
        (lambda: T.Resize(3, antialias=1), "antialias must be True or False"),
        (lambda: T.Resize(3, "lanczos"), '"bilinear", "bicubic"'),
        (lambda: T.Resize(siz=3), "did you mean 'size'"),
        (lambda: T.RandomResizedCrop(3, scale=(1, 0.5)), "smaller one first"),
        (lambda: T.RandomResizedCrop(3, ratio=2), "two numbers"),
        (lambda: T.RandomHorizontalFlip(1.5), "from 0 to 1"),
        (lambda: T.RandomHorizontalFlip("a"), "from 0 to 1"),
        (lambda: T.RandomCrop(3, padding=(1, 2, 3)), "padding"),
        (lambda: T.RandomCrop(3, fill=(1, 2, 3, 4, 5)), "fill"),
        (lambda: T.RandomCrop(3, fill=float("nan")), "fill"),
        (lambda: T.Normalize([1] * 5, [1] * 5), "one for each channel"),
        (lambda: T.RandomCrop(3, padding_mode="mirror"), "constant"),
        (lambda: T.Normalize([1], [0]), "std must be .* and not 0, not"),
        (lambda: T.ToDtype("int32"), '"uint8", "uint16", "float16"'),
    ],
)
def test_transforms_refuse(make: object, error: str) -> None:
    with pytest.raises(stoker.StokerError, match=error):
        make()  # type: ignore[operator]


def imported(path: Path, package: str) -> set[str]:
    """Return the modules that a module imports, also inside of functions, and not for checkers alone."""
    tree = ast.parse(path.read_text())
    checked = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in checked:
            base = [*package.split(".")[: -(node.level - 1) or None]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def test_modules_import_each_other_in_no_circle() -> None:
    root = Path(stoker.__file__).parent
    files = {".".join(p.relative_to(root.parent).with_suffix("").parts): p for p in root.rglob("*.py")}
    names = {name.removesuffix(".__init__"): name for name in files}
    graph: dict[str, set[str]] = {}
    for name, file in names.items():
        package = name if file.endswith(".__init__") else name.rpartition(".")[0]
        graph[name] = (imported(files[file], package) & names.keys()) - {package, name}
    while leaves := [name for name, uses in graph.items() if not uses & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph
