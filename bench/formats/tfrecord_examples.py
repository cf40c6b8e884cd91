"""TFRecord files of small tf.train.Examples, as tables and logs are kept: a dozen numbers, lists and short texts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Format, tfrecord

COUNT = 200_000
INTS = ("user", "item", "hour", "clicked")
FLOATS = ("price", "age")
TEXTS = ("country", "device", "query")
WHAT = f"{COUNT:,} Examples of 1 KB: twelve features, numbers, lists of numbers, short texts; batches of {{batch}}"


def make(folder: Path) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    words = [rng.bytes(int(n)).hex().encode() for n in rng.integers(2, 9, 1000)]

    def ints(values: Any) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def floats(values: Any) -> Any:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    for shard in range(tfrecord.SHARDS):
        with tf.io.TFRecordWriter(str(folder / f"train-{shard:05d}-of-{tfrecord.SHARDS:05d}.tfrecord")) as out:
            for _ in range(COUNT // tfrecord.SHARDS):
                features = {name: ints([int(rng.integers(1 << 20))]) for name in INTS}
                features |= {name: floats([rng.random()]) for name in FLOATS}
                for name in TEXTS:
                    text = words[int(rng.integers(len(words)))]
                    features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
                features["embedding"] = floats(rng.standard_normal(128))
                features["history"] = ints(rng.integers(1 << 20, size=64))
                features["dense"] = floats(rng.random(13))
                out.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def reference(folder: Path, batch: int) -> Iterator[int]:
    data = tfrecord.dataset(folder)
    import tensorflow as tf

    wanted: dict[str, Any] = {name: tf.io.FixedLenFeature([], tf.int64) for name in INTS}
    wanted |= {name: tf.io.FixedLenFeature([], tf.float32) for name in FLOATS}
    wanted |= {name: tf.io.FixedLenFeature([], tf.string) for name in TEXTS}
    wanted["embedding"] = tf.io.FixedLenFeature([128], tf.float32)
    wanted["history"] = tf.io.FixedLenFeature([64], tf.int64)
    wanted["dense"] = tf.io.FixedLenFeature([13], tf.float32)
    data = data.batch(batch, drop_remainder=True)
    data = data.map(lambda records: tf.io.parse_example(records, wanted), num_parallel_calls=tf.data.AUTOTUNE)
    for got in data.prefetch(tf.data.AUTOTUNE):
        yield len(got["clicked"].numpy())


FORMAT = Format(
    name="tfrecord examples",
    library="tf.data, parse_example",
    make=make,
    url=lambda folder: str(folder),
    reference=reference,
    loader={"shuffle": True},
    bar=5.0,
    batch=1024,
    env="tf",
    what=WHAT.format(batch="1,024"),
)
