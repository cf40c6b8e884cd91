"""MNIST, CIFAR, STL-10 and SVHN as torchvision's own readers have them, from the files and from packs."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_formats import idx

import stoker
from stoker import transforms as T

datasets: Any = pytest.importorskip("torchvision.datasets")

Make = Callable[..., stoker.Loader]
RNG = np.random.default_rng(7)
NAMES = [f"class {i}" for i in range(10)]


def agree(make: Make, binary: str, url: str, reference: Any, tmp_path: Path, labels: list[str]) -> None:
    """Compare every record with torchvision's, read directly and packed."""
    tmp_path.mkdir(parents=True, exist_ok=True)
    packs = []
    for how in ("auto", "raw"):
        packs.append(tmp_path / f"pack-{how}")
        command = [binary, "pack", url, str(packs[-1]), "--images", how]
        subprocess.run(command, check=True, capture_output=True)
    for source in (url, *map(str, packs)):
        first = np.asarray(reference[0][0])
        mode = "L" if first.ndim == 2 else "RGB"
        fields = {"image": stoker.Field("image", [T.CenterCrop(first.shape[:2])], mode=mode)}
        loader = make(source, batch_size=7, shuffle=True, seed=3, transforms=fields)
        seen = set()
        for batch in loader:
            for i, number in enumerate(batch.index.tolist()):
                image, target = reference[number]
                if labels:
                    assert batch.label[i] == target, (source, number)
                assert (batch.image[i].squeeze() == np.asarray(image)).all(), (source, number)
                seen.add(number)
        assert len(seen) == len(reference)
        if labels:
            assert loader.classes == labels, source


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "KMNIST"])
@pytest.mark.parametrize("train", [True, False])
def test_mnist(make: Make, binary: str, tmp_path: Path, name: str, train: bool) -> None:
    raw = tmp_path / name / "raw"
    raw.mkdir(parents=True)
    for part, n in (("train", 41), ("t10k", 23)):
        images, labels = RNG.integers(0, 256, (n, 28, 28), np.uint8), RNG.integers(0, 10, n).astype(np.uint8)
        for file, data in ((f"{part}-images-idx3-ubyte", idx(images)), (f"{part}-labels-idx1-ubyte", idx(labels))):
            (raw / file).write_bytes(data)  # torchvision keeps what it has downloaded beside what it has unpacked
            (raw / f"{file}.gz").write_bytes(gzip.compress(data))
    reference = getattr(datasets, name)(tmp_path, train=train)
    split = "train" if train else "test"
    agree(make, binary, f"{raw}?split={split}", reference, tmp_path / "folder", reference.classes)
    part = "train" if train else "t10k"
    agree(make, binary, f"{raw}/{part}-images-idx3-ubyte.gz", reference, tmp_path / "gz", reference.classes)


