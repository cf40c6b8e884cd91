"""A pool of threads that parses ahead in pure Python."""

import json
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import job

LINE = json.dumps({"text": " ".join(str(i) for i in range(400))})


def parse(i):
    if job.without("cpu"):
        return 1
    total = 0
    for word in LINE.split():
        for c in word:
            total = (total * 31 + ord(c)) % 65521
    return total


def make_batch(i):
    return [parse(j) for j in range(400)]


def train_step(x):
    time.sleep(0.01)


pool = ThreadPoolExecutor(4)
ahead = deque(pool.submit(make_batch, i) for i in range(8))
while True:
    batch = ahead.popleft().result()
    ahead.append(pool.submit(make_batch, 0))
    train_step(batch)
    job.tick()
