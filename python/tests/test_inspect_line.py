"""The line of code that ``stoker inspect`` prints runs unmodified, for every format that the benchmarks write."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from support import CHECKOUT, cli

FORMATS = CHECKOUT / "bench" / "formats"
if not FORMATS.is_dir():
    pytest.skip("bench is not in this tree", allow_module_level=True)

HELPERS = ("__main__", "report", "torch_side", "pictures", "sounds")
NAMES = sorted(m.name for m in pkgutil.iter_modules([str(FORMATS)]) if m.name not in HELPERS)
# The amount of data that is enough for a batch, in the size constants of the modules, if they have these.
SMALL = {"COUNT": 12, "DOCUMENTS": 10, "EPISODES": 2, "FILES": 2, "SECONDS": 2}
# Larger counts are numbers of tokens, and not of records.
TOKENS = 100_000_000


def shrink(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """Have a module of the benchmarks write little."""
    for name, small in SMALL.items():
        if hasattr(module, name):
            value = getattr(module, name)
            monkeypatch.setattr(module, name, 100_000 if value >= TOKENS else min(value, small))
    pictures, sounds = (importlib.import_module(f"bench.formats.{name}") for name in ("pictures", "sounds"))
    monkeypatch.setattr(pictures.photographs, "__defaults__", (16, 4))
    write = sounds.write

    def few(folder: Path, count: int, seconds: float, *args: Any, **kwargs: Any) -> None:
        write(folder, min(count, 6), min(seconds, 1.5), *args, **kwargs)

    monkeypatch.setattr(sounds, "write", few)


def run_line(binary: str, url: str) -> stoker.Batch:
    """Run the line that is printed for a source, and return its first batch."""
    done = subprocess.run([binary, "inspect", "--json", url], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    code = json.loads(done.stdout)["loader"]["code"]
    text = cli(binary, "inspect", url)
    assert code in text
    with eval(code, {"stoker": stoker}) as loader:
        for batch in loader:
            assert len(batch) > 0, code
            copy: stoker.Batch = batch.copy()
            return copy
    raise AssertionError(f"{code} gives no batch")


@pytest.mark.parametrize("name", NAMES)
def test_the_line_runs(binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.syspath_prepend(str(CHECKOUT))
    module = importlib.import_module(f"bench.formats.{name}")
    shrink(monkeypatch, module)
    try:
        module.FORMAT.make(tmp_path)
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")
    run_line(binary, module.FORMAT.url(tmp_path))


@pytest.mark.parametrize(("shape", "dtype"), [((150, 300, 300), np.float32), ((40, 600, 700), np.int16)])
def test_large_volumes_have_a_batch_that_fits(binary: str, tmp_path: Path, shape: tuple[int, ...], dtype: Any) -> None:
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.full(shape, i, dtype))
    run_line(binary, str(tmp_path))


@pytest.mark.parametrize("length", [40, 390_481])
def test_a_pack_of_one_document_has_sequences(binary: str, tmp_path: Path, length: int) -> None:
    stoker.pack(
        [{"tokens": (np.arange(length) % 500).astype(np.uint16)}],
        tmp_path / "p",
        kinds={"tokens": "tokens"},
        progress=False,
    )
    run_line(binary, str(tmp_path / "p"))


def test_label_volumes(binary: str, tmp_path: Path) -> None:
    for kind, dtype in (("images", np.float32), ("labels", np.uint8)):
        (tmp_path / kind).mkdir()
        for i in range(3):
            np.save(tmp_path / kind / f"{i}.npy", np.zeros((70, 80, 90), dtype))
    run_line(binary, f"pairs:{tmp_path}/?image=images/*.npy&label=labels/*.npy")
