"""LMDB with an encoded JPEG for each key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, pictures
from .torch_side import batches

COUNT = 1500


def make(folder: Path) -> None:
    import shutil

    import lmdb

    photos = folder / "photos"
    files = pictures.photographs(photos, COUNT)
    with lmdb.open(str(folder / "db"), map_size=1 << 30) as env, env.begin(write=True) as txn:
        for i, file in enumerate(files):
            txn.put(f"{i:08d}".encode(), file.read_bytes())
    shutil.rmtree(photos)


class Values:
    """The usual dataset: opened in each worker, a transaction for each value."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.env = folder, None

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int) -> Any:
        import lmdb
        import numpy as np

        if self.env is None:
            self.env = lmdb.open(str(self.folder / "db"), readonly=True, lock=False, readahead=False)
        with self.env.begin() as txn:
            return np.frombuffer(txn.get(f"{i:08d}".encode()), np.uint8)


def keep(samples: list[Any]) -> list[Any]:
    return samples


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Values(folder), batch, collate=keep)


FORMAT = Format(
    name="lmdb",
    library="lmdb in a DataLoader",
    make=make,
    url=lambda folder: f"{folder}/db?value:bytes",
    reference=reference,
    loader={"shuffle": True},
    bar=5.0,
    batch=64,
    what="1,500 JPEGs of 470 x 400, left encoded",
)
