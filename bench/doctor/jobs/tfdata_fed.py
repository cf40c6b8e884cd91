"""tf.data with spare capacity."""

import time

import job
import tensorflow as tf


def train_step(x):
    time.sleep(0.04)


data = tf.data.Dataset.range(1 << 20).map(lambda i: tf.fill((64,), i)).shuffle(256).batch(8).prefetch(2)
for x in data:
    train_step(x)
    job.tick()
