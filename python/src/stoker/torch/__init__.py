"""PyTorch's DataLoader, faster: ``from stoker.torch import DataLoader`` in the place of ``torch.utils.data``.

The only part of the package that needs PyTorch; ``import stoker`` does not import it.
"""

from __future__ import annotations

from ._loader import DataLoader

__all__ = ["DataLoader"]


def __dir__() -> list[str]:
    return __all__
