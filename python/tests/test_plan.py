"""``stoker.plan`` against the program: figures of the published calculations, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import stoker


@pytest.fixture(autouse=True)
def _no_saved_probe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


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
