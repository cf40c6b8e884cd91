"""A JAX loop that scans over the parts of a large batch. Two batches are already on the device: nothing is
lacking."""

from collections import deque

import jax
import jax.numpy as jnp
import job
import numpy as np

PARTS, SIZE, WIDTH = 8, 64, 256


def epochs(table):
    order = np.random.default_rng(5)
    while True:
        rows = order.permutation(len(table))
        for at in range(0, len(rows) - PARTS * SIZE + 1, PARTS * SIZE):
            yield table[rows[at : at + PARTS * SIZE]].reshape(PARTS, SIZE, WIDTH)


def on_device(source, ahead=2):
    waiting = deque()
    for batch in source:
        waiting.append(jax.device_put(batch))
        if len(waiting) > ahead:
            yield waiting.popleft()


def part(carry, rows):
    weights, rate = carry
    loss, slope = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(rows @ w) @ w.T - rows) ** 2))(weights)
    return (weights - rate * slope, rate), loss


@jax.jit
def learn(weights, batch):
    (weights, _), losses = jax.lax.scan(part, (weights, 1e-3), batch)
    return weights, losses.mean()


def main():
    table = np.random.default_rng(4).standard_normal((1 << 15, WIDTH), dtype=np.float32)
    weights = jnp.full((WIDTH, 1024), 1e-2)
    curve = []
    for batch in on_device(epochs(table)):
        weights, loss = learn(weights, batch)
        curve.append(loss.item())
        job.tick()


main()
