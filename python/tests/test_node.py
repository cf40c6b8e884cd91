"""The engine that loaders of a machine share."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import stoker
from stoker import _node
from stoker import transforms as st
from stoker._distributed import ranks_here
from support import SOURCE, wait_for

Make = Callable[..., stoker.Loader]
CROP = {"image": [st.RandomResizedCrop(64)]}
OPTIONS: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3, "transforms": CROP}


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep the sockets in a folder with a short path, and end the engines."""
    with tempfile.TemporaryDirectory(prefix="stk") as folder:
        os.chmod(folder, 0o700)  # noqa: PTH101
        monkeypatch.setenv("STOKER_RUNTIME_DIR", folder)
        yield Path(folder)
        for pid in engines(Path(folder)):
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: not alive(pid))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def engines(folder: Path) -> list[int]:
    """Return the processes of the engines that serve in a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--detached" in words and any(w.startswith(os.fsencode(folder) + b"/") for w in words):
            found.append(int(place.parent.name))
    return [pid for pid in found if alive(pid)]


def limits(**kwargs: Any) -> stoker.Limits:
    return stoker.Limits(memory="64MB", shared=True, **kwargs)


def digest(loader: stoker.Loader, epochs: int = 1) -> str:
    """Return the hash of all batches."""
    h = hashlib.sha256()
    for _ in range(epochs):
        for batch in loader:
            h.update(repr((batch.epoch, batch.step)).encode())
            h.update(batch.index.tobytes())
            h.update(batch.image.tobytes())
            h.update(batch.label.tobytes())
    return h.hexdigest()


@pytest.fixture
def alone(make: Make, pack: Path) -> str:
    """Return the hash of an epoch with an engine of its own."""
    return digest(make(pack, **OPTIONS))


def test_loaders_share_an_engine(make: Make, pack: Path, runtime: Path, alone: str) -> None:
    a, b = (make(pack, **OPTIONS, limits=limits()) for _ in range(2))
    assert len(engines(runtime)) == 1
    assert digest(a) == alone
    a.close()
    assert digest(b) == alone
    modes = {p.suffix: stat.S_IMODE(p.stat().st_mode) for p in runtime.glob("shared-*")}
    assert modes == {"": 0o600, ".lock": 0o600, ".log": 0o600}


CHILD = """
import hashlib, os, sys, stoker
from stoker import transforms as st
from test_node import OPTIONS, digest, limits
print("ready", flush=True)
sys.stdin.readline()
loader = stoker.Loader(sys.argv[1], **OPTIONS, limits=limits())
print("open", flush=True)
sys.stdin.readline()
print(digest(loader), flush=True)
"""


class Job:
    """A process with a loader."""

    def __init__(self, pack: Path) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, str(Path(__file__).parent)])}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CHILD, str(pack)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def jobs(pack: Path) -> Iterator[list[Job]]:
    found = [Job(pack) for _ in range(4)]
    yield found
    for job in found:
        job.process.kill()
        job.process.communicate()


def test_processes_that_start_together(jobs: list[Job], runtime: Path, alone: str) -> None:
    """One of the processes is killed, and then the engine. The others get the same batches as alone."""
    assert [j.line() for j in jobs] == ["ready"] * 4
    for job in jobs:
        job.go()
    assert [j.line() for j in jobs] == ["open"] * 4
    (engine,) = engines(runtime)
    jobs[0].process.kill()
    for job in jobs[1:]:
        job.go()
    os.kill(engine, signal.SIGKILL)
    assert [j.line() for j in jobs[1:]] == [alone] * 3
    assert engine not in engines(runtime)


@pytest.mark.parametrize("consumers", [1, 2, 4])
def test_engine_that_is_killed(make: Make, pack: Path, runtime: Path, alone: str, consumers: int) -> None:
    """Loaders go on with the next batch, all with one other engine. make soak-node does this 100 times each."""
    random = Random(consumers)
    for _ in range(int(os.environ.get("KILLS", "1"))):
        loaders = [make(pack, **OPTIONS, limits=limits(prefetch=2)) for _ in range(consumers)]
        hashes = [hashlib.sha256() for _ in loaders]
        at = random.randrange(12)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stoker.EngineRestarted)
            for step, batches in enumerate(zip(*loaders, strict=True)):
                for h, batch in zip(hashes, batches, strict=True):
                    h.update(repr((batch.epoch, batch.step)).encode())
                    h.update(batch.index.tobytes())
                    h.update(batch.image.tobytes())
                    h.update(batch.label.tobytes())
                del batches, batch
                if step == at:
                    os.kill(engines(runtime)[0], signal.SIGKILL)
        assert [h.hexdigest() for h in hashes] == [alone] * consumers, at
        # A loader that has the rest of the epoch needs no other engine.
        assert all(loader.stats()["restarts"] <= 1 for loader in loaders)
        assert len(engines(runtime)) <= 1
        for loader in loaders:
            loader.close()


def test_only_the_pipeline_of_the_bad_record_is_blamed(
    make: Make, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record crashes the engine that another pipeline also uses."""
    monkeypatch.setenv("STOKER_TEST_CRASH", "17")
    other = {**OPTIONS, "shuffle": False, "batch_size": 8}
    bad = make(photos, **OPTIONS, limits=limits(), on_error="skip")
    good = make(f"{photos}#where=index < 17", **other, limits=limits())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = [i for batch in bad for i in batch.index.tolist()]
        fine = [i for batch in good for i in batch.index.tolist()]
    assert fine == list(range(17))
    assert 17 not in seen
    assert len(seen) == 203
    blamed = [m for w in caught for m in re.findall(r"record (\d+) was decoded in both", str(w.message))]
    assert blamed == ["17"]


