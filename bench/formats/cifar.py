"""CIFAR-10 in its published form for Python."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    out = folder / "cifar-10-batches-py"
    out.mkdir()
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        data = {
            "batch_label": name,
            "labels": rng.integers(0, 10, 10000).tolist(),
            "data": rng.integers(0, 256, (10000, 3072), dtype=np.uint8),
            "filenames": [f"{i:05d}.png" for i in range(10000)],
        }
        (out / name).write_bytes(pickle.dumps(data, protocol=2))
    meta = {"num_cases_per_batch": 10000, "label_names": CLASSES, "num_vis": 3072}
    (out / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))


def tensor(image: Any) -> Any:
    from torchvision.transforms.v2.functional import pil_to_tensor

    return pil_to_tensor(image)


def reference(folder: Path, batch: int) -> Iterator[int]:
    from torchvision.datasets import CIFAR10

    # Its checksums are those of the published files, and these have other pixels.
    dataset = type("CIFAR10", (CIFAR10,), {"_check_integrity": lambda _: True, "_load_meta": lambda _: None})
    return batches(dataset(str(folder), transform=tensor), batch)


FORMAT = Format(
    name="cifar",
    library="torchvision's CIFAR10 in a DataLoader",
    make=make,
    url=lambda folder: str(folder / "cifar-10-batches-py") + "?split=train",
    reference=reference,
    loader={"shuffle": True},
    what="50,000 pictures of 32 x 32",
)
