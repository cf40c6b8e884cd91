"""TensorFlow with Stoker: eager tensors in a loop of one's own, and a tf.data.Dataset.

python examples/tf_data.py FOLDER
"""

from __future__ import annotations

import sys

import stoker
import tensorflow as tf
from stoker import transforms as T
from stoker.tf import batches, dataset

loader = stoker.Loader(
    sys.argv[1],
    batch_size=16,
    shuffle=True,
    transforms={"image": [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]},
)
weights = tf.Variable(tf.zeros([32 * 32 * 3, len(loader.classes)]))


def step(images: tf.Tensor, labels: tf.Tensor) -> float:
    with tf.GradientTape() as tape:
        logits = tf.reshape(tf.cast(images, tf.float32) / 255, [len(images), -1]) @ weights
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return float(loss)


seen = 0
for batch in batches(loader):  # tensors over the engine's memory
    loss = step(batch["image"], batch["label"])
    seen += len(batch["label"])
for batch in dataset(loader).prefetch(2):  # the next epoch, with whatever tf.data does
    loss = step(batch["image"], batch["label"])
    seen += len(batch["label"])
print(f"{seen} records, loss {loss:.3f}")
