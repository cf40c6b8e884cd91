"""Makes the reference pages of the Python package from its signatures and docstrings, without importing it."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "src" / "stoker"

# The pages of ``stoker``, with their sections. Modules have pages of their own, and errors have one.
PAGES: dict[tuple[str, str], dict[str, list[str]]] = {
    ("python-load.md", "stoker: datasets and loaders"): {
        "Loader": ["Loader", "Batch", "Column", "Ragged", "Strings"],
        "Options of a loader": ["Cache", "Limits", "OnError", "Ranks", "Field", "Padded", "Buckets", "OnDevice"],
        "Dataset": ["open", "concat", "mix", "Dataset", "Record", "FieldInfo"],
    },
    ("python-tools.md", "stoker: prepare, plan and measure"): {
        "Prepare and check data": ["inspect", "pack", "verify", "convert"],
        "Plan and measure": ["plan", "doctor", "bench", "study", "profile", "headroom", "stage", "step", "watch"],
        "Results": [],  # all other names
    },
}
MODULES = ["torch", "jax", "keras", "tf", "ray", "lerobot", "cache", "callbacks"]
HEADINGS = {"Args", "Raises", "Returns", "Attributes", "Yields", "Example", "Examples", "Note"}
# Bases without a section of their own, whose methods users call, with their modules.
BASES = {"Result": "_measure.py", "_Logged": "callbacks.py"}
Node = ast.FunctionDef | ast.ClassDef


def exports(tree: ast.Module) -> list[str]:
    """Return the names in ``__all__``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(ast.literal_eval(e)) for e in node.value.elts if isinstance(node.value, ast.List)]
    raise ValueError("no __all__")


