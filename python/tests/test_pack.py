"""stoker.pack: Python objects become a pack and load unchanged."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import transforms as T
from stoker._binary import find_binary
from support import encoded, wait_for


def picture(i: int, size: int = 24) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (size, size + i % 5, 3), dtype=np.uint8)


def jpeg(i: int) -> bytes:
    return encoded(picture(i), "JPEG", quality=90)


class Samples:
    """Fields of most kinds."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {
            "array": np.full((4, 3), i, np.float32),
            "ids": np.arange(i % 7, dtype=np.int32),
            "label": i % 10,
            "number": i * 3,
            "weight": i / 4,
            "caption": f"é {i}",
            "data": bytes([i % 256]) * (i % 3),
            "meta": {"i": i},
            "list": [float(i)] * (i % 4),
        }


def loaded(path: str, **more: Any) -> Iterator[tuple[int, stoker.Batch, int]]:
    """Records in order: number, batch, row."""
    with stoker.Loader(path, batch_size=16, **more) as loader:
        for batch in loader:
            for row, number in enumerate(batch.index.tolist()):
                yield number, batch, row


def check(path: str, samples: Samples) -> None:
    seen = 0
    for i, batch, row in loaded(path):
        want = samples[i]
        assert np.array_equal(batch.array[row], want["array"])
        assert np.array_equal(batch.ids[row], want["ids"])
        assert batch.ids.values.dtype == np.int32
        assert (batch.label[row], batch.number[row], batch.weight[row]) == (i % 10, i * 3, i / 4)
        assert batch.caption[row] == want["caption"]
        assert bytes(batch.data[row]) == want["data"]
        assert batch["list"][row].tolist() == want["list"]
        assert batch.meta[row] == f'{{"i": {i}}}'
        seen += 1
    assert seen == len(samples)


@pytest.mark.parametrize("workers", [0, 3])
def test_every_kind_comes_back(tmp_path: Path, workers: int) -> None:
    """With any number of workers and pieces, records equal the dataset's, in its order."""
    samples = Samples(500)
    got = stoker.pack(samples, tmp_path / "out", workers=workers, shard_size="20KiB")
    assert (got.records, got.skipped, got.unchanged) == (500, [], False)
    check(got.path, samples)
    assert len(list((tmp_path / "out").glob("shard-*"))) > 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"], "something is left"
    assert stoker.pack(samples, tmp_path / "out").unchanged
    with pytest.raises(stoker.ConfigError, match="is a finished pack of Python's Samples of 500, and not of"):
        stoker.pack(Samples(400), tmp_path / "out")
    assert stoker.pack(Samples(400), tmp_path / "out", workers=0, restart=True).records == 400


def test_the_same_bytes_whatever_the_workers(tmp_path: Path) -> None:
    """Equal data gives equal packs."""
    made = [tmp_path / str(n) for n in (0, 1, 4)]
    for path, workers in zip(made, (0, 1, 4), strict=True):
        stoker.pack(Samples(300), path, workers=workers, shard_size="30KiB")
    files = [{p.name: p.read_bytes() for p in path.iterdir()} for path in made]
    assert files[0] == files[1] == files[2]


def test_pictures(tmp_path: Path) -> None:
    """Bytes of files stay unchanged. Pillow's images and arrays are pixels."""
    data = [(Image.fromarray(picture(i)), i % 3) for i in range(20)]
    got = stoker.pack(data, tmp_path / "pil", classes={"label": ["a", "b", "c"]})
    for i, batch, row in loaded(got.path, transforms={"image": [T.CenterCrop(16)]}):
        want = np.asarray(Image.fromarray(picture(i)))
        top, left = round((want.shape[0] - 16) / 2.0), round((want.shape[1] - 16) / 2.0)
        assert np.array_equal(batch.image[row], want[top : top + 16, left : left + 16])
        assert batch.label[row] == i % 3
    got = stoker.pack(
        ({"jpg": jpeg(i), "label": "ab"[i % 2]} for i in range(20)), tmp_path / "jpeg", classes={"label": ["a", "b"]}
    )
    for i, batch, row in loaded(got.path, transforms={"jpg": [T.Resize([24, 24])], "label": []}):
        if i % 5 == 0:  # it has this size: nothing was resized
            assert np.array_equal(batch.jpg[row], np.asarray(Image.open(io.BytesIO(jpeg(i)))))
        assert batch.label[row] == i % 2
    masks = [{"image": picture(i), "mask": Image.fromarray(np.full((24, 24 + i % 5), i, np.uint8))} for i in range(8)]
    got = stoker.pack(masks, tmp_path / "mask", kinds={"image": "image"}, workers=2)
    for i, batch, row in loaded(got.path, transforms={"image": [T.CenterCrop(8)], "mask": [T.CenterCrop(8)]}):
        assert (batch.mask[row] == i).all()


class Point(NamedTuple):
    x: np.ndarray
    y: float


@dataclasses.dataclass
class Row:
    text: str
    tokens: np.ndarray


