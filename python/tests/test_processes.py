"""Files of tests that run in several processes (processes.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import HERE

CONFTEST = """
import processes, pytest

def pytest_runtestloop(session):
    return processes.run(session, 2)

@pytest.fixture(scope="session", autouse=True)
def whole(tmp_path_factory):
    with open("began", "a") as f:
        print("session", file=f)
    tmp_path_factory.mktemp("data")
    yield
    with open("ended", "a") as f:
        print("session", file=f)

@pytest.fixture(scope="module")
def module(request):
    yield
    with open("ended", "a") as f:
        print(request.node.name, file=f)
"""


def run(folder: Path, *args: str, **files: str) -> tuple[int, str]:
    """Run the tests of some files, and return the exit code and the output."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"{name}.py").write_text("import os, pytest\n" + text)
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", *args]
    ran = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(HERE)}, capture_output=True, text=True, timeout=120
    )
    return ran.returncode, ran.stdout + ran.stderr


def lines(file: Path) -> list[str]:
    return sorted(file.read_text().split())


def test_all_files_run_once(tmp_path: Path) -> None:
    """The fixtures of a session are made in each process, and those of a file once. All are torn down."""
    many = {
        f"test_{c}": "def test_1(module, tmp_path): pass\ndef test_2(module): print(os.getpid())\n" for c in "abcde"
    }
    code, said = run(tmp_path, **many)
    assert code == 0 and "10 passed" in said, said
    assert lines(tmp_path / "ended") == ["session", "session", *(f"{name}.py" for name in many)]


def test_failures_are_reported_as_by_one_process(tmp_path: Path) -> None:
    code, said = run(
        tmp_path,
        test_a="def test_bad():\n    print('printed', 1 + 1)\n    assert 'left' == 'right'\ndef test_good(): pass\n",
        test_b="@pytest.fixture\ndef broken(): raise OSError('no data')\ndef test_b(broken): pass\n",
        test_c="def test_c(): pytest.skip('not here')\n",
    )
    assert code == 1
    for part in (
        "FAILED test_a.py::test_bad - AssertionError", "printed 2", "ERROR test_b.py::test_b - OSError: no data",
        "test_c.py:2: not here", "1 failed, 1 passed, 1 skipped, 1 error",
    ):  # fmt: skip
        assert part in said, said


def test_a_process_that_dies_fails_the_run(tmp_path: Path) -> None:
    """Its test is named, and the other process runs the remaining files."""
    other = {f"test_{c}": "def test_good(): pass\n" for c in "bcde"}
    code, said = run(tmp_path, test_a="def test_dies(): os._exit(3)\n", **other)
    assert code == 1 and "4 passed" in said, said
    assert "FAILED a process of tests ended with exit code 3. It ran test_a.py::test_dies" in said
    # The shell sees the failure too if the first processes die before any test has run.
    code, said = run(tmp_path, *("-k", "dies"))
    assert code == 1, said


def test_the_first_failure_can_end_all(tmp_path: Path) -> None:
    """With -x a process in the middle of a test is interrupted, and tears its fixtures down."""
    waits = "import time\ndef test_long(module):\n    open('waits', 'w')\n    time.sleep(600)\n"
    fails = "import time\ndef test_bad():\n    while not os.path.exists('waits'): time.sleep(0.01)\n    assert False\n"
    code, said = run(tmp_path, "-x", test_a=waits, test_b=fails)
    assert code != 0 and "stopping after 1 failures" in said and "process of tests" not in said, said
    assert "test_a.py" in lines(tmp_path / "ended")
