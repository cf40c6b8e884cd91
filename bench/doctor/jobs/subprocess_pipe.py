"""A program of the user's own that writes batches into a pipe."""

import subprocess
import sys
import time

import job
import numpy as np

SIZE = 64 * 64 * 4


def produce():
    rng = np.random.default_rng(0)
    while True:
        if not job.without("cpu"):
            job.spin(0.03)
        sys.stdout.buffer.write(rng.random((64, 64), dtype=np.float32).tobytes())
        sys.stdout.buffer.flush()


def optimise(x):
    time.sleep(0.01)


def main():
    options = ["--without", job.options.without] if job.options.without else []
    source = subprocess.Popen([sys.executable, __file__, *options, "--seconds", "0"], stdout=subprocess.PIPE)
    while True:
        x = np.frombuffer(source.stdout.read(SIZE), dtype=np.float32)
        optimise(x)
        job.tick()


if job.options.seconds:
    main()
else:
    produce()
