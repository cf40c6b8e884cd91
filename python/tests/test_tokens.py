"""Files of tokens as others write them, and sequences that are cut out of documents while they are loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from support import cli

Make = Callable[..., stoker.Loader]


def write_megatron(prefix: Path, documents: list[np.ndarray], code: int) -> None:
    """Write a pair of files as Megatron-LM's IndexedDatasetBuilder does."""
    np.concatenate(documents).tofile(f"{prefix}.bin")
    lengths = np.array([len(d) for d in documents], "<i4")
    ends = np.cumsum(lengths, dtype="<i8") * documents[0].itemsize
    with open(f"{prefix}.idx", "wb") as f:
        f.write(b"MMIDIDX\x00\x00" + np.array([1], "<u8").tobytes() + np.array([code], "u1").tobytes())
        np.array([len(lengths), len(lengths) + 1], "<u8").tofile(f)
        lengths.tofile(f)
        np.concatenate([np.zeros(1, "<i8"), ends[:-1]]).astype("<i8").tofile(f)
        np.arange(len(lengths) + 1, dtype="<i8").tofile(f)


def documents(n: int, dtype: str = "<u2") -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(1, 5000, rng.integers(1, 60)).astype(dtype) for _ in range(n)]


@pytest.mark.parametrize(("dtype", "code"), [("<u2", 8), ("<i4", 4), ("<i8", 5)])
def test_megatron(make: Make, binary: str, tmp_path: Path, dtype: str, code: int) -> None:
    docs = documents(40, dtype)
    write_megatron(tmp_path / "corpus", docs, code)
    pack = tmp_path / "pack"
    cli(binary, "pack", tmp_path / "corpus.idx", pack)
    for source in (tmp_path / "corpus.bin", tmp_path / "corpus.idx", pack):
        seen = 0
        for batch in make(str(source), batch_size=7, shuffle=True):
            for i, doc in zip(batch.index, batch.tokens, strict=True):
                assert np.array_equal(doc, docs[i])
                seen += 1
        assert seen == 40


