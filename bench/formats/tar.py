"""webdataset's shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, pictures

SHARDS = 4


def make(folder: Path) -> None:
    import shutil

    import webdataset as wds

    photos = folder / "photos"
    files = pictures.photographs(photos)
    for shard in range(SHARDS):
        with wds.TarWriter(str(folder / f"train-{shard:04d}.tar")) as out:
            for number, file in enumerate(files[shard::SHARDS]):
                label = int(file.parent.name.rpartition("-")[2])
                out.write({"__key__": f"{shard:02d}{number:06d}", "jpg": file.read_bytes(), "cls": label})
    shutil.rmtree(photos)


def sample(record: dict[str, Any]) -> tuple[Any, int]:
    return pictures.decoded(record["jpg"]), int(record["cls"])


def reference(folder: Path, batch: int) -> Iterator[int]:
    import torch
    import webdataset as wds

    torch.set_num_threads(1)
    shards = sorted(str(p) for p in folder.glob("*.tar"))
    data = wds.WebDataset(shards, shardshuffle=SHARDS, workersplitter=wds.split_by_worker, seed=0, empty_check=False)
    data = data.repeat().shuffle(500, seed=0).map(sample).batched(batch)
    for images, _ in wds.WebLoader(data, batch_size=None, num_workers=2, persistent_workers=True, prefetch_factor=2):
        yield len(images)


FORMAT = Format(
    name="tar",
    library="webdataset",
    make=make,
    url=lambda folder: str(folder / "train-{0000..0003}.tar"),
    reference=reference,
    loader={"shuffle": True, "transforms": pictures.fields},
    bar=3.0,
    what="1,500 JPEGs of 470 x 400 in 4 shards, RandomResizedCrop(224), flip",
    batch=64,
)