def test_the_engine_ends_after_the_last_client(
    make: Make, pack: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_TEST_LINGER", "100ms")
    make(pack, **OPTIONS, limits=limits()).close()
    wait_for(lambda: not engines(runtime))
    assert sorted(p.suffix for p in runtime.glob("shared-*")) == [".lock", ".log"]


def test_a_folder_of_another_user_is_not_used(
    make: Make, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "run"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    monkeypatch.setenv("STOKER_RUNTIME_DIR", str(open_to_all))
    with pytest.raises(stoker.StokerError, match=f"only this user can enter: {open_to_all}\nhint: set STOKER_RUNTIME"):
        make(pack, **OPTIONS, limits=limits())


def test_other_settings_have_another_engine(binary: str) -> None:
    env = {"HOME": "/h", "TERM": "a"}
    name = _node._name(binary, env)
    assert name == _node._name(binary, {**env, "TERM": "b", "RANK": "3"})
    assert name != _node._name(binary, {**env, "AWS_PROFILE": "other"})
    assert name != _node._name(binary, {**env, "https_proxy": "http://x"})


def test_engine_of_another_version(
    make: Make, pack: Path, runtime: Path, alone: str, binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program says once that it does not share the engine of another version, and which side to upgrade."""
    monkeypatch.setattr(_node, "_warned", False)
    first = make(pack, **OPTIONS, limits=limits())
    (lock,) = runtime.glob("*.lock")
    version = lock.read_text().partition("+")[0].strip()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version) or version.startswith("devel")
    lock.write_text("0.0.9+abc\n")
    shutil.copy(binary, tmp_path / "stoker")  # another program
    monkeypatch.setenv("STOKER_BINARY", str(tmp_path / "stoker"))
    monkeypatch.setattr(_node, "_version", lambda path: (0, 0, 9) if path == str(lock) else (1, 20))
    with pytest.warns(RuntimeWarning, match="of this user") as caught:
        loaders = [make(pack, **OPTIONS, limits=limits()) for _ in range(2)]
    (warning,) = caught
    (old,) = [pid for pid in engines(runtime) if pid == first._epochs.live()._engine_pid()]
    assert f"(process {old}): that one is of Stoker 0.0.9, and this program has Stoker 1.20" in str(warning.message)
    assert "upgrade the other program's Stoker: pip install" in str(warning.message)
    assert len(engines(runtime)) == 2
    assert [digest(loader) for loader in (first, *loaders)] == [alone] * 3
    assert "upgrade this program's Stoker" in _node._other_version((1, 9), (1, 10), 1)
    # An engine that has ended is not mentioned.
    monkeypatch.setattr(_node, "_warned", False)
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: not alive(old))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        make(pack, **OPTIONS, limits=limits())


def test_version_of_a_lock_file(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert _node._version(str(lock)) == ()
    for text, version in {"0.10.2+b29a-dirty\n": (0, 10, 2), "1.2rc1": (1, 2), "devel-123": (), "": ()}.items():
        lock.write_text(text)
        assert _node._version(str(lock)) == version


# --- ranks of a job --------------------------------------------------------


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables that torchrun sets."""
    for name, value in {"LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "7", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)


def rank(make: Make, source: Path | str, n: int, **kwargs: Any) -> stoker.Loader:
    return make(source, **OPTIONS, ranks=stoker.Ranks(n, 2), **kwargs)


@pytest.mark.usefixtures("launcher")
def test_ranks_share_an_engine(make: Make, pack: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their batches are the same as with an engine each. Ranks of another job have another one."""
    own = [rank(make, pack, n, limits=stoker.Limits(shared=False)) for n in range(2)]
    assert not engines(runtime)
    monkeypatch.chdir(pack.parent)
    ranks = [rank(make, pack.name, n) for n in range(2)]
    assert len(engines(runtime)) == 1
    assert not any(loader._epochs.live().private for loader in ranks)
    assert [digest(loader) for loader in ranks] == [digest(loader) for loader in own]
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "8")
    rank(make, pack, 0)
    assert len(engines(runtime)) == 2


@pytest.mark.usefixtures("launcher")
def test_ranks_without_a_folder_for_the_socket(
    make: Make, pack: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_RUNTIME_DIR", "off")
    with pytest.warns(RuntimeWarning, match=r"this rank has an engine of its own.*STOKER_RUNTIME_DIR=off"):
        loader = rank(make, pack, 0)
    assert not engines(runtime)
    assert next(iter(loader)).step == 0


@pytest.mark.parametrize(
    ("env", "ranks"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "1"}, 1),
        ({"LOCAL_WORLD_SIZE": "4"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "1"}, 4),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2"}, 3),
        ({"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": "0"}, 1),  # a batch script
    ],
)
def test_number_of_ranks(env: dict[str, str], ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks_here(env) == ranks
    monkeypatch.setattr(os, "environ", env)
    assert (_node.sharing(None) is not None) == (ranks > 1)


def test_other_cores_have_another_engine(binary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = _node._name(binary, {})
    assert name != _node._name(binary, {}, "another job")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1000})
    assert name != _node._name(binary, {})


def test_control_groups_with_limits(tmp_path: Path) -> None:
    """Sessions without limits do not matter, jobs of a batch system do."""
    files = {
        "cgroup": "0::/slurm/job_7/task_0\n3:memory:/pods/a\n2:cpu,cpuacct:/\n1:name=systemd:/\n",
        "fs/slurm/job_7/memory.max": "1000\n",
        "fs/slurm/job_7/cpu.max": "max 100000\n",
        "fs/slurm/job_7/task_0/memory.max": "max\n",
        "fs/memory/pods/a/memory.limit_in_bytes": "9223372036854771712\n",
        "fs/memory/pods/memory.limit_in_bytes": "4096\n",
        "fs/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = _node._limited(tmp_path, tmp_path / "fs")
    assert found == [":/slurm/job_7/memory.max", "memory:/pods/memory.limit_in_bytes"]
    assert _node._limited(tmp_path / "none") == []


# --- batches that are built once -------------------------------------------


def shares(loader: stoker.Loader) -> bool:
    """Return whether all batches came from the common pipeline."""
    connection = loader._epochs.live()
    return connection.private and connection._second is None


def test_equal_loaders_build_batches_once(make: Make, pack: Path, alone: str) -> None:
    """Also if one of them changes its batches in place."""
    loaders = [make(pack, **OPTIONS, limits=limits()) for _ in range(3)]
    hashes = [hashlib.sha256() for _ in loaders]
    for batches in zip(*loaders, strict=True):
        for h, batch in zip(hashes, batches, strict=True):
            h.update(repr((batch.epoch, batch.step)).encode())
            h.update(batch.index.tobytes())
            h.update(batch.image.tobytes())
            h.update(batch.label.tobytes())
            batch.image[:] = 7
    assert [h.hexdigest() for h in hashes] == [alone] * 3
    assert all(shares(loader) for loader in loaders)


def test_a_loader_that_lags_delays_nobody(make: Make, pack: Path) -> None:
    """It gets the same batches, built again, and joins the others when it has caught up."""
    options = {**OPTIONS, "batch_size": 4}
    expected = [b.index.tolist() for b in make(pack, **options)]
    fast, slow = (make(pack, **options, limits=limits(prefetch=4)) for _ in range(2))
    late = iter(slow)
    seen = [next(late).index.tolist()]
    assert [b.index.tolist() for b in fast] == expected
    seen += [b.index.tolist() for b in late]
    assert seen == expected
    assert not (shares(fast) and shares(slow))
    pairs = zip(fast, slow, strict=True)
    assert all((a.index == b.index).all() and (a.image == b.image).all() for a, b in pairs)


def test_a_loader_that_joins_in_the_middle(make: Make, pack: Path) -> None:
    options = {**OPTIONS, "batch_size": 4}
    expected = [(b.index.tolist(), b.image.sum()) for b in make(pack, **options)]
    first = make(pack, **options, limits=limits())
    batches = iter(first)
    for _ in range(20):
        next(batches)
    second = make(pack, **options, limits=limits())
    assert [(b.index.tolist(), b.image.sum()) for b in second] == expected
    third = make(pack, **options, limits=limits())
    third.load_state_dict(first.state_dict())
    assert [(b.index.tolist(), b.image.sum()) for b in third] == expected[20:]
    assert [(b.index.tolist(), b.image.sum()) for b in batches] == expected[20:]


def darken(record: dict[str, Any]) -> dict[str, Any]:
    """Change the image in its own memory."""
    record["image"] //= 2
    return record | {"twice": 2 * record["label"]}


def negative(batch: stoker.Batch) -> stoker.Batch:
    batch.image[:] = 255 - batch.image
    return batch


FUNCTIONS: dict[str, Any] = {"map": darken, "batch_map": negative}


@pytest.mark.parametrize("workers", [0, 2])
def test_functions_share_batches(make: Make, pack: Path, workers: int) -> None:
    """They write to the memory of their batches, which other loaders do not see."""
    functions = FUNCTIONS | {"workers": workers}
    want = [b.copy() for b in make(pack, **OPTIONS, **functions)]
    loaders = [make(pack, **OPTIONS, **functions, limits=limits(prefetch=8)) for _ in range(2)]
    loaders.append(make(pack, **OPTIONS, limits=limits(prefetch=8)))
    plain = digest(make(pack, **OPTIONS))
    for n, (a, b) in enumerate(zip(*loaders[:2], strict=True)):
        for name in want[n].keys():  # noqa: SIM118
            assert (a[name] == want[n][name]).all(), name
            assert (b[name] == want[n][name]).all(), name
    assert digest(loaders[2]) == plain
    assert all(loader._epochs.live()._common for loader in loaders)


def test_functions_of_a_loader_that_lags(make: Make, pack: Path) -> None:
    """Its workers get batches from both rings."""
    options = {**OPTIONS, **FUNCTIONS, "batch_size": 4, "workers": 1}
    want = [b.copy() for b in make(pack, **options)]
    fast, slow = (make(pack, **options, limits=limits(prefetch=4)) for _ in range(2))
    late = iter(slow)
    seen = [next(late).copy()]
    assert [b.index.tolist() for b in fast] == [b.index.tolist() for b in want]
    seen += [b.copy() for b in late]
    assert slow._epochs.live()._second is not None
    for a, b in zip(seen, want, strict=True):
        assert (a.index == b.index).all()
        assert (a.image == b.image).all()


def test_devices_share_batches(make: Make, pack: Path, fake_device: Any) -> None:
    """The ring is registered, because a program with a device does not write to it."""
    options = {**OPTIONS, "transforms": CROP}
    want = [b.copy() for b in make(pack, **options, output="torch")]
    loaders = [make(pack, **options, device="cuda", limits=limits()) for _ in range(2)]
    fake_device.watch(lambda: loaders[0]._epochs.connection)
    fake_device.watch(lambda: loaders[1]._epochs.connection)
    assert len(fake_device.pinned) == 2
    for n, (a, b) in enumerate(zip(*loaders, strict=True)):
        a["index"].fill_(-1)
        assert (b["index"] == want[n]["index"]).all()
        assert (a.image == want[n].image).all()
        assert (b.image == want[n].image).all()
    assert all(loader._epochs.live()._common for loader in loaders)
    # After functions, the arrays are in memory that only this program sees.
    mapped = make(pack, **options, device="cuda", batch_map=negative, workers=0, limits=limits())
    assert len(fake_device.pinned) == 2
    for b, w in zip(mapped, want, strict=True):
        assert (255 - b.image.permute(0, 3, 1, 2) == w.image).all()
