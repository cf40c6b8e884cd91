"""A process of the user's own at the other end of a socket."""

import multiprocessing
import time

import job
import numpy as np


def produce(ours):
    rng = np.random.default_rng(0)
    while True:
        if not job.without("cpu"):
            job.spin(0.03)
        ours.send(rng.random((64, 64), dtype=np.float32))


def optimise(x):
    time.sleep(0.01)


if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=produce, args=(theirs,), daemon=True).start()
    while True:
        x = ours.recv()
        optimise(x)
        job.tick()