def test_nanogpt(make: Make, tmp_path: Path) -> None:
    tokens = np.concatenate(documents(100))
    tokens[::37] = 0
    tokens.tofile(tmp_path / "train.bin")
    tokens[:50].tofile(tmp_path / "val.bin")
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(tokens)
    (tmp_path / "llmc.bin").write_bytes(header.tobytes() + tokens.tobytes())
    np.save(tmp_path / "tokens.npy", tokens)
    for name in ("train.bin", "llmc.bin", "tokens.npy"):
        rows = [b.tokens.copy() for b in make(f"{tmp_path}/{name}?window=64", batch_size=4)]
        assert np.array_equal(np.concatenate(rows), tokens[: len(tokens) // 64 * 64].reshape(-1, 64))
    ends = [0, *(np.flatnonzero(tokens == 0) + 1), len(tokens)]
    got = [d for b in make(f"{tmp_path}/train.bin?eot=0", batch_size=4) for d in b.tokens]
    for doc, a, z in zip(got, ends[:-1], ends[1:], strict=True):
        assert np.array_equal(doc, tokens[a:z])
    # As nanoGPT takes them.
    for name in ("train.bin", "llmc.bin", "tokens.npy"):
        loader = make(stoker.open(tmp_path / name).sequences(32, dtype="int64"), batch_size=3)
        assert loader.info["sequences"]["dropped"] == len(tokens) - 32 * loader.num_records
        for x, y in loader:
            assert x.dtype == y.dtype == np.int64
            assert np.array_equal(x[:, 1:], y[:, :-1])
        x = np.concatenate([b.input.copy() for b in loader])
        assert np.array_equal(x.ravel(), tokens[: x.size])
    (tmp_path / "tokens.npy").unlink()
    assert make(stoker.open(tmp_path).sequences(40), batch_size=1).info["sequences"]["documents"] == 3


def corpora(binary: str, tmp_path: Path) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Return the same documents in every form that sequences can be cut from."""
    pyarrow = pytest.importorskip("pyarrow")
    docs = documents(80)
    write_megatron(tmp_path / "corpus", docs, 8)
    pack = tmp_path / "pack"
    cli(binary, "pack", tmp_path / "corpus.idx", pack)
    table = pyarrow.table({"tokens": pyarrow.array([d.tolist() for d in docs], pyarrow.list_(pyarrow.uint16()))})
    with pyarrow.ipc.new_file(tmp_path / "corpus.arrow", table.schema) as f:
        f.write_table(table, max_chunksize=17)
    return docs, {"megatron": tmp_path / "corpus.bin", "pack": pack, "arrow": tmp_path / "corpus.arrow"}


def rows(loader: stoker.Loader) -> dict[int, dict[str, Any]]:
    """Return the sequences of an epoch by their number."""
    out = {}
    for batch in loader:
        for k, i in enumerate(batch.index):
            assert int(i) not in out
            out[int(i)] = {name: batch[name][k].copy().tolist() for name in list(batch.keys()) if name != "index"}
    return out


@pytest.mark.parametrize("packing", ["stream", "best-fit"])
def test_sequences_are_the_same_however_they_are_loaded(make: Make, binary: str, tmp_path: Path, packing: str) -> None:
    docs, sources = corpora(binary, tmp_path)
    options: dict[str, Any] = {
        "packing": packing,
        "fields": ["position_ids", "document_ids", "cu_seqlens", "loss_mask"],
    }

    def load(source: Any, length: int = 48, **more: Any) -> stoker.Loader:
        return make(stoker.open(source).sequences(length, **options), shuffle=True, seed=9, **more)

    want = None
    for source in sources.values():
        loader = load(source, batch_size=5)
        first, second = rows(loader), rows(loader)
        assert first != second
        want = want or (first, second)
        assert (first, second) == want
        if packing == "best-fit":
            inputs = np.concatenate([np.array(r["input"])[np.array(r["document_ids"]) >= 0] for r in first.values()])
            assert sorted(inputs.tolist()) == sorted(np.concatenate(docs).tolist())
    assert want is not None
    parts: dict[int, Any] = {}
    for rank in range(3):
        parts |= rows(load(sources["pack"], batch_size=2, ranks=stoker.Ranks(rank, 3), threads=1))
    assert parts == want[0]
    # Resumed in the second epoch, with another batch size.
    loader = load(sources["arrow"], batch_size=4)
    rows(loader)
    it = iter(loader)
    begun = {int(i) for _ in range(2) for i in next(it).index}
    state = json.loads(json.dumps(loader.state_dict()))
    other = load(sources["arrow"], batch_size=3)
    other.load_state_dict(state)
    rest = rows(other)
    assert rest == {i: r for i, r in want[1].items() if i not in begun}
    with pytest.raises(stoker.StokerError, match="other settings of bucket, sequences"):
        load(sources["arrow"], 47, batch_size=3).load_state_dict(state)


def test_a_shard_of_arrays(make: Make, tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"shard_{i}.npy", np.arange(100 * i, 100 * i + 50 + i, dtype=np.uint16))
    loader = make(stoker.open(tmp_path).sequences(10, shift=False), batch_size=4)
    tokens = np.concatenate([b.tokens.copy().ravel() for b in loader])
    want = np.concatenate([np.arange(100 * i, 100 * i + 50 + i) for i in range(3)])
    assert np.array_equal(tokens, want[:150])
    assert loader.info["sequences"]["dropped"] == 3


def test_torch(make: Make, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    write_megatron(tmp_path / "c", documents(40, "<i4"), 4)
    data = stoker.open(tmp_path / "c.bin").sequences(16, packing="best-fit", fields=["cu_seqlens"], dtype="int64")
    loader = make(data, batch_size=4, output="torch")
    for batch in loader:
        assert batch.input.dtype == torch.int64 and batch.loss_mask.dtype == torch.bool
        table = torch.nn.functional.embedding(batch.input, torch.zeros(5000, 2))
        assert table.shape == (len(batch.input), 16, 2)
        assert all(row[0] == 0 and row[-1] == 16 for row in batch.cu_seqlens)


def test_refused(make: Make, tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "train.bin")
    (tmp_path / "x.csv").write_text("a\n1\n2\n")
    source = tmp_path / "train.bin"
    for message, options in {
        "less than one sequence of 200": {"length": 200},
        "unknown packing": {"length": 20, "packing": "first"},
        "sequences have no field": {"length": 20, "fields": ["mask"]},
        "must be a list of names": {"length": 20, "fields": "loss_mask"},
        'cannot be "float32"': {"length": 20, "dtype": "float32"},
    }.items():
        with pytest.raises(stoker.ConfigError, match=message):
            make(stoker.open(source).sequences(**options), batch_size=1)
    with pytest.raises(stoker.StokerError, match="no field of tokens"):
        make(stoker.open(tmp_path / "x.csv").sequences(5), batch_size=1)


def test_bad_sequences_are_replaced(make: Make, tmp_path: Path) -> None:
    tokens = np.arange(1000, dtype=np.uint32)
    tokens[215] = 2**31  # of sequence 21
    tokens.tofile(tmp_path / "x.bin")
    loader = make(
        stoker.open(f"{tmp_path}/x.bin?dtype=uint32").sequences(10, shift=False, dtype="int32"),
        batch_size=9,
        on_error="skip",
    )
    for _ in range(2):  # in the second epoch as in the first
        with pytest.warns(stoker.SkippedRecords, match="sequence 21 of epoch|1 record"):
            got = [b.tokens.copy() for b in loader]
        values = np.concatenate(got)
        assert np.array_equal(values[21], np.arange(220, 230)) and np.array_equal(values[22], values[21])


def test_restored_at_a_billion(make: Make, tmp_path: Path) -> None:
    """A position far into an epoch is one more position: nothing before it is read or counted."""
    path = tmp_path / "far.bin"
    with path.open("wb") as f:
        f.truncate(2 * 1_000_100_000)  # sparse
        f.seek(2 * 10**9)
        f.write(np.arange(1, 200, dtype="<u2").tobytes())
    data = stoker.open(path).sequences(1)
    loader = make(data, 8)
    loader.load_state_dict({**loader.state_dict(), "position": 10**9})
    assert next(iter(loader))["input"].ravel().tolist() == [*range(1, 9)]
    assert loader.state_dict()["position"] == 10**9 + 8
    full = [make(data, size, shuffle=True, seed=3) for size in (8, 16)]
    for each in full:
        each.load_state_dict({**each.state_dict(), "position": 10**9})
    loops = [iter(each) for each in full]
    small = [next(loops[0])["index"].tolist() for _ in range(2)]
    assert small[0] + small[1] == next(loops[1])["index"].tolist() and len({*small[0], *small[1]}) == 16
