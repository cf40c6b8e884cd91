"""Rows of a CSV, parsed by a class of the user's in the training process."""

import csv
import time

import job

PATH = job.folder() / "rows.csv"
if not PATH.exists():
    with PATH.open("w", newline="") as f:
        writer = csv.writer(f)
        writer.writerows([i, *(f"{i * k % 7919 / 7:.4f}" for k in range(120))] for i in range(20000))


class Rows:
    """A batch at a time, over and over."""

    def __init__(self):
        self.lines = self.open()

    def open(self):
        with PATH.open(newline="") as f:
            yield from csv.reader(f)

    def next_batch(self, size=192):
        if job.without("cpu"):
            return [[0.0]] * size
        out = []
        while len(out) < size:
            line = next(self.lines, None)
            if line is None:
                self.lines = self.open()
                continue
            values = [float(v) for v in line[1:]]
            mean = sum(values) / len(values)
            out.append([v - mean for v in values])
        return out


def train_step(batch):
    time.sleep(0.015)


rows = Rows()
while True:
    train_step(rows.next_batch())
    job.tick()
