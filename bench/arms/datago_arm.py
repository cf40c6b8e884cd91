"""datago (Rust). It has no RandomResizedCrop: it crops the centre to a square and resizes it, so its figure is for
different, lighter work and is in no ratio."""

from __future__ import annotations

import importlib.metadata
import json

import numpy as np
from datago import DatagoClient, initialize_logging

from .harness import Job, Stream, main


def open_stream(job: Job) -> Stream:
    initialize_logging(log_level="error")
    numbers = {path: number for number, path in enumerate(job.files())}
    config = {
        "source_type": "file",
        "source_config": {"root_path": job.data, "random_sampling": True, "rank": 0, "world_size": 1},
        "image_config": {
            "crop_and_resize": True,
            "default_image_size": job.size,
            "downsampling_ratio": 32,
            "min_aspect_ratio": 1.0,
            "max_aspect_ratio": 1.0,
            "pre_encode_images": False,
            "image_to_rgb8": True,
        },
        "limit": len(numbers),
        "prefetch_buffer_size": job.batch,
        "samples_buffer_size": job.batch,
    }
    images = np.empty((job.batch, job.size, job.size, 3), np.uint8)
    ids = np.empty(job.batch, np.int64)
    row = 0
    while True:
        client = DatagoClient(json.dumps(config))
        while (sample := client.get_sample()) is not None and getattr(sample, "id", ""):
            images[row] = sample.image.to_numpy_array()
            ids[row] = numbers.get(sample.id.strip('"'), -1)
            row += 1
            if row == job.batch:
                yield images, ids
                images, ids, row = np.empty_like(images), np.empty_like(ids), 0
        if job.epochs:
            if row:
                yield images[:row], ids[:row]
            return


def facts() -> dict[str, object]:
    return {"versions": {"datago": importlib.metadata.version("datago")}}


if __name__ == "__main__":
    main("datago", open_stream, facts)
