"""A loop of JAX with a function that makes its batches."""

import jax
import jax.numpy as jnp
import job
import numpy as np

rng = np.random.default_rng(0)


@jax.jit
def update(w, x):
    return w - 1e-3 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)


def sample_examples():
    rows = rng.random((64, 256), dtype=np.float32)
    if not job.without("cpu"):
        job.spin(0.03)
    return rows


def main():
    w = jnp.ones((256, 256))
    while True:
        x = sample_examples()
        for _ in range(40):
            w = update(w, x)
        w.block_until_ready()
        job.tick()


main()
