"""stoker.torch.DataLoader compared with torch's: the same batches, errors and random numbers, and a clean exit."""

from __future__ import annotations

import collections
import gc
import inspect
import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import CHECKOUT, children, leaving_nothing, left_in_memory, open_files, shared_memory

torch = pytest.importorskip("torch")

import torch.utils.data as tud  # noqa: E402
import torch_data as data  # noqa: E402

from stoker.torch import DataLoader  # noqa: E402
from stoker.torch._codec import dumps  # noqa: E402

# A machine with few processors must not fail the tests, nor must JAX, which other tests may have started.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", r"ignore:os\.fork\(\) was called")


def same(ours: Any, theirs: Any) -> None:
    """Compare values, types, strides and everything else that a user can see of a batch."""
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        assert ours.requires_grad == theirs.requires_grad
        bits = theirs.contiguous().numpy(force=True).tobytes() if theirs.dtype != torch.bfloat16 else None
        if bits is None:
            assert torch.equal(ours.view(torch.int16), theirs.view(torch.int16))
        else:
            assert ours.contiguous().numpy(force=True).tobytes() == bits
    elif isinstance(theirs, np.ndarray):
        assert (ours.dtype, ours.strides) == (theirs.dtype, theirs.strides)
        np.testing.assert_array_equal(ours, theirs)
    elif isinstance(theirs, Mapping):
        assert list(ours) == list(theirs)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, Sequence) and not isinstance(theirs, (str, bytes)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    elif isinstance(theirs, data.Sample):
        same(vars(ours), vars(theirs))
    else:
        assert ours == theirs


def epochs(cls: Any, arguments: dict[str, Any], n: int) -> list[Any]:
    """Return the batches of some epochs, and the random numbers after them."""
    torch.manual_seed(77)
    random.seed(78)
    np.random.seed(79)
    loader = cls(**arguments)
    batches = [list(loader) for _ in range(n)]
    drawn = [torch.rand(1), random.random()]
    if arguments.get("generator") is not None:
        drawn.append(torch.rand(1, generator=arguments["generator"]))
    return [*batches, drawn]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail when a test leaves a process or an open file."""
    with leaving_nothing():
        yield


# --- the same as torch's ----------------------------------------------------------------------------------------------


def test_importing_stoker_does_not_import_torch() -> None:
    code = "import stoker, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_is_torchs_class() -> None:
    assert issubclass(DataLoader, tud.DataLoader)
    own = ", device=None, cache=None)"
    ours = str(inspect.signature(DataLoader)).replace(own, ")")
    assert ours == str(inspect.signature(tud.DataLoader))
    loader = DataLoader(tud.TensorDataset(torch.arange(10)), batch_size=4)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 5
    with pytest.raises(ValueError, match="prefetch_factor option"):
        DataLoader([1, 2], prefetch_factor=3)
    assert "num_workers=0" in loader.explain()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", data.CASES)
def test_batches_equal_torchs(case: str, workers: int) -> None:
    more = {"num_workers": workers}
    ours = epochs(DataLoader, data.CASES[case]() | more, 2)
    theirs = epochs(tud.DataLoader, data.CASES[case]() | more, 2)
    same(ours, theirs)


@pytest.mark.parametrize("case", ["images", "stream", "random numbers", "list"])
def test_persistent_workers(case: str) -> None:
    more = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 3}
    ours = epochs(DataLoader, data.CASES[case]() | more, 3)
    theirs = epochs(tud.DataLoader, data.CASES[case]() | more, 3)
    same(ours, theirs)


def abandoned(cls: Any) -> list[Any]:
    torch.manual_seed(5)
    loader = cls(data.Made(data.random_numbers), 2, num_workers=2, persistent_workers=True)
    first = next(iter(loader))
    return [first, *loader]


def test_persistent_workers_after_break() -> None:
    same(abandoned(DataLoader), abandoned(tud.DataLoader))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods(method: str) -> None:
    arguments = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": method}
    big = np.arange(100_000).reshape(25, 4000)
    dataset = tud.TensorDataset(torch.from_numpy(big), torch.arange(25))
    loader = DataLoader(dataset, **arguments)
    assert "2 workers" in loader.explain()
    same(list(loader), list(tud.DataLoader(dataset, batch_size=4)))


def test_lambdas_and_local_classes_are_sent() -> None:
    pytest.importorskip("cloudpickle")

    class Local(tud.Dataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> int:
            return i * i

    loader = DataLoader(Local(), 3, num_workers=1, multiprocessing_context="spawn", collate_fn=lambda b: tuple(b))
    assert list(loader) == [(0, 1, 4), (9, 16, 25)]


def test_a_script_is_imported_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch, workers that are not forked find the functions and classes of the script by their names."""
    pytest.importorskip("cloudpickle")
    script = sys.modules["__main__"]

    def found(batch: Any) -> Any:
        return batch

    class Found:
        pass

    for thing in (found, Found):
        thing.__module__, thing.__qualname__ = "__main__", thing.__name__  # type: ignore[attr-defined]
        body, _ = dumps(thing, by_value=True)
        assert len(body) > 100, "it is sent, because the script has no such name"
        monkeypatch.setattr(script, thing.__name__, thing, raising=False)
        body, _ = dumps(thing, by_value=True)
        assert pickle.loads(body) is thing
    monkeypatch.delattr(script, "__file__")  # as in a notebook
    monkeypatch.setattr(script, "__spec__", None)
    assert len(dumps(found, by_value=True)[0]) > 100


def test_what_cannot_be_sent_goes_by_torch() -> None:
    queue = multiprocessing.get_context("spawn").Queue()
    loader = DataLoader(data.Made(queue.qsize), num_workers=1, multiprocessing_context="spawn")
    assert "cannot be sent" in loader.explain()
    queue.close()


def test_any_order() -> None:
    ours = DataLoader(data.Made(int), batch_size=2, num_workers=2, in_order=False)
    assert sorted(i for batch in ours for i in batch.tolist()) == list(range(23))


def test_datasets_see_what_changes_between_epochs() -> None:
    dataset = data.Made(int, 4)
    loader = DataLoader(dataset, 4, num_workers=1)
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]
    dataset.make = float
    assert next(iter(loader)).dtype == torch.float64


