"""The scripts in examples/, one for each framework."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support import CHECKOUT

EXAMPLES = CHECKOUT / "examples"
CLASSES, COUNT = 4, 203


# With a torch and a torchaudio for different versions of CUDA, neither could be imported, even without a GPU.
FIRST = "import sys, torch; torch.version.cuda = '13.0'\n"
ALONE = FIRST + "import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
# Imports the slow modules once, and forks a process for each requested script.
FORKS = (
    FIRST
    + """
import contextlib, json, os, runpy, signal
for name in ("torchvision", "accelerate", "lightning", "timm", "transformers.trainer"):
    with contextlib.suppress(ImportError):
        __import__(name)
print("ready", flush=True)
for line in sys.stdin:
    out, err, *argv = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
for fd, name in enumerate((os.devnull, out, err)):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), fd)
sys.argv = argv
signal.alarm(300)
runpy.run_path(argv[0], run_name="__main__")
"""
)


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
    # XLA makes NPROC threads. With one for each of two cores, two devices that wait for each other leave none for work.
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "NPROC": "8"}


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    """Start a process that has imported frameworks."""
    command = [sys.executable, "-c", FORKS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


class Run:
    """Runs scripts in processes of their own."""

    def __init__(self, request: pytest.FixtureRequest, path: Path) -> None:
        self._request, self._path = request, path

    def __call__(self, script: str, *args: object, framework: str, alone: bool = False) -> str:
        """Return the output of a script. Skip if its framework is not installed. Scripts that start threads run
        alone."""
        for name in (framework, "torchvision"):
            if importlib.util.find_spec(name) is None:
                pytest.skip(f"{name} is not installed")
        argv = [str(EXAMPLES / script), *map(str, args)]
        if alone:
            done = subprocess.run(
                [sys.executable, "-c", ALONE, *argv], capture_output=True, text=True, timeout=300, env=environment()
            )
            assert done.returncode == 0, done.stderr
            return done.stdout
        process = self._request.getfixturevalue("forks")
        out, err = self._path / "out", self._path / "err"
        for file in (out, err):
            file.write_bytes(b"")
        process.stdin.write(json.dumps([str(out), str(err), *argv]) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "0\n", err.read_text()
        return out.read_text()


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return Run(request, tmp_path)


def labels_sum(photos: Path) -> int:
    folders = sorted(p for p in photos.iterdir() if p.is_dir())
    return sum(i * len(list(p.iterdir())) for i, p in enumerate(folders))


def counted(out: str) -> tuple[int, int]:
    """Return the number of labels that a script saw and their sum, over all ranks."""
    found = re.findall(r"(\d+) labels.*? sum (\d+), stoker\.torch", out)
    assert found, out
    return sum(int(n) for n, _ in found), sum(int(s) for _, s in found)


def test_cluster_training_goes_on(run: Run, photos: Path, tmp_path: Path) -> None:
    """The script of docs/how-to/cluster.md on one rank. make test-cluster runs it under launchers, with feeders."""
    line = re.compile(r"rank 0 of 1 .*: (\d+) steps, weights (\S+), 0 batches of feeders")

    def train(*args: object) -> tuple[int, str]:
        found = line.match(run("cluster_train.py", photos, *args, framework="torch"))
        assert found
        return int(found[1]), found[2]

    want = train("--epochs", 2)
    state = ["--epochs", 2, "--checkpoint", tmp_path / "run.pt", "--every", 3]
    first, _ = train(*state, "--stop-after", 17)
    second, weights = train(*state)
    assert (first, first + second, weights) == (17, *want)


def test_accelerate_goes_on_in_the_middle_of_an_epoch(run: Run, photos: Path, tmp_path: Path) -> None:
    state = ["--state", tmp_path / "state"]
    first = run("accelerate_train.py", photos, *state, "--stop-after", 5, framework="accelerate")
    second = run("accelerate_train.py", photos, *state, framework="accelerate")
    (n, a), (m, b) = counted(first), counted(second)
    assert (n, n + m, a + b) == (80, COUNT, labels_sum(photos))
    # 13 batches, four to an update: the gradients of the last one are not lost.
    assert " 3 updates" in second


def test_lightning_goes_on_in_the_middle_of_an_epoch(run: Run, photos: Path, tmp_path: Path) -> None:
    checkpoint = ["--checkpoint", tmp_path / "it.ckpt"]
    (n, a) = counted(run("lightning_train.py", photos, *checkpoint, "--stop-after", 5, framework="lightning"))
    (m, b) = counted(run("lightning_train.py", photos, *checkpoint, framework="lightning"))
    assert (n, n + m, a + b) == (80, COUNT, labels_sum(photos))


def test_lightning_on_two_ranks(run: Run, photos: Path) -> None:
    n, _ = counted(run("lightning_train.py", photos, "--devices", 2, framework="lightning"))
    assert n == COUNT + 1  # as DistributedSampler fills up


def test_fabric(run: Run, photos: Path) -> None:
    assert run("fabric_train.py", photos, framework="lightning") == f"{COUNT} records, stoker.torch._loader\n"


def test_hugging_face_trainer(run: Run, photos: Path) -> None:
    assert "12 steps" in run("hf_trainer.py", photos, framework="transformers")


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_callbacks(run: Run, tmp_path: Path, framework: str) -> None:
    out = run(str(Path(__file__).with_name("callback_frameworks.py")), framework, tmp_path, framework=framework)
    assert "reports at [2, 4, 6]" in out


def test_timm(run: Run, photos: Path) -> None:
    assert run("timm_train.py", photos, framework="timm") == "192 records, stoker.torch._loader.DataLoader\n"


def test_keras(run: Run, photos: Path) -> None:
    assert "13 steps an epoch" in run("keras_fit.py", photos, framework="keras", alone=True)


def test_tensorflow(run: Run, photos: Path) -> None:
    assert f"{2 * COUNT} records, loss " in run("tf_data.py", photos, framework="tensorflow", alone=True)


def test_jax(run: Run, photos: Path) -> None:
    out = run("jax_mesh.py", photos, 1000, framework="jax", alone=True)
    assert "1000 steps, 16000 records, 2 equal replicas" in out


def test_composer(run: Run, photos: Path) -> None:
    out = run("composer_train.py", photos, framework="composer", alone=True)
    assert f"{COUNT} samples, stoker.torch._loader" in out


def test_torchtitan(run: Run, tmp_path: Path) -> None:
    """Begun by two ranks and taken up by four, every sequence comes once."""
    np.save(tmp_path / "tokens.npy", np.arange(64 * 50 + 1, dtype=np.uint16))
    out = run("torchtitan_data.py", tmp_path / "tokens.npy", framework="torchtitan", alone=True)
    n, distinct = map(int, re.findall(r"\d+", out))
    assert n == distinct >= 48


def test_each_script_is_listed_and_tried() -> None:
    scripts = {p.name for p in EXAMPLES.glob("*.py")} - {"_model.py"}
    listed = set(re.findall(r"`(\w+\.py)`", (EXAMPLES / "README.md").read_text()))
    tried = set(re.findall(r'run\("(\w+\.py)"', Path(__file__).read_text()))
    # test_align.py and test_cluster_train.py run these.
    assert scripts == listed == tried | {"align_ranks.py", "ray_train.py"}
