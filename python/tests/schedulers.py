"""Schedulers for tests: Slurm on this machine, and waits."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import SOURCE

PATIENCE = 900.0


def has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


NEEDED = [
    pytest.mark.filterwarnings("ignore"),  # of Ray and Dask
    pytest.mark.skipif(
        "STOKER_CLUSTER" not in os.environ,
        reason="make test-cluster runs them: they take minutes and need Ray and Slurm",
    ),
]


def marked(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a text that all processes of the test have in their environment, with the way to this package."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")]))
    mark = f"STOKER_TEST_MARK={uuid.uuid4()}"
    monkeypatch.setenv(*mark.split("="))
    return mark


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def slurm(folder: Path, nodes: int, name: str = "n") -> Iterator[dict[str, str]]:
    """Run a controller and nodes of Slurm on this machine, without munge. Gives the environment of its commands.

    The names of nodes are ``name`` and a number. Tasks that connect to nodes need names that are addresses.
    """
    host = socket.gethostname().split(".")[0]
    for part in ("state", "spool"):
        (folder / part).mkdir()
    lines = [
        "ClusterName=test", f"SlurmctldHost={host}(127.0.0.1)", "SlurmUser=root", f"SlurmctldPort={free_port()}",
        "AuthType=auth/none", "CredType=cred/none", "AuthInfo=cred_expire=5", "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none", "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "ReturnToService=2",
        "MpiDefault=none", "SwitchType=switch/none", "JobAcctGatherType=jobacct_gather/none", "InactiveLimit=0",
        "KillWait=5", "MinJobAge=300",
        "SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0,bf_interval=1",
        f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool/%n", f"SlurmctldLogFile={folder}/ctld.log",
        f"SlurmdLogFile={folder}/%n.log", f"SlurmctldPidFile={folder}/ctld.pid", f"SlurmdPidFile={folder}/%n.pid",
        *(f"NodeName={name}{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=2" for i in range(nodes)),
        "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]  # fmt: skip
    conf = folder / "slurm.conf"
    conf.write_text("\n".join(lines) + "\n")
    env = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"/usr/sbin:{os.environ['PATH']}"}
    with contextlib.ExitStack() as stack:
        for command in [["slurmctld", "-D"], *(["slurmd", "-D", "-N", f"{name}{i}"] for i in range(nodes))]:
            process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
        yield env


def wait_for(what: Callable[[], object], about: str) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, about
        time.sleep(0.2)
