"""tf.data: read_file, decode_and_crop_jpeg (it decodes only the crop's rows and columns), resize, flip.

--workers 0 is AUTOTUNE. --option antialias=1 resizes as every other arm does; TensorFlow's default does not antialias.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

from .harness import Job, Stream, main


def open_stream(job: Job) -> Stream:
    antialias = job.options.get("antialias") == "1"
    size = (job.size, job.size)

    def load(path: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        data = tf.io.read_file(path)
        shape = tf.io.extract_jpeg_shape(data)
        if job.geometry == "random":
            begin, extent, _ = tf.image.sample_distorted_bounding_box(
                shape,
                tf.zeros([1, 0, 4]),
                min_object_covered=0.0,
                aspect_ratio_range=job.ratio,
                area_range=job.scale,
                max_attempts=10,
                use_image_if_no_bounding_boxes=True,
            )
            y, x, _ = tf.unstack(begin)
            h, w, _ = tf.unstack(extent)
        else:
            h = w = tf.minimum(shape[0], shape[1])
            y, x = (shape[0] - h) // 2, (shape[1] - w) // 2
        image = tf.image.decode_and_crop_jpeg(
            data, tf.stack([y, x, h, w]), channels=3, dct_method=job.options.get("dct", "")
        )
        image = tf.image.resize(image, size, method="bilinear", antialias=antialias)
        if job.flip:
            image = tf.image.random_flip_left_right(image)
        return tf.cast(image, tf.uint8), number

    workers = job.workers or tf.data.AUTOTUNE
    tf.random.set_seed(job.seed)
    options = tf.data.Options()
    # tf.data's faster mode, at the price of the order; see the column "same seed, same batches".
    options.deterministic = job.options.get("deterministic") == "1"
    if job.geometry == "none":
        records = np.load(job.data, mmap_mode=None)
        count = len(records)
        data = tf.data.Dataset.from_tensor_slices((records, np.arange(count)))
    else:
        files = job.files()
        count = len(files)
        data = tf.data.Dataset.from_tensor_slices((files, np.arange(count)))
    data = data.shuffle(count, seed=job.seed, reshuffle_each_iteration=True)
    if not job.epochs:
        data = data.repeat()
    if job.geometry != "none":
        data = data.map(load, num_parallel_calls=workers, deterministic=options.deterministic)
    data = data.batch(job.batch, drop_remainder=job.epochs == 0).prefetch(tf.data.AUTOTUNE).with_options(options)
    yield from data.as_numpy_iterator()


def facts() -> dict[str, object]:
    return {"versions": {"tensorflow": tf.__version__}}


if __name__ == "__main__":
    main("tf.data", open_stream, facts)
