"""Datasets of Hugging Face whose batches are gathered from their table: equal to torch's, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
hf = pytest.importorskip("datasets")

import pyarrow as pa  # noqa: E402
import torch.utils.data as tud  # noqa: E402

from stoker.torch import DataLoader  # noqa: E402
from stoker.torch._recognise import _tables, plan  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", r"ignore:os\.fork\(\) was called")
ROWS = 101


def tokens(n: int = ROWS) -> Any:
    rng = np.random.default_rng(1)
    return hf.Dataset.from_dict(
        {"input_ids": rng.integers(0, 50_000, (n, 32)).tolist(), "labels": rng.integers(0, 4, n).tolist()}
    )


def numbers(n: int = ROWS) -> Any:
    rng = np.random.default_rng(2)
    kinds = ("int8", "int16", "int32", "int64", "uint8", "uint16", "float32", "float64", "bool")
    columns = {k: rng.integers(0, 2 if k == "bool" else 100, n).astype(k) for k in kinds}
    columns["float64"] += 1 / 3
    features = hf.Features({k: hf.Value(k) for k in kinds} | {"label": hf.ClassLabel(names=["a", "b"])})
    return hf.Dataset.from_dict(columns | {"label": rng.integers(0, 2, n)}, features=features)


def pieces(n: int = ROWS) -> Any:
    """A table of many pieces, like those of files. Some pieces are cut."""
    parts = [tokens(n), tokens(n).select(range(7, 40)), tokens(3)]
    return hf.concatenate_datasets(parts)


def from_disk(tmp_path: Path) -> Any:
    tokens().save_to_disk(str(tmp_path / "saved"), num_shards=3)
    return hf.load_from_disk(str(tmp_path / "saved"))


def fixed(n: int = ROWS) -> Any:
    features = hf.Features({"x": hf.Sequence(hf.Value("float32"), length=5), "y": hf.Value("int64")})
    return hf.Dataset.from_dict({"x": np.arange(5.0 * n).reshape(n, 5), "y": range(n)}, features=features)


def arrays(n: int = ROWS) -> Any:
    """Arrays of several sides, as a type of their own and as lists in lists."""
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 255, (n, 4, 6)).astype("uint8"), rng.random((n, 2, 3, 4), np.float32)
    features = hf.Features(
        {"x": hf.Array2D((4, 6), "uint8"), "y": hf.Array3D((2, 3, 4), "float32"),
         "z": hf.Sequence(hf.Sequence(hf.Value("int64"))), "w": hf.Array2D((None, 3), "float64")}
    )  # fmt: skip
    columns = {"x": x.tolist(), "y": y.tolist(), "z": x[:, :2, :3].tolist(), "w": y[:, 0, :, :3].tolist()}
    return hf.Dataset.from_dict(columns, features=features)


CASES: dict[str, Callable[[], Any]] = {
    "tokens": lambda: tokens().with_format("torch"),
    "tokens, numpy": lambda: tokens().with_format("numpy"),
    "tokens, one column": lambda: tokens().with_format("torch", columns=["input_ids"]),
    "numbers": lambda: numbers().with_format("torch"),
    "numbers, numpy": lambda: numbers().with_format("numpy"),
    "numbers, python": lambda: numbers(),
    "shuffled": lambda: tokens().shuffle(seed=1).with_format("torch"),
    "selected": lambda: tokens().select([5, 3, 3, 99]).with_format("torch"),
    "filtered": lambda: tokens().with_format("torch").filter(lambda r: r["labels"] > 1),
    "pieces": lambda: pieces().with_format("torch"),
    "split": lambda: tokens().train_test_split(0.3, seed=1)["train"].with_format("torch"),
    "fixed": lambda: fixed().with_format("torch"),
    "arrays": lambda: arrays().with_format("torch"),
    "arrays, numpy": lambda: arrays().select(range(5, 60)).with_format("numpy"),
    "mapped": lambda: tokens().map(lambda r: {"n": sum(r["input_ids"])}).with_format("torch"),
    "renamed": lambda: tokens().rename_column("labels", "y").remove_columns([]).with_format("torch"),
}


def same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs) and list(ours) == list(theirs)
    for name, want in theirs.items():
        got = ours[name]
        assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride()), name
        assert torch.equal(got, want), name


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("small", [True, False])
def test_batches_equal_torchs(case: str, workers: int, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not small:
        monkeypatch.setattr(_tables, "_SMALL_COLUMN", 0)
    arguments = {"batch_size": 9, "shuffle": True, "num_workers": workers}
    torch.manual_seed(3)
    theirs = tud.DataLoader(CASES[case](), **arguments)
    expected = [*theirs, *theirs]
    after = torch.rand(2)
    torch.manual_seed(3)
    ours = DataLoader(CASES[case](), **arguments)
    got = [*ours, *ours]
    assert torch.equal(torch.rand(2), after)
    assert "gathered" in ours.explain()
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        same(a, b)


def test_from_files_and_states(tmp_path: Path) -> None:
    data = from_disk(tmp_path).with_format("torch")
    expected = list(tud.DataLoader(data, 8))
    loader = DataLoader(data, 8)
    batches = iter(loader)
    for want in expected[:4]:
        same(next(batches), want)
    again = DataLoader(data, 8)
    again.load_state_dict(loader.state_dict())
    for got, want in zip(again, expected[4:], strict=True):
        same(got, want)


def test_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tokens().with_format("torch")
    for arguments in (
        {"sampler": tud.WeightedRandomSampler(torch.ones(ROWS), 20, generator=torch.Generator().manual_seed(1))},
        {"batch_sampler": [[1], [2, 3], [np.int64(5), 6], [7] * 50]},
    ):
        theirs, ours = list(tud.DataLoader(data, **arguments)), DataLoader(data, **arguments)
        if "sampler" in arguments:
            arguments["sampler"].generator.manual_seed(1)
            theirs = list(tud.DataLoader(data, **arguments))
            arguments["sampler"].generator.manual_seed(1)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    for nonsense in (["a"], [None], [ROWS], [1.5], [-1], [True], []):
        try:
            (want,) = list(tud.DataLoader(data, batch_sampler=[nonsense]))
        except Exception as error:
            with pytest.raises(type(error)):
                list(DataLoader(data, batch_sampler=[nonsense]))
        else:
            (got,) = list(DataLoader(data, batch_sampler=[nonsense]))
            same(got, want)


class Mine(hf.Dataset):
    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key)


def test_what_is_not_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(data: Any, **arguments: Any) -> str:
        answer = plan(DataLoader(data, 4, **arguments))
        assert isinstance(answer, str), "it is recognised"
        return answer

    good = tokens().with_format("torch")
    assert "function of the program" in said(tokens().with_transform(lambda batch: batch))
    assert "options of its format" in said(tokens().with_format("torch", dtype=torch.int32))
    assert "options of its format" in said(tokens().with_format("torch", columns=["labels"], output_all_columns=True))
    assert "different lengths" in said(hf.Dataset.from_dict({"x": [[1], [1, 2]] * 20}).with_format("torch"))
    assert "empty values" in said(hf.Dataset.from_dict({"x": [1, None] * 20}).with_format("torch"))
    assert "empty values" in said(hf.Dataset.from_dict({"x": [[1, None]] * 20}).with_format("torch"))
    assert "values of string" in said(hf.Dataset.from_dict({"x": ["a"] * 20}).with_format("torch"))
    assert "uint64" in said(hf.Dataset(pa.table({"x": pa.array([1] * 20, pa.uint64())})).with_format("torch"))
    assert "column 'x'" in said(hf.Dataset.from_dict({"x": [{"a": 1}] * 20}).with_format("torch"))
    assert "makes a list" in said(tokens())  # of lists of numbers, torch makes a list of tensors
    big = {"x": np.zeros((3, 10_000)).tolist()}
    assert "64 KiB" in said(hf.Dataset.from_dict(big).with_format("torch"))
    assert "collate_fn" in said(good, collate_fn=lambda b: b)
    assert "worker_init_fn" in said(good, num_workers=1, worker_init_fn=print)
    answer = plan(DataLoader(good, batch_size=None))
    assert isinstance(answer, str) and "no batch sampler" in answer
    mine = tokens().with_format("torch")
    mine.__class__ = Mine
    assert "Mine" in said(mine)
    odd = tokens().with_format("torch")
    odd.__getitems__ = lambda keys: []  # type: ignore[method-assign]
    assert "replaced" in said(odd)
    for name in ("__getitems__", "_getitem", "__len__"):
        with monkeypatch.context() as patch:
            patch.setattr(hf.Dataset, name, lambda self, *a, **k: 5)
            assert "replaced" in said(good), name
    formatter = hf.formatting.TorchFormatter
    with monkeypatch.context() as patch:
        own = formatter.format_batch
        patch.setattr(formatter, "format_batch", lambda self, table: {k: v + 1 for k, v in own(self, table).items()})
        assert "format_batch was replaced" in said(good)
    features = hf.Features({"x": hf.Array2D((None, 2), "float32")})
    grid = hf.Dataset.from_dict({"x": [np.zeros((1 + i % 2, 2)).tolist() for i in range(20)]}, features=features)
    assert "different lengths" in said(grid.with_format("torch"))
    assert "different lengths" in said(hf.Dataset.from_dict({"x": [[[1], [1, 2]]] * 20}).with_format("torch"))


def test_changes_between_epochs_are_seen() -> None:
    data = tokens()
    data.set_format("torch")
    loader = DataLoader(data, 4)
    assert set(next(iter(loader))) == {"input_ids", "labels"}
    data.set_format("numpy", columns=["labels"])
    assert set(next(iter(loader))) == {"labels"}
    data.set_transform(lambda batch: {"x": [1] * len(batch["labels"])})
    assert next(iter(loader))["x"].tolist() == [1] * 4
