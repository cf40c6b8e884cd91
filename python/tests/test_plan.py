"""``stoker.plan`` against the program: figures of the published calculations, and refused figures."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker


@pytest.fixture(autouse=True)
def _no_saved_probe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STOKER_CACHE_DIR", str(tmp_path))


def test_published_calculation() -> None:
    p = stoker.plan(example="imagenet-4xv100")
    assert p.batch == 128
    assert p.step == pytest.approx(0.087)
    assert round(p.iops) == 5885
    assert p.bandwidth == pytest.approx(376.6e6, rel=1e-3)
    assert {c.name: c.verdict for c in p.storage}["sata-ssd"] == "yes"
    bandwidth = next(f for f in p.figures if f.what == "read bandwidth")
    assert bandwidth.text == "367 MB/s" and not bandwidth.agrees and "1,024" in bandwidth.reason
    assert "5,885 IOPS" in repr(p)
    assert len(str(p).splitlines()) == 4


def test_verdict_and_advice() -> None:
    p = stoker.plan(
        batch=256,
        step=0.05,
        example_bytes="110KB",
        records=1_281_167,
        storage="nvme",
        cores=2,
        memory="64GB",
        probe=False,
    )
    assert not p.meets and p.first_to_fail == "cores" and p.judged
    assert p.advice[0].kind in ("dct", "raw") and p.advice[0].after > p.advice[0].before > 0
    assert p.au < 0.6
    assert p.loader["batch_size"] == 256
    compile(p.python, "plan", "exec")
    assert p.raw["version"] == 1


def test_refuses() -> None:
    with pytest.raises(stoker.ConfigError, match=r"2 figures are missing: .*\(n\) and .*\(t\)"):
        stoker.plan(example_bytes="64KB", probe=False)
    with pytest.raises(stoker.ConfigError, match="not a storage class"):
        stoker.plan(batch=1, step=1.0, example_bytes=1000, storage="tape", probe=False)
    with pytest.raises(stoker.StokerError, match="no such file"):
        stoker.plan("/nowhere", batch=1, step=1.0, probe=False)


@pytest.fixture(scope="module")
def datasets(binary: str, photos: Path, pack: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a dataset of each kind by name."""
    root = tmp_path_factory.mktemp("data")
    np.save(root / "rows.npy", np.zeros((500, 64, 33), np.float32))
    for codec in ("dct", "raw"):
        args = ["--resize", "64"] if codec == "raw" else []
        command = [binary, "pack", str(photos), str(root / codec), "--images", codec, *args]
        subprocess.run(command, check=True, capture_output=True)
    return {
        "folder": photos,
        "keep": pack,
        "dct": root / "dct",
        "raw": root / "raw",
        "npy": root / "rows.npy",
    }


@pytest.mark.parametrize("name", ["folder", "keep", "dct", "raw", "npy"])
@pytest.mark.parametrize(
    "how",
    [
        {"cores": 2, "memory": "8GB", "batch": 16},
        {"cores": 16, "memory": "64GB", "batch": 128, "accelerators": 4},
        {"memory": "1GB", "batch": 64},
        {"cores": 4, "memory": "8GB", "batch": 24, "storage": "hdd"},
    ],
    ids=str,
)
def test_emitted_settings_are_what_runs(datasets: dict[str, Path], name: str, how: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    how = {"step": 0.1, "storage": "nvme", "probe": False, **how}
    p = stoker.plan(datasets[name], **how)
    program = p.python.partition("for epoch in")[0]
    # If the plan is to pack the data first, an existing pack serves for this test.
    program = program.replace(repr(p.loader["source"]).replace("'", '"'), f'"{datasets[name]}"')
    found: dict[str, Any] = {}
    exec(compile(program, "emitted", "exec"), found)
    with found["loader"] as loader:
        info = loader.info
        assert info["slots"] - 2 == p.loader["prefetch"]
        assert {k: info[k] for k in ("threads", "slots", "memory")} == p.raw["engine"]
        assert info["memory"]["budget"] == p.loader["memory"]


def test_plan_of_a_dataset(photos: Path) -> None:
    """A part of the records is planned for, and a function is refused."""
    data = stoker.open(photos)
    half, _ = data.split(0.5, 0.5, seed=0)
    whole, part = (stoker.plan(d, batch=8, step=0.1, probe=False).epoch_seconds for d in (data, half))
    assert 0.4 * whole < part < 0.6 * whole
    with pytest.raises(stoker.ConfigError, match="function"):
        stoker.plan(half.map(dict), batch=8, step=0.1, probe=False)