def test_collate_map_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data._utils import collate

    monkeypatch.setitem(collate.default_collate_fn_map, complex, lambda batch, *, collate_fn_map: ("complex", batch))
    assert list(DataLoader([1j, 2j], 2, num_workers=1)) == [("complex", [1j, 2j])]


def test_requires_grad_is_kept() -> None:
    loader = DataLoader(data.Made(lambda i: torch.ones(3, requires_grad=True), 2), batch_size=None, num_workers=1)
    assert [t.requires_grad for t in loader] == [True, True]
    loader = DataLoader(data.Made(lambda i: torch.ones(3, requires_grad=True) * 2, 2), batch_size=None, num_workers=1)
    with pytest.raises(RuntimeError, match="non-leaf"):
        next(iter(loader))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_kinds_of_tensors() -> None:
    def make(i: int) -> Any:
        return {
            "parameter": torch.nn.Parameter(torch.ones(3) * i),
            "sparse": torch.eye(3).to_sparse() * i,
            "quantised": torch.quantize_per_tensor(torch.ones(4), 0.5, 1, torch.qint8),
            "meta": torch.ones(3, device="meta"),
            "conjugate": torch.ones(2, dtype=torch.complex64).conj(),
        }

    made = [iter(cls(data.Made(make, 1), batch_size=None, num_workers=1)) for cls in (DataLoader, tud.DataLoader)]
    ours, theirs = (next(iterator) for iterator in made)
    for name, value in theirs.items():
        assert type(ours[name]) is type(value)
        if name == "sparse":
            assert torch.equal(ours[name].to_dense(), value.to_dense())
        elif name not in ("meta", "quantised"):  # torch's own quantised one cannot be compared
            assert torch.equal(ours[name], value)
    del theirs, made


