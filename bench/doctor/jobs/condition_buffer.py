"""A buffer with a condition, filled by a thread that keeps to a limit of requests a second."""

import threading
import time

import job
import numpy as np

buffer, ready = [], threading.Condition()


class Throttle:
    def __init__(self, rate):
        self.pause = 0 if job.without("latency") else 1 / rate

    def spend(self):
        time.sleep(self.pause)


def fill():
    limit = Throttle(16)
    rng = np.random.default_rng(0)
    while True:
        limit.spend()
        x = rng.random((32, 32))
        with ready:
            while len(buffer) > 4:
                ready.wait()
            buffer.append(x)
            ready.notify_all()


def train_step(x):
    time.sleep(0.02)


threading.Thread(target=fill, daemon=True).start()
while True:
    with ready:
        while not buffer:
            ready.wait()
        x = buffer.pop(0)
        ready.notify_all()
    train_step(x)
    job.tick()
