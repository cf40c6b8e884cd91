"""map= and batch_map= of stoker.Loader: a user's Python in processes of the loader's."""

from __future__ import annotations

import functools
import gc
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from stoker._map import _code
from stoker._map._maker import Functions
from stoker._map._stage import Stage
from support import SOURCE, gone, leaving_nothing, open_files

CROP = {"image": [T.RandomResizedCrop(24)]}


def opened() -> set[str]:
    """Return the open files, except for the counters that a process has after its first loader."""
    return {f for f in open_files() if "stoker-steps" not in f}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail when a test leaves a process, an open file or something in /dev/shm."""
    with leaving_nothing(opened):
        yield


@pytest.fixture
def make(pack: Path) -> Iterator[Callable[..., stoker.Loader]]:
    """Make loaders of the pack with functions, and close them at the end."""
    loaders = []

    def make(function: Any = None, workers: int = 2, **more: Any) -> stoker.Loader:
        arguments: dict[str, Any] = {
            "batch_size": 16,
            "transforms": CROP,
            "seed": 3,
            "map": function,
            "workers": workers,
        }
        loaders.append(stoker.Loader(pack, **(arguments | more)))
        return loaders[-1]

    yield make
    while loaders:
        loaders.pop().close()


def arrays(loader: stoker.Loader, epochs: int = 1) -> list[dict[str, Any]]:
    """Return copies of all arrays, with the place of each batch."""
    found = []
    for _ in range(epochs):
        for batch in loader:
            values = {k: np.array(v) if hasattr(v, "dtype") else list(v) for k, v in batch.items()}
            found.append({**values, "place": (batch.epoch, batch.step, len(batch))})
            del batch
    return found


def same(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            np.testing.assert_array_equal(x[name], y[name], err_msg=name)


class Holder:
    """Has a generator of its own."""

    def __init__(self) -> None:
        self.numbers = np.random.default_rng(5)


HOLDER = Holder()


def draws(record: dict[str, Any]) -> dict[str, Any]:
    """Draw from everything that there is to draw from."""
    out = {
        "image": record["image"].astype(np.float32) * random.random(),
        "label": record["label"],
        "legacy": np.random.rand(3),
        "own": HOLDER.numbers.integers(1 << 40),
    }
    if "torch" in sys.modules:
        out["torch"] = sys.modules["torch"].rand(4)
    return out


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_do_not_depend_on_the_workers(make: Any, shuffle: bool) -> None:
    pytest.importorskip("torch")
    before = random.getstate(), np.random.get_state()[1].tolist()
    expected = arrays(make(draws, 0, shuffle=shuffle), 2)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # the program's own are left alone
    plain = make(shuffle=shuffle, workers=None)
    for batch, found in zip((b for _ in range(2) for b in plain), expected, strict=True):
        assert batch.index.tolist() == found["index"].tolist() and batch.label.tolist() == found["label"].tolist()
        assert (batch.epoch, batch.step, len(batch)) == found["place"]
    for workers in (1, 3):
        same(arrays(make(draws, workers, shuffle=shuffle), 2), expected)
    assert len({n for b in expected for n in b["own"].tolist()}) == 2 * 203  # of each record and epoch others


def test_a_record_is_views_and_numbers(make: Any) -> None:
    def look(record: dict[str, Any]) -> dict[str, Any]:
        image = record["image"]
        ok = image.shape == (24, 24, 3) and image.dtype == np.uint8 and not image.flags.owndata
        return {"ok": ok and type(record["label"]) is int and list(record) == ["image", "label"]}

    for output in ("numpy", "torch"):
        for batch in make(look, 1, output=output):
            assert bool(batch.ok.all())
    assert (
        next(
            iter(
                make(
                    lambda r: {"n": r["image"].shape[0]},
                    1,
                    transforms={"image": stoker.Field("image", CROP["image"], layout="NCHW")},
                )
            )
        ).n[0]
        == 3
    )


def test_what_functions_may_return(make: Any) -> None:
    torch = pytest.importorskip("torch")

    def everything(r: dict[str, Any]) -> dict[str, Any]:
        n = r["label"]
        return {
            "same": r["image"], "bool": n > 1, "int": n, "float": n / 2, "np": np.int8(n), "text": "é" * n + "x",
            "bytes": bytes(range(n)), "list": list(range(n)), "boxes": [[1.0, 2.0, 3.0, i / 2] for i in range(n + 1)],
            "strided": r["image"][::2, ::-1, 0], "tensor": torch.full((2, 3), n), "big": np.full(2, n, ">i4"),
        }  # fmt: skip

    for workers in (0, 2):
        plain = iter(make(workers=None))
        for batch in make(everything, workers):
            there = next(plain)
            n = there.label.tolist()
            np.testing.assert_array_equal(batch.same, there.image)
            np.testing.assert_array_equal(batch.strided, there.image[:, ::2, ::-1, 0])
            assert {k: str(batch[k].dtype) for k in ("bool", "int", "float", "np", "tensor", "big")} == {
                "bool": "bool", "int": "int64", "float": "float64", "np": "int8", "tensor": "int64", "big": "int32",
            }  # fmt: skip
            assert batch.int.tolist() == n and batch.tensor.shape == (len(n), 2, 3)
            assert batch.text.tolist() == ["é" * i + "x" for i in n]
            assert [bytes(b) for b in batch["bytes"]] == [bytes(range(i)) for i in n]
            assert [r.tolist() for r in batch["list"]] == [list(range(i)) for i in n]
            assert [r.shape for r in batch.boxes] == [(i + 1, 4) for i in n]
            assert batch.keys()[-1] == "index"
        assert next(plain, None) is None
    batch = next(iter(make(lambda r: {"x": torch.ones(2, dtype=torch.bfloat16), "t": "a"}, output="torch")))
    assert batch.x.dtype is torch.bfloat16 and batch.x.sum() == 32 and batch.t[3] == "a"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda r: None, "must return a mapping .* returned None: it may lack a return"),
        (lambda r: (1, 2), "must return a mapping .* returned a tuple"),
        (lambda r: {3: 1}, "with the key 3"),
        (lambda r: {"x": object()}, "'x' is .*, a object: give numbers"),
        (lambda r: {"x": {"y": 1}}, "a dict: give numbers"),
        (lambda r: {"x": None}, "a NoneType: give numbers"),
        (lambda r: {f"x{r['label'] > 0}": 1}, "map= returned 'xTrue', and 'xFalse' of the records before"),
        (lambda r: {"x": np.zeros(r["label"])}, r"'x' is float64\[1\], and float64\[0\] in the records before.*a list"),
        (lambda r: {"x": r["label"] if r["label"] else 0.5}, r"'x' is int64\[\], and float64\[\]"),
        (lambda r: {"x": "a" if r["label"] else b"a"}, "where other records have an array, bytes or a list"),
        (lambda r: {"index": 1000 + r["label"]}, "'index' is the number of the record"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_what_functions_may_not_return(make: Any, function: Any, said: str, workers: int) -> None:
    with pytest.raises(TypeError, match=rf"map= of record \d+ \(batch \d+ of epoch 0(.|\n)*{said}"):
        list(make(function, workers))


def test_batch_map(make: Any) -> None:
    def blend(batch: stoker.Batch) -> dict[str, Any]:
        image = batch.image.astype(np.float32)
        return {"image": image + image[::-1], "label": batch.label, "weight": np.random.rand(), "n": batch.index}

    expected = arrays(make(None, 0, batch_map=blend, shuffle=True), 2)
    assert expected[0]["weight"].shape == () and expected[0]["image"].dtype == np.float32
    assert len({float(b["weight"]) for b in expected}) == len(expected)
    same(arrays(make(None, 2, batch_map=blend, shuffle=True), 2), expected)

    def both(batch: stoker.Batch) -> stoker.Batch:
        batch.image[:] = 255 - batch.image
        batch["x"][...] += 1
        return batch

    inverted = arrays(make(lambda r: {**r, "x": 1}, 2, batch_map=both))
    plain = arrays(make(workers=None))
    for a, b in zip(inverted, plain, strict=True):
        np.testing.assert_array_equal(a["image"], 255 - b["image"])
        assert set(a["x"].tolist()) == {2}


@pytest.mark.usefixtures("impatient")
def test_what_is_changed_in_place_is_not_copied(make: Any) -> None:
    """An array changed in place stays in the engine's ring. Other arrays are in the memory of a worker."""

    def invert(r: dict[str, Any]) -> dict[str, Any]:
        np.subtract(255, r["image"], out=r["image"])
        return r

    loader = make(invert)
    plain = arrays(make(workers=None))
    slots = loader._epochs.live().slots
    held = []
    for batch, there in zip(loader, plain, strict=True):
        np.testing.assert_array_equal(batch.image, 255 - there["image"])
        held = [*held, batch][-2:]
        assert loader._epochs.live().held <= slots
    with pytest.raises(stoker.BatchesHeld):
        list(make(invert, limits=stoker.Limits(prefetch=2), batch_size=4))
    assert (
        len(list(make(lambda r: {"image": r["image"] + 1}, limits=stoker.Limits(prefetch=2), batch_size=4))) == 51
    )  # all may be kept


