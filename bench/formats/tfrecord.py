"""TFRecord files of tf.train.Example with encoded images, without conversion."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, pictures

SHARDS = 4


def make(folder: Path) -> None:
    import shutil

    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    photos = folder / "photos"
    files = pictures.photographs(photos)
    for shard in range(SHARDS):
        with tf.io.TFRecordWriter(str(folder / f"train-{shard:05d}-of-{SHARDS:05d}.tfrecord")) as out:
            for file in files[shard::SHARDS]:
                label = int(file.parent.name.rpartition("-")[2])
                values = {
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[file.read_bytes()])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                    "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[file.name.encode()])),
                    "image/object/bbox": tf.train.Feature(float_list=tf.train.FloatList(value=[0, 0, 0.5, 1])),
                }
                out.write(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())
    shutil.rmtree(photos)


def dataset(folder: Path) -> Any:
    """The records in random order, read by several threads: how TensorFlow's guides have it."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    options = tf.data.Options()
    options.deterministic = False
    files = tf.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=True).repeat()
    data = files.interleave(tf.data.TFRecordDataset, cycle_length=SHARDS, num_parallel_calls=tf.data.AUTOTUNE)
    return data.shuffle(512).with_options(options)


def features() -> dict[str, Any]:
    import tensorflow as tf

    return {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/object/bbox": tf.io.FixedLenFeature([4], tf.float32),
    }


def reference(folder: Path, batch: int) -> Iterator[int]:
    data = dataset(folder)
    import tensorflow as tf

    wanted = features()
    data = data.batch(batch, drop_remainder=True)
    data = data.map(lambda records: tf.io.parse_example(records, wanted), num_parallel_calls=tf.data.AUTOTUNE)
    for got in data.prefetch(tf.data.AUTOTUNE):
        yield len(got["image/class/label"].numpy())


FORMAT = Format(
    name="tfrecord",
    library="tf.data, parse_example",
    make=make,
    url=lambda folder: f"{folder}?image:bytes=image/encoded&label:label=image/class/label&box=image/object/bbox",
    reference=reference,
    loader={"shuffle": True},
    bar=5.0,
    batch=64,
    env="tf",
    what="1,500 JPEGs of 470 x 400 in Examples, parsed and left encoded",
)
