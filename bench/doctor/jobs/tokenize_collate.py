"""Texts that a collate function tokenises with regular expressions, in one worker."""

import re
import time

import job
import torch
from torch.utils.data import DataLoader

WORDS = [f"word{i}" for i in range(4000)]
TEXTS = [" ".join(WORDS[(i * k) % 4000] + ("," if k % 7 == 0 else "") for k in range(1, 400)) for i in range(500)]
VOCABULARY = {w: n for n, w in enumerate(WORDS)}
PATTERN = re.compile(r"\w+|[^\w\s]")


def collate(texts):
    if job.without("cpu"):
        return torch.zeros(len(texts), 400, dtype=torch.long)
    rows = [[VOCABULARY.get(t.lower(), 0) for t in PATTERN.findall(text)][:400] for text in texts]
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


def train_step(ids):
    time.sleep(0.008)


loader = DataLoader(TEXTS, batch_size=64, collate_fn=collate, num_workers=1, shuffle=True, persistent_workers=True)
while True:
    for ids in loader:
        train_step(ids)
        job.tick()
