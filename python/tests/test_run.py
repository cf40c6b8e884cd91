"""``stoker run`` around unmodified scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from support import HERE, SOURCE, children, gone

pytest.importorskip("torch")
pytest.importorskip("torchvision")

HEAD = """
import sys, lazy_torchvision, torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as T
data = datasets.ImageFolder(sys.argv[1], T.Compose([T.Resize((24, 24)), T.ToTensor()]))
"""


def write(path: Path, program: str) -> str:
    script = path / "train.py"
    script.write_text(HEAD + textwrap.dedent(program))
    return str(script)


def environment() -> dict[str, str]:
    hook = str(Path(SOURCE) / "stoker" / "_hook")
    return {**os.environ, "PYTHONPATH": f"{SOURCE}:{HERE}", "STOKER_PYTHON_HOOK": hook}


def run(binary: str, path: Path, photos: Path, program: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [binary, "run", *args, "--", sys.executable, write(path, program), str(photos)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)


def test_loaders_of_any_origin(binary: str, photos: Path, tmp_path: Path) -> None:
    """Classes that are derived, imported under other names and made by functions: the same batches as without."""
    done = run(
        binary,
        tmp_path,
        photos,
        """
        import json, torch.utils.data as other
        class Mine(DataLoader):
            def __iter__(self):
                for batch in super().__iter__():
                    yield batch
        def sums(loader):
            torch.manual_seed(4)
            return [(float(x.sum()), y.tolist()) for _ in range(2) for x, y in loader]
        out = []
        for kind, workers in ((DataLoader, 0), (other.DataLoader, 2), (Mine, 2), (torch.utils.data.DataLoader, 1)):
            assert issubclass(kind, other.DataLoader)
            out.append(sums(kind(data, 16, shuffle=True, num_workers=workers, persistent_workers=workers == 1)))
        plain = DataLoader(data, 16, shuffle=True)
        original = DataLoader._get_iterator.__closure__[0].cell_contents.original
        DataLoader._get_iterator = original
        expected = sums(plain)
        for got in out[:3]:
            assert [y for _, y in got] == [y for _, y in expected]
            assert all(abs(a - b) < 0.004 * 16 * 3 * 24 * 24 for (a, _), (b, _) in zip(got, expected))
        assert len(out[3]) == len(expected)  # persistent workers draw otherwise
        print(json.dumps("good"))
        """,
        "--explain",
        "--first",
        "2",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == "good"
    assert done.stderr.count("ImageFolder: in the engine") == 4
    assert "the first 2 batches, made by torch" in done.stderr and "not compared with torch" not in done.stderr
    assert "runs in" in done.stderr


def test_samplers_are_read_when_torch_reads_them(binary: str, photos: Path, tmp_path: Path) -> None:
    """Also across the batch from which on the engine makes them, and with functions of the program's in workers."""
    program = """
        import random
        from torch.utils.data import RandomSampler, Sampler
        class Own(Sampler):
            def __init__(self, eager): self.eager = eager
            def draws(self): return (int(torch.randint(len(data), (), generator=g)) for _ in range(90))
            def __iter__(self): return iter(list(self.draws())) if self.eager else self.draws()
            def __len__(self): return 90
        g = torch.Generator()
        functions = T.Compose([*data.transform.transforms, lambda image: image])
        for transform, workers in ((data.transform, 0), (data.transform, 2), (functions, 2)):
            data.transform = transform
            for sampler in (RandomSampler(data, generator=g), RandomSampler(data, True, 90, g), Own(True), Own(False)):
                torch.manual_seed(4)
                g.manual_seed(5)
                loader = DataLoader(data, 4, sampler=sampler, num_workers=workers)
                for epoch in range(3):
                    for i, (_, labels) in enumerate(loader):
                        print(labels.tolist(), int(torch.randint(99, (), generator=g)), float(torch.rand(())))
                        if epoch == 1 and i == 5:
                            break
        """
    script = [sys.executable, write(tmp_path, program), str(photos)]
    ways = [[], *([binary, "run", "--first", first, "--"] for first in ("0", "3"))]
    # At the same time: they wait for processes most of it.
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    every = [subprocess.Popen([*way, *script], env=environment(), **pipes) for way in ways]
    try:
        expected, *ours = [process.communicate(timeout=120) for process in every]
    finally:
        for process in every:
            process.kill()
    assert [process.returncode for process in every] == [0, 0, 0], (expected, *ours)
    for stdout, stderr in ours:
        assert stdout == expected[0]
        assert stderr.count("ImageFolder: in the engine") == 12


