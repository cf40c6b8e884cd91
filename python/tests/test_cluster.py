"""Packing with the real Ray, Slurm and Dask: make test-cluster. Elsewhere these tests are skipped."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from parts import OPTIONS, Killer, one_process, sums

import stoker
from conftest import CHECKOUT, SOURCE

PARTS = int(os.environ.get("STOKER_CLUSTER_PARTS", "64"))
COUNT = 40 * PARTS
PATIENCE = 900.0


def has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of Ray and Dask
    pytest.mark.skipif(
        "STOKER_CLUSTER" not in os.environ,
        reason="make test-cluster runs them: they take minutes and need Ray and Slurm",
    ),
]


@pytest.fixture(scope="module")
def data(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("photos") / "tree"
    args = ["--count", str(COUNT), "--classes", "4", "--seed", "5", "--size", "320x240", "--tree"]
    subprocess.run([binary, "gen", "images", str(out), *args], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def want(binary: str, data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    began = time.monotonic()
    found = one_process(binary, data, tmp_path_factory.mktemp("one") / "train", PARTS)
    print(f"\none process: {COUNT} images in {PARTS} parts, {time.monotonic() - began:.1f} s")
    return found


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a text that all processes of the test have in their environment, with the way to this package."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")]))
    mark = f"STOKER_TEST_MARK={uuid.uuid4()}"
    monkeypatch.setenv(*mark.split("="))
    return mark


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


def _port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def slurm(folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """Run a controller and nodes of Slurm on this machine, without munge. Gives the environment of its commands."""
    host = socket.gethostname().split(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    lines = [
        "ClusterName=test", f"SlurmctldHost={host}(127.0.0.1)", "SlurmUser=root", f"SlurmctldPort={_port()}",
        "AuthType=auth/none", "CredType=cred/none", "AuthInfo=cred_expire=5", "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none", "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "ReturnToService=2",
        "MpiDefault=none", "SwitchType=switch/none", "JobAcctGatherType=jobacct_gather/none", "InactiveLimit=0",
        "KillWait=5", "MinJobAge=300", "SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0",
        f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool/%n", f"SlurmctldLogFile={folder}/ctld.log",
        f"SlurmdLogFile={folder}/%n.log", f"SlurmctldPidFile={folder}/ctld.pid", f"SlurmdPidFile={folder}/%n.pid",
        *(f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={_port()} CPUs=2" for i in range(nodes)),
        "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]  # fmt: skip
    conf = folder / "slurm.conf"
    conf.write_text("\n".join(lines) + "\n")
    env = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"/usr/sbin:{os.environ['PATH']}"}
    with contextlib.ExitStack() as stack:
        for command in [["slurmctld", "-D"], *(["slurmd", "-D", "-N", f"n{i}"] for i in range(nodes))]:
            process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
        yield env


def wait_for(what: Any, about: str) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, about
        time.sleep(0.2)


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
