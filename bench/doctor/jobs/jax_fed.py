"""A loop of JAX over arrays in memory: nothing is lacking."""

import jax
import jax.numpy as jnp
import job
import numpy as np

rng = np.random.default_rng(0)
images = rng.random((8192, 128), dtype=np.float32)


@jax.jit
def update(w, x):
    return w - 1e-3 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)


def batches(size=64):
    while True:
        order = rng.permutation(len(images))
        for at in range(0, len(order), size):
            yield images[order[at : at + size]]


def main():
    w = jnp.ones((128, 256))
    for x in batches():
        for _ in range(20):
            w = update(w, x)
        w.block_until_ready()
        job.tick()


main()
