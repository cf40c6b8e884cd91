"""Rows of sqlite with JSON in them, no workers."""

import json
import sqlite3
import time

import job
import torch
from torch.utils.data import DataLoader, Dataset

PATH = job.folder() / "rows.sqlite"
if not PATH.exists():
    db = sqlite3.connect(PATH)
    db.execute("create table rows (id integer primary key, doc text)")
    db.executemany(
        "insert into rows values (?, ?)",
        ((i, json.dumps([[i * k % 977 / 977] * 4 for k in range(300)])) for i in range(2000)),
    )
    db.commit()
    db.close()


class Rows(Dataset):
    def __init__(self):
        self.db = sqlite3.connect(PATH)

    def __len__(self):
        return 2000

    def __getitem__(self, i):
        if job.without("cpu"):
            return torch.zeros(300, 4)
        (doc,) = self.db.execute("select doc from rows where id = ?", (i,)).fetchone()
        return torch.tensor(json.loads(doc))


def train_step(x):
    time.sleep(0.015)


loader = DataLoader(Rows(), batch_size=32, shuffle=True)
while True:
    for x in loader:
        train_step(x)
        job.tick()
