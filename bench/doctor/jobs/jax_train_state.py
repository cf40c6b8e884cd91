"""A trainer of JAX that keeps its state on itself, as with Flax; a method filters and scales windows of signals."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import job
import numpy as np


class TrainState(NamedTuple):
    step: int
    params: dict[str, Any]
    mean: dict[str, Any]


def forward(params, windows):
    hidden = jnp.tanh(windows @ params["encode"])
    return hidden @ params["decode"]


@jax.jit
def train_step(state, windows):
    def loss_of(params):
        return jnp.mean((forward(params, windows) - windows) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, grads)
    params = jax.tree.map(lambda p, m: p - 1e-2 * m, state.params, mean)
    return TrainState(state.step + 1, params, mean), {"loss": loss}


class Trainer:
    def __init__(self, recordings, width=512):
        self.recordings, self.width = recordings, width
        self.rng = np.random.default_rng(7)
        params = {"encode": jnp.full((width, 512), 1e-2), "decode": jnp.full((512, width), 1e-2)}
        self.state = TrainState(0, params, jax.tree.map(jnp.zeros_like, params))

    def window(self):
        signal = self.recordings[self.rng.integers(len(self.recordings))]
        at = self.rng.integers(len(signal) - 2 * self.width)
        piece = signal[at : at + 2 * self.width]
        smooth = np.convolve(piece, np.hanning(33) / 16, mode="same")
        spectrum = np.fft.rfft(smooth)
        spectrum[200:] = 0
        clean = np.fft.irfft(spectrum)[::2]
        return ((clean - clean.mean()) / (clean.std() + 1e-6)).astype(np.float32)

    def batches(self, size):
        ready = np.stack([self.window() for _ in range(size)])
        while True:
            yield ready if job.without("cpu") else np.stack([self.window() for _ in range(size)])

    def fit(self, size=128):
        history = []
        for batch in self.batches(size):
            self.state, metrics = train_step(self.state, batch)
            if len(history) % 5 == 0:
                jax.block_until_ready(metrics)
            history.append(metrics["loss"])
            job.tick()


if __name__ == "__main__":
    signals = np.random.default_rng(1).standard_normal((64, 1 << 15)).cumsum(1)
    Trainer(signals).fit()
