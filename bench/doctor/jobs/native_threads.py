"""Threads that inflate: native code, outside of the interpreter's lock."""

import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import job
import numpy as np

DATA = zlib.compress(np.random.default_rng(0).integers(0, 60, 1 << 21, dtype=np.uint8).tobytes(), 6)


def inflate(i):
    return np.zeros(1 << 21, np.uint8) if job.without("cpu") else np.frombuffer(zlib.decompress(DATA), np.uint8)


def train_step(x):
    time.sleep(0.004)


pool = ThreadPoolExecutor(2)
ahead = [pool.submit(inflate, i) for i in range(4)]
while True:
    x = ahead.pop(0).result()
    ahead.append(pool.submit(inflate, 0))
    train_step(x)
    job.tick()
