"""Keras 3 with Stoker, on any of its backends.

python examples/keras_fit.py FOLDER
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import stoker
import stoker.keras
from stoker import transforms as T

loader = stoker.Loader(
    sys.argv[1],
    batch_size=16,
    shuffle=True,
    transforms={"image": [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]},
)
net = keras.Sequential(
    [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(8, 5, 2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(len(loader.classes)),
    ]
)
net.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = net.fit(stoker.keras.Dataset(loader), epochs=2, verbose=0)
print(f"{len(loader)} steps an epoch, loss {history.history['loss'][-1]:.3f}, {keras.backend.backend()}")
