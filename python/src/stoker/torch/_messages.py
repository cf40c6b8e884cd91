"""The messages between a DataLoader and its workers; stoker._work._wire carries them."""

from __future__ import annotations

# To a worker: (TASK, epoch, task, index), followed by (slot, rows, other data of the batch) if the engine has made the
# batch's beginning, in the ring of the last (RING, size, stride, slot_bytes, specs) with its descriptor. Also (EPOCH,
# epoch).
TASK, RING, EPOCH = "task", "ring", "epoch"
# The pool of large batches from then on: (POOL, generation, size, places) with the descriptors of Pool.fds.
POOL = "pool"
# From a worker: (SMALL, epoch, task, body, places, buffers, bytes), (BATCH, epoch, task, body or its position, places,
# buffers, [Piece.described], dropped pieces), (FAILED, epoch, task, wrapper), (END, epoch, task).
SMALL, BATCH, FAILED, END = "small", "batch", "failed", "end"
