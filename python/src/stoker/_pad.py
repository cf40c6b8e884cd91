"""How rows of different lengths become one array, and batches of their like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _options
from ._errors import ConfigError


class Padded:
    """Pads rows of different lengths to one length, in ``transforms=`` of a loader.

    With ``transforms={"tokens": stoker.Padded(0, multiple=8, mask=True)}`` and batches of 32, ``batch.tokens`` has the
    shape ``[32, longest, rounded up to 8]``. ``batch.tokens_length`` has the length of each row, and
    ``batch.tokens_mask`` marks the elements that are not padding.

    Args:
        value: the value of the padding.
        length: the length of each row. Default: that of the longest one of the batch.
        multiple: without ``length``, round the longest up to a multiple of this.
        truncate: cut rows that are longer than ``length``, which are errors otherwise.
        mask: also give an array of bool that is True for elements that are not padding.
    """

    __module__ = "stoker"
    __slots__ = ("length", "mask", "multiple", "truncate", "value")

    def __init__(
        self,
        value: float = 0,
        *,
        length: int | None = None,
        multiple: int = 1,
        truncate: bool = False,
        mask: bool = False,
    ) -> None:
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"Padded: value={value!r} must be a number")
        self.value = value
        self.length = None if length is None else _options.whole("length", length, 1, 1 << 40)
        self.multiple = _options.whole("multiple", multiple, 1, 1 << 40)
        self.truncate = bool(truncate)
        self.mask = bool(mask)

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads."""
        return {
            "value": float(self.value),
            "length": self.length or 0,
            "multiple": self.multiple,
            "truncate": self.truncate,
            "mask": self.mask,
        }

    def __repr__(self) -> str:
        parts = [repr(self.value)]
        if self.length is not None:
            parts.append(f"length={self.length}")
        if self.multiple != 1:
            parts.append(f"multiple={self.multiple}")
        parts += [f"{name}=True" for name in ("truncate", "mask") if getattr(self, name)]
        return f"Padded({', '.join(parts)})"


class Buckets:
    """Builds each batch from similar records, in ``bucket=`` of a loader.

    Records are sorted once by properties known without decoding, the length of their values or the proportions of their
    images. Each batch is of one bucket. Every record comes once per epoch, in an order that depends on (seed, epoch)
    alone. The last batch of each bucket is smaller, or skipped by ``drop_last``.

    Args:
        by: name of a field: values of any length are sorted by it, images by width / height.
        boundaries: the largest length or proportion of each bucket but the last.
        count: without ``boundaries``, the number of buckets of about as many records. Default: 8, with
            ``max_tokens`` 32.
        max_tokens: the most elements in a batch: its rows times the longest row of its bucket, padded by its
            ``stoker.Padded``. Batches then have up to ``batch_size`` rows.
    """

    __module__ = "stoker"
    __slots__ = ("boundaries", "by", "count", "max_tokens")

    def __init__(
        self,
        by: str,
        *,
        boundaries: Sequence[float] = (),
        count: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        if not isinstance(by, str) or not by:
            raise ConfigError(f"bucket: by={by!r} must be the name of a field")
        self.by = by
        self.boundaries = [float(b) for b in boundaries]
        self.count = None if count is None else _options.whole("count", count, 1, 4096)
        self.max_tokens = None if max_tokens is None else _options.whole("max_tokens", max_tokens, 1)

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads."""
        return {
            "by": self.by,
            "boundaries": self.boundaries or None,
            "count": self.count or 0,
            "max_tokens": self.max_tokens or 0,
        }

    def __repr__(self) -> str:
        parts = [repr(self.by)]
        parts += [f"{n}={getattr(self, n)!r}" for n in ("boundaries", "count", "max_tokens") if getattr(self, n)]
        return f"Buckets({', '.join(parts)})"


def parse_bucket(bucket: Buckets | str | None) -> dict[str, Any] | None:
    """Return the key that batches are sorted by; a name stands for Buckets of that name."""
    if bucket is None:
        return None
    return (bucket if isinstance(bucket, Buckets) else Buckets(bucket)).to_config()