def test_forms_of_records(tmp_path: Path) -> None:
    """Named tuples, dataclasses, tuples and single values."""
    got = stoker.pack([Point(np.ones(3) * i, i / 2) for i in range(9)], tmp_path / "named")
    assert [b.y[r] for _, b, r in loaded(got.path)] == [i / 2 for i in range(9)]
    rows = (Row(f"t{i}", np.arange(i + 1, dtype=np.uint16)) for i in range(9))
    got = stoker.pack(rows, tmp_path / "data", kinds={"tokens": "tokens"})
    assert [b.tokens[r].tolist() for _, b, r in loaded(got.path)] == [list(range(i + 1)) for i in range(9)]
    got = stoker.pack(np.arange(12, dtype=np.int16).reshape(6, 2), tmp_path / "array")
    assert [b.x[r].tolist() for _, b, r in loaded(got.path)] == [[2 * i, 2 * i + 1] for i in range(6)]
    got = stoker.pack([(1, 2.5, "x"), (3, 4.5, "y")], tmp_path / "tuple", names=["a", "b", "c"])
    assert [(b.a[r], b.b[r], b.c[r]) for _, b, r in loaded(got.path)] == [(1, 2.5, "x"), (3, 4.5, "y")]
    with pytest.raises(stoker.ConfigError, match="names= has 2 names and a record 3 values"):
        stoker.pack([(1, 2.5, "x")], tmp_path / "few", names=["a", "b"])


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    """Names of files may have bytes that are not UTF-8. The pack can be opened, and classes stay different."""
    rows = [{"x\udcff": i, "label": i % 2} for i in range(4)]
    got = stoker.pack(rows, tmp_path / "pack", kinds={"label": "label"}, classes={"label": ["k\udcff", "k\udcfe"]})
    with stoker.Loader(got.path, batch_size=4) as loader:
        assert loader.classes in (["k\\xff", "k\\xfe"], {"label": ["k\\xff", "k\\xfe"]})
        assert "x\\xff" in next(iter(loader))


@pytest.mark.parametrize("workers", [0, 2])
def test_map(tmp_path: Path, workers: int) -> None:
    """One to one, to none, to many, and many to one; from a list and from a generator."""

    def some(i: int) -> Any:
        return None if i % 3 == 0 else [{"i": i, "k": k} for k in range(i % 4)]

    want = [(i, k) for i in range(200) if i % 3 for k in range(i % 4)]
    for name, data in (("list", list(range(200))), ("generator", (i for i in range(200)))):
        got = stoker.pack(data, tmp_path / name, map=some, workers=workers)
        assert [(b.i[r], b.k[r]) for _, b, r in loaded(got.path)] == want
        many = list(range(200)) if name == "list" else (i for i in range(200))
        got = stoker.pack(
            many, tmp_path / f"{name}-group", group=7, map=lambda g: {"sum": sum(g), "n": len(g)}, workers=workers
        )
        sums = [(b["sum"][r], b.n[r]) for _, b, r in loaded(got.path)]
        assert sums == [(sum(range(i, min(i + 7, 200))), min(7, 200 - i)) for i in range(0, 200, 7)]


def test_torch(tmp_path: Path) -> None:
    """Datasets of PyTorch and torchvision."""
    torch = pytest.importorskip("torch")
    torchvision = pytest.importorskip("torchvision")
    data = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))
    got = stoker.pack(data, tmp_path / "tensors", workers=2)
    assert [(b.x[r].tolist(), b.y[r]) for _, b, r in loaded(got.path)] == [([2 * i, 2 * i + 1], i) for i in range(20)]
    for i in range(6):
        (tmp_path / "photos" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(i)).save(tmp_path / "photos" / "ab"[i % 2] / f"{i}.png")
    folder = torchvision.datasets.ImageFolder(str(tmp_path / "photos"))
    got = stoker.pack(folder, tmp_path / "folder")
    for i, batch, row in loaded(got.path, transforms={"image": [T.CenterCrop(24)]}):
        image, label = folder[i]
        assert batch.label[row] == label
        assert np.array_equal(batch.image[row], torchvision.transforms.functional.center_crop(image, [24, 24]))
    with stoker.Loader(got.path, batch_size=2, transforms={"image": [T.CenterCrop(24)]}) as loader:
        assert loader.classes == {"label": ["a", "b"]} or loader.classes == ["a", "b"]


