"""Runs the code of the documentation, and writes its output into the pages.

    python scripts/docs.py [PAGE...]           run, and write the outputs
    python scripts/docs.py --check [PAGE...]   run, and fail if an output differs or a block fails

Each page runs in a folder of its own with the data of scripts/docs_data.py. Its blocks run in their order:

- ```python blocks share one namespace. It has `np`, `stoker`, `T` (stoker.transforms), `train_step` and, if the page
  does not make one, `loader` from the start.
- ```sh blocks run as a script if an ```output block follows. In other blocks the `stoker` commands that are cheap run,
  and what they write over the data of scripts/docs_data.py is undone, except in the pages of docs/start/.
- ```output holds what the block before it prints. Durations, sizes and rates may differ by machine.
- A block after the line `<!-- not run: reason -->` does not run.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import gc
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "scripts"))
import docs_data  # noqa: E402

PAGES = [
    *(CHECKOUT / name for name in ("README.md", "python/README.md", "SKILL.md", "docs/llms.txt")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^(?:<!-- not run: ([^\n]*?) -->\n)?^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"[<>|]|://|\bN/|\.\.\.|\b[A-Z]{3,}\b")
CHEAP = ("cache ls", "convert", "describe", "formats", "inspect", "pack", "verify")
# Frameworks that must not be imported before others: a process that runs JAX must not be forked.
LAST = ("import jax", "import keras", "import tensorflow", "stoker.jax", "stoker.keras", "stoker.tf")
SECONDS = 120


@dataclasses.dataclass
class Block:
    """A fenced block: its first line, its language, its code, and the reason why it does not run."""

    line: int
    language: str
    code: str
    skipped: str | None
    start: int  # of the code in the text of the page
    end: int


def blocks(text: str) -> list[Block]:
    """Returns the fenced blocks of a page."""
    found = []
    for m in FENCE.finditer(text):
        indent = len(m[2])
        code = "".join(line[indent:] if line.strip() else line for line in m[4].splitlines(keepends=True))
        found.append(Block(text[: m.start(4)].count("\n") + 1, m[3], code, m[1], m.start(4), m.end(4)))
    return found


def alike(text: str, language: str) -> str:
    """Returns an output without the parts that differ per run: durations, sizes and rates, and in Python fractions."""
    if language == "python":
        return re.sub(r"\d+\.\d+", "#", text).rstrip()
    text = re.sub(r"\b[0-9a-f]{32}\b", "#", text)
    text = re.sub(r"\d[\d,.:]*\s?(?:[kKMGT]i?B(?:/s)?|ns|us|µs|ms|s|min|h|%)?(?![\w])", "#", text)
    return re.sub(r"[ ]+", " ", text).rstrip()


class Page:
    """Runs the blocks of one page."""

    def __init__(self, path: Path, data: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.text = path.read_text()
        self.name = str(path.relative_to(CHECKOUT)) if CHECKOUT in path.parents else path.name
        self.strict = "start/" in str(path) or path.name in ("README.md", "SKILL.md", "llms.txt")
        self.problems: list[str] = []
        self.ran = 0
        folder.mkdir(parents=True)
        for entry in data.iterdir():
            (folder / entry.name).symlink_to(entry)
        self.data = data
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.env = os.environ | {
            "PATH": f"{Path(docs_data.BINARY).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "STOKER_BINARY": docs_data.BINARY,
            "PYTHONPATH": str(CHECKOUT / "python/src"),
            "COLUMNS": "100",
        }

    def preset(self) -> None:
        """Gives blocks the names that pages use without an import."""
        import numpy as np
        import stoker
        from stoker import transforms

        self.names |= {"np": np, "stoker": stoker, "T": transforms, "train_step": lambda *_: None}

    def run(self) -> str:
        """Runs the page, and returns its text with the outputs of this run."""
        here = os.getcwd()
        os.chdir(self.folder)
        found = blocks(self.text)
        text, shift = self.text, 0
        try:
            for block, after in zip(found, [*found[1:], None], strict=True):
                shown = after if after and after.language == "output" else None
                if block.skipped or block.language not in ("python", "sh"):
                    continue
                printed = self.python(block) if block.language == "python" else self.shell(block, shown is not None)
                if shown is None or printed is None:
                    continue
                printed = printed.replace(str(self.folder) + "/", "").rstrip() + "\n"
                if alike(printed, block.language) != alike(shown.code, block.language):
                    self.problems.append(f"{self.name}:{shown.line}: the output differs:\n{printed}")
                    text = text[: shown.start + shift] + printed + text[shown.end + shift :]
                    shift += len(printed) - (shown.end - shown.start)
        finally:
            for value in list(self.names.values()):
                if type(value).__name__ in ("Loader", "DataLoader") and hasattr(value, "close"):
                    with contextlib.suppress(Exception):
                        value.close()
            self.names.clear()
            gc.collect()
            gc.freeze()  # the next pages' collections need not look at the modules of this one
            os.chdir(here)
        return text

    def python(self, block: Block) -> str | None:
        """Runs a block of Python, and returns its output."""
        if "np" not in self.names:
            self.preset()
        used, made = (re.search(pattern, block.code) for pattern in (r"\bloader\b", r"\bloader = "))
        if used and not made and "loader" not in self.names:
            resize = [self.names["T"].RandomResizedCrop(64)]
            self.names["loader"] = self.names["stoker"].Loader("photos/", batch_size=64, transforms={"image": resize})
        for target in re.findall(r'\b(?:pack|convert)\([^()]*?"([\w./-]+/)"', block.code):
            self.clear(target)
        self.ran += 1
        printed = io.StringIO()
        try:
            # Functions and classes of a page must have a source: stoker.torch reads it.
            file = self.folder / f"block{block.line}.py"
            file.write_text("\n" * (block.line - 1) + block.code)
            with contextlib.redirect_stdout(printed):
                exec(compile(ast.parse(file.read_text()), str(file), "exec"), self.names)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
            line = (lines or [block.line])[-1]
            self.problems.append(f"{self.name}:{line}: {type(error).__name__}: {str(error).strip()[:600]}")
            return None
        return printed.getvalue()

    def shell(self, block: Block, whole: bool) -> str | None:
        """Runs a block of the shell, or its cheap commands, and returns the output of the block."""
        code = block.code.replace("\\\n", " ")
        commands = [line.removeprefix("$ ") for line in code.splitlines()]
        if whole:
            for command in commands:
                self.clear(self.target(command))
            self.ran += 1
            return self.bash("\n".join(commands), block)
        for command in commands:
            if not any(command.startswith(f"stoker {verb} ") for verb in CHEAP) or NOT_RUN.search(command):
                continue
            target = self.target(command)
            self.clear(target)
            self.ran += 1
            self.bash(command, block)
            if target and not self.strict and (self.data / target).exists():
                self.clear(target)
                (self.folder / target).symlink_to(self.data / target)
        return None

    def bash(self, code: str, block: Block) -> str | None:
        ran = subprocess.run(
            ["bash", "-e", "-c", code], capture_output=True, text=True, check=False, env=self.env, timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = (ran.stdout + ran.stderr).strip()
        absent = re.search("no such file|does not exist|not found|no file has such a name", said)
        if ran.returncode not in (0, 3) and (self.strict or not absent):
            self.problems.append(f"{self.name}:{block.line}: exit {ran.returncode}: {code}\n{said[:600]}")
            return None
        return ran.stdout + ran.stderr

    def target(self, command: str) -> str | None:
        """Returns the folder or file that a command creates."""
        try:
            words = [w for w in shlex.split(command, comments=True) if not w.startswith("-")]
        except ValueError:
            return None
        verb = words[1:2]
        if words[:1] != ["stoker"] or re.search(r" --(?:append(?!-)|remove|part|commit)\b", command):
            return None
        at = {"pack": 3, "convert": 3, "gen": 3}.get(verb[0] if verb else "", 99)
        return words[at].rpartition(":")[2].rstrip("/") if len(words) > at else None

    def clear(self, name: str | None) -> None:
        """Removes files of an earlier block or of the shared data that the next command would overwrite."""
        target = self.folder / (name or "").rstrip("/")
        if not name or ":" in name or (self.folder not in target.resolve().parents and not target.is_symlink()):
            return
        if target.is_symlink() or target.is_file():
            target.unlink()
        else:
            shutil.rmtree(target, ignore_errors=True)


def modules() -> str:
    """Returns the table of python/README.md: each file of the package and the first line of its docstring."""
    package = CHECKOUT / "python/src/stoker"
    rows = ["| file | |", "|---|---|"]
    for file in sorted(package.rglob("*.py")):
        first = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
        rows.append(f"| `{file.relative_to(package)}` | {first} |")
    return "\n".join(rows) + "\n"


def write_modules() -> None:
    """Writes that table."""
    page = CHECKOUT / "python/README.md"
    begin, end = "<!-- modules:begin -->\n", "<!-- modules:end -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(before + begin + modules() + end + rest.partition(end)[2])


def main() -> int:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("pages", nargs="*", type=Path)
    p.add_argument("--check", action="store_true", help="fail if an output differs")
    p.add_argument("--data", type=Path, help="a folder that docs_data.make wrote")
    p.add_argument("--modules", action="store_true", help="write the table of python/README.md, and end")
    a = p.parse_args()
    if a.modules:
        write_modules()
        return 0
    pages = [q.resolve() for q in a.pages] or [q for q in PAGES if q.is_file()]
    pages = [q for q in pages if re.search(r"^ *```(?:python|sh)$", q.read_text(), re.MULTILINE)]
    pages.sort(key=lambda q: any(name in q.read_text() for name in LAST))
    os.environ.setdefault("KERAS_BACKEND", "torch")
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"{SECONDS} s have passed"))
    gc.set_threshold(100_000)  # imports make many objects, and little garbage
    problems: list[str] = []
    ran = 0
    with tempfile.TemporaryDirectory(prefix="stoker-docs-") as scratch:
        data = a.data or docs_data.make(Path(scratch) / "data")
        for i, path in enumerate(pages):
            begin = time.monotonic()
            os.environ["STOKER_CACHE_DIR"] = f"{scratch}/cache{i}"
            page = Page(path, data, Path(scratch) / f"page{i}")
            signal.alarm(SECONDS)
            text = page.run()
            signal.alarm(0)
            if not a.check and text != page.text:
                path.write_text(text)
                page.problems = [q for q in page.problems if "the output differs" not in q]
                print(f"docs: wrote the outputs of {page.name}")
            problems += page.problems
            ran += page.ran
            print(f"docs: {page.name}: {page.ran} blocks and commands in {time.monotonic() - begin:.1f} s", flush=True)
    print("\n".join(problems))
    print(f"docs: {len(pages)} pages, {ran} blocks and commands ran, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