def test_resuming(make: Any) -> None:
    expected = arrays(make(draws, 3, shuffle=True), 2)
    for stop in (0, 1, 5, 12, 13, 16):
        loader = make(draws, 2, shuffle=True)
        batches = (b for _ in range(2) for b in loader)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        loader.close()
        again = make(draws, 1, shuffle=True, batch_size=16)
        again.load_state_dict(state)
        same(arrays(again, 2 if stop < 13 else 1), expected[stop:])
    loader = make(draws, 2, shuffle=True)
    for _ in loader:
        break
    same(arrays(loader), expected[13:])  # the next loop is the next epoch
    loader.set_epoch(0)
    same(arrays(loader), expected[:13])


def test_ranks(make: Any) -> None:
    found: dict[int, Any] = {}
    for rank in range(2):
        for b in arrays(make(draws, 2, ranks=stoker.Ranks(rank, 2, uneven="pad"), batch_size=8, shuffle=True)):
            found |= dict(zip(b["index"].tolist(), b["own"].tolist(), strict=True))
    alone = arrays(make(draws, 0, shuffle=True))
    assert found == {i: n for b in alone for i, n in zip(b["index"].tolist(), b["own"].tolist(), strict=True)}


# --- failures ------------------------------------------------------------------------------------------------------


class Odd(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def raising(record: dict[str, Any]) -> dict[str, Any]:
    return {"x": deeper(record["label"])}


def deeper(label: int) -> int:
    if label == 2:
        raise LookupError("not today")
    return label


@pytest.mark.parametrize("workers", [0, 2])
def test_exceptions_say_which_record_and_where(make: Any, workers: int) -> None:
    first = next(i for b in arrays(make(workers=None)) for i, n in zip(b["index"], b["label"], strict=True) if n == 2)
    loader = make(raising, workers)
    steps: list[Any] = []
    iterator = iter(loader)
    while True:
        try:
            steps.append(next(iterator).step)
        except StopIteration:
            break
        except LookupError as error:
            text = str(error)
            if "raised" not in steps:
                who = "worker process" if workers else "this process"
                assert f"map= of record {first} (batch {first // 16} of epoch 0, {who}" in text
            assert "LookupError: not today" in text and "in deeper" in text and "in raising" in text
            assert "_maker.py" not in text
            steps.append("raised")
    assert len(steps) == 13 and "raised" in steps and 0 in steps  # behind an exception the loop may go on
    assert loader.state_dict()["epoch"] == 1


def test_exceptions_that_cannot_be_made_again(make: Any) -> None:
    class Local(Exception):
        pass

    def fail(kind: Any) -> Any:
        def function(_: Any) -> Any:
            raise kind

        return function

    for error in (Odd(1, 2), Local("1 and 2"), KeyError("1 and 2")):
        expected = KeyError if isinstance(error, KeyError) else RuntimeError
        with pytest.raises(expected, match=r"map= of record 0(.|\n)*1 and 2"):
            next(iter(make(fail(error), 1)))
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(iter(make(fail(StopIteration()), 1)))
    with pytest.raises(ValueError, match=r"batch_map= of batch 0 of epoch 0 \(records 0, \.\.\."):
        next(iter(make(None, 1, batch_map=fail(ValueError("no")))))


class Dies:
    """Ends its process at some records, at first or always, with half of a batch changed in place."""

    def __init__(self, how: str, marks: Path, always: bool = False) -> None:
        self.how, self.marks, self.always = how, marks, always

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        np.subtract(255, record["image"], out=record["image"])
        key = int(record["image"].astype(int).sum())
        mark = self.marks / str(key)
        if key % 31 == 0 and (self.always or not mark.exists()):
            mark.touch()
            if self.how == "exit":
                os._exit(7)
            if self.how == "sys.exit":
                sys.exit(9)
            os.kill(os.getpid(), signal.SIGKILL)
        return record


@pytest.mark.parametrize("how", ["exit", "sys.exit", "kill"])
def test_a_worker_that_dies_is_started_again(make: Any, how: str, tmp_path: Path) -> None:
    plain = arrays(make(workers=None))
    loader = make(Dies(how, tmp_path), 2)
    with pytest.warns(RuntimeWarning, match=r"worker process \d of map= .* it is started again"):
        found = arrays(loader)
    assert any(tmp_path.iterdir())
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_array_equal(a["image"], 255 - b["image"])  # no row is changed twice
    assert loader.stats()["map"]["restarts"] >= 1


def test_a_worker_that_dies_at_a_batch_of_before() -> None:
    """It was at a batch that another worker's end has made needless, and no batch of now gets the blame."""
    stage = Stage(Functions(None, None), 2, 0, False)
    stage._gen = 2
    worker = SimpleNamespace(
        gone=lambda: True, marked=(4, 3), tasks={(1, 4): None, (2, 7): None}, number=0, guard="",
        process=SimpleNamespace(pid=1), how=lambda: "exited",
    )  # fmt: skip
    stage._team = SimpleNamespace(workers=[worker], replace=lambda *_: None)  # type: ignore[assignment]
    stage._take = lambda _: False  # type: ignore[assignment,method-assign]
    for _ in range(5):
        with pytest.warns(RuntimeWarning, match="exited; it is started again"):
            assert stage._restarted()
    assert not stage._tries


@pytest.mark.filterwarnings("ignore:worker process")
def test_a_worker_that_always_dies_is_an_error(make: Any, tmp_path: Path) -> None:
    loader = make(Dies("exit", tmp_path, True), 2)
    with pytest.raises(stoker.StokerError, match=r"exit code 7 while it made batch .*2 times\nhint: workers=0"):
        list(loader)


def test_a_function_that_sleeps(make: Any) -> None:
    def sleeps(record: dict[str, Any]) -> dict[str, Any]:
        time.sleep(600 if record["label"] else 0)
        return record

    loader = make(sleeps, 1, limits=stoker.Limits(timeout=1.5))
    with pytest.raises(stoker.StokerTimeout, match=r"worker process 0 of map= \(pid \d+\) is at batch \d+ \(records"):
        list(loader)


def test_functions_that_print_and_fork(make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def function(record: dict[str, Any]) -> dict[str, Any]:
        if record["label"] == 3 and os.fork() == 0:
            os._exit(0)
        print("seen", flush=True)
        return {"x": subprocess.run(["true"], check=True).returncode}

    assert sum(b.x.sum() for b in make(function, transforms={"image": [T.RandomCrop(4)]}, drop_last=True)) == 0
    assert capfd.readouterr().out.count("seen") == 192


def test_the_engine_may_die(make: Any) -> None:
    few = {"batch_size": 4, "limits": stoker.Limits(prefetch=2)}  # so that it has not made all of them before
    expected = arrays(make(draws, 0, **few))
    loader = make(draws, 2, **few)
    batches = iter(loader)
    found = [next(batches).index.tolist()]
    process = loader._epochs.live()._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.warns(stoker.EngineRestarted):
        found += [b.index.tolist() for b in batches]
    assert found == [b["index"].tolist() for b in expected]


def test_arguments(pack: Path, make: Any) -> None:
    last = {"image": stoker.Field("image", layout="channels_last")}
    for arguments, said in (
        ({"workers": 2}, "workers= are the processes of map="),
        ({"map": 3}, "map=3 must be a function"),
        ({"map": print, "workers": -1}, "workers must be a whole number from 0 to 1024"),
        ({"map": print, "output": "torch", "transforms": last}, "map= and batch_map= decide"),
    ):
        with pytest.raises(stoker.ConfigError, match=said):
            stoker.Loader(pack, **({"transforms": CROP} | arguments))
    loader = make(draws, 2)
    assert "then map=draws in 2 workers" in repr(loader)
    wide = make(draws, 12)
    assert wide._epochs.live().slots > 12  # each worker may have a batch
    assert len(list(wide)) == 13


# --- processes --------------------------------------------------------------------------------------------------------


def run(code: str, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    text = textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": SOURCE}, **more,
    )  # fmt: skip


def test_processes_that_are_not_forked(pack: Path, tmp_path: Path) -> None:
    """Lambdas and classes of a function are sent if cloudpickle is installed. Otherwise the error names them."""
    pytest.importorskip("cloudpickle")
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import multiprocessing, sys
        import stoker

        def main():
            class Local:
                def __call__(self, r):
                    return {"x": r["label"] + 1}
            for method in ("forkserver", "spawn"):
                multiprocessing.set_start_method(method, force=True)
                for function in (lambda r: {"x": r["label"] + 1}, Local()):
                    with stoker.Loader(stoker.open(sys.argv[1]).select("label"), 50, map=function, workers=2) as loader:
                        print(sum(int(b.x.sum()) for b in loader))
            lock = multiprocessing.Lock()
            with stoker.Loader(stoker.open(sys.argv[1]).select("label"), 50, map=lambda r: lock, workers=1) as loader:
                try:
                    list(loader)
                except stoker.ConfigError as error:
                    print(error)

        if __name__ == "__main__":
            main()
    """)
    )
    env = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, script, pack], capture_output=True, text=True, env=env, check=False, timeout=300
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 5, done.stderr
    assert len(set(lines[:4])) == 1
    assert "cannot be sent to processes that are not forked (start method spawn)" in lines[4]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_without_a_guard(pack: Path, tmp_path: Path, method: str) -> None:
    """Its worker runs the script again, and the error gives the lines to add."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
        import multiprocessing, sys
        import stoker
        print("top", flush=True)
        multiprocessing.set_start_method({method!r}, force=True)
        list(stoker.Loader(stoker.open(sys.argv[1]).select("label"), 50, map=str, workers=1))
    """)
    )
    env = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, script, pack], capture_output=True, text=True, env=env, check=False, timeout=300
    )
    assert (done.returncode, done.stdout.split()) == (1, ["top", "top"]), done.stderr
    assert "before its first batch" in done.stderr and 'if __name__ == "__main__":' in done.stderr
    assert done.stderr.count("Traceback") == 1


WAITS = """
    import sys, time, os
    import stoker
    def slow(record):
        time.sleep(0.05)
        return record
    loader = stoker.Loader(sys.argv[1], 8, transforms={"image": [stoker.transforms.RandomCrop(8)]}, map=slow, workers=2)
    batches = iter(loader)
    next(batches)
    print(*(w.process.pid for w in loader._epochs.stage._team.workers), loader._epochs.live()._process.pid, flush=True)
"""


def test_interrupting_ends_everything(pack: Path) -> None:
    """Ctrl-C goes to all processes of the terminal."""
    child = run(WAITS + "    for batch in batches: pass\n    time.sleep(60)\n", pack, start_new_session=True)
    assert child.stdout is not None
    pids = [int(p) for p in child.stdout.readline().split()]
    assert len(pids) == 3
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=120)
    assert said.count("KeyboardInterrupt") == 1 and child.returncode != 0
    assert "Process" not in said  # no word of the workers
    gone(pids)


def test_a_killed_program_leaves_no_workers(pack: Path) -> None:
    child = run(WAITS.replace("sleep(0.05)", "sleep(0 if record['label'] == 0 else 600)").replace("next(batches)",
                "e = loader._epochs; e.stage.begin(); e.stage._feed(e.live(), e._slot_bytes, 0) or time.sleep(.2)")
                + "    os.kill(os.getpid(), 9)\n", pack)  # fmt: skip
    out, said = child.communicate(timeout=120)
    assert child.returncode == -9, said
    gone([int(p) for p in out.split()])


def test_going_on_after_an_interrupt(make: Any) -> None:
    loader = make(draws, 2)
    expected = [b["index"].tolist() for b in arrays(make(workers=None))]
    batches = iter(loader)
    next(batches)
    stage = loader._epochs.stage
    assert stage is not None
    real = stage._feed

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    stage._feed = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    stage._feed = real  # type: ignore[method-assign]
    assert [b.index.tolist() for b in batches] == expected[1:]


def test_forgotten_and_abandoned_loaders(pack: Path) -> None:
    loader = stoker.Loader(pack, 8, transforms=CROP, map=draws, workers=2)
    for batch in loader:
        kept = batch
        break
    before = kept["image"].copy()
    del loader, batch
    gc.collect()
    np.testing.assert_array_equal(kept["image"], before)  # batches that are in use stay valid


# --- libraries --------------------------------------------------------------------------------------------------------


def test_albumentations(make: Any) -> None:
    albumentations = pytest.importorskip("albumentations")
    transform = albumentations.Compose([
        albumentations.RandomCrop(16, 16), albumentations.HorizontalFlip(p=0.5), albumentations.ColorJitter(p=0.8),
        albumentations.GaussNoise(p=0.5),
    ])  # fmt: skip

    def augment(record: dict[str, Any]) -> dict[str, Any]:
        return {"image": transform(image=record["image"])["image"], "label": record["label"]}

    expected = arrays(make(augment, 0, shuffle=True), 2)
    assert expected[0]["image"].shape == (16, 16, 16, 3)
    same(arrays(make(augment, 2, shuffle=True), 2), expected)
    one = make(augment, 1)
    first = arrays(one, 2)
    assert not np.array_equal(first[0]["image"], first[13]["image"])  # each epoch draws anew


def test_pillow(make: Any) -> None:
    pil = pytest.importorskip("PIL.Image")
    filters = pytest.importorskip("PIL.ImageFilter")

    def blur(record: dict[str, Any]) -> dict[str, Any]:
        image = pil.fromarray(record["image"]).filter(filters.GaussianBlur(1)).rotate(random.uniform(-20, 20))
        return {"image": image, "label": record["label"]}

    expected = arrays(make(blur, 0))
    assert expected[0]["image"].shape == (16, 24, 24, 3)
    same(arrays(make(blur, 2)), expected)


def test_torch_and_torchvision(make: Any) -> None:
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    transform = v2.Compose(
        [v2.ToImage(), v2.RandomAffine(10), v2.ToDtype(torch.float32, scale=True), v2.RandomErasing(0.5)]
    )

    def augment(record: dict[str, Any]) -> dict[str, Any]:
        return {"image": transform(record["image"]), "label": record["label"]}

    def tensors(workers: int) -> list[Any]:
        return [b.image.clone() for b in make(augment, workers, output="torch")]

    expected = tensors(0)
    assert expected[0].shape == (16, 3, 24, 24) and expected[0].dtype == torch.float32
    assert all(torch.equal(a, b) for a, b in zip(tensors(2), expected, strict=True))


def test_frameworks_take_it(make: Any) -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("stoker.keras")
    with pytest.raises(stoker.ConfigError, match="name"):
        keras.Dataset(make(draws, 1))
    data = keras.Dataset(make(draws, 1), inputs="image", targets="own")
    assert next(iter(data.get_numpy_iterator()))[0].shape == (16, 24, 24, 3)


# --- the code of functions in states -----------------------------------------

BODY = '''
import functools

SIDE = 3

def helper(x):
    return x + 1

def made(limit):
    def function(record):
        """About it."""
        # A comment.
        value = helper(record["label"]) if record["label"] in {"a", "b", 1} else limit
        return {"label": value, "more": [v for v in (1, 2)]}
    return function

class Held:
    def __init__(self, side):
        self.side, self._calls = side, 0
    def __call__(self, record):
        self._calls += 1
        return {"label": record["label"] * self.side}
    def method(self, record):
        return {"label": self.side}

def added(record, more):
    return {"label": record["label"] + more}
'''


def code(text: str = BODY, expression: str = "made(7)") -> str:
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, "program.py", "exec"), space)
    return _code.digest([eval(expression, space)])


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# A comment.", "# Another one.\n", True),
        ("About it.", "About something else.", True),
        ("value", "renamed", True),
        ("SIDE = 3", "SIDE = 4", True),
        ('record["label"])', 'record["image"])', False),
        ("(1, 2)", "(1, 3)", False),
        ('{"a", "b", 1}', '{"a", "c", 1}', False),
        ("x + 1", "x - 1", False),
        ("else limit", "else -limit", False),
    ],
)
def test_code_of_a_body(old: str, new: str, same: bool) -> None:
    changed = BODY.replace(old, new)
    assert changed != BODY
    assert (code(changed) == code()) is same


def test_code_of_objects() -> None:
    of = functools.partial(code, BODY)
    digests = [
        of(e)
        for e in (
            "made(7)", "made(8)", "Held(3)", "Held(4)", "Held(3).method", "functools.partial(added, more=1)",
            "functools.partial(added, more=2)", "lambda record: record",
        )
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)
    assert all(len(d) == 8 for d in digests)
    held = eval(compile("Held(3)", "", "eval"), space := {"__name__": "p"} | _space())
    before = _code.digest([held])
    held({"label": 1})
    assert _code.digest([held]) == before == of("Held(3)")
    assert _code.digest([dict]) == _code.digest([len]) == ""
    assert "Held" in space


def _space() -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(BODY, "program.py", "exec"), space)
    return space


def test_code_is_the_same_in_each_process() -> None:
    """Sets of texts have another order in each process."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import test_functions as t; print(t.code())"
    folder = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", program, folder]
    found = {
        subprocess.check_output(command, env=env | {"PYTHONHASHSEED": seed}, text=True).split()[-1]
        for seed in ("1", "2", "3")
    }
    assert found == {code()}


def test_a_state_of_changed_functions(make: Callable[..., stoker.Loader], pack: Path) -> None:
    def scaled(factor: int) -> Callable[[Any], Any]:
        return lambda record: {"label": record["label"] * factor}

    state = make(scaled(2), workers=0).state_dict()
    assert len(json.dumps({**state, "seed": 2**64 - 1, "epoch": 10**6, "position": 10**12})) <= 256
    make(scaled(2), workers=0).load_state_dict(state)
    other = make(scaled(3), workers=0)
    with pytest.raises(stoker.StateMismatch, match=r"saved with other code of map=.*<lambda>; make the"):
        other.load_state_dict(state)
    for change, why in (
        (lambda p: p.replace(_code.VERSION, "3.5"), "it was saved with Python 3.5"),
        (lambda p: p.rpartition("-")[0], "the state has no hash of it"),
    ):
        with pytest.warns(RuntimeWarning, match=f"is not checked: {why}"):
            other.load_state_dict({**state, "pipeline": change(state["pipeline"])})
    builtin = make(dict, workers=0)
    assert builtin.state_dict()["pipeline"].count("-") == 2
    with pytest.warns(RuntimeWarning, match="map=dict .* is not checked: one of them is not written in Python"):
        builtin.load_state_dict(
            {**builtin.state_dict(), "pipeline": builtin.state_dict()["pipeline"] + "-3.11.01234567"}
        )
    chained = stoker.open(pack).map(scaled(2)).map(scaled(3))
    with stoker.Loader(chained, 16, seed=3, transforms=CROP, workers=0) as a:
        state = a.state_dict()
    with stoker.Loader(stoker.open(pack).map(scaled(2)), 16, seed=3, transforms=CROP, map=scaled(3), workers=0) as b:
        b.load_state_dict(state)
    with (
        stoker.Loader(stoker.open(pack).map(scaled(2)), 16, seed=3, transforms=CROP, map=scaled(4), workers=0) as b,
        pytest.raises(stoker.StateMismatch, match=r"other code of map=.*scaled.*, .*scaled"),
    ):
        b.load_state_dict(state)
