"""A ring in shared memory with semaphores, filled by processes of the user's own."""

import multiprocessing
import time
from multiprocessing import shared_memory

import job
import numpy as np

SLOTS = 4


def fill(name, free, full, turn):
    memory = shared_memory.SharedMemory(name)
    ring = np.ndarray((SLOTS, 64, 64), np.float32, memory.buf)
    rng = np.random.default_rng()
    while True:
        if not job.without("cpu"):
            job.spin(0.04)
        x = rng.random((64, 64), dtype=np.float32)
        free.acquire()
        with turn.get_lock():
            at = turn.value % SLOTS
            turn.value += 1
            ring[at] = x
        full.release()


def optimise(x):
    time.sleep(0.008)


if __name__ == "__main__":
    memory = shared_memory.SharedMemory(create=True, size=SLOTS * 64 * 64 * 4)
    ring = np.ndarray((SLOTS, 64, 64), np.float32, memory.buf)
    free, full, turn = multiprocessing.Semaphore(SLOTS), multiprocessing.Semaphore(0), multiprocessing.Value("i", 0)
    for _ in range(2):
        multiprocessing.Process(target=fill, args=(memory.name, free, full, turn), daemon=True).start()
    n = 0
    while True:
        full.acquire()
        x = ring[n % SLOTS].copy()
        free.release()
        optimise(x)
        n += 1
        job.tick()
