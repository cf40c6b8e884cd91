"""The scripts in examples/, one for each framework."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import CHECKOUT

EXAMPLES = CHECKOUT / "examples"
CLASSES, COUNT = 4, 203


def run(script: str, *args: object, framework: str) -> str:
    """Return what a script prints; skip when its framework is not installed."""
    for name in (framework, "torchvision"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    code = (
        # Whose torch is of another CUDA than its torchaudio could import neither, without a GPU as well.
        "import runpy, sys, torch; torch.version.cuda = '13.0'; sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    path = os.pathsep.join([str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLES / script), *map(str, args)],
        capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def labels_sum(photos: Path) -> int:
    folders = sorted(p for p in photos.iterdir() if p.is_dir())
    return sum(i * len(list(p.iterdir())) for i, p in enumerate(folders))


def counted(out: str) -> tuple[int, int]:
    """Return how many labels a script saw and their sum, over all ranks."""
    found = re.findall(r"(\d+) labels.*? sum (\d+), stoker\.torch", out)
    assert found, out
    return sum(int(n) for n, _ in found), sum(int(s) for _, s in found)


def test_accelerate_goes_on_in_the_middle_of_an_epoch(photos: Path, tmp_path: Path) -> None:
    state = ["--state", tmp_path / "state"]
    first = run("accelerate_train.py", photos, *state, "--stop-after", 5, framework="accelerate")
    second = run("accelerate_train.py", photos, *state, framework="accelerate")
    (n, a), (m, b) = counted(first), counted(second)
    assert (n, n + m, a + b) == (80, COUNT, labels_sum(photos))
    # 13 batches, four to an update: the gradients of the last one are not lost.
    assert " 3 updates" in second


def test_lightning_goes_on_in_the_middle_of_an_epoch(photos: Path, tmp_path: Path) -> None:
    checkpoint = ["--checkpoint", tmp_path / "it.ckpt"]
    (n, a) = counted(run("lightning_train.py", photos, *checkpoint, "--stop-after", 5, framework="lightning"))
    (m, b) = counted(run("lightning_train.py", photos, *checkpoint, framework="lightning"))
    assert (n, n + m, a + b) == (80, COUNT, labels_sum(photos))


def test_lightning_on_two_ranks(photos: Path) -> None:
    n, _ = counted(run("lightning_train.py", photos, "--devices", 2, framework="lightning"))
    assert n == COUNT + 1  # as DistributedSampler fills up


def test_fabric(photos: Path) -> None:
    assert run("fabric_train.py", photos, framework="lightning") == f"{COUNT} records, stoker.torch._loader\n"


def test_hugging_face_trainer(photos: Path) -> None:
    assert "12 steps" in run("hf_trainer.py", photos, framework="transformers")


def test_timm(photos: Path) -> None:
    assert run("timm_train.py", photos, framework="timm") == "192 records, stoker.torch._loader.DataLoader\n"


def test_keras(photos: Path) -> None:
    assert "13 steps an epoch" in run("keras_fit.py", photos, framework="keras")


def test_tensorflow(photos: Path) -> None:
    assert f"{2 * COUNT} records, loss " in run("tf_data.py", photos, framework="tensorflow")


def test_jax(photos: Path) -> None:
    assert "1000 steps, 16000 records, 2 equal replicas" in run("jax_mesh.py", photos, 1000, framework="jax")


def test_composer(photos: Path) -> None:
    assert f"{COUNT} samples, stoker.torch._loader" in run("composer_train.py", photos, framework="composer")


def test_torchtitan(tmp_path: Path) -> None:
    """Begun by two ranks and taken up by four, every sequence comes once."""
    np.save(tmp_path / "tokens.npy", np.arange(64 * 50 + 1, dtype=np.uint16))
    out = run("torchtitan_data.py", tmp_path / "tokens.npy", framework="torchtitan")
    n, distinct = map(int, re.findall(r"\d+", out))
    assert n == distinct >= 48


def test_each_script_is_listed_and_tried() -> None:
    scripts = {p.name for p in EXAMPLES.glob("*.py")} - {"_model.py"}
    listed = set(re.findall(r"`(\w+\.py)`", (EXAMPLES / "README.md").read_text()))
    assert scripts == listed == set(re.findall(r'run\("(\w+\.py)"', Path(__file__).read_text()))