def test_hugging_face(tmp_path: Path) -> None:
    """Pictures are taken as the bytes that they are, and classes have their names."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "text": datasets.Value("string"),
        }
    )
    rows = {
        "image": [{"bytes": jpeg(i), "path": None} for i in range(10)],
        "label": [i % 2 for i in range(10)],
        "text": ["t"] * 10,
    }
    data = datasets.Dataset.from_dict(rows, features=features)
    for name, one in (("map", data), ("iterable", data.to_iterable_dataset())):
        got = stoker.pack(one, tmp_path / name, images="keep", workers=2)
        about = subprocess.run(
            [find_binary(), "inspect", got.path, "--row", "3", "--export", str(tmp_path / "x.jpg")],
            check=True,
            capture_output=True,
        )
        assert about.returncode == 0
        assert (tmp_path / "x.jpg").read_bytes()[:2] == jpeg(3)[:2]
        assert np.array_equal(np.asarray(Image.open(tmp_path / "x.jpg")), np.asarray(Image.open(io.BytesIO(jpeg(3)))))


def test_errors_name_the_input_and_the_field(tmp_path: Path) -> None:
    """The error for a value that cannot be stored is one line and gives a remedy."""

    def bad(value: Any, at: int = 41) -> Any:
        return [{"a": np.zeros(3, np.float32), "b": 1} if i != at else {"a": value, "b": 1} for i in range(100)]

    for value, want in (
        (
            np.zeros(4, np.float32),
            r"input 41: field 'a': its shape is \[4\], should be \[3\]; the first records have array",
        ),
        (None, r"input 41: field 'a': there is no value \(None\)"),
        ("x", "input 41: field 'a': "),
    ):
        with pytest.raises(stoker.ConfigError, match=want):
            stoker.pack(bad(value), tmp_path / "out", workers=2)
    with pytest.raises(stoker.ConfigError, match="was begun of other data or with other arguments"):
        stoker.pack([{"q": 1}] * 100, tmp_path / "out", name="Python's list of 100")
    with pytest.warns(stoker.SkippedRecords, match="1 inputs were left out: input 41: "):
        got = stoker.pack(bad(None), tmp_path / "skip", workers=2, on_error="skip")
    assert (got.records, len(got.skipped)) == (99, 1)

    def fails(i: int) -> Any:
        if i == 77:
            raise KeyError("no such thing")
        return {"i": i}

    with pytest.raises(
        stoker.StokerError, match=r"input 77: KeyError: 'no such thing' \(.*test_pack.py, line \d+, in fails\)"
    ):
        stoker.pack(list(range(100)), tmp_path / "map", map=fails, workers=2)
    for data, more, want in (
        ([], {}, "gives no records"),
        (7, {}, "a int has no records"),
        ([{"a": object()}], {}, "field 'a' has a object, which cannot be stored"),
        ([{"a": np.zeros(2, complex)}], {}, "elements of type complex128"),
        ([{"a": 1}], {"kinds": {"b": "int"}}, "kinds= names a field 'b', which records do not have"),
        ([{"a": 1}], {"kinds": {"a": "imt"}}, "there is no such kind; did you mean 'int'"),
        ([{"a": np.zeros((2, 2))}, {"a": np.zeros((2, 3))}], {}, "differ in more than their first axis"),
        ([{"a": 1}], {"on_error": "ignore"}, "on_error='ignore'"),
        ([{"a": 1}], {"shard_size": "5"}, "shard_size must be a number of bytes .*the unit seems to be missing"),
        ([{"a": 1}], {"images": "raw"}, "holds no images"),
    ):
        with pytest.raises(stoker.StokerError, match=want):
            stoker.pack(data, tmp_path / "bad", workers=0, restart=True, **more)


SCRIPT = """
import sys, time
import numpy as np, stoker
sys.path.insert(0, {tests!r})
from test_pack import Samples

class Slow(Samples):
    def __getitem__(self, i):
        if i == 400 and len(sys.argv) > 1:
            print("there", flush=True)
            time.sleep(60)
        return super().__getitem__(i)

if __name__ == "__main__":
    r = stoker.pack(Slow(600), {out!r}, workers=2, shard_size="20KiB", name="slow")
    print(r.records)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_it_goes_on_where_it_was_interrupted(tmp_path: Path, how: int) -> None:
    """After Ctrl-C and after a kill, the same call writes the missing part, and the pack is the same."""
    script = tmp_path / "x.py"
    out = tmp_path / "out"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent), out=str(out)))
    with subprocess.Popen(
        [sys.executable, str(script), "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        wait_for(lambda: any(out.glob("piece-*.json")))  # the engine may be packing what came before
        os.killpg(child.pid, how)
        child.communicate()
    done = sorted(p.name for p in out.glob("piece-*"))
    assert done, "nothing was packed before"
    again = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert again.stdout == "600\n", again.stderr
    check(str(out), Samples(600))
    stoker.pack(Samples(600), tmp_path / "straight", workers=0, shard_size="20KiB", name="slow")
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "straight").iterdir()
    }


def test_a_worker_that_dies_is_an_error(tmp_path: Path) -> None:
    """A dead worker causes neither a hang nor half a pack."""

    def die(i: int) -> Any:
        if i == 51:  # which is not one of those that are looked at first
            os._exit(1)
        return {"i": i}

    with pytest.raises(stoker.StokerError, match="a worker exited on its own"):
        stoker.pack(list(range(100)), tmp_path / "out", map=die, workers=2)
    assert not (tmp_path / "out" / "manifest.json").exists()
