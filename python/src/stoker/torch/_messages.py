"""The messages between a DataLoader and its workers; stoker._work._wire carries them."""

from __future__ import annotations

# To a worker: (TASK, epoch, task, index), and behind it (slot, rows, what is beside the arrays) where the engine has
# made the batch's beginning, in the ring of the last (RING, size, stride, slot_bytes, specs) with its descriptor;
# (EPOCH, epoch).
TASK, RING, EPOCH = "task", "ring", "epoch"
# Where large batches lie from then on: (POOL, generation, size, places) with the descriptors of Pool.fds.
POOL = "pool"
# From a worker: (SMALL, epoch, task, body, places, buffers, bytes), (BATCH, epoch, task, body or where it lies, places,
# buffers, [Piece.described], dropped pieces), (FAILED, epoch, task, wrapper), (END, epoch, task).
SMALL, BATCH, FAILED, END = "small", "batch", "failed", "end"
