"""A generator over jsonl.gz in the training process."""

import gzip
import json
import time

import job

PATH = job.folder() / "text.jsonl.gz"
if not PATH.exists():
    with gzip.open(PATH, "wt", compresslevel=3) as f:
        for i in range(20000):
            f.write(json.dumps({"id": i, "words": [str(i * k % 9973) for k in range(200)]}) + "\n")


def batches():
    while True:
        with gzip.open(PATH, "rt") as f:
            rows = []
            for line in f:
                if job.without("cpu"):
                    yield [1]
                    continue
                rows.append([hash(w) % 1000 for w in json.loads(line)["words"]])
                if len(rows) == 256:
                    yield rows
                    rows = []


def train_step(x):
    time.sleep(0.02)


def main():
    for rows in batches():
        train_step(rows)
        job.tick()


main()
