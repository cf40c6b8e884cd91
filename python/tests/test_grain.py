"""A dataset is a source of Grain (``RandomAccessDataSource``): len, [i], repr, pickle. make test-cluster runs this."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import stoker

grain = pytest.importorskip("grain", reason="needs Grain")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Grain


def test_dataset_is_a_source(photos: Path) -> None:
    data = stoker.open(photos)
    assert isinstance(data, grain.sources.RandomAccessDataSource)
    assert len(pickle.loads(pickle.dumps(data))) == len(data) == 203
    assert repr(data) == repr(stoker.open(photos))
    labels = [int(data[i]["label"]) for i in range(len(data))]
    chain = grain.MapDataset.source(data).seed(3).shuffle().map(lambda record: int(record["label"]))
    assert sorted(chain) == sorted(labels)
    rows = iter(chain.to_iter_dataset())
    before = [next(rows) for _ in range(20)]
    state = rows.get_state()
    rest = list(rows)
    rows.set_state(state)
    assert list(rows) == rest and sorted(before + rest) == sorted(labels)


def test_loader_of_grain(photos: Path) -> None:
    data = stoker.open(photos)
    sampler = grain.samplers.IndexSampler(len(data), shuffle=True, seed=1, num_epochs=1)
    loader = grain.DataLoader(data_source=data, sampler=sampler, worker_count=0)
    assert sorted(int(r["label"]) for r in loader) == sorted(int(r["label"]) for r in data)
