"""torch's default collate, which makes its stacks directly in the memory of the batch."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data._utils import collate

from .._work._memory import Pieces

# Smaller tensors are copied with the rest.
_SMALL = 4096


def install(pieces: Pieces) -> None:
    """Change how this process, a worker, stacks tensors; for everything that calls torch's ``default_collate``.

    A function that the user has put there stays.
    """
    own = vars(collate).get("collate_tensor_fn")
    functions = getattr(collate, "default_collate_fn_map", {})
    if own is None or functions.get(torch.Tensor) is not own:
        return
    theirs: Any = functions[torch.Tensor]  # which is own

    def stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        if not _plain(first) or not all(isinstance(t, torch.Tensor) for t in batch):
            return theirs(batch, collate_fn_map=collate_fn_map)
        size, dtype = (len(batch), *first.size()), first.dtype
        count = first.numel() * len(batch)
        # torch writes into memory of the first one's type, and so does this: others are cast or refused.
        alike = all(_plain(t) and t.size() == first.size() and not t.requires_grad for t in batch)
        if not alike or first.requires_grad:
            return torch.stack(batch, 0)
        bytes_ = count * first.element_size()
        found = pieces.take(bytes_) if bytes_ >= _SMALL else None
        if found is None:
            out = torch.empty(size, dtype=dtype)
        else:
            piece, at = found
            # The piece's array is held by the tensor, and so is the piece.
            out = torch.frombuffer(piece.root, dtype=dtype, count=count, offset=at).view(size)
        return torch.stack(batch, 0, out=out)

    functions[torch.Tensor] = stack


def _plain(t: Any) -> bool:
    return (
        type(t) is torch.Tensor
        and t.layout is torch.strided
        and t.device.type == "cpu"
        and not t.is_quantized
        and not t.is_nested
    )
