"""Training with feeders under torchrun, Slurm, Open MPI, Ray and the commands of Kubernetes: make test-cluster.

All of them run the scripts of docs/how-to/cluster.md. The model's weights must be those of a run without feeders.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from parts import Killer
from schedulers import NEEDED, PATIENCE, free_port, has, marked, slurm, wait_for

import stoker
from stoker import transforms as T
from support import CHECKOUT

pytestmark = [*NEEDED, pytest.mark.skipif(not has("torch"), reason="needs PyTorch")]

TRAIN = CHECKOUT / "examples/cluster_train.py"
LENGTH = "--epochs 3 --every 5"
LINE = re.compile(
    r"rank 0 of 2 \((?P<origin>.*?)\): (?P<steps>\d+) steps, weights (?P<weights>\S+), "
    r"(?P<fed>\d+) batches of feeders, 0 different"
)


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which the commands of the page are found. Slow reads make feeders necessary."""
    engine = Path(stoker._binary.find_binary()).parent  # type: ignore[attr-defined]
    folders = [Path(sys.executable).parent, engine, CHECKOUT / ".venv/bin"]
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "STOKER_TEST_FAULTS": "delay=30ms", **more}


def script(section: str, changes: dict[str, str]) -> str:
    """Return the script of a section of the page, with changed places and numbers."""
    page = (CHECKOUT / "docs/how-to/cluster.md").read_text()
    return changed(page.split(f"\n## {section}\n")[1].split("```bash\n")[1].split("```")[0], changes)


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def result(text: str) -> re.Match[str]:
    found = LINE.search(text)
    assert found, text
    return found


