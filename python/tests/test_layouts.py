"""Layouts of data sets that people have: splits, pairs, tables of arrays, images of one size."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import cli

Image = pytest.importorskip("PIL.Image")

Make = Callable[..., stoker.Loader]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_splits(make: Make, tmp_path: Path, save: Callable[..., None]) -> None:
    x, y = np.arange(40 * 6, dtype=np.uint8).reshape(40, 3, 2), np.arange(40)
    save(tmp_path / "set.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:], names=np.array(["a", "b"]))
    with pytest.raises(
        stoker.StokerError, match=r"it has the splits train and test: choose one, .*set.npz\?split=train'"
    ):
        make(tmp_path / "set.npz", 4)
    for batch in make(stoker.open(tmp_path / "set.npz")["train"], 5, shuffle=True):
        assert (batch.x == x[batch.index]).all()
        assert (batch.y == y[batch.index]).all()
    test = make(
        f"{tmp_path / 'set.npz'}?split=test&image:image=x&label:label=y", 5, shuffle=True, transforms={"image": []}
    )
    for batch in test:
        assert (batch.image[..., 0] == x[30 + batch.index]).all()
        assert (batch.label == y[30 + batch.index]).all()


def test_npz_with_text_and_objects(make: Make, tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "", "caf\u00e9"])
    np.savez(
        tmp_path / "set.npz",
        x=np.arange(4.0),
        name=names,
        big=np.arange(4, dtype=">i2"),
        any=np.array([{}, 1, None, "x"], dtype=object),
    )
    for batch in make(tmp_path / "set.npz", 2, shuffle=True):
        assert batch.name.tolist() == names[batch.index].tolist()
        assert (batch.big == batch.index).all()
        assert not hasattr(batch, "any")
    with pytest.raises(stoker.StokerError, match='"any" holds Python objects'):
        make(f"{tmp_path / 'set.npz'}?x&any", 2)


def photo(path: Path, width: int, height: int, value: int, orientation: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.full((height, width, 3), value, np.uint8)).save(path, exif=exif)


def test_images_of_equal_size_need_no_operation(make: Make, tmp_path: Path) -> None:
    for i in range(12):
        photo(tmp_path / f"photos/{'ab'[i % 2]}/{i:02}.png", 20, 14, 10 * i)
    transforms: list[list[Any]] = [[], [T.RandomHorizontalFlip()], [T.Resize(7)]]
    for ops in transforms:
        seen = []
        for batch in make(tmp_path / "photos", 5, shuffle=True, transforms={"image": ops}):
            side = 7 if ops and isinstance(ops[0], T.Resize) else 14
            assert batch.image.shape[1:] == (side, side * 20 // 14, 3)
            seen += batch.image[:, 0, 0, 0].tolist()
        assert sorted(seen) == [10 * i for i in range(12)]
    # A source that can only be read in order.
    archive = shutil.make_archive(str(tmp_path / "photos"), "gztar", tmp_path / "photos")
    assert [b.image.shape for b in make(archive, 8, shuffle=False)] == [(8, 14, 20, 3), (4, 14, 20, 3)]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_image_of_another_size_is_named(make: Make, tmp_path: Path, on_error: str) -> None:
    for i in range(6):
        photo(tmp_path / f"photos/a/{i}.png", 20, 14 if i != 4 else 15, i)
    match = r"a/4.png.*has 20x15 pixels, and that of the first record, .*a/0.png, has 20x14: .*RandomResizedCrop"
    with pytest.raises(stoker.StokerError, match=match):
        for _ in make(tmp_path / "photos", 2, shuffle=True, on_error=on_error):
            pass
    # A transform that fixes the size makes the images equal.
    assert sum(len(b) for b in make(tmp_path / "photos", 2, transforms={"image": [T.CenterCrop(10)]})) == 6


def test_packed_images_of_several_sizes_are_refused_when_opened(make: Make, binary: str, tmp_path: Path) -> None:
    for i in range(6):
        photo(tmp_path / f"photos/a/{i}.png", 20 + i // 5, 14, i)
    cli(binary, "pack", tmp_path / "photos", tmp_path / "pack")
    with pytest.raises(stoker.StokerError, match=r"a/5.png.*has 21x14 pixels, and that of the first record.*a/0.png"):
        make(tmp_path / "pack", 2)
    few = make(stoker.open(tmp_path / "pack").where("image.width == 20"), 2)
    assert next(iter(few)).image.shape == (2, 14, 20, 3)


def test_first_record_of_bad_ones(make: Make, tmp_path: Path) -> None:
    for i in range(4):
        photo(tmp_path / f"photos/a/{i}.jpg", 20, 14, i, orientation=6)
    (tmp_path / "photos/a/0.jpg").write_bytes(b"no image")
    batch = next(iter(make(tmp_path / "photos", 4, on_error="skip", apply_orientation=True)))
    assert batch.image.shape == (4, 20, 14, 3)


def test_folder_with_splits(make: Make, tmp_path: Path) -> None:
    for i, name in enumerate(["train/a", "train/c", "Val/c", "Val/b", "test"]):
        photo(tmp_path / f"photos/{name}/{i}.png", 20, 14, i)
    with pytest.raises(stoker.StokerError, match=r"has the splits train, Val and test: choose one, .*\?split=train"):
        make(tmp_path / "photos", 2)
    for split, labels in {"train": [0, 2], "val": [1, 2]}.items():
        for loader in (
            make(stoker.open(tmp_path / "photos")[split], 2),
            make(f"{tmp_path / 'photos'}?split={split}", 2),
        ):
            assert next(iter(loader)).label.tolist() == labels
            assert loader.classes == ["a", "b", "c"]
    with make(stoker.open(tmp_path / "photos")["test"], 1) as loader:
        assert [b.image.max() for b in loader] == [4]
        assert "label" not in next(iter(loader))
    # Parts of one split, by number.
    assert len(list(make(stoker.open(f"{tmp_path / 'photos'}?split=train").split(0.5, 0.5)[1], 1))) == 1


def test_pairs_are_named(make: Make, tmp_path: Path) -> None:
    for i in range(3):
        photo(tmp_path / f"data/Images/{i}.png", 20, 14, i)
        Image.fromarray(np.full((14, 20), i, np.uint8)).save(tmp_path / f"data/Images/{i}.png")
        (tmp_path / "data/Masks").mkdir(exist_ok=True)
        Image.fromarray(np.full((14, 20), i, np.uint8)).save(tmp_path / f"data/Masks/{i}.png")
    with pytest.raises(stoker.StokerError, match=r"open them as 'pairs:.*'") as error:
        make(tmp_path / "data", 2)
    url = str(error.value).split("'")[1]
    for batch in make(url, 3):
        assert batch.mask[:, 0, 0].tolist() == batch.image[:, 0, 0, 0].tolist() == [0, 1, 2]
