"""MosaicML Streaming's shards, with JPEGs as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, pictures

COUNT = 1500


def make(folder: Path) -> None:
    import shutil

    from streaming import MDSWriter

    photos = folder / "photos"
    files = pictures.photographs(photos, COUNT)
    columns = {"image": "bytes", "label": "int", "box": "ndarray:float32:4"}
    import numpy as np

    with MDSWriter(out=str(folder / "train"), columns=columns, size_limit=1 << 25) as out:
        for file in files:
            label = int(file.parent.name.rpartition("-")[2])
            out.write({"image": file.read_bytes(), "label": label, "box": np.arange(4, dtype=np.float32)})
    shutil.rmtree(photos)


def collate(samples: list[dict[str, Any]]) -> tuple[Any, Any]:
    import numpy as np

    labels = np.array([s["label"] for s in samples])
    boxes = np.stack([s["box"] for s in samples])
    return [np.frombuffer(s["image"], np.uint8) for s in samples], (labels, boxes)


def reference(folder: Path, batch: int) -> Iterator[int]:
    import torch
    from streaming import StreamingDataset

    torch.set_num_threads(1)
    data = StreamingDataset(local=str(folder / "train"), shuffle=True, batch_size=batch, num_canonical_nodes=1)
    loader = torch.utils.data.DataLoader(
        data, batch, num_workers=2, collate_fn=collate, persistent_workers=True, prefetch_factor=4, drop_last=True
    )
    while True:
        for images, _ in loader:
            yield len(images)


FORMAT = Format(
    name="mds",
    library="mosaicml-streaming",
    make=make,
    url=lambda folder: f"{folder}/train?image:bytes&label&box",
    reference=reference,
    loader={"shuffle": True},
    bar=3.0,
    batch=64,
    env="mds",
    what="1,500 JPEGs of 470 x 400, left encoded, with a label and a box",
)
