"""A JAX loop over a class that crops, flips and scales images with NumPy, one by one."""

import jax
import jax.numpy as jnp
import job
import numpy as np

IMAGES = np.random.default_rng(0).integers(0, 256, (512, 96, 96, 3), dtype=np.uint8)


class Photos:
    def __init__(self, size):
        self.size, self.rng = size, np.random.default_rng(3)

    def crop(self, image):
        top, left = self.rng.integers(0, 32, 2)
        part = image[top : top + 64, left : left + 64].astype(np.float32)
        if self.rng.random() < 0.5:
            part = part[:, ::-1]
        part = (part - part.mean((0, 1))) / (part.std((0, 1)) + 1e-5)
        return part * self.rng.uniform(0.8, 1.2)

    def __iter__(self):
        if job.without("cpu"):
            still = np.zeros((self.size, 64 * 64 * 3), np.float32)
            while True:
                yield still
        while True:
            chosen = self.rng.integers(0, len(IMAGES), self.size)
            yield np.stack([self.crop(IMAGES[i]) for i in chosen]).reshape(self.size, -1)


@jax.jit
def sgd(w, x):
    value, g = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
    return w - 1e-3 * g, value


def main():
    w = jnp.full((64 * 64 * 3, 128), 1e-3)
    for n, x in enumerate(Photos(48)):
        w, value = sgd(w, x)
        if n % 10 == 0:
            value.block_until_ready()
        job.tick()


main()
