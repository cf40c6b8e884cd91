"""The messages between a loader and the workers of its functions; stoker._work._wire carries them."""

from __future__ import annotations

# To a worker: (RING, the number of its first slot, size, stride, slot_bytes, specs, private, names) with the ring's
# descriptor, (TASK, gen, task, slot, About).
RING, TASK = "ring", "task"
# From a worker: (DONE, gen, task, arrays, [(piece, its size if it is new)], dropped pieces, seconds), (FAILED, gen,
# task, failure).
DONE, FAILED = "done", "failed"