def test_pinning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an accelerator torch only warns. A pretended one shows what pinning would do."""
    with pytest.warns(UserWarning, match="no accelerator"):
        assert len(list(DataLoader([1, 2], num_workers=1, pin_memory=True))) == 2
    seen = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", seen.append)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self + 100)
    assert torch.cat(list(DataLoader([1, 2, 3], num_workers=2, pin_memory=True))).tolist() == [101, 102, 103]
    assert seen == [0]

    def fail(self: Any) -> None:
        raise RuntimeError("no memory to pin")

    monkeypatch.setattr(torch.Tensor, "pin_memory", fail)
    with pytest.raises(RuntimeError, match="in pin memory thread for device 0"):
        list(DataLoader([1, 2, 3], num_workers=2, pin_memory=True))


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_is_used_again_and_held_as_long_as_needed() -> None:
    loader = DataLoader(data.Made(lambda i: torch.full((100_000,), i), 60), batch_size=None, num_workers=1)
    kept, addresses = [], collections.Counter()
    for i, batch in enumerate(loader):
        addresses[batch.data_ptr()] += 1
        if i % 7 == 0:
            kept.append((i, batch[500:1000]))
        del batch
    assert len(addresses) < 20  # 9 are kept
    assert all(torch.equal(view, torch.full((500,), i)) for i, view in kept)


@pytest.mark.parametrize("size", [5000, 200_000])
def test_all_batches_may_be_kept(size: int) -> None:
    n = 300 if size < 100_000 else 60  # more than there are places in the pool
    batches = list(DataLoader(data.Made(lambda i: torch.full((size,), i), n), batch_size=None, num_workers=2))
    del_here = [int(b.sum()) for b in batches]
    assert del_here == [size * i for i in range(n)]


def large(iterator: Any) -> tuple[Any, float]:
    """Return the pool of an iterator's workers, and the number of its places with memory."""
    pool = iterator._pools.current
    return pool, os.fstat(pool.fds[0]).st_blocks * 512 / data.megabytes(0).nbytes


