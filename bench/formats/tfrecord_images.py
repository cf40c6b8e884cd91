"""The TFRecord files of tfrecord.py with their images decoded, cropped and flipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, pictures, tfrecord


def reference(folder: Path, batch: int) -> Iterator[int]:
    data = tfrecord.dataset(folder)
    import tensorflow as tf

    wanted = tfrecord.features()

    def load(record: Any) -> tuple[Any, Any]:
        got = tf.io.parse_single_example(record, wanted)
        begin, extent, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(got["image/encoded"]),
            tf.zeros([1, 0, 4]),
            min_object_covered=0.0,
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], extent[:2]], 0)
        image = tf.image.decode_and_crop_jpeg(got["image/encoded"], window, channels=3)
        image = tf.image.resize(image, (pictures.SIZE, pictures.SIZE), method="bilinear", antialias=True)
        image = tf.image.random_flip_left_right(image)
        return tf.cast(image, tf.uint8), got["image/class/label"]

    data = data.map(load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    for _, labels in data.batch(batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE):
        yield len(labels.numpy())


FORMAT = Format(
    name="tfrecord images",
    library="tf.data, decode_and_crop_jpeg",
    make=tfrecord.make,
    url=lambda folder: f"{folder}?image:image=image/encoded&label:label=image/class/label",
    reference=reference,
    loader={"shuffle": True, "transforms": pictures.fields},
    bar=5.0,
    batch=64,
    env="tf",
    what="1,500 JPEGs of 470 x 400 in Examples, RandomResizedCrop(224), flip",
)
