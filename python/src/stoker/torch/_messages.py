"""The messages between a DataLoader and its workers; stoker._work._wire carries them."""

from __future__ import annotations

# To a worker: (TASK, epoch, task, index), (EPOCH, epoch).
TASK, EPOCH = "task", "epoch"
# From a worker: (SMALL, epoch, task, body, places, buffers, bytes), (BATCH, epoch, task, body or where it lies, places,
# buffers, [(piece, its size where it is new)], dropped pieces), (FAILED, epoch, task, wrapper), (END, epoch, task).
SMALL, BATCH, FAILED, END = "small", "batch", "failed", "end"