def mapped() -> set[str]:
    """Return the pieces and pools that this process has mapped, by address."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[0] for line in lines if "stoker-batch" in line}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_large_batches_lie_in_memory_of_whichever_worker_needs_it(method: str) -> None:
    before = mapped()  # what another test's report of an error may hold
    loader = DataLoader(
        data.Made(data.megabytes, 120), batch_size=None, num_workers=2, multiprocessing_context=method,
        persistent_workers=True,
    )  # fmt: skip
    kept = []
    iterator = iter(loader)
    for i, batch in enumerate(iterator):
        assert batch[0] == batch[-1] == i
        if i < 80 and i % 7 == 0:
            kept.append((i, batch[500:1000]))
        if i == 80:
            assert all(torch.equal(view, torch.full((500,), i)) for i, view in kept)
            assert len(kept) <= large(iterator)[1]
            kept.clear()
        del batch
        if i > 9:
            # The kept batches, four ahead, and one that pytest's assert holds.
            assert large(iterator)[1] < len(kept) + 6.1 or 80 <= i < 120 - 8
    pool, filled = large(iterator)
    assert filled < 6.1
    assert sum(pool.free) == pool.places
    for batch in loader:  # and once more
        del batch
    assert sum(pool.free) == pool.places
    iterator._reset(loader)
    last = next(iterator)
    loader._iterator._shutdown_workers()
    assert not pool._fds and len(pool._held) == 1
    assert last[0] == last[-1] == 0
    del last
    assert not pool._held
    del iterator, loader, pool
    gc.collect()
    assert mapped() <= before


def test_large_batches_that_grow() -> None:
    dataset = data.Made(lambda i: torch.full((150_000 * (1 + i // 10),), i), 60)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    iterator = iter(loader)
    for i, batch in enumerate(iterator):
        assert len(batch) == 150_000 * (1 + i // 10)
        assert torch.equal(batch, torch.full_like(batch, i))
    assert iterator._pools.current.generation > 1


class Fails:
    """A collate function that fails when its batch has been made: the place is not lost."""

    def __init__(self, how: str, marks: Path) -> None:
        self.how, self.marks = how, marks

    def __call__(self, batch: list[Any]) -> Any:
        made = tud.default_collate(batch)
        mark = self.marks / str(int(made[0, 0]))
        if int(made[0, 0]) in (20, 30) and not mark.exists():
            mark.touch()
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyError(20)
        return made


@pytest.mark.parametrize("how", ["kill", "raise"])
@pytest.mark.filterwarnings("ignore:DataLoader worker")
def test_large_batches_that_fail(how: str, tmp_path: Path) -> None:
    loader = DataLoader(
        data.Made(data.megabytes, 60), 2, num_workers=2, collate_fn=Fails(how, tmp_path), persistent_workers=True
    )
    iterator, seen = iter(loader), []
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            break
        except KeyError:
            continue
        seen += batch[:, -1].tolist()
        del batch
    assert seen == [i for i in range(60) if how == "kill" or i not in (20, 21, 30, 31)]
    pool, _ = large(iterator)
    assert sum(pool.free) == pool.places
    iterator._shutdown_workers()


def test_batches_can_be_written_to() -> None:
    for batch in DataLoader(
        data.Made(lambda i: (torch.zeros(9000), np.zeros(9000)), 3), batch_size=None, num_workers=1
    ):
        batch[0].add_(1)
        batch[1][:] = 2


@pytest.mark.parametrize("size", [5000, 200_000])
def test_what_a_worker_keeps_of_a_batch_stays(size: int) -> None:
    class Remembers:
        def __call__(self, batch: list[Any]) -> Any:
            made = tud.default_collate(batch)
            before, self.last = getattr(self, "last", None), made
            return made, 0 if before is None else int(before[0, 0])

    dataset = data.Made(lambda i: torch.full((size,), i), 80)
    loader = DataLoader(dataset, 2, num_workers=1, collate_fn=Remembers(), persistent_workers=True)
    iterator = iter(loader)
    assert [before for _, before in iterator] == [0, *range(0, 78, 2)]
    if size > 100_000:
        pool, _ = large(iterator)
        assert pool.places - sum(pool.free) <= 4  # places become the worker's, and come back
    iterator._shutdown_workers()


@pytest.mark.parametrize("size", [50_000, 300_000])
def test_a_fork_does_not_give_memory_back(size: int) -> None:
    loader = DataLoader(data.Made(lambda i: torch.full((size,), i), 12), batch_size=None, num_workers=1)
    iterator = iter(loader)
    held = next(iterator)
    if (pid := os.fork()) == 0:
        del held
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    for _ in iterator:
        assert held[0] == held[-1] == 0


def test_nothing_lies_in_dev_shm() -> None:
    before = shared_memory()
    for _ in DataLoader(data.Made(data.image), 4, num_workers=2):
        names = {f.split(": ")[1] for f in open_files()}
        assert not [n for n in names if "torch_" in n]
        assert not left_in_memory(before)


# --- failures ------------------------------------------------------------------------------------------------------


class Odd(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def raising(i: int) -> int:
    if i == 5:
        raise LookupError("not today")
    return i


def raising_odd(i: int) -> int:
    raise Odd(1, 2)


@pytest.mark.parametrize("workers", [1, 2])
def test_exceptions_say_which_record_and_where(workers: int) -> None:
    loader = DataLoader(data.Made(raising), 2, num_workers=workers)
    seen = []
    with pytest.raises(LookupError, match="Caught LookupError in DataLoader worker process 0, record 5") as caught:
        for batch in loader:
            seen.append(batch.tolist())
    assert seen == [[0, 1], [2, 3]] or workers == 2
    text = str(caught.value)
    assert "not today" in text and "in raising" in text and "stoker/torch" not in text


def test_exceptions_that_cannot_be_made_again() -> None:
    with pytest.raises(RuntimeError, match=r"Caught Odd in DataLoader worker process 0, record 0(.|\n)*1 and 2"):
        next(iter(DataLoader(data.Made(raising_odd), num_workers=1)))

    class Local(Exception):
        pass

    def fail(i: int) -> None:
        raise Local("here")

    with pytest.raises(RuntimeError, match="here"):
        next(iter(DataLoader(data.Made(fail), num_workers=1)))


def test_going_on_after_an_exception() -> None:
    iterator = iter(DataLoader(data.Made(raising, 8), 1, num_workers=2))
    seen = []
    for _ in range(8):
        try:
            seen.append(next(iterator).item())
        except LookupError:
            seen.append("raised")
    assert seen == [0, 1, 2, 3, 4, "raised", 6, 7]


def bad_init(worker: int) -> None:
    raise ValueError("no such device")


def test_worker_init_fn_that_fails() -> None:
    with pytest.raises(ValueError, match=r"in worker_init_fn(.|\n)*no such device"):
        next(iter(DataLoader(data.Made(int), num_workers=1, worker_init_fn=bad_init)))


def test_other_shapes() -> None:
    loader = DataLoader(data.Made(lambda i: torch.zeros(i + 1)), 4, num_workers=1)
    with pytest.raises(RuntimeError, match=r"in collate_fn(.|\n)*stack expects each tensor to be equal size"):
        next(iter(loader))
    loader = DataLoader(data.Made(lambda i: torch.zeros(5000 + i)), 4, num_workers=1)
    with pytest.raises(RuntimeError, match="equal size"):
        next(iter(loader))
    with pytest.raises(TypeError, match="default_collate: batch must contain tensors"):
        next(iter(DataLoader(data.Made(lambda i: object()), 4, num_workers=1)))


def test_what_cannot_be_pickled_is_said() -> None:
    loader = DataLoader(data.Made(lambda i: lambda: i), batch_size=None, num_workers=1)
    with pytest.raises(Exception, match="sending the batch to the loader"):
        next(iter(loader))


def sleeping(i: int) -> int:
    time.sleep(0.0 if i < 2 else 600)
    return i


def test_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.torch._iterator._GRACE", 0.2)
    loader = DataLoader(data.Made(sleeping), 2, num_workers=1, timeout=1)
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 1 seconds; worker 0 .*records \[2, 3\]"):
        next(iterator)


class Dies:
    """Ends its process at some records, at first or always."""

    def __init__(self, how: str, marks: Path, always: bool) -> None:
        self.how, self.marks, self.always = how, marks, always

    def __call__(self, i: int) -> int:
        mark = self.marks / str(i)
        if i in (3, 9) and (self.always or not mark.exists()):
            mark.touch()
            if self.how == "exit":
                os._exit(7)
            if self.how == "sys.exit":
                sys.exit(9)
            os.kill(os.getpid(), signal.SIGKILL)
        return i


@pytest.mark.parametrize("how", ["exit", "sys.exit", "kill"])
def test_a_worker_that_dies_is_started_again(how: str, tmp_path: Path) -> None:
    loader = DataLoader(data.Made(Dies(how, tmp_path, False)), 2, num_workers=2)
    with pytest.warns(RuntimeWarning, match="started again with its records") as warned:
        assert torch.cat(list(loader)).tolist() == list(range(23))
    assert len(warned) == 2


@pytest.mark.parametrize("how", ["exit", "kill"])
@pytest.mark.filterwarnings("ignore:DataLoader worker")
def test_a_worker_that_always_dies_is_an_error(how: str, tmp_path: Path) -> None:
    loader = DataLoader(data.Made(Dies(how, tmp_path, True)), 2, num_workers=2)
    match = "exited unexpectedly with exit code 7" if how == "exit" else "is killed by signal: Killed"
    match += ".*at record [39] of its 2.*2 times"
    with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid\(s\) \d+\) {match}"):
        list(loader)


def test_a_stream_whose_worker_dies_is_an_error() -> None:
    class Dying(tud.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            yield 1
            os._exit(3)

    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 3"):
        list(DataLoader(Dying(), num_workers=1))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("iterable", [False, True])
def test_a_worker_that_ends_before_it_begins_is_not_tried_again(method: str, iterable: bool) -> None:
    dataset: Any = data.Unsharded() if iterable else data.Made(int)
    context = multiprocessing.get_context(method)
    loader = DataLoader(dataset, num_workers=1, worker_init_fn=ending, multiprocessing_context=context)
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 5 before its first batch") as raised:
        list(loader)
    assert ("if __name__" in str(raised.value)) == (method == "spawn")


def ending(_: int) -> None:
    os._exit(5)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_without_a_guard(method: str, tmp_path: Path) -> None:
    """Its worker runs the script again, as with torch, and the last line of the error gives the lines to add."""
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing\nfrom stoker.torch import DataLoader\nprint('top', flush=True)\n"
        f"context = multiprocessing.get_context({method!r})\n"
        "print(list(DataLoader(list(range(6)), num_workers=1, multiprocessing_context=context)))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split()) == (1, ["top", "top"]), done.stderr
    lines = done.stderr.splitlines()
    assert "before its first batch" in lines[-1] and 'if __name__ == "__main__":' in lines[-1]
    assert done.stderr.count("Traceback") == 1 and len(lines) < 50 and "record" not in done.stderr


@pytest.mark.parametrize("persistent", [False, True])
def test_iterators_of_a_forked_childs_parent_are_left_alone(
    persistent: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    loader = DataLoader(data.Made(int), 2, num_workers=2, persistent_workers=persistent)
    iterator = iter(loader)
    first = next(iterator)
    pid = os.fork()
    if pid == 0:
        try:
            del iterator, loader
            gc.collect()
            sys.stderr.flush()
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert torch.cat([first, *iterator]).tolist() == list(range(23))
    assert capfd.readouterr().err == ""


def forking(i: int) -> int:
    if i == 3 and os.fork() == 0:
        time.sleep(0.5)
        os._exit(0)
    return subprocess.run(["true"], check=True).returncode + i


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


def stopping(i: int) -> int:
    raise StopIteration


def undecodable(i: int) -> str:
    return b"\xff".decode()


def failing_open(i: int) -> Any:
    return open(f"/nowhere/{i}")


def endless(i: int) -> int:
    return endless(i)


def chained(i: int) -> None:
    try:
        raising(5)
    except LookupError as error:
        raise ValueError("because of that") from error


def unprintable(i: int) -> None:
    raise Unprintable


def on_a_gpu(i: int) -> Any:
    return torch.zeros(2, device="cuda").cpu()


def grown(i: int) -> Any:
    return [torch.zeros(3)] * (i + 1)


def of_two_types(i: int) -> Any:
    return torch.zeros(3) if i % 2 else "text"


BAD = [stopping, undecodable, failing_open, endless, chained, on_a_gpu, grown, of_two_types, raising_odd]


@pytest.mark.parametrize("make", BAD, ids=lambda f: f.__name__)
@pytest.mark.parametrize("workers", [0, 2])
def test_bad_datasets_end_as_with_torch(make: Any, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception has the same type, or the batches are the same if there is no exception."""
    # The time that torch waits for each worker when a failed iterator is collected.
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)

    def outcome(cls: Any) -> Any:
        try:
            return [torch.as_tensor(b) for b in cls(data.Made(make, 6), 3, num_workers=workers)]
        except Exception as error:
            return type(error)

    same(outcome(DataLoader), outcome(tud.DataLoader))
    gc.collect()
    # torch terminates workers after a timeout, and does not wait for their exit.
    for worker in multiprocessing.active_children():
        worker.join(60)


