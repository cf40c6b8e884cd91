"""TurboLoader's fused path over a tar of JPEGs: decode, RandomResizedCrop and flip in C++, batches of float32.

--data is one tar file, whose members are in the order of the record numbers.
"""

from __future__ import annotations

import importlib.metadata

import numpy as np
import turboloader

from .harness import Job, Stream, main


def open_stream(job: Job) -> Stream:
    loader = turboloader.DataLoader(
        job.data,
        batch_size=job.batch,
        num_workers=job.workers,
        shuffle=True,
        seed=job.seed,
        image_size=job.size,
        output_format="numpy",
        antialias=True,
        train_aug=job.geometry == "random",
        drop_last=job.epochs == 0,
    )
    epoch = 0
    while not job.epochs or epoch < job.epochs:
        loader.set_epoch(epoch)
        for images, more in loader:
            yield images, np.asarray(more["indices"])
        epoch += 1


def facts() -> dict[str, object]:
    return {"versions": {"turboloader": importlib.metadata.version("turboloader")}}


if __name__ == "__main__":
    main("turboloader", open_stream, facts)
