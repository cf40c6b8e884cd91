"""Messages between the loader's process and a worker: small pickles over a SEQPACKET socket, and descriptors."""

from __future__ import annotations

import os
import pickle
import socket
from typing import Any

from .._process import anonymous_file

# Messages begin with their kind. Workers of map= and of stoker.torch.DataLoader get RING with the descriptor of an
# engine's ring, and TASK for each batch. They answer with BATCH or FAILED. BATCH ends with the descriptions of its
# pieces and the dropped pieces (Pieces.send).
RING, TASK, BATCH, FAILED = "ring", "task", "batch", "failed"
# Of map=: (RING, the number of its first slot, size, stride, slot_bytes, specs, private, names), (TASK, gen, task,
# slot, About); (BATCH, gen, task, seconds, arrays, ...), (FAILED, gen, task, failure).
# Of a DataLoader: (RING, size, stride, slot_bytes, specs), (TASK, epoch, task, index), followed by (slot, rows, other
# data of the batch) if the engine has made the batch's beginning; (EPOCH, epoch); (POOL, generation, size, places), the
# pool of large batches from then on, with the descriptors of Pool.fds; (BATCH, epoch, task, body or its position,
# places, buffers, ...), (SMALL, epoch, task, body, places, buffers, bytes), (FAILED, epoch, task, wrapper), (END,
# epoch, task).
EPOCH, POOL, SMALL, END = "epoch", "pool", "small", "end"
FOLDED = "folded"  # (FOLDED, size): the message lies in a file that comes with it

INLINE = 16 << 10  # of a batch, what is larger goes into its memory
_LARGEST = 48 << 10  # of a message; what is larger is sent as a file in memory
_FDS = 64


def pack(message: tuple[Any, ...]) -> tuple[bytes, list[int]]:
    """Return a message as bytes, and the descriptor of a part that does not fit, which the caller closes."""
    data = pickle.dumps(message, 5)
    if len(data) <= _LARGEST:
        return data, []
    fd = anonymous_file("stoker-message")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    return pickle.dumps((FOLDED, len(data)), 5), [fd]


def close(fds: list[int]) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)


def send(sock: socket.socket, message: tuple[Any, ...], fds: list[int] | None = None) -> None:
    """Send a message and descriptors."""
    data, folded = pack(message)
    try:
        send_packed(sock, data, folded + (fds or []))
    finally:
        close(folded)


def send_packed(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    """Send the result of ``pack``."""
    if fds:
        socket.send_fds(sock, [data], fds)
    else:
        sock.send(data)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """Return a message and its descriptors, or None at the connection's end."""
    data, fds, _, _ = socket.recv_fds(sock, _LARGEST + 1, _FDS, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None, []
    message = pickle.loads(data)
    if message[0] != FOLDED:
        return message, fds
    try:
        return pickle.loads(os.pread(fds[0], message[1], 0)), fds[1:]
    finally:
        os.close(fds[0])
