"""TensorFlow's tensors over the engine's memory, in processes of their own: it starts threads, and other tests fork."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support import SOURCE

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)

HEAD = """
import gc, sys
import numpy as np, tensorflow as tf
import stoker
from stoker.tf import batches, dataset
OPS = {"image": [stoker.transforms.RandomCrop(24)]}
def loader(source=sys.argv[1], size=16, **more):
    options = {"transforms": OPS, "shuffle": True, "limits": stoker.Limits(prefetch=4)} | more
    return stoker.Loader(source, size, **options)
def same(got, want, names=("image", "label")):
    return all(np.array_equal(np.asarray(got[n]), want[n]) for n in names)
"""


def run(source: Path, program: str, **variables: str) -> None:
    code = HEAD + textwrap.dedent(program) + "\nprint('good')"
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code, str(source)],
        capture_output=True, text=True, timeout=180, check=False,
        env={**os.environ, "PYTHONPATH": SOURCE, "TF_CPP_MIN_LOG_LEVEL": "3", **variables},
    )  # fmt: skip
    assert done.stdout.endswith("good\n"), done.stderr


def test_eager_tensors_share_the_memory(photos: Path) -> None:
    run(
        photos,
        """
        plain, ours = loader(), loader()
        for want, got in zip(plain, batches(ours), strict=True):
            assert got["image"].dtype == tf.uint8 and same(got, want)
            assert ours._connection.held == 1
        del got
        gc.collect()
        assert ours._connection.held == 0
        kept = list(batches(ours, fields=["image"]))  # more than there is room for
        assert [*kept[0]] == ["image"] and all(same(k, w, ["image"]) for k, w in zip(kept, plain, strict=True))
        """,
    )


def test_dataset(photos: Path) -> None:
    """Each pass is the next epoch, a batch kept too long is a copy, and a state continues."""
    run(
        photos,
        """
        plain, ours = loader(), loader()
        data = dataset(ours)
        assert data.cardinality() == len(ours) and data.element_spec["image"].shape == (None, 24, 24, 3)
        for epoch in range(2):
            got = list(data)
            assert len(got) == len(ours)
            assert all(same(g, w) for g, w in zip(got, plain, strict=True))
        held = [ours._connection.held for _ in data.prefetch(2)]
        assert max(held) > 1  # the engine's memory, as it is
        for _ in plain: pass
        data = data.map(lambda batch: batch["label"]).prefetch(8)
        for epoch in range(2):
            assert all(np.array_equal(g, w.label) for g, w in zip(data, plain, strict=True))
        first = loader()
        it = iter(first)
        [next(it) for _ in range(3)]
        second, whole = loader(), [b.copy() for b in loader()]
        second.load_state_dict(first.state_dict())
        rest = list(dataset(second))
        assert len(rest) == len(whole) - 3 and all(same(g, w) for g, w in zip(rest, whole[3:], strict=True))
        """,
    )


def test_rows_of_different_lengths_and_texts(tmp_path: Path) -> None:
    lines = [f'{{"text": "t{i}", "tokens": {list(range(i % 5))}, "x": {i}}}\n' for i in range(20)]
    (tmp_path / "x.jsonl").write_text("".join(lines))
    run(
        tmp_path / "x.jsonl",
        """
        ours = loader(sys.argv[1] + "?text:text&tokens:ragged&x:int", 6, transforms=None, shuffle=False)
        for make in (batches, dataset):
            i = 0
            for batch in make(ours):
                for text, tokens, x in zip(batch["text"].numpy(), batch["tokens"].to_list(), batch["x"].numpy()):
                    assert (text, tokens, x) == (f"t{i}".encode(), list(range(i % 5)), i)
                    i += 1
            assert i == 20
        """,
    )


def test_what_goes_wrong(photos: Path) -> None:
    run(
        photos,
        """
        def refused(make, what):
            try:
                make()
            except stoker.ConfigError as error:
                assert what in str(error), error
            else:
                raise AssertionError(what)
        refused(lambda: dataset(loader(), fields=["picture"]), "no array 'picture'")
        refused(lambda: next(batches(loader(), fields=["picture"])), "no array 'picture'")
        refused(lambda: dataset(loader(batch_map=lambda b: b, workers=0)), "which map= decides")
        ours = loader()
        data = iter(dataset(ours))
        next(data)
        ours.close()
        try:
            for _ in data: pass
        except tf.errors.OpError as error:
            assert "the loader was closed" in str(error), error
        else:
            raise AssertionError
        """,
    )


def test_keras(photos: Path) -> None:
    pytest.importorskip("keras")
    run(
        photos,
        """
        import keras
        from stoker.keras import Dataset
        model = keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(4)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        ours = loader()
        model.fit(Dataset(ours), epochs=2, verbose=0)
        assert ours.epoch == 2
        """,
        KERAS_BACKEND="tensorflow",
    )
