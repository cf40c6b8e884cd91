"""Small models in NumPy for the demos. The point is that they learn, not the models themselves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]


class Adam:
    """Steps of Adam for a list of weights, which it changes."""

    def __init__(self, weights: list[Floats], decay: float = 0.99) -> None:
        self.weights, self.decay = weights, decay
        self.mean = [np.zeros_like(w) for w in weights]
        self.square = [np.zeros_like(w) for w in weights]
        self.steps = 0

    def step(self, gradients: list[Floats], rate: float) -> None:
        """Take one."""
        self.steps += 1
        for w, g, m, s in zip(self.weights, gradients, self.mean, self.square, strict=True):
            m += 0.1 * (g - m)
            s += (1 - self.decay) * (g * g - s)
            scale = np.sqrt(s / (1 - self.decay**self.steps)) + 1e-8
            w -= rate * (m / (1 - 0.9**self.steps)) / scale


def softmax(scores: Floats) -> Floats:
    """The chances of the classes, along the last axis."""
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


class Regression:
    """Softmax regression on features of examples, or of places in them."""

    def __init__(self, features: int, classes: int) -> None:
        self.weights = np.zeros((features, classes), np.float32)
        self.adam = Adam([self.weights])

    def learn(self, x: Floats, labels: Counts, rate: float) -> npt.NDArray[np.intp]:
        """Guess the labels, then take a step. Returns the guesses."""
        p = softmax(x @ self.weights)
        guesses = p.argmax(axis=1)
        p[np.arange(len(labels)), labels] -= 1
        self.adam.step([x.T @ p / len(labels)], rate)
        return guesses


class Network:
    """Two layers."""

    def __init__(self, inputs: int, classes: int, hidden: int = 128) -> None:
        rng = np.random.default_rng(1)
        self.p = [
            rng.standard_normal((inputs, hidden)).astype(np.float32) * np.float32((2 / inputs) ** 0.5),
            np.zeros(hidden, np.float32),
            rng.standard_normal((hidden, classes)).astype(np.float32) * np.float32((1 / hidden) ** 0.5),
            np.zeros(classes, np.float32),
        ]
        self.adam = Adam(self.p, decay=0.999)

    def scores(self, x: Floats) -> tuple[Floats, Floats]:
        """The hidden layer and the scores of classes."""
        hidden = np.maximum(x @ self.p[0] + self.p[1], 0)
        return hidden, hidden @ self.p[2] + self.p[3]

    def learn(self, x: Floats, labels: Counts, rate: float, shrink: float = 1e-3) -> int:
        """Guess, then take a step; weights decay. Returns the number of right guesses."""
        hidden, scores = self.scores(x)
        d = softmax(scores)
        right = int((d.argmax(axis=1) == labels).sum())
        d[np.arange(len(labels)), labels] -= 1
        d /= len(labels)
        back = (d @ self.p[2].T) * (hidden > 0)
        gradients = [x.T @ back, back.sum(axis=0), hidden.T @ d, d.sum(axis=0)]
        self.adam.step([g + np.float32(shrink) * p for g, p in zip(gradients, self.p, strict=True)], rate)
        return right


class Confusion:
    """How often each class was taken for each."""

    def __init__(self, classes: int) -> None:
        self.counts: Counts = np.zeros((classes, classes), np.int64)

    def add(self, labels: Counts, guesses: npt.NDArray[np.intp]) -> None:
        """Count some more."""
        n = len(self.counts)
        self.counts += np.bincount(labels * n + guesses, minlength=n * n).reshape(n, n)

    def right(self) -> float:
        """The share of right guesses."""
        return float(np.trace(self.counts) / self.counts.sum())

    def overlap(self) -> tuple[float, float]:
        """Mean IoU and Dice of the classes that there are."""
        both = np.diag(self.counts)
        each = self.counts.sum(axis=0) + self.counts.sum(axis=1)
        there = self.counts.sum(axis=1) > 0
        iou = (both / np.maximum(each - both, 1))[there].mean()
        return float(iou), float((2 * both / np.maximum(each, 1))[there].mean())
