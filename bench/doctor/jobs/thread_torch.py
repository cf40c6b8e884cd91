"""Threads with a queue that normalise with small torch operations."""

import queue
import threading
import time

import job
import torch

torch.set_num_threads(1)
batches = queue.Queue(4)


def normalise(x):
    end = time.thread_time() + (0 if job.without("cpu") else 0.006)
    while time.thread_time() < end:
        x = (x - x.mean()) / (x.std() + 1e-5)
    return x


def produce():
    while True:
        batches.put(torch.stack([normalise(torch.rand(64, 64)) for _ in range(8)]))


for _ in range(3):
    threading.Thread(target=produce, daemon=True).start()


def train_step(x):
    time.sleep(0.01)


while True:
    x = batches.get()
    train_step(x)
    job.tick()
