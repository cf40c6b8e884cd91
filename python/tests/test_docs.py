"""The code of the documentation runs, and prints the output in the pages (scripts/docs.py)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import CHECKOUT, SOURCE

SCRIPT = CHECKOUT / "scripts/docs.py"
if not SCRIPT.is_file():
    pytest.skip("the pages are not in this tree", allow_module_level=True)


def docs(*words: str, binary: str) -> subprocess.Popen[str]:
    """Start scripts/docs.py."""
    env = os.environ | {"PYTHONPATH": SOURCE, "STOKER_BINARY": binary}
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def test_pages_run_and_print_what_they_say(binary: str, pages_data: Path) -> None:
    process = docs("--check", "--data", str(pages_data), binary=binary)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said


def test_the_table_of_modules_is_complete() -> None:
    page = (CHECKOUT / "python/README.md").read_text()
    code = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import docs; print(docs.modules(), end='')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout in page, "run: python scripts/docs.py --modules"


def test_mistakes_are_found(binary: str, pages_data: Path, tmp_path: Path) -> None:
    page = tmp_path / "start/page.md"
    page.parent.mkdir()
    page.write_text(
        "```python\nx = 1\nprint(x)\n```\n```output\n2\n```\n"
        '```python\nprint("x", x, nothing)\n```\n'
        "```sh\nstoker inspect photoz/\n```\n"
        "<!-- not run: it needs a cluster -->\n```python\nimport nothing\n```\n"
        "```sh\nstoker formats --help | head -n 1\necho 12 ms\n```\n```output\nShow\n```\n"
    )
    process = docs("--check", "--data", str(pages_data), str(page), binary=binary)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 1
    assert re.findall(r"page.md:(\d+): (.{12})", said) == [
        ("6", "the output d"), ("9", "NameError: n"), ("12", "exit 1: stok"), ("23", "the output d"),
    ], said  # fmt: skip
    process = docs("--data", str(pages_data), str(page), binary=binary)
    process.communicate(timeout=100)
    assert "```output\n1\n```" in page.read_text()
    assert "12 ms\n```" in page.read_text()
