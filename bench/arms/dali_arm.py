"""NVIDIA DALI with a pipeline that runs on the CPU alone. --workers is its num_threads."""

from __future__ import annotations

import numpy as np
import nvidia.dali
from nvidia.dali import fn, pipeline_def, types

from .harness import Job, Stream, main


def open_stream(job: Job) -> Stream:
    files = job.files()

    @pipeline_def(
        batch_size=job.batch,
        num_threads=job.workers,
        device_id=None,
        prefetch_queue_depth=int(job.options.get("prefetch", 2)),
        seed=job.seed + 1,
    )
    def pipe():  # type: ignore[no-untyped-def]
        # The reader starts in file order and shuffles everything after each epoch.
        data, number = fn.readers.file(files=files, labels=list(range(len(files))), shuffle_after_epoch=True)
        fast = {"use_fast_idct": True} if "fast" in job.options else {}
        if job.geometry == "random":
            image = fn.decoders.image_random_crop(
                data, device="cpu", output_type=types.RGB, random_area=list(job.scale),
                random_aspect_ratio=list(job.ratio), **fast,
            )  # fmt: skip
        else:
            shape = fn.peek_image_shape(data)
            height, width = shape[0], shape[1]
            side = nvidia.dali.math.min(height, width)
            start = fn.cast(fn.stack((height - side) // 2, (width - side) // 2), dtype=types.INT32)
            extent = fn.cast(fn.stack(side, side), dtype=types.INT32)
            image = fn.decoders.image_slice(
                data, start=start, shape=extent, axis_names="HW", device="cpu", output_type=types.RGB
            )
        image = fn.resize(
            image, device="cpu", resize_x=job.size, resize_y=job.size, interp_type=types.INTERP_LINEAR, antialias=True
        )
        if job.flip:
            image = fn.flip(image, horizontal=fn.random.coin_flip(probability=job.flip))
        return image, number

    pipeline = pipe()
    pipeline.build()
    while True:
        images, numbers = pipeline.run()
        yield np.asarray(images.as_tensor()), np.asarray(numbers.as_tensor()).reshape(-1)


def facts() -> dict[str, object]:
    return {"versions": {"dali": nvidia.dali.__version__}}


if __name__ == "__main__":
    main("dali", open_stream, facts)