def definition(path: Path, name: str) -> Node | None:
    """Return the class or function with this name in a module, also if another module defines it."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, Node) and node.name == name and not overload(node):
            return node
    for imported in ast.walk(tree):
        if isinstance(imported, ast.ImportFrom) and imported.level and any(a.name == name for a in imported.names):
            base = path.parent
            for _ in range(imported.level - 1):
                base = base.parent
            base = base.joinpath(*(imported.module or "").split("."))
            found = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
            return definition(found, name)
    return None


def overload(node: Node) -> bool:
    return any(ast.unparse(d) == "overload" for d in node.decorator_list)


def markdown(text: str) -> str:
    """Return the text of a docstring as Markdown."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"``\1``", text).replace("``", "`")
    out, lines = [], text.splitlines()
    while lines:
        line = lines.pop(0)
        if line.rstrip().endswith("::"):
            if line.strip() != "::":
                out.append(line.rstrip()[:-1])
            while lines and not lines[0].strip():
                lines.pop(0)
            block = []
            while lines and (not lines[0].strip() or lines[0].startswith(" ")):
                block.append(lines.pop(0))
            code = textwrap.dedent("\n".join(block)).strip()
            out += ["", "```py", code, "```", ""]
        else:
            out.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def parts(doc: str) -> Iterator[tuple[str, str]]:
    """Return the sections of a docstring: the text before the first heading has the name ""."""
    name, lines = "", list[str]()
    for line in doc.splitlines():
        if line.endswith(":") and line[:-1] in HEADINGS:
            yield name, "\n".join(lines)
            name, lines = line[:-1], []
        else:
            lines.append(line)
    yield name, "\n".join(lines)


def entries(text: str) -> list[tuple[str, str]]:
    """Return the names of a section with their texts."""
    found: list[tuple[str, str]] = []
    for line in textwrap.dedent(text).strip().splitlines():
        if line.startswith(" ") and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        elif line.strip():
            name, _, rest = line.partition(": ")
            found.append((name, rest))
    return found


def signature(node: ast.FunctionDef, name: str, skip: int) -> str:
    """Return a signature in lines of at most 100 columns."""
    args = node.args
    names = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(names) - len(args.defaults)) + list(args.defaults)
    shown = []
    for arg, value in list(zip(names, defaults, strict=True))[skip:]:
        shown.append(parameter(arg, value))
    if args.vararg:
        shown.append("*" + parameter(args.vararg, None))
    elif args.kwonlyargs:
        shown.append("*")
    shown += [parameter(a, v) for a, v in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg:
        shown.append("**" + parameter(args.kwarg, None))
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    line = f"{name}({', '.join(shown)}){returns}"
    return line if len(line) <= 100 else f"{name}(\n" + "".join(f"    {s},\n" for s in shown) + f"){returns}"


def parameter(arg: ast.arg, default: ast.expr | None) -> str:
    text = arg.arg + (f": {ast.unparse(arg.annotation)}" if arg.annotation else "")
    return (
        text
        if default is None
        else f"{text} = {ast.unparse(default)}"
        if arg.annotation
        else f"{text}={ast.unparse(default)}"
    )


class Api:
    """Makes pages. The generator provides the function that formats a table."""

    def __init__(self, table: Callable[[list[str], list[list[str]]], str]) -> None:
        self.table = table

    def described(self, doc: str) -> list[str]:
        """Return a docstring as paragraphs and tables."""
        out = []
        for name, text in parts(doc):
            if not name:
                out.append(markdown(text) + "\n")
            elif name in ("Args", "Attributes"):
                head = "argument" if name == "Args" else "attribute"
                rows = [[", ".join(f"`{n.strip()}`" for n in k.split(",")), markdown(v)] for k, v in entries(text)]
                out.append(self.table([head, "meaning"], rows))
            elif name == "Raises":
                rows = [[f"`{k}`", markdown(v)] for k, v in entries(text)]
                out.append(self.table(["raises", "when"], rows))
            else:
                out.append(f"{name}: {markdown(' '.join(textwrap.dedent(text).split()))}\n")
        return out

    def function(self, node: ast.FunctionDef, title: str, level: str, skip: int = 0) -> list[str]:
        out = [f"{level} {title}\n", f"```py\n{signature(node, title.rpartition('.')[2], skip)}\n```\n"]
        return out + self.described(ast.get_docstring(node) or "")

    def object(self, node: ast.ClassDef, title: str, level: str) -> list[str]:
        """Return a class: its constructor, its docstring, its properties, its methods."""
        out = [f"{level} {title}\n"]
        bases = [
            definition(PACKAGE / BASES[b.id], b.id) for b in node.bases if isinstance(b, ast.Name) and b.id in BASES
        ]
        body = [*node.body, *(n for base in bases if isinstance(base, ast.ClassDef) for n in base.body)]
        functions = [n for n in body if isinstance(n, ast.FunctionDef)]
        init = next((n for n in functions if n.name == "__init__"), None)
        doc = ast.get_docstring(node) or ""
        fields = [n for n in node.body if isinstance(n, ast.AnnAssign) and "init=False" not in ast.unparse(n)]
        fields = [n for n in fields if (name := ast.unparse(n.target)) == "_" or not name.startswith("_")]
        frozen = any("dataclass" in ast.unparse(d) for d in node.decorator_list)
        if init is not None and "Args:" in doc and not init.args.vararg:
            out.append(f"```py\n{signature(init, node.name, 1)}\n```\n")
        elif frozen and "Args:" in doc:
            shown = ["*" if ast.unparse(f.annotation) == "KW_ONLY" else ast.unparse(f) for f in fields]
            out.append(f"```py\n{node.name}(\n" + "".join(f"    {s},\n" for s in shown) + ")\n```\n")
        out += self.described(doc)
        own = {n.name: n for n in reversed(functions) if not n.name.startswith("_") and not overload(n)}
        methods = list(reversed(own.values()))
        listed = {
            n.strip()
            for name, text in parts(doc)
            if name == "Attributes"
            for k, _ in entries(text)
            for n in k.split(",")
        }
        properties = [n for n in methods if any(ast.unparse(d).endswith("property") for d in n.decorator_list)]
        if properties:
            rows = []
            for n in properties:
                if n.name in listed:
                    continue
                kind = f"`{ast.unparse(n.returns)}`: " if n.returns else ""
                rows.append([f"`{n.name}`", kind + markdown(" ".join((ast.get_docstring(n) or "").split()))])
            out.append(self.table(["property", "meaning"], rows))
        for n in methods:
            setter = any(ast.unparse(d).endswith(".setter") for d in n.decorator_list)
            if n not in properties and not setter and ast.get_docstring(n):
                static = any(ast.unparse(d) == "staticmethod" for d in n.decorator_list)
                out += self.function(n, f"{node.name}.{n.name}", level + "#", 0 if static else 1)
        return out

    def named(self, path: Path, name: str, level: str) -> list[str]:
        node = definition(path, name)
        if isinstance(node, ast.ClassDef):
            return self.object(node, name, level)
        if isinstance(node, ast.FunctionDef):
            return self.function(node, name, level)
        raise ValueError(f"{path.name} has no function or class {name}")

    def pages(self) -> dict[str, list[str]]:
        """Return the pages, each as a list of parts."""
        init = PACKAGE / "__init__.py"
        names = exports(ast.parse(init.read_text()))
        known = {name for sections in PAGES.values() for listed in sections.values() for name in listed}
        results = [n for n in names if n not in known and not self.elsewhere(n)]
        pages = {}
        for (page, title), sections in PAGES.items():
            pages[page] = [f"# {title}\n"]
            for section, listed in sections.items():
                pages[page].append(f"## {section}\n")
                for name in listed or results:
                    pages[page] += self.named(init, name, "###")
        for module in MODULES:
            path = PACKAGE / f"{module}.py"
            path = path if path.exists() else PACKAGE / module / "__init__.py"
            tree = ast.parse(path.read_text())
            parts = [f"# stoker.{module}\n", *self.described(ast.get_docstring(tree) or "")]
            for name in exports(tree):
                parts += self.named(path, name, "##")
            pages[f"python-{module}.md"] = parts
        return pages

    @staticmethod
    def elsewhere(name: str) -> bool:
        """Report whether another page has this name: a module, an error, or the version."""
        if name == "__version__" or (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir():
            return True
        errors = ast.parse((PACKAGE / "_errors.py").read_text())
        return any(isinstance(n, ast.ClassDef) and n.name == name for n in errors.body)
