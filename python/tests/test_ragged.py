"""Ragged, Strings and the views of a slot, without an engine."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import stoker
from stoker._batch import ArraySpec, Batch, numpy_views, torch_views
from support import CHECKOUT

GOLDEN = CHECKOUT / "internal" / "handoff" / "testdata" / "golden"


def golden(make: Any) -> Batch:
    """Return the batch that the engine's tests have written."""
    root = np.frombuffer(bytearray((GOLDEN / "slot.raw").read_bytes()), np.uint8)
    specs = [ArraySpec(a) for a in json.loads((GOLDEN / "slot.json").read_text())["arrays"]]
    return Batch(make(specs)(root, 3), 0, 0, 3)


def test_golden_slot() -> None:
    batch = golden(numpy_views)
    assert batch.keys() == ["image", "mask", "caption", "boxes", "tags", "meta", "score", "index"]
    assert (batch.image == (20 * np.arange(3)[:, None] + np.arange(12)).reshape(3, 2, 2, 3)).all()
    assert batch.mask.dtype == np.uint16
    assert (batch.mask == (1000 * np.arange(3)[:, None] + np.arange(4)).reshape(3, 2, 2)).all()
    assert batch.caption.tolist() == ["ein Hünd", "", "cat"]
    assert batch.meta.tolist() == ['{"a": 1}', "[]", "null"]
    assert batch.boxes.lengths.tolist() == [0, 1, 2]
    assert batch.boxes.values.shape == (3, 4)
    assert batch.boxes[2].tolist() == [[2, 2.125, 2.25, 2.375], [2.5, 2.625, 2.75, 2.875]]
    assert [t.tolist() for t in batch.tags] == [[0, 1], [10], []]
    assert batch.score.tolist() == [0, 0.25, 0.5]
    assert batch.index.tolist() == [100, 101, 102]
    assert "caption: Strings(3 texts, 12 bytes), boxes: Ragged(3 rows, 3 elements of float32[4])" in repr(batch)
    # All of it is in the slot, and a copy is not.
    assert not batch.boxes.values.flags.owndata
    copied = batch.copy()
    batch.caption.raw.values[:] = ord("x")
    batch.boxes.values[:] = 0
    assert copied.caption.tolist() == ["ein Hünd", "", "cat"]
    assert copied.boxes[1].tolist() == [[1, 1.125, 1.25, 1.375]]


def test_golden_slot_in_torch() -> None:
    torch: Any = pytest.importorskip("torch")
    batch = golden(torch_views)
    assert batch.mask.dtype == torch.uint16
    assert batch.boxes.values.shape == (3, 4)
    assert batch.boxes.dtype == torch.float32
    assert batch.tags.values.tolist() == [0, 1, 10]
    assert batch.caption.tolist() == ["ein Hünd", "", "cat"]
    assert batch.copy().caption[0] == "ein Hünd"


def test_described() -> None:
    specs = [ArraySpec(a) for a in json.loads((GOLDEN / "slot.json").read_text())["arrays"]]
    assert ", ".join(map(str, specs)) == (
        "image: uint8[2, 2, 3], mask: uint16[2, 2], caption: text, boxes: float32[ragged, 4], "
        "tags: int64[ragged], meta: json, score: float64[], index: int64[]"
    )


def rows_of(shape: tuple[int, ...], dtype: str, counts: list[int], before: int = 0) -> stoker.Ragged:
    """Return rows with these counts of elements, after some elements that belong to no row."""
    ends = np.cumsum([before, *counts])
    values = (np.arange(int(ends[-1]) * int(np.prod(shape, dtype=int))) % 251).astype(dtype)
    return stoker.Ragged(values.reshape(-1, *shape), ends)


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "u2", "u4", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("before", [0, 5])
def test_padded(dtype: str, shape: tuple[int, ...], before: int) -> None:
    counts = [3, 0, 7, 1]
    ragged = rows_of(shape, dtype, counts, before)
    out = ragged.padded()
    assert out.shape == (4, 7, *shape)
    assert out.dtype == ragged.dtype
    for row, want in zip(out, ragged, strict=True):
        assert (row[: len(want)] == want).all()
        assert not row[len(want) :].any()
    assert ragged.padded(multiple=4).shape == (4, 8, *shape)
    assert ragged.padded(length=9).shape == (4, 9, *shape)
    cut = ragged.padded(1, length=2, truncate=True)
    for row, want in zip(cut, ragged, strict=True):
        assert (row[: len(want)] == want[:2]).all()
        assert (row[len(want) :] == 1).all()
    # A part of the rows has its own longest one.
    assert ragged[:2].padded().shape == (2, 3, *shape)
    assert ragged[1:2].padded().shape == (1, 0, *shape)
    assert ragged[4:].padded(length=3).shape == (0, 3, *shape)


