"""Python in pages and docstrings: it compiles, its names and arguments exist, and cheap code runs."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import CHECKOUT

PAGES = [p for p in (CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))) if p.is_file()]
if not PAGES:
    pytest.skip("the pages are not in this tree", allow_module_level=True)

SOURCES = sorted(Path(stoker.__file__).parent.glob("*.py"))


@pytest.fixture(autouse=True, scope="module")
def _frameworks() -> None:
    """Import the modules of JAX and Keras: their names are looked for if these are installed."""
    os.environ.setdefault("KERAS_BACKEND", "torch")  # else it is TensorFlow's, which is not there
    for name in ("jax", "keras"):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"stoker.{name}")


class Block(typing.NamedTuple):
    """Python code and its location."""

    where: str
    code: str


def fenced() -> Iterator[Block]:
    """Blocks of Python in pages."""
    for page in PAGES:
        text = page.read_text()
        for m in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text[: m.start()].count("\n") + 2
            yield Block(f"{page.relative_to(CHECKOUT)}:{line}", m[1])


def spans() -> Iterator[Block]:
    """Calls in the middle of the text of pages and docstrings; name() alone only names."""
    for page in PAGES:
        for n, line in enumerate(page.read_text().splitlines(), 1):
            for m in re.finditer(r"`((?:with |for [a-z]+ in )?stoker\.[^`(]+\([^`]+)`", line):
                yield Block(f"{page.relative_to(CHECKOUT)}:{n}", m[1])
    for source in SOURCES:
        for n, line in enumerate(source.read_text().splitlines(), 1):
            for m in re.finditer(r"``((?:with |for [a-z]+ in )?stoker\.[^`(]+\([^`]+)``", line):
                yield Block(f"{source.name}:{n}", m[1])


def in_docstrings() -> Iterator[Block]:
    """Return the blocks after ``::`` in docstrings."""
    for source in SOURCES:
        tree = ast.parse(source.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            doc = ast.get_docstring(node) or ""
            for m in re.finditer(r"::\n\n((?:(?: {4}.*)?\n?)+)", doc):
                yield Block(f"{source.name}, {getattr(node, 'name', 'module')}", textwrap.dedent(m[1]))


def parse(block: Block) -> ast.Module:
    """Compile a block. A span may lack the code after its colon."""
    code = block.code.rstrip()
    if code.endswith(":") or (re.match(r"(with|for) .*[^:]$", code) and "\n" not in code):
        code = code.rstrip(":") + ": ..."
    return ast.parse(code)


def set_by_methods() -> dict[str, set[str]]:
    """Return the attributes that the methods of each class set, by class name."""
    found: dict[str, set[str]] = {}
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name] = set(re.findall(r"\bself\.([a-z]\w*)\b[^=\n]* = ", ast.unparse(node)))
    return found


SET = set_by_methods()


def members(cls: type) -> set[str]:
    """Return the members of an object: the members of its class and the attributes that methods set."""
    names = set(dir(cls))
    for c in cls.__mro__:
        names |= set(vars(c).get("__annotations__", {})) | SET.get(c.__name__, set())
    return names


# Classes that create attributes on demand.
OPEN = {stoker.Batch}
NEED_A_FRAMEWORK = ("jax", "keras", "lerobot", "ray", "tf", "torch")
# Names that the pages use without defining them.
ASSUMED: dict[str, Any] = {"loader": stoker.Loader, "p": stoker.Plan, "profiler": stoker.Profiler}


class Checker(ast.NodeVisitor):
    """Looks the names and arguments of a block up."""

    def __init__(self, names_only: bool = False) -> None:
        """Start with the names that pages assume; ``names_only``: a call without arguments only names."""
        self.names_only = names_only
        self.types = dict(ASSUMED)
        self.problems: list[str] = []
        self.calls = 0

    def resolve(self, node: ast.expr) -> Any:
        """Return an expression's value: a function, a class, an instance's class, or None for foreign objects."""
        if isinstance(node, ast.Name):
            if node.id == "stoker":
                return stoker
            if node.id == "T" and "T" not in self.types:
                return stoker.transforms
            return ("instance", self.types[node.id]) if node.id in self.types else None
        if isinstance(node, ast.Call):
            called = self.resolve(node.func)
            if isinstance(called, type):
                return ("instance", called)
            if callable(called):
                returned = getattr(stoker, str(inspect.signature(called).return_annotation), None)
                return ("instance", returned) if isinstance(returned, type) else None
            return None
        if isinstance(node, ast.Attribute):
            of = self.resolve(node.value)
            if of in (stoker, T, stoker.audio, stoker.video, stoker.volume):
                if of is stoker and node.attr in NEED_A_FRAMEWORK:
                    return None
                if not hasattr(of, node.attr):
                    self.problems.append(f"{of.__name__}.{node.attr} does not exist")
                return getattr(of, node.attr, None)
            if isinstance(of, tuple) and of[1].__module__.startswith("stoker") and of[1] not in OPEN:
                cls = of[1]
                if node.attr not in members(cls):
                    self.problems.append(f"{cls.__name__} has no {node.attr}")
                value = getattr(cls, node.attr, None)
                return value if isinstance(value, types.FunctionType) else None
        return None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Look an attribute up."""
        self.resolve(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note the value of a name."""
        self.generic_visit(node)
        value = self.resolve(node.value)
        if isinstance(node.targets[0], ast.Name):
            self.types.pop(node.targets[0].id, None)
            if isinstance(value, tuple):
                self.types[node.targets[0].id] = value[1]

    def visit_Call(self, node: ast.Call) -> None:
        """Bind the arguments of a call."""
        self.generic_visit(node)
        called = self.resolve(node.func)
        if not callable(called) or any(isinstance(a, ast.Starred) for a in node.args):
            return
        if any(isinstance(a, ast.Constant) and a.value is ... for a in node.args):
            return
        if not node.args and not node.keywords and self.names_only:
            return
        self.calls += 1
        # The signature of a class itself is not used: a metaclass may take anything to report what is wrong.
        signature = inspect.signature(called.__init__ if isinstance(called, type) else called)
        method = isinstance(called, type) or self.resolve(node.func.value) is not stoker  # type: ignore[attr-defined]
        args: list[Any] = [None] * (len(node.args) + method)
        keywords = {k.arg: None for k in node.keywords if k.arg}
        # **unknown takes the arguments that are to be refused.
        strict = signature.replace(
            parameters=[p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD or p.name != "unknown"]
        )
        try:
            strict.bind(*args, **keywords)
        except TypeError as error:
            self.problems.append(f"{ast.unparse(node)}: {error}")


def check(block: Block) -> Checker:
    """Check one block on its own."""
    checker = Checker(names_only="\n" not in block.code and block.where != "here")
    checker.visit(parse(block))
    return checker


def test_blocks_compile_and_their_names_exist() -> None:
    blocks = [*fenced(), *in_docstrings(), *spans()]
    assert len(blocks) > 40
    calls = 0
    problems = []
    for block in blocks:
        try:
            checker = check(block)
        except SyntaxError as error:
            problems.append(f"{block.where}: {error}: {block.code.strip()}")
            continue
        calls += checker.calls
        problems += [f"{block.where}: {p}" for p in checker.problems]
    assert not problems, "\n".join(problems)
    assert calls > 60, "this test looks in the wrong places"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("stoker.Loder('x')", "stoker.Loder does not exist"),
        ("stoker.Loader('x', batchsize=3)", "batchsize"),
        ("stoker.bench(loader, steps=3)", "steps"),
        ("loader.stat()", "Loader has no stat"),
        ("p = stoker.plan('x', batch=3)\np.iop", "Plan has no iop"),
        ("r = stoker.study(f, [1])\nr.save('x')", "StudyResult has no save"),
        ("stoker.headroom()", "missing a required argument"),
        ("stoker.transforms.GaussianBlur(3, blur=1)", "blur"),
        ("loader.set_epoch(1, 2)", "too many positional"),
    ],
)
def test_mistakes_are_found(code: str, says: str) -> None:
    assert says in "\n".join(check(Block("here", code)).problems)


def test_right_code_passes() -> None:
    code = (
        "loader = stoker.Loader('x', 3, limits=stoker.Limits(memory='2GB'))\n"
        "print(stoker.profile(loader).compare('y'), loader.state_dict())"
    )
    assert check(Block("here", code)).problems == []


# --- cheap code runs --------------------------------------------------------


@pytest.fixture
def dataset(pages_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the working directory a folder with the data that docstrings speak of."""
    for entry in pages_data.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_docstrings_run(dataset: Path) -> None:
    pytest.importorskip("torch")
    real, made = stoker.Loader, []

    def small(source: Any, batch_size: int = 1, **options: Any) -> stoker.Loader:
        made.append(
            real(source, min(batch_size, 16), **(options | {"limits": stoker.Limits(memory="256MB"), "threads": 1}))
        )
        return made[-1]

    module = types.SimpleNamespace(**{k: getattr(stoker, k) for k in dir(stoker) if not k.startswith("__")})
    module.Loader = small
    try:
        for block in in_docstrings():
            if "stoker.Loader(" not in block.code or "stoker.plan" in block.code:  # a plan measures the machine
                continue
            if block.where.startswith(tuple(FRAMEWORKS)):  # in a process of their own, below
                continue
            code = re.sub(r"^import stoker$", "", block.code, flags=re.MULTILINE).replace(
                "(scan, ...)", "(scan, np.uint8)"
            )
            if all(isinstance(n, ast.Import | ast.FunctionDef) for n in ast.parse(code).body):
                continue  # only defines what a test of its own runs
            names: dict[str, Any] = {"stoker": module, "train_step": lambda *_: None, "np": np, "T": T}
            before = len(made)
            exec(compile(code, block.where, "exec"), names)
            assert len(made) > before, block.where
    finally:
        for loader in made:
            loader.close()
    assert len(made) >= 2, "this test looks in the wrong places"


# The names that the blocks of framework modules need besides stoker.
FRAMEWORKS = {
    "jax.py": """
import jax
from jax.sharding import NamedSharding, PartitionSpec
mesh, state, train_step = jax.sharding.Mesh(jax.devices(), "data"), None, lambda *_: None
""",
    "keras.py": """
import types
model = types.SimpleNamespace(fit=lambda *_, **__: None)
""",
    "tf.py": "train_step = lambda *_: None",
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_blocks_of_frameworks_run(dataset: Path, name: str) -> None:
    """In processes of their own: a process that runs JAX must not be forked any more, which other tests do."""
    pytest.importorskip({"tf.py": "tensorflow"}.get(name, name.removesuffix(".py")))
    blocks = [b for b in in_docstrings() if b.where.startswith(name) and "stoker.Loader(" in b.code]
    assert blocks
    for block in blocks:
        code = f"import stoker\n{FRAMEWORKS[name]}\n{block.code}".replace("batch_size=256", "batch_size=16")
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
        assert ran.returncode == 0, f"{block.where}: {ran.stderr}"
