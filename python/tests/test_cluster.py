"""Packing with the real Ray, Slurm and Dask: make test-cluster. Elsewhere these tests are skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from parts import OPTIONS, Killer, one_process, sums
from schedulers import NEEDED, PATIENCE, has, marked, slurm, wait_for

import stoker
from support import CHECKOUT, cli

PARTS = int(os.environ.get("STOKER_CLUSTER_PARTS", "64"))
COUNT = 40 * PARTS


pytestmark = NEEDED


@pytest.fixture(scope="module")
def data(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("photos") / "tree"
    args = ["--count", str(COUNT), "--classes", "4", "--seed", "5", "--size", "320x240", "--tree"]
    cli(binary, "gen", "images", out, *args)
    return out


@pytest.fixture(scope="module")
def want(binary: str, data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    began = time.monotonic()
    found = one_process(binary, data, tmp_path_factory.mktemp("one") / "train", PARTS)
    print(f"\none process: {COUNT} images in {PARTS} parts, {time.monotonic() - began:.1f} s")
    return found


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    return marked(monkeypatch)


@pytest.mark.skipif(not has("ray"), reason="needs Ray")
def test_ray(data: Path, want: dict[str, str], mark: str, tmp_path: Path) -> None:
    import ray

    from stoker.ray import pack

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    try:
        out, began = tmp_path / "ray", time.monotonic()
        killer, done = Killer(mark, [b"\0--part\0", b"ray::stoker pack"], 1), threading.Event()
        thread = threading.Thread(target=killer.run, args=(done.is_set, 40, 0.3))
        thread.start()
        try:
            made = pack(data, out, parts=PARTS, cpus=1, images="raw", resize="96x96", retries=40)
        finally:
            done.set()
            thread.join(60)
        print(f"\nRay: {killer.kills} processes killed, {time.monotonic() - began:.1f} s")
        assert made.records == COUNT and killer.kills > 5
        assert sums(out) == want
        again = pack(data, out, images="raw", resize="96x96", cpus=1)
        assert again.records == COUNT and sums(out) == want
        with pytest.raises(stoker.StokerError, match=r"part 0/1 of .*with other options"):
            pack(data, out, images="keep", cpus=1)
    finally:
        ray.shutdown()


@pytest.mark.skipif(not has("distributed"), reason="needs Dask")
def test_dask(data: Path, want: dict[str, str], mark: str, tmp_path: Path) -> None:
    page = (CHECKOUT / "docs/how-to/pack-in-parts.md").read_text()
    code = page.split("## Dask")[1].split("```python\n")[1].split("```")[0]
    out = tmp_path / "dask"
    for old, new in {
        '"tcp://scheduler:8786"': "processes=True, n_workers=2, threads_per_worker=1, dashboard_address=None",
        '"/data/photos"': repr(str(data)),
        '"/data/train"': repr(str(out)),
        "64": str(PARTS),
        'images="keep"': 'images="raw", resize="96x96"',
    }.items():
        assert old in code, old
        code = code.replace(old, new)
    script = tmp_path / "script.py"
    script.write_text("if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in code.splitlines()))
    subprocess.run([sys.executable, str(script)], check=True, timeout=PATIENCE)
    assert sums(out) == want


@pytest.mark.skipif(not has("pyspark") or not shutil.which("java"), reason="needs Spark")
def test_spark(data: Path, want: dict[str, str], mark: str, tmp_path: Path) -> None:
    page = (CHECKOUT / "docs/how-to/pack-in-parts.md").read_text()
    code = page.split("## Spark")[1].split("```python\n")[1].split("```")[0]
    out = tmp_path / "spark"
    for old, new in {
        "builder.": 'builder.master("local[2]").',
        '"/data/photos"': repr(str(data)),
        '"/data/train"': repr(str(out)),
        "64": str(PARTS),
        'images="keep"': 'images="raw", resize="96x96"',
    }.items():
        assert old in code, old
        code = code.replace(old, new)
    script = tmp_path / "script.py"
    script.write_text(code)
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run([sys.executable, str(script)], check=True, timeout=PATIENCE, env=env)
    assert sums(out) == want


@pytest.mark.skipif(not shutil.which("sbatch") or os.geteuid() != 0, reason="needs slurm-wlm, and root to start it")
def test_slurm(binary: str, data: Path, want: dict[str, str], mark: str, tmp_path: Path) -> None:
    folder, out = tmp_path / "slurm", tmp_path / "train"
    folder.mkdir()
    with slurm(folder, 2) as env:

        def ask(*words: str) -> str:
            return subprocess.run(words, env=env, capture_output=True, text=True, check=False, cwd=folder).stdout

        wait_for(lambda: ask("sinfo", "-h", "-o", "%t").split() == ["idle"], f"Slurm does not start: {folder}")
        env["PATH"] = f"{Path(binary).parent}:{env['PATH']}"
        command = [str(CHECKOUT / "examples/slurm/pack.sh"), str(data), str(out), *OPTIONS]
        began = time.monotonic()
        subprocess.run(command, env={**env, "PARTS": str(PARTS)}, check=True, cwd=folder)
        killer = Killer(mark, [b"\0--part\0"], 2)
        end = time.monotonic() + PATIENCE
        killer.run(lambda: (out / "manifest.json").exists() or time.monotonic() > end, 20)
        wait_for(lambda: not ask("squeue", "-h").strip(), f"jobs do not end: {ask('squeue')}")
        restarts = sum("DUE TO JOB REQUEUE" in log.read_text() for log in folder.glob("stoker-part-*.log"))
        print(f"\nSlurm: {killer.kills} processes killed, {restarts} parts repeated, {time.monotonic() - began:.1f} s")
        assert killer.kills > 5 and sums(out) == want