def test_padded_refuses() -> None:
    ragged = rows_of((), "u2", [3, 9])
    with pytest.raises(stoker.ConfigError, match="a row has 9 elements, more than length=8; truncate=True"):
        ragged.padded(length=8)
    with pytest.raises(stoker.ConfigError, match="multiple=0"):
        ragged.padded(multiple=0)
    with pytest.raises(stoker.ConfigError, match="length=-1"):
        ragged.padded(length=-1)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "uint16", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(), (4,)])
def test_padded_in_torch(dtype: str, shape: tuple[int, ...]) -> None:
    torch: Any = pytest.importorskip("torch")
    plain = rows_of(shape, "f4", [3, 0, 7], 2)
    ragged = stoker.Ragged(torch.from_numpy(plain.values).to(getattr(torch, dtype)), torch.from_numpy(plain.offsets))
    out = ragged.padded(1, multiple=8)
    assert out.dtype == getattr(torch, dtype)
    assert out.shape == (3, 8, *shape)
    for row, want in zip(out, ragged, strict=True):
        assert row[: len(want)].tolist() == want.tolist()
        assert row[len(want) :].float().eq(1).all()


@pytest.mark.parametrize("numpy", [True, False])
def test_nested(numpy: bool) -> None:
    torch: Any = pytest.importorskip("torch")
    ragged = rows_of((4,), "f4", [3, 0, 7, 1], 2)
    if not numpy:
        ragged = stoker.Ragged(torch.from_numpy(ragged.values), torch.from_numpy(ragged.offsets))
    for part in (ragged, ragged[1:3]):
        nested = part.nested()
        assert nested.layout == torch.jagged
        assert [t.tolist() for t in nested.unbind()] == [v.tolist() for v in part]
    # Over the same memory.
    ragged.values[2, 0] = 77
    assert ragged.nested()[0][0, 0] == 77


def test_slices_and_pickles() -> None:
    ragged = rows_of((2,), "i4", [1, 2, 3])
    assert ragged.row_shape == (2,)
    assert [v.shape for v in ragged[1:]] == [(2, 2), (3, 2)]
    again = pickle.loads(pickle.dumps(ragged))
    assert [v.tolist() for v in again] == [v.tolist() for v in ragged]


def strings(texts: list[str], before: str = "") -> stoker.Strings:
    data = [before.encode(), *(t.encode() for t in texts)]
    return stoker.Strings(
        stoker.Ragged(np.frombuffer(b"".join(data), np.uint8), np.cumsum([len(d) for d in data], dtype=np.int64))
    )


@pytest.mark.parametrize("texts", [["a", "", "bcd"], ["ä", "", "日本", "x"], [], [""]])
@pytest.mark.parametrize("before", ["", "ö?"])
def test_strings(texts: list[str], before: str) -> None:
    view = strings(texts, before)
    assert len(view) == len(texts)
    assert view.tolist() == texts
    assert list(view) == texts
    assert [view[i] for i in range(len(texts))] == texts
    assert view[1:].tolist() == texts[1:]
    assert pickle.loads(pickle.dumps(view)).tolist() == texts
    assert view.copy().tolist() == texts
    for text in texts:
        assert text in view
        assert texts.index(text) == view.index(text)
    with pytest.raises(IndexError, match=f"row {len(texts)} of {len(texts)}"):
        view[len(texts)]
