"""Datasets: views, single records, and loaders of them."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import _reader
from stoker import transforms as T


@pytest.fixture(scope="module")
def data(photos: Path) -> stoker.Dataset:
    """Return the photos."""
    return stoker.open(photos)


def names(data: stoker.Dataset) -> list[str]:
    """Return the files of all records."""
    return [Path(r.name).name for r in data]


def test_records(data: stoker.Dataset, photos: Path) -> None:
    assert len(data) == 203
    assert data.classes == [f"class-{i}" for i in range(4)]
    assert list(data.fields) == ["image", "label"]
    assert str(data.fields["image"]).startswith("image uint8[")
    record = data[17]
    assert isinstance(record, dict)
    assert list(record) == ["image", "label"]
    assert record.index == 17
    assert np.array_equal(record["image"], np.asarray(Image.open(record.name).convert("RGB")))
    assert record["image"].flags.writeable
    assert type(record["label"]) is int
    assert data.classes[record["label"]] == Path(record.name).parent.name
    assert data[-1].name == data[202].name
    assert data[np.int64(3)].index == 3
    assert [r.index for r in data] == list(range(203))
    assert len(list(data)) == 203
    for bad in (203, -204):
        with pytest.raises(IndexError, match=f"record {bad} is out of range: there are 203 records in {photos}"):
            data[bad]
    with pytest.raises(stoker.ConfigError, match="a record has a number"):
        data[1.5]  # type: ignore[call-overload]


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    missing = stoker.open(tmp_path / "missing")
    view = missing.where("label < 2").split(0.5, 0.5)[0].select("image").rename({"image": "x"})
    joined = stoker.concat([view, missing])
    for one in (missing, view, joined):
        with pytest.raises(stoker.ConfigError, match="missing"):
            len(one)


def test_rows(data: stoker.Dataset) -> None:
    all_names = names(data)
    assert names(data[10:20]) == all_names[10:20]
    assert names(data[::-3]) == all_names[::-3]
    assert names(data[::-3][::2][3:]) == all_names[::-3][::2][3:]
    assert names(data[[5, 5, -1]]) == [all_names[5], all_names[5], all_names[-1]]
    assert names(data[np.array([True, False] * 101 + [True])]) == all_names[::2]
    assert len(data[5:5]) == 0
    assert names(data[[]]) == []
    assert names(data[10:][[0, 1]]) == all_names[10:12]
    picked = data[[9, 3]]
    assert picked[1].index == 1
    for bad in ([203], [0, -204]):
        with pytest.raises(IndexError, match="out of range"):
            data[bad]
    with pytest.raises(stoker.ConfigError, match="a list of whole numbers"):
        data[[0.5]]
    with pytest.raises(stoker.ConfigError, match="a mask of records has 203 elements"):
        data[np.array([True])]


def test_views_compose_in_any_order(data: stoker.Dataset) -> None:
    all_names = names(data)
    labels = [r["label"] for r in data]
    some = [i for i in range(150, 0, -2) if labels[i] == 1]
    view = data[150:0:-2].where("label == 1")
    # An expression leaves records in the order in which they were.
    assert sorted(names(view)) == sorted(all_names[i] for i in some)
    assert names(data[150:0:-2].where("label == 1")[2:4]) == [all_names[i] for i in some[2:4]]
    renamed = data.rename({"label": "cls"}).where("cls == 1").select("cls")
    assert list(renamed.fields) == ["cls"]
    assert len(renamed) == labels.count(1)
    assert dict(renamed[0]) == {"cls": 1}
    assert list(data.drop("label").fields) == ["image"]
    assert data.kinds({"label": "int"}).fields["label"].kind == "int"
    assert len(data.dedupe("label")) == 4
    many = np.random.default_rng(0).integers(0, 203, 2000)
    assert names(data[many].where("label >= 0")[:50]) == [all_names[i] for i in many[:50]]


def test_splits(data: stoker.Dataset) -> None:
    train, val, rest = data.split(0.8, 10, "rest", seed=3)
    assert (len(train), len(val), len(rest)) == (162, 10, 31)
    found = names(train) + names(val) + names(rest)
    assert sorted(found) == sorted(names(data))
    assert names(train) == names(data.split(0.8, 10, "rest", seed=3)[0])
    assert names(train) != names(data.split(0.8, 10, "rest", seed=4)[0])
    a, b = data.split(0.5, 0.5, stratify="label")
    for label in range(4):
        counts = [sum(r["label"] == label for r in part) for part in (a, b)]
        assert abs(counts[0] - counts[1]) <= 1
    a, b = data.split(0.5, 0.5, group="folder")
    assert not {r["label"] for r in a} & {r["label"] for r in b}
    with pytest.raises(stoker.ConfigError, match="is not a fraction"):
        data.split(1.5)
    with pytest.raises(stoker.ConfigError, match="needs the sizes"):
        data.split()


def test_named_splits(photos: Path, tmp_path: Path) -> None:
    for split, classes in (("train", ("class-0", "class-1")), ("val", ("class-0", "class-1"))):
        for name in classes:
            (tmp_path / split).mkdir(exist_ok=True)
            (tmp_path / split / name).symlink_to(photos / name)
    data = stoker.open(tmp_path)
    assert len(data["train"]) == len(data["val"]) > 0
    assert data.where("label == 0")["train"].classes == ["class-0", "class-1"]
    with pytest.raises(stoker.ConfigError, match='no split "test"'):
        len(data["test"])
    with pytest.raises(stoker.ConfigError, match="choose the split first"):
        data["train"].split(0.5, 0.5)[0]["val"]


def test_it_does_not_change(data: stoker.Dataset) -> None:
    with pytest.raises(AttributeError, match="does not change"):
        data._base = "other"
    assert data.where("label < 2") == data.where("label < 2")
    assert data.where("label < 2") != data.where("label < 3")
    assert data[:5] == data[[0, 1, 2, 3, 4]][:5] or data[:5] != data[:6]
    assert len({data[:5], data[:5], data[:6]}) == 2
    assert pickle.loads(pickle.dumps(data[[1, 2]])) == data[[1, 2]]
    assert data != 5


def test_concat(data: stoker.Dataset, photos: Path, tmp_path: Path) -> None:
    a, b = data.split(0.3, 0.7)
    joined = stoker.concat([a, b, data[[7, 7]]])
    assert len(joined) == 205
    assert names(joined) == names(a) + names(b) + [names(data)[7]] * 2
    assert joined.classes == data.classes
    assert len(joined.where("label == 1")) == sum(r["label"] == 1 for r in joined)
    assert names(stoker.concat([joined, joined[:3]])[-3:]) == names(joined[:3])
    with pytest.raises(stoker.ConfigError, match='different fields: the first has no field "label"'):
        len(stoker.concat([data.drop("label"), data]))
    with pytest.raises(stoker.ConfigError, match='field "label" is label and int'):
        len(stoker.concat([data, data.kinds({"label": "int"})]))
    (tmp_path / "other").symlink_to(photos / "class-1")
    with pytest.raises(stoker.ConfigError, match='field "label" has other classes: class 0 is "class-0" and "other"'):
        len(stoker.concat([data, stoker.open(tmp_path)]))
    with pytest.raises(stoker.ConfigError, match="call concat first"):
        stoker.concat([data.map(dict), data])
    assert stoker.concat([data]) is data


RESIZE = {"image": [T.Resize((32, 32))]}


def test_loader(data: stoker.Dataset) -> None:
    a, b = data.where("label != 2").split(0.5, 0.5, seed=1)
    joined = stoker.concat([a, b[::-1]])
    with joined.select("image", "label").loader(batch_size=32, transforms=RESIZE) as loader:
        got = np.concatenate([batch["label"].copy() for batch in loader])
    assert got.tolist() == [r["label"] for r in joined]


def brightness(record: dict[str, Any]) -> dict[str, Any]:
    """Return the mean of an image next to its label."""
    return {"mean": np.float32(record["image"].mean()), "label": record["label"]}


def doubled(record: dict[str, Any]) -> dict[str, Any]:
    """Return twice the mean."""
    return {"mean": record["mean"] * 2, "label": record["label"]}


def test_map(data: stoker.Dataset) -> None:
    mapped = data[:8].map(brightness).map(doubled)
    expected = [2 * r["image"].mean() for r in data[:8]]
    assert np.allclose([r["mean"] for r in mapped], expected, rtol=1e-5)
    assert mapped[3].name == data[3].name
    assert mapped[2:4][0]["label"] == data[2]["label"]
    with (
        data[:8]
        .map(brightness)
        .map(doubled)
        .loader(batch_size=8, workers=0, transforms={"image": [T.Resize((140, 160))]}) as loader
    ):
        (batch,) = [b["label"].copy() for b in loader]
    assert batch.tolist() == [r["label"] for r in data[:8]]
    with pytest.raises(stoker.ConfigError, match=r"call where\(\) before map\(\)"):
        mapped.where("label < 2")
    with pytest.raises(stoker.ConfigError, match="the function returned int"):
        data.map(len)[0]
    with pytest.raises(stoker.ConfigError, match="must be a function"):
        data.map(3)  # type: ignore[arg-type]


def test_bad_records_are_named(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    for i, path in enumerate(sorted((photos / "class-0").iterdir())[:3]):
        content = path.read_bytes()
        (folder / f"{i}.jpg").write_bytes(content if i != 1 else content[: len(content) // 3])
    data = stoker.open(tmp_path)
    assert data[0]["image"].shape
    with pytest.raises(stoker.RecordError, match=r"record 1 \(.*1\.jpg\) cannot be used") as caught:
        data[1]
    assert caught.value.record == 1
    assert caught.value.name.endswith("1.jpg")
    with pytest.raises(stoker.RecordError):
        list(data)
    assert data[2]["image"].shape  # the engine goes on


def child(data: stoker.Dataset, queue: Any) -> None:
    """Read a record in another process."""
    queue.put((data[3]["image"].sum(), os.getpid(), _reader.address()))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_share_the_engine(data: stoker.Dataset, method: str) -> None:
    expected = data[3]["image"].sum()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=child, args=(data, queue))
    process.start()
    got, pid, address = queue.get(timeout=60)
    process.join()
    assert got == expected
    assert pid != os.getpid()
    assert address == _reader.address()
    assert data[4].index == 4


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_torch_dataloader(data: stoker.Dataset, method: str) -> None:
    torch = pytest.importorskip("torch")
    small = data.where("label < 2").map(brightness)
    loader = torch.utils.data.DataLoader(small, batch_size=16, num_workers=2, multiprocessing_context=method)
    labels = [label for batch in loader for label in batch["label"].tolist()]
    assert labels == [r["label"] for r in small]


def test_threads(data: stoker.Dataset) -> None:
    expected = [r["label"] for r in data[:40]]
    got: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda i=i: got.update({i: data[i]["label"]})) for i in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [got[i] for i in range(40)] == expected


def test_an_engine_that_was_killed_is_started_again(data: stoker.Dataset) -> None:
    assert data[0].index == 0
    assert _reader._engine is not None
    child = _reader._engine.child
    if child is None:
        pytest.skip("another process has started the engine")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with pytest.raises(stoker.EngineDied, match="the engine ended"):
        data[1]
    assert data[1].index == 1


def test_the_engine_ends_with_the_process(photos: Path) -> None:
    code = (
        "import stoker, sys\nfrom stoker import _reader\n"
        f"stoker.open({str(photos)!r})[0]\nprint(_reader._engine.child.pid, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/exe").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}/exe").exists()


def test_new_files_are_seen_by_the_next_open(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one = next((photos / "class-0").iterdir()).read_bytes()
    (tmp_path / "a" / "0.jpg").write_bytes(one)
    assert len(stoker.open(tmp_path)) == 1
    (tmp_path / "a" / "1.jpg").write_bytes(one)
    assert len(stoker.open(tmp_path)) == 2
    assert stoker.open(tmp_path) == stoker.open(tmp_path)


def test_signatures(data: stoker.Dataset) -> None:
    ours = inspect.signature(data.loader).parameters
    theirs = inspect.signature(stoker.Loader).parameters
    assert list(ours.values()) == [p for name, p in theirs.items() if name != "source"]
    with pytest.raises(TypeError, match=r"Loader has no argument 'timeout'; use limits=stoker.Limits"):
        data.loader(timeout=3)  # type: ignore[call-arg]


def test_an_interrupt_loses_nothing(data: stoker.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = data[2]["image"]

    def interrupted(*_: object) -> bytearray:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_reader._Connection, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            data[1]
    assert np.array_equal(data[2]["image"], expected)


def test_memory_is_given_back(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(120 << 17, dtype=np.float64).reshape(120, -1))
    data = stoker.open(tmp_path / "x.npy")
    (field,) = data.fields
    records = data.__getitems__(range(120))
    assert [r[field][0] for r in records] == [i << 17 for i in range(120)]
    assert _reader._connection is not None
    assert os.fstat(_reader._connection._file).st_blocks * 512 < 80 << 20
    assert data[119][field][-1] == (120 << 17) - 1


def test_torchs_own_loader_takes_it(data: stoker.Dataset) -> None:
    pytest.importorskip("torch")
    from stoker.torch import DataLoader

    small = data[:20].select("label")
    loader = DataLoader(small, batch_size=8, num_workers=0)
    labels = [label for batch in loader for label in batch["label"].tolist()]
    assert labels == [r["label"] for r in small]
