"""PyTorch's DataLoader, faster: ``from stoker.torch import DataLoader`` instead of ``torch.utils.data``.

Only this part of the package needs PyTorch; ``import stoker`` does not import it.
"""

from __future__ import annotations

from ._loader import DataLoader

__all__ = ["DataLoader"]


def __dir__() -> list[str]:
    return __all__