@contextlib.contextmanager
def running(command: list[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, **more)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def killing(killer: Killer, most: int, pause: float) -> Iterator[None]:
    done = threading.Event()
    thread = threading.Thread(target=killer.run, args=(done.is_set, most, pause))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(60)


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


@pytest.fixture(scope="module")
def data(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("photos") / "tree"
    args = ["--count", "320", "--classes", "4", "--seed", "5", "--size", "160x140", "--tree"]
    subprocess.run([binary, "gen", "images", str(out), *args], check=True, capture_output=True)
    return out


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    return marked(monkeypatch)


@pytest.fixture(scope="module")
def want(data: Path) -> str:
    """Return the weights of a run without feeders."""
    with pytest.MonkeyPatch.context() as patch:
        marked(patch)
        command = ["torchrun", "--nproc-per-node=2", f"--master-port={free_port()}", str(TRAIN), str(data)]
        env = environment(STOKER_TEST_FAULTS="")
        done = subprocess.run([*command, *LENGTH.split()], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found = result(done.stdout)
    assert (found["steps"], found["fed"]) == ("30", "0")
    return found["weights"]


def test_torchrun(data: Path, want: str, mark: str, tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    code = script("torchrun", {
        "data=/data/train": f"data={data}", "/tmp/pipeline.json": f"{tmp_path}/pipeline.$PORT",
        "--flight :7443": "--flight 127.0.0.1:$PORT", "--nproc-per-node 8": "--nproc-per-node 1",
        "gpu1:29500": f"127.0.0.1:{free_port()}", "--epochs 90": LENGTH, "/data/run.pt": f"{tmp_path}/run.pt",
        "cpu1:7443,cpu2:7443": f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}", "examples/": f"{CHECKOUT}/examples/",
    })  # fmt: skip
    (tmp_path / "hostname").write_text('#!/bin/sh\necho "$NODE"\n')
    (tmp_path / "hostname").chmod(0o755)
    env = environment()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    with contextlib.ExitStack() as stack:
        for i, port in enumerate(ports):
            stack.enter_context(running(["bash", "-c", code], env={**env, "NODE": f"cpu{i + 1}", "PORT": str(port)}))
        wait_for(lambda: all(map(answers, ports)), "the servers do not start")
        logs = [tmp_path / "gpu1.log", tmp_path / "gpu2.log"]
        trainers = []
        for log in logs:
            out = stack.enter_context(log.open("wb"))
            more = {"stdout": out, "stderr": out, "env": {**env, "NODE": log.stem}}
            trainers.append(stack.enter_context(running(["bash", "-c", code], **more)))
        killer = Killer(mark, [b"\0--flight\0"], 1)
        with killing(killer, 1, 0.3):
            codes = [trainer.wait(PATIENCE) for trainer in trainers]
    said = "".join(log.read_text() for log in logs)
    assert codes == [0, 0], said
    found = result(said)
    print(f"\ntorchrun: {found[0]}, {killer.kills} server killed")
    assert found["weights"] == want and int(found["fed"]) > 0


@pytest.mark.skipif(not shutil.which("mpirun"), reason="needs Open MPI")
def test_mpirun(data: Path, want: str, mark: str, tmp_path: Path) -> None:
    port = free_port()
    code = script("mpirun", {
        "data=/data/train": f"data={data}", "/data/pipeline.json": f"{tmp_path}/pipeline.json",
        "MASTER_ADDR=gpu1 MASTER_PORT=29500": f"MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}",
        "--host cpu1,cpu2": "--host localhost", "--flight :7443": f"--flight 127.0.0.1:{port}",
        "--host gpu1:8,gpu2:8": "--host localhost:2", "--epochs 90": LENGTH, "/data/run.pt": f"{tmp_path}/run.pt",
        "cpu1:7443,cpu2:7443": f"127.0.0.1:{port}", "examples/": f"{CHECKOUT}/examples/",
    })  # fmt: skip
    env = environment(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(["bash", "-c", code], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found = result(done.stdout)
    print(f"\nmpirun: {found[0]}")
    assert found["origin"].startswith("Open MPI") and found["weights"] == want and int(found["fed"]) > 0
    left = Killer(mark, [b"\0--flight\0"], 1)
    wait_for(lambda: not left.found(), "the server stays")


@pytest.mark.skipif(not shutil.which("sbatch") or os.geteuid() != 0, reason="needs slurm-wlm, and root to start it")
def test_slurm(data: Path, want: str, mark: str, tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    (folder / "examples").symlink_to(CHECKOUT / "examples")
    job = folder / "train.sbatch"
    job.write_text(changed((CHECKOUT / "examples/slurm/train.sbatch").read_text(), {
        "--nodes=2 --ntasks-per-node=8 --cpus-per-task=8 --gpus-per-node=8": "--nodes=2 --ntasks-per-node=1",
        "--nodes=4 --ntasks-per-node=1 --cpus-per-task=32": "--nodes=1 --ntasks-per-node=1",
        "port=7443": f"port={free_port()}", "MASTER_PORT=29500": f"MASTER_PORT={free_port()}",
    }))  # fmt: skip
    # The names of these nodes are addresses of this machine.
    with slurm(folder, 3, "127.0.0.1") as env:

        def ask(*words: str) -> str:
            found = environment(SLURM_CONF=env["SLURM_CONF"])
            return subprocess.run(words, env=found, cwd=folder, capture_output=True, text=True, check=False).stdout

        wait_for(lambda: set(ask("sinfo", "-h", "-o", "%t").split()) == {"idle"}, f"Slurm does not start: {folder}")
        number = ask("sbatch", "--parsable", str(job), str(data), *LENGTH.split(), f"--checkpoint={tmp_path}/run.pt")
        assert number.strip().isdigit(), number
        killer = Killer(mark, [b"\0--flight\0"], 3)
        wait_for(lambda: not ask("squeue", "-h").strip(), f"the job does not end: {ask('squeue')}")
        said = "".join(log.read_text() for log in folder.glob("stoker-train-*.log"))
        found = result(said)
        print(f"\nSlurm: {found[0]}")
        assert found["origin"].startswith("Slurm") and found["weights"] == want and int(found["fed"]) > 0, said
        wait_for(lambda: not killer.found(), "the server stays")


@pytest.fixture
def cluster(mark: str) -> Iterator[dict[str, str]]:
    """Return the environment of drivers for a Ray cluster of two nodes, which outlives them."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 100 << 20}
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment().items():
            patch.setenv(key, value)
        it = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            it.add_node(**node)
            yield environment(RAY_ADDRESS=it.address)
        finally:
            it.shutdown()


@pytest.mark.skipif(not has("ray"), reason="needs Ray")
class TestRay:
    FEEDERS = (b"\0--flight\0", b"ray::_Feeder")
    ALL = (*FEEDERS, b"\0serve\0--fd", b"ray::RayTrainWorker", b"ray::TrainController")

    def command(self, data: Path, folder: Path) -> list[str]:
        words = [*LENGTH.split(), f"--checkpoint={folder}/run.pt", f"--audit={folder}/run.{{rank}}.log"]
        return [sys.executable, str(CHECKOUT / "examples/ray_train.py"), str(data), *words]

    def test_killed_feeders(self, data: Path, want: str, mark: str, cluster: dict[str, str], tmp_path: Path) -> None:
        killer = Killer(mark, self.FEEDERS, 2)
        command = self.command(data, tmp_path)
        with killing(killer, 6, 3):
            done = subprocess.run(command, env=cluster, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        found = result(done.stdout + done.stderr)
        print(f"\nRay: {found[0]}, {killer.kills} servers and actors killed")
        assert found["weights"] == want and int(found["fed"]) > 0
        wait_for(lambda: not Killer(mark, self.ALL, 0).found(), "processes stay")

    def test_killed_driver(
        self, binary: str, data: Path, want: str, mark: str, cluster: dict[str, str], tmp_path: Path
    ) -> None:
        command, left = self.command(data, tmp_path), Killer(mark, self.ALL, 0)
        with running(command, env=cluster, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            wait_for(lambda: (tmp_path / "run.pt").exists() or driver.poll() is not None, "training does not start")
            before = len(left.found())
            driver.kill()
            began = time.monotonic()
        wait_for(lambda: not left.found(), "processes stay")
        print(f"\nRay: {before} processes of a killed driver ended within {time.monotonic() - began:.1f} s")
        done = subprocess.run(command, env=cluster, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        found = result(done.stdout + done.stderr)
        print(f"the next driver: {found[0]}")
        assert found["weights"] == want
        logs = sorted(str(log) for log in tmp_path.glob("run.*.log"))
        audit = subprocess.run([binary, "audit", *logs], capture_output=True, text=True, check=False)
        assert len(logs) == 2 and audit.returncode == 0, audit.stdout + audit.stderr
        print(audit.stdout)


@pytest.mark.skipif(not shutil.which("openssl") or not has("yaml"), reason="needs openssl and a reader of YAML")
def test_commands_of_the_jobset(data: Path, want: str, mark: str, tmp_path: Path) -> None:
    """The commands of the manifest, with certificates, on one machine."""
    import yaml

    documents = list(yaml.safe_load_all((CHECKOUT / "examples/kubernetes/jobset.yaml").read_text()))
    jobs = {job["name"]: job["template"]["spec"]["template"]["spec"] for job in documents[1]["spec"]["replicatedJobs"]}
    port = free_port()
    places = {
        "/app/": f"{CHECKOUT}/", "/data/train": str(data), "/pipeline/": f"{tmp_path}/", "/tls/": f"{tmp_path}/",
        "--flight=:7443": f"--flight=127.0.0.1:{port}", "dns:stoker-feeders:7443": f"dns:localhost:{port}",
        "--nproc-per-node=8": "--nproc-per-node=1", "=stoker-train-trainers-0-0.stoker-train": "=127.0.0.1",
        "--master-port=29500": f"--master-port={free_port()}", "--epochs=90": "--epochs=3",
        "/data/runs/": f"{tmp_path}/",
    }  # fmt: skip

    def words(container: dict[str, Any], index: int = 0) -> list[str]:
        text = "\n".join(container["command"] + container.get("args", []))
        for old, new in {**places, "$(JOB_COMPLETION_INDEX)": str(index)}.items():
            text = text.replace(old, new)
        return text.split("\n")

    tls = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    tls += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    tls += ["-keyout", f"{tmp_path}/tls.key", "-out", f"{tmp_path}/tls.crt"]
    subprocess.run(tls, check=True, capture_output=True)
    shutil.copy(tmp_path / "tls.crt", tmp_path / "ca.crt")
    env = environment()
    with contextlib.ExitStack() as stack:
        for container in jobs["feeders"]["initContainers"]:
            subprocess.run(words(container), env=env, check=True, timeout=PATIENCE)
        stack.enter_context(running(words(jobs["feeders"]["containers"][0]), env=env))
        wait_for(lambda: answers(port), "the server does not start")
        trainer = words(jobs["trainers"]["containers"][0], 1)
        other = stack.enter_context(running(trainer, env=env))
        trainer = words(jobs["trainers"]["containers"][0], 0)
        done = subprocess.run(trainer, env=env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0 and other.wait(PATIENCE) == 0, done.stderr
    found = result(done.stdout)
    print(f"\ncommands of the JobSet: {found[0]}")
    assert found["weights"] == want and int(found["fed"]) > 0


NEAR, FAR = "10.231.78", "10.231.79"


@contextlib.contextmanager
def router() -> Iterator[tuple[list[str], list[str]]]:
    """Make two network namespaces, for a router and a server. Yields the prefixes of commands in them."""
    middle, end = f"stoker-router-{os.getpid()}", f"stoker-server-{os.getpid()}"
    links = [f"st{os.getpid()}{letter}" for letter in "abcd"]
    inside = [["ip", "netns", "exec", name] for name in (middle, end)]

    def do(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    try:
        for name in (middle, end):
            do("ip", "netns", "add", name)
        do("ip", "link", "add", links[0], "type", "veth", "peer", "name", links[1], "netns", middle)
        do("ip", "-n", middle, "link", "add", links[2], "type", "veth", "peer", "name", links[3], "netns", end)
        do("ip", "addr", "add", f"{NEAR}.1/24", "dev", links[0])
        do("ip", "link", "set", links[0], "up")
        for name, link, address in ((middle, 1, f"{NEAR}.2"), (middle, 2, f"{FAR}.2"), (end, 3, f"{FAR}.1")):
            do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", links[link])
            do("ip", "-n", name, "link", "set", links[link], "up")
        do("ip", "-n", end, "route", "add", "default", "via", f"{FAR}.2")
        do("ip", "route", "add", f"{FAR}.0/24", "via", f"{NEAR}.2")
        do(*inside[0], "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        yield inside[0], inside[1]
    finally:
        subprocess.run(["ip", "link", "del", links[0]], capture_output=True, check=False)
        for name in (middle, end):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
def test_black_hole(binary: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For 10 s, all packets between trainer and server vanish. Training goes on, and the server is used again."""
    how: dict[str, Any] = {
        "batch_size": 16, "shuffle": True, "seed": 3, "threads": 1, "cache": False,
        "transforms": {"image": [T.RandomResizedCrop(32)]},
    }  # fmt: skip
    config = tmp_path / "pipeline.json"
    plain = stoker.Loader(data, **how)
    plain.save_pipeline(config)
    monkeypatch.setenv("STOKER_TEST_FAULTS", "delay=30ms")

    def stream(loader: stoker.Loader) -> Iterator[tuple[list[int], bytes]]:
        while True:
            for batch in loader:
                yield batch["index"].tolist(), batch["image"].tobytes()

    with contextlib.ExitStack() as stack:
        stack.callback(plain.close)
        middle, end = stack.enter_context(router())
        server = [*end, binary, "serve", "--flight", f"{FAR}.1:7443", "--config", str(config), "--insecure"]
        stack.enter_context(running(server))
        fed = stack.enter_context(stoker.Loader(data, **how, feeders=stoker.Feeders(f"{FAR}.1:7443", insecure=True)))

        def hole(what: str) -> None:
            for address in (f"{NEAR}.1", f"{FAR}.1"):
                subprocess.run([*middle, "ip", "route", what, "blackhole", f"{address}/32"], check=True)

        def batches() -> int:
            return int(fed.stats()["engine"]["feeders"]["batches"])

        began, ended, slowest, there = 0.0, 0.0, 0.0, 0
        last = give_up = time.monotonic() + PATIENCE
        for n, (mine, other) in enumerate(zip(stream(plain), stream(fed), strict=True)):
            assert mine == other, f"batch {n}"
            now = time.monotonic()
            assert now < give_up, fed.stats()["engine"]["feeders"]
            if not began:
                if batches() > 10:
                    hole("add")
                    began = last = time.monotonic()
                continue
            slowest, last = max(slowest, now - last), now
            if not ended and now - began >= 10:
                hole("del")
                ended, there = now, batches()
            elif ended and batches() > there + 10:
                break
        print(
            f"\na black hole of {ended - began:.1f} s: {n} batches are equal, the longest wait was {slowest:.1f} s; "
            f"the server was used again after {time.monotonic() - ended:.1f} s; {fed.stats()['engine']['feeders']}"
        )
        assert fed.stats()["engine"]["feeders"]["different"] == 0