def test_exceptions_without_a_text() -> None:
    with pytest.raises(Unprintable):
        list(DataLoader(data.Made(unprintable, 3), num_workers=1))


def asleep(i: int) -> int:
    time.sleep(600)
    return i


def test_workers_that_sleep_are_ended_with_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.torch._iterator._GRACE", 0.2)
    iterator = iter(DataLoader(data.Made(asleep), 2, num_workers=2))
    workers = [w.pid for w in iterator._workers]
    del iterator
    assert not set(workers) & set(children(os.getpid()))


def test_datasets_that_fork(capfd: pytest.CaptureFixture[str]) -> None:
    assert torch.cat(list(DataLoader(data.Made(forking, 8), 2, num_workers=2))).tolist() == list(range(8))


def test_datasets_that_print(capfd: pytest.CaptureFixture[str]) -> None:
    list(DataLoader(data.Made(lambda i: print("record", i) or i, 3), num_workers=1))
    assert capfd.readouterr().out.count("record") == 3


@pytest.mark.parametrize(("sampler", "error"), [(["a", "b"], TypeError), ([None], TypeError), ([100], IndexError)])
def test_samplers_that_yield_nonsense(sampler: list[Any], error: type[Exception]) -> None:
    # Torch's exception, with the text of the worker's.
    with pytest.raises(error, match="in DataLoader worker process 0"):
        list(DataLoader(data.Made(lambda i: torch.zeros(3) + i), 2, sampler=sampler, num_workers=1))