@pytest.mark.parametrize("split", ["letters", "balanced", "byclass", "digits"])
def test_emnist(make: Make, binary: str, tmp_path: Path, split: str) -> None:
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "test"):
        images, labels = RNG.integers(0, 256, (12, 28, 28), np.uint8), RNG.integers(1, 10, 12).astype(np.uint8)
        (raw / f"emnist-{split}-{part}-images-idx3-ubyte").write_bytes(idx(images))
        (raw / f"emnist-{split}-{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    reference = datasets.EMNIST(tmp_path, split=split, train=False)
    agree(make, binary, f"{raw}?split=test", reference, tmp_path, reference.classes)


def test_qmnist(make: Make, binary: str, tmp_path: Path) -> None:
    raw = tmp_path / "QMNIST" / "raw"
    raw.mkdir(parents=True)
    labels = RNG.integers(-5, 1 << 20, (12, 8)).astype(np.int32)
    labels[:, 0] %= 10
    (raw / "qmnist-train-images-idx3-ubyte").write_bytes(idx(RNG.integers(0, 256, (12, 28, 28), np.uint8)))
    (raw / "qmnist-train-labels-idx2-int").write_bytes(idx(labels))
    reference = datasets.QMNIST(tmp_path, what="train")
    agree(make, binary, str(raw), reference, tmp_path, reference.classes)
    whole = datasets.QMNIST(tmp_path, what="train", compat=False)
    for batch in make(stoker.open(str(raw)).select("labels"), batch_size=5):
        for i, number in enumerate(batch.index.tolist()):
            assert batch.labels[i].tolist() == whole[number][1].tolist()


class Python2(pickle._Pickler):  # type: ignore[name-defined]
    """Write pickles as Python 2 has written CIFAR's."""

    def save_string(self, text: Any) -> None:
        data = text.encode("latin1") if isinstance(text, str) else text
        if self.proto == 0:
            shown = repr(data)[1:]
            self.write(b"S" + shown.encode() + b"\n")
        elif len(data) < 256:
            self.write(b"U" + bytes([len(data)]) + data)
        else:
            self.write(b"T" + struct.pack("<i", len(data)) + data)
        self.memoize(text)

    dispatch = pickle._Pickler.dispatch | {str: save_string, bytes: save_string}  # type: ignore[attr-defined]


def pickled(value: Any, form: str) -> bytes:
    python, protocol = form[0], int(form[1])
    if python == "3":
        return pickle.dumps(value, protocol=protocol)
    out = io.BytesIO()
    Python2(out, protocol=protocol).dump(value)
    return out.getvalue()


def cifar(folder: Path, form: str, fine: bool) -> None:
    """Write CIFAR-10 or CIFAR-100 into a folder, in the binary form or as a pickle."""
    folder.mkdir(parents=True)
    files = ["train", "test"] if fine else [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    rng = np.random.default_rng(1)
    coarse = [f"coarse {i}" for i in range(20)]
    for name in files:
        n = 11
        data, labels, more = rng.integers(0, 256, (n, 3072), np.uint8), rng.integers(0, 10, n), rng.integers(0, 20, n)
        if form == "binary":
            columns = [more, labels] if fine else [labels]
            heads = np.stack(columns, 1).astype(np.uint8)
            (folder / f"{name}.bin").write_bytes(np.concatenate([heads, data], 1).tobytes())
            continue
        value = {"batch_label": f"batch {name}", "filenames": [f"it's_{i}.png" for i in range(n)], "data": data}
        if fine:
            value |= {"fine_labels": labels.tolist(), "coarse_labels": more.tolist()}
        else:
            value |= {"labels": labels.tolist()}
        (folder / name).write_bytes(pickled(value, form))
    if form == "binary" and fine:
        (folder / "fine_label_names.txt").write_text("\n".join(NAMES) + "\n")
        (folder / "coarse_label_names.txt").write_text("\n".join(coarse) + "\n")
    elif form == "binary":
        (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    elif fine:
        (folder / "meta").write_bytes(pickled({"fine_label_names": NAMES, "coarse_label_names": coarse}, form))
    else:
        (folder / "batches.meta").write_bytes(pickled({"label_names": NAMES, "num_vis": 3072}, form))


@pytest.mark.parametrize("form", ["20", "22", "30", "32", "33"])
@pytest.mark.parametrize("fine", [False, True])
def test_cifar(make: Make, binary: str, tmp_path: Path, monkeypatch: Any, form: str, fine: bool) -> None:
    cls = datasets.CIFAR100 if fine else datasets.CIFAR10
    folder = tmp_path / cls.base_folder
    cifar(folder, form, fine)
    cifar(tmp_path / "binary", "binary", fine)
    monkeypatch.setattr(cls, "_check_integrity", lambda _: True)
    monkeypatch.setattr(cls, "meta", {**cls.meta, "md5": None})
    for split in ("train", "test"):
        reference = cls(tmp_path, train=split == "train")
        assert reference.classes == NAMES
        agree(make, binary, f"{folder}?split={split}", reference, tmp_path / split, NAMES)
        if form == "22":
            agree(make, binary, f"{tmp_path}/binary?split={split}", reference, tmp_path / f"{split}-binary", NAMES)
    if fine:
        with open(folder / "test", "rb") as f:
            coarse = pickle.load(f, encoding="latin1")["coarse_labels"]
        for source in (folder, tmp_path / "binary"):
            loader = make(stoker.open(f"{source}?split=test").select("coarse_label"), batch_size=4)
            for batch in loader:
                assert batch.coarse_label.tolist() == [coarse[i] for i in batch.index.tolist()]
            assert loader.info["classes"]["coarse_label"][19] == "coarse 19"


def test_no_pickle_is_run(make: Make, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "run",))

    for protocol in (0, 2):
        (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"labels": [1], "data": Evil()}, protocol=protocol))
        with pytest.raises(stoker.StokerError, match=r"data_batch_1: byte \d+: .*code in a pickle is never run"):
            make(tmp_path, batch_size=1)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("split", ["train", "test", "unlabeled"])
def test_stl10(make: Make, binary: str, tmp_path: Path, monkeypatch: Any, split: str) -> None:
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    for part in ("train", "test", "unlabeled"):
        (folder / f"{part}_X.bin").write_bytes(RNG.integers(0, 256, 9 * 96 * 96 * 3, np.uint8).tobytes())
        if part != "unlabeled":
            (folder / f"{part}_y.bin").write_bytes(RNG.integers(1, 11, 9, np.uint8).tobytes())
    (folder / "class_names.txt").write_text("\n".join(NAMES))
    monkeypatch.setattr(datasets.STL10, "_check_integrity", lambda _: True)
    reference = datasets.STL10(tmp_path, split=split)
    labels = [] if split == "unlabeled" else NAMES
    agree(make, binary, f"{folder}?split={split}", reference, tmp_path / "a", labels)
    agree(make, binary, f"{folder}/{split}_X.bin", reference, tmp_path / "b", labels)


@pytest.mark.parametrize("compressed", [False, True])
def test_svhn(make: Make, binary: str, tmp_path: Path, monkeypatch: Any, compressed: bool) -> None:
    scipy_io: Any = pytest.importorskip("scipy.io")
    monkeypatch.setattr(datasets.SVHN, "_check_integrity", lambda _: True)
    root = tmp_path / "svhn"
    root.mkdir()
    for split in ("train", "test", "extra"):
        y = RNG.integers(1, 11, (13, 1)).astype({"train": np.float64, "test": np.uint8, "extra": np.int32}[split])
        content = {"X": RNG.integers(0, 256, (32, 32, 3, 13), np.uint8), "y": y}
        scipy_io.savemat(root / f"{split}_32x32.mat", content, do_compression=compressed)
    digits = list("0123456789")
    for split in ("train", "test", "extra"):
        reference = datasets.SVHN(root, split=split)
        agree(make, binary, f"{root}?split={split}", reference, tmp_path / split, digits)
    agree(make, binary, f"{root}/extra_32x32.mat", reference, tmp_path / "file", digits)


def test_asks_for_a_split(make: Make, tmp_path: Path) -> None:
    cifar(tmp_path / "cifar", "binary", fine=False)
    with pytest.raises(stoker.StokerError, match=r"it has the splits train and test: choose one, .*\?split=train"):
        make(tmp_path / "cifar", batch_size=4)
    with pytest.raises(stoker.StokerError, match=r'it has no split "val", only train and test'):
        make(f"{tmp_path / 'cifar'}?split=val", batch_size=4)
