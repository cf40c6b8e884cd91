"""SPDL's thread pipeline.

--decode ffmpeg            its own decoder, with a crop, scale and flip filter built for each image
--decode cv2 | simplejpeg  another decoder that releases the interpreter lock, in the same pipeline
"""

from __future__ import annotations

import importlib.metadata
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from .augment import Lazy, crop_box
from .harness import Job, Stream, main


def order(files: list[str], job: Job) -> Iterator[tuple[str, int]]:
    epoch = 0
    while not job.epochs or epoch < job.epochs:
        numbers = list(range(len(files)))
        random.Random(job.seed + epoch).shuffle(numbers)
        for number in numbers:
            yield files[number], number
        epoch += 1


def open_stream(job: Job) -> Stream:
    files = job.files()
    if job.decode == "ffmpeg":

        def one(record: tuple[str, int]) -> tuple[Any, int]:
            packets = spdl.io.demux_image(record[0])
            x, y, w, h = crop_box(packets.width, packets.height, job)
            flip = "hflip," if random.random() < job.flip else ""
            what = (
                f"crop={w}:{h}:{x}:{y}:exact=1,scale={job.size}:{job.size}:flags=bilinear,{flip}format=pix_fmts=rgb24"
            )
            return spdl.io.decode_packets(packets, filter_desc=what), record[1]

        def batch(records: list[tuple[Any, int]]) -> tuple[np.ndarray, np.ndarray]:
            frames, numbers = zip(*records, strict=True)
            return np.asarray(spdl.io.to_numpy(spdl.io.convert_frames(list(frames)))), np.array(numbers)
    else:
        decode = Lazy(job)

        def one(record: tuple[str, int]) -> tuple[Any, int]:
            with open(record[0], "rb") as f:
                return decode(f.read()), record[1]

        def batch(records: list[tuple[Any, int]]) -> tuple[np.ndarray, np.ndarray]:
            images, numbers = zip(*records, strict=True)
            return np.stack(images), np.array(numbers)

    builder = PipelineBuilder().add_source(order(files, job)).pipe(one, concurrency=job.workers)
    builder = builder.aggregate(job.batch, drop_last=job.epochs == 0).pipe(batch).add_sink(2)
    # One thread more than decoding tasks, for the batches.
    pipeline = builder.build(num_threads=job.workers + 1)
    with pipeline.auto_stop():
        yield from pipeline


def facts() -> dict[str, object]:
    return {"versions": {"spdl": importlib.metadata.version("spdl")}}


if __name__ == "__main__":
    main("spdl", open_stream, facts)