def test_batch_samplers_that_yield_nonsense() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(DataLoader(data.Made(int), batch_sampler=[1, 2], num_workers=1))

    def sampler() -> Iterator[list[int]]:
        yield [1]
        raise ValueError("the sampler has failed")

    with pytest.raises(ValueError, match="the sampler has failed"):
        list(DataLoader(data.Made(int), batch_sampler=sampler(), num_workers=1))


def test_abandoned_iterators_end_their_workers() -> None:
    before = set(children(os.getpid()))
    iterator = iter(DataLoader(data.Made(data.image, 200), 2, num_workers=2))
    next(iterator)
    assert len(set(children(os.getpid())) - before) == 2
    start = time.monotonic()
    del iterator
    assert set(children(os.getpid())) <= before
    assert time.monotonic() - start < 4


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    code = """
import os, sys, torch.utils.data
sys.path.insert(0, sys.argv[1])
import torch_data as data
from stoker.torch import DataLoader
iterator = iter(DataLoader(data.Made(data.image, 200), 2, num_workers=2))
next(iterator)
print(*(w.pid for w in iterator._workers), flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True)
    deadline = time.monotonic() + 20
    for pid in map(int, done.stdout.split()):
        while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
            assert time.monotonic() < deadline, "a worker outlives its loader"
            time.sleep(0.05)


def test_loaders_inside_workers_and_pickled_ones() -> None:
    import pickle

    loader = DataLoader(data.Made(int, 6), 2, num_workers=1)
    assert len(list(loader)) == 3
    assert len(list(pickle.loads(pickle.dumps(loader)))) == 3


def test_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    """Run the code of the guide, and compare the guide's output of explain() with the real one."""
    page = CHECKOUT / "docs/how-to/torch.md"
    if not page.is_file():
        pytest.skip("the guide is not in this tree")
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(code, str(page), "exec"), names)
    names.clear()
    shown = re.findall(r"^```\n(part.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)[0]
    # The words of the reasons may change.
    said = capsys.readouterr().out
    assert [line.split("  ")[0] for line in said.splitlines()] == [line.split("  ")[0] for line in shown.splitlines()]
    assert "2 workers" in said and "shared memory" in said
