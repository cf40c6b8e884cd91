"""Fields of every kind, from a pack, through the real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import transforms as T
from support import CHECKOUT

Make = Callable[..., stoker.Loader]
PACK = CHECKOUT / "pack" / "testdata" / "golden" / "kinds"
PLAIN = [
    "blob", "label", "grid", "caption", "score", "count", "weight", "tags", "facts", "boxes", "walk", "sound",
    "document", "flags",
]  # fmt: skip
RAGGED = {"blob": "u1", "tags": "i8", "boxes": "f4", "walk": "i2", "sound": "u1", "document": "u4"}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Return the records as pyarrow reads them."""
    pa: Any = pytest.importorskip("pyarrow")
    with pa.OSFile(str(PACK / "shard-00000.arrow")) as f:
        records: list[dict[str, Any]] = pa.ipc.open_file(f).read_all().to_pylist()
    return records


def runs(row: dict[str, Any], name: str, dtype: str) -> Any:
    """Return a mask that is stored as runs (docs/reference/pack-format.md) or as plain pixels."""
    data, shape = row[name]["bytes"], (row[f"{name}_height"], row[f"{name}_width"])
    if row[f"{name}_codec"] == 16:
        return np.frombuffer(data, dtype).reshape(shape)
    assert row[f"{name}_codec"] == 18
    size, strips = data[5], -(-shape[0] // data[6])
    at, out = 16 + 4 * strips, []
    while len(out) < shape[0] * shape[1]:
        value = int.from_bytes(data[at : at + size], "little")
        at, n, shift = at + size, 0, 0
        while True:
            n |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                break
        out += [value] * (n + 1)
    return np.array(out, dtype).reshape(shape)


def test_every_plain_kind(make: Make, rows: list[dict[str, Any]]) -> None:
    seen = 0
    loader = make(stoker.open(PACK).select(*PLAIN), batch_size=4, shuffle=True, seed=1)
    assert loader.classes == ["a", "b", "c"]
    assert loader.info["classes"]["tags"] == ["sky", "road", "tree"]
    for batch in loader:
        for i, number in enumerate(batch.index.tolist()):
            want = rows[number]
            assert (batch.label[i], batch["count"][i], batch.weight[i]) == (
                want["label"],
                want["count"],
                want["weight"],
            )
            assert batch.score[i] == np.float32(want["score"])
            assert batch.grid[i].tolist() == want["grid"]
            assert batch.flags[i].tolist() == [bool(x) for x in want["flags"]]
            assert batch.caption[i] == want["caption"]
            assert json.loads(batch.facts[i]) == json.loads(want["facts"])
            assert batch.tags[i].tolist() == want["tags"]
            assert batch.walk[i].tolist() == want["walk"]
            assert batch.document[i].tolist() == want["document"]
            assert batch.boxes[i].tolist() == want["boxes"]
            assert bytes(batch.blob[i]) == want["blob"]
            assert bytes(batch.sound[i]) == want["sound"]["bytes"]
            seen += 1
        assert isinstance(batch.caption, stoker.Strings)
        assert batch.caption.tolist() == [rows[n]["caption"] for n in batch.index]
        for name, dtype in RAGGED.items():
            assert isinstance(batch[name], stoker.Ragged)
            assert batch[name].dtype == np.dtype(dtype)
        assert batch.boxes.padded().shape == (len(batch), max(batch.boxes.lengths), 4)
    assert seen == len(rows) == 9


def test_order_and_choice(make: Make) -> None:
    loader = make(PACK, batch_size=4, transforms={"left": [T.CenterCrop(4)], "words": stoker.Field("caption")})
    names = next(iter(loader)).keys()
    # Named fields come first, numbers last. Images and masks come only when they are named.
    assert names[:2] == ["left", "words"]
    assert "right" not in names
    assert "mask" not in names
    assert names[-4:] == ["label", "count", "weight", "index"]
    assert next(iter(make(stoker.open(PACK).select("caption", "weight"), batch_size=4))).keys() == [
        "caption",
        "weight",
        "index",
    ]
    assert "caption: text, boxes: float32[ragged, 4]" in repr(
        make(stoker.open(PACK).select("caption", "boxes"), batch_size=4)
    )


def test_masks(make: Make, rows: list[dict[str, Any]]) -> None:
    crop = [T.CenterCrop((3, 3))]
    for output in ("numpy", "torch"):
        if output == "torch":
            pytest.importorskip("torch")
        seen = 0
        for batch in make(PACK, batch_size=4, output=output, transforms={"mask": crop, "instances": crop}):
            assert batch.mask.shape == (len(batch), 3, 3)
            for name, dtype in (("mask", "u1"), ("instances", "u2")):
                got = np.asarray(batch[name])
                assert got.dtype == np.dtype(dtype)
                for i, number in enumerate(np.asarray(batch.index).tolist()):
                    whole = runs(rows[number], name, dtype)
                    top, left = (round((n - 3) / 2) for n in whole.shape)
                    assert (got[i] == whole[top : top + 3, left : left + 3]).all()
                    seen += 1
        assert seen == 18


def test_torch(make: Make, rows: list[dict[str, Any]]) -> None:
    torch: Any = pytest.importorskip("torch")
    batch = next(iter(make(stoker.open(PACK).select(*PLAIN), batch_size=9, output="torch")))
    assert batch.caption.tolist() == [r["caption"] for r in rows]
    assert batch.weight.dtype == torch.float64
    assert batch.document.dtype == torch.uint32
    nested = batch.boxes.nested()
    assert [t.tolist() for t in nested.unbind()] == [r["boxes"] for r in rows]
    padded = batch.tags.padded(-1, multiple=4)
    assert padded.dtype == torch.int64
    assert [[t for t in row if t >= 0] for row in padded.tolist()] == [r["tags"] for r in rows]


def test_batches_outlive_the_loader(make: Make, rows: list[dict[str, Any]]) -> None:
    loader = make(stoker.open(PACK).select(*PLAIN), batch_size=9)
    batch = next(iter(loader))
    kept, words = batch.copy(), batch.caption[2:5]
    assert loader.stats()["held"] == 1
    del batch
    assert loader.stats()["held"] == 1  # the texts still lie in the slot
    assert words.tolist() == [r["caption"] for r in rows[2:5]]
    del words
    assert loader.stats()["held"] == 0
    loader.close()
    assert kept.caption.tolist() == [r["caption"] for r in rows]


def test_refused(make: Make) -> None:
    with pytest.raises(stoker.ConfigError, match=r'field "caption" is text, which takes no operations'):
        make(PACK, batch_size=4, transforms={"caption": [T.CenterCrop(5)]})
    with pytest.raises(stoker.ConfigError, match=r'no field "captoin"; did you mean "caption"\?'):
        make(stoker.open(PACK).select("captoin"), batch_size=4)
    with pytest.raises(
        stoker.ConfigError, match=r'follow is "lfet", and there is no such output; did you mean "left"\?'
    ):
        crop = [T.CenterCrop(3)]
        make(PACK, batch_size=4, transforms={"left": crop, "mask": stoker.Field("mask", crop, follow="lfet")})