def test_what_is_kept_is_said(binary: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later epochs and the next run read what the first one cached, and the report mentions it."""
    monkeypatch.delenv("STOKER_CACHE")
    monkeypatch.setenv("STOKER_CACHE_DIR", str(tmp_path / "cache"))
    program = "[None for _ in range(3) for batch in DataLoader(data, 16)]"
    loop = """
        loader = DataLoader(data, 16, shuffle=True)
        for epoch in range(3):
            for batch in loader:
                pass
        """
    done = run(binary, tmp_path, photos, loop)
    assert done.returncode == 0, done.stderr
    assert "in the first epoch" in done.stderr and "in the last one" in done.stderr
    if "cache: JPEG files are cached" not in done.stderr:
        pytest.skip("the folder of the tests is no disk")
    assert any(f.stat().st_size for f in (tmp_path / "cache").rglob("*") if f.is_file())
    assert "in the first epoch" not in run(binary, tmp_path, photos, program).stderr


def test_what_is_not_recognised_stays(binary: str, photos: Path, tmp_path: Path) -> None:
    done = run(
        binary,
        tmp_path,
        photos,
        """
        class Numbers(torch.utils.data.Dataset):
            def __len__(self): return 9
            def __getitem__(self, i): return torch.tensor(i)
        assert [b.tolist() for b in DataLoader(Numbers(), 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
        raise ValueError("as it should be")
        """,
    )
    assert done.returncode == 1
    assert "ValueError: as it should be" in done.stderr
    assert "Numbers: as it was" in done.stderr


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (
            "10",
            [
                "--first 10 needs 50 batches an epoch, this loader has 13; try --first 2",
                "--first 10 needs 50 batches an epoch, this loader has 3",
            ],
        ),
        ("0", ["not compared with torch: --first 0"] * 2),
    ],
)
def test_it_says_why_nothing_is_compared(
    binary: str, photos: Path, tmp_path: Path, first: str, says: list[str]
) -> None:
    """A report either has the speed of torch (test_loaders_of_any_origin), or says in a clause why not."""
    program = "for size in (16, 100):\n    for x in DataLoader(data, size): pass"
    done = run(binary, tmp_path, photos, program, "--first", first)
    assert done.returncode == 0, done.stderr
    reports = done.stderr.split("ImageFolder: in the engine")[1:]
    assert len(reports) == 2
    for report, why in zip(reports, says, strict=True):
        assert why in report
        assert "not compared with torch" in report and "made by torch" not in report


def test_interrupts_and_exit_codes(binary: str, photos: Path, tmp_path: Path) -> None:
    """The script handles Ctrl-C and decides how it exits. It leaves nothing running."""
    program = """
    import os, time
    print(os.getppid(), flush=True)
    try:
        while True:
            for _ in DataLoader(data, 50): print("batch", flush=True)
    except KeyboardInterrupt:
        sys.exit(7)
    """
    command = [binary, "run", "--", sys.executable, write(tmp_path, program), str(photos)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    ) as job:
        assert job.stdout is not None
        assert int(job.stdout.readline()) == os.getpid()  # nobody stands between
        for _ in range(6):
            assert job.stdout.readline() == "batch\n"
        os.killpg(job.pid, signal.SIGINT)
        _, err = job.communicate(timeout=60)
        assert job.returncode == 7, err
        assert "ImageFolder: in the engine" in err


def test_two_ranks(binary: str, photos: Path, tmp_path: Path) -> None:
    """torchrun passes it on: each rank has its own part, and the first one reports."""
    program = """
    import os, torch.distributed as dist
    dist.init_process_group("gloo")
    sampler = torch.utils.data.DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, 8, sampler=sampler, num_workers=1)
    mine = list(sampler)
    sampler.set_epoch(0)
    labels = [int(y) for _, labels in loader for y in labels]
    assert labels == [data.targets[i] for i in mine]
    total = torch.tensor(len(labels)); dist.all_reduce(total)
    assert int(total) == 204
    dist.destroy_process_group()
    """
    command = [
        binary, "run", "--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        write(tmp_path, program), str(photos),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ImageFolder: in the engine") == 1


def test_processes_that_the_script_starts(binary: str, photos: Path, tmp_path: Path) -> None:
    """Other scripts, and processes that are forked or spawned while a loader runs: each has loaders of its own."""
    done = run(
        binary,
        tmp_path,
        photos,
        """
        import multiprocessing, os, subprocess
        WANT = [data.targets[i:i + 50] for i in range(0, 203, 50)]
        def labels(queue=None):
            got = [y.tolist() for _, y in DataLoader(data, 50, num_workers=1)]
            return got if queue is None else queue.put(got)
        if __name__ == "__main__":
            if len(sys.argv) > 2:
                assert labels() == WANT
                sys.exit(5)
            running = iter(DataLoader(data, 50))
            next(running)
            again = subprocess.run([sys.executable, __file__, sys.argv[1], "again"], capture_output=True, text=True)
            assert again.returncode == 5, again.stderr
            assert again.stderr.count("ImageFolder: in the engine") == 1
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                queue = context.Queue()
                child = context.Process(target=labels, args=(queue,))
                child.start()
                assert queue.get(timeout=60) == WANT
                child.join(60)
                assert child.exitcode == 0
            assert [y.tolist() for _, y in running] == WANT[1:]
        """,
    )
    assert done.returncode == 0, done.stderr
    # The script's own, and those of children that end as programs do.
    assert 1 <= done.stderr.count("ImageFolder: in the engine") <= 3


def test_exceptions_are_torchs(binary: str, photos: Path, tmp_path: Path) -> None:
    """A file that is not a picture raises the dataset's exception after the preceding batches. The loop continues."""
    folder = tmp_path / "photos"
    for file in photos.glob("*/*"):
        target = folder / file.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(file)
    bad = sorted(folder.glob("*/*"))[120]
    bad.unlink()
    bad.write_bytes(b"no picture")
    done = run(
        binary,
        tmp_path,
        folder,
        """
        from PIL import UnidentifiedImageError
        if __name__ == "__main__":
            class Mine(Exception): pass
            for workers in (0, 2):
                for _ in range(2):
                    seen = 0
                    try:
                        for _, y in DataLoader(data, 16, num_workers=workers):
                            seen += 1
                    except UnidentifiedImageError as error:
                        print(type(error).__name__, seen)
                try:
                    for _ in DataLoader(data, 16, num_workers=workers): raise Mine
                except Mine:
                    print("mine")
            assert len([1 for _ in DataLoader(torch.utils.data.Subset(data, range(100)), 16)]) == 7
            import os
            os._exit(9)
        """,
        "--first",
        "0",
    )
    each = ["UnidentifiedImageError 7", "UnidentifiedImageError 7", "mine"]
    assert done.stdout.splitlines() == 2 * each, done.stderr
    assert done.returncode == 9


def test_a_script_that_is_killed_leaves_nothing(binary: str, photos: Path, tmp_path: Path) -> None:
    program = """
    if __name__ == "__main__":
        while True:
            for _ in DataLoader(data, 20, num_workers=2): print("batch", flush=True)
    """
    command = [binary, "run", "--first", "3", "--", sys.executable, write(tmp_path, program), str(photos)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True) as job:
        assert job.stdout is not None
        for _ in range(12):
            assert job.stdout.readline() == "batch\n"
        assert children(job.pid)
        started = set(children(job.pid))
        job.kill()
        job.wait(timeout=60)
        gone(started)


def test_a_rank_that_fails_ends_all(binary: str, photos: Path, tmp_path: Path) -> None:
    program = """
    import os, torch.distributed as dist
    dist.init_process_group("gloo")
    loader = DataLoader(data, 8, sampler=torch.utils.data.DistributedSampler(data), num_workers=1)
    for step, _ in enumerate(loader):
        if step == 3 and os.environ["RANK"] == "1": raise ValueError("of rank 1")
        dist.barrier()
    """
    command = [
        binary, "run", "--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        write(tmp_path, program), str(photos),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)
    assert done.returncode == 1
    assert "ValueError: of rank 1" in done.stderr


def test_datasets_of_the_programs_own(binary: str, photos: Path, tmp_path: Path) -> None:
    """The first epoch is unchanged. Later ones are built from what was learned in it."""
    program = """
        from pathlib import Path
        from PIL import Image
        class Photos(torch.utils.data.Dataset):
            def __init__(self, root):
                self.paths = sorted(map(str, Path(root).rglob("*.jpg")))
                self.tf = T.Compose([T.Resize((24, 24)), T.ToTensor()])
            def __len__(self):
                return len(self.paths)
            def __getitem__(self, i):
                return self.tf(Image.open(self.paths[i]).convert("RGB")), i
        data = Photos(sys.argv[1])
        expected = [data[i][0] for i in range(len(data))]
        for persistent in (False, True):
            loader = DataLoader(Photos(sys.argv[1]), 4, shuffle=True, num_workers=2, persistent_workers=persistent)
            for epoch in range(3):
                for x, y in loader:
                    assert all(float((a - expected[i]).abs().max()) <= 1.01 / 255 for a, i in zip(x, y.tolist()))
        """
    done = run(binary, tmp_path, photos, program, "--explain")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Photos: in the engine") == 2
    assert "Stoker learns" in done.stderr and "Compose returns what the engine" in done.stderr
    assert "made by Python" in done.stderr
