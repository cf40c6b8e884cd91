"""LitData's chunks, with JPEGs as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, mds, pictures


def make(folder: Path) -> None:
    import shutil

    import numpy as np
    from litdata.streaming.writer import BinaryWriter

    photos, out = folder / "photos", folder / "train"
    files = pictures.photographs(photos, mds.COUNT)
    out.mkdir()
    writer = BinaryWriter(str(out), chunk_bytes=1 << 25)
    for i, file in enumerate(files):
        label = int(file.parent.name.rpartition("-")[2])
        writer.add_item(i, {"image": file.read_bytes(), "label": label, "box": np.arange(4, dtype=np.float32)})
    writer.done()
    writer.merge()
    shutil.rmtree(photos)


def reference(folder: Path, batch: int) -> Iterator[int]:
    import torch
    from litdata import StreamingDataLoader, StreamingDataset

    torch.set_num_threads(1)
    data: Any = StreamingDataset(str(folder / "train"), shuffle=True, drop_last=True)
    loader = StreamingDataLoader(
        data, batch_size=batch, num_workers=2, collate_fn=mds.collate, persistent_workers=True, prefetch_factor=4
    )
    while True:
        for images, _ in loader:
            yield len(images)


FORMAT = Format(
    name="litdata",
    library="litdata",
    make=make,
    url=lambda folder: f"{folder}/train?image:bytes&label&box",
    reference=reference,
    loader={"shuffle": True},
    bar=3.0,
    batch=64,
    env="side",
    what="1,500 JPEGs of 470 x 400, left encoded, with a label and a box",
)
