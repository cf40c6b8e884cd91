"""A JAX loop with momentum. A thread puts its batches into a queue in time: nothing is lacking."""

import queue
import threading

import jax
import jax.numpy as jnp
import job
import numpy as np

table = np.random.default_rng(1).standard_normal((20000, 96), dtype=np.float32)
ready = queue.Queue(maxsize=8)


def feed():
    draw = np.random.default_rng(2)
    while True:
        ready.put(table[draw.integers(0, len(table), 256)])


def loss_of(params, batch):
    hidden = jax.nn.relu(batch @ params["into"])
    return jnp.mean((hidden @ params["out"] - batch) ** 2)


@jax.jit
def train_batch(params, momentum, batch):
    loss, grads = jax.value_and_grad(loss_of)(params, batch)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    return jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum), momentum, loss


def main():
    params = {"into": jnp.full((96, 4096), 0.01), "out": jnp.full((4096, 96), 0.01)}
    momentum = jax.tree.map(jnp.zeros_like, params)
    threading.Thread(target=feed, daemon=True).start()
    seen, total = 0, 0.0
    while True:
        batch = ready.get()
        params, momentum, loss = train_batch(params, momentum, batch)
        total += float(loss)
        seen += len(batch)
        job.tick()


main()
