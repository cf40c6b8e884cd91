"""tf.data that decodes in one thread."""

import time

import job
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
image = tf.io.encode_jpeg(tf.cast(tf.random.uniform((512, 512, 3), maxval=255, dtype=tf.int32), tf.uint8))


def decode(i):
    if job.without("cpu"):
        return tf.zeros((64, 64, 3))
    return tf.image.resize(tf.io.decode_jpeg(image), (64, 64))


def train_step(x):
    time.sleep(0.01)


data = tf.data.Dataset.range(1 << 20).map(decode, num_parallel_calls=1).batch(8).prefetch(1)
for x in data:
    train_step(x)
    job.tick()
