"""How rows of different lengths become one array, and batches of their like."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any

from . import _options
from ._described import Described
from ._errors import ConfigError


@dataclass(frozen=True, repr=False)
class Padded(Described):
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

    value: float = 0
    _: KW_ONLY
    length: int | None = None
    multiple: int = 1
    truncate: bool = False
    mask: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise ConfigError(f"Padded: value={self.value!r} must be a number")
        _check_whole(self, "length", 1 << 40)
        _check_whole(self, "multiple", 1 << 40)
        for name in ("truncate", "mask"):
            object.__setattr__(self, name, bool(getattr(self, name)))

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads."""
        return {**asdict(self), "value": float(self.value), "length": self.length or 0}


@dataclass(frozen=True, repr=False)
class Buckets(Described):
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

    by: str
    _: KW_ONLY
    boundaries: Sequence[float] = ()
    count: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.by, str) or not self.by:
            raise ConfigError(f"bucket: by={self.by!r} must be the name of a field")
        object.__setattr__(self, "boundaries", tuple(float(b) for b in self.boundaries))
        _check_whole(self, "count", 4096)
        _check_whole(self, "max_tokens")

    def to_config(self) -> dict[str, Any]:
        """Return the form that the engine reads."""
        limits = {"count": self.count or 0, "max_tokens": self.max_tokens or 0}
        return {"by": self.by, "boundaries": list(self.boundaries) or None, **limits}


def _check_whole(options: Described, name: str, most: int = 2**63 - 1) -> None:
    """Check an option that is a whole number from 1 on, or its default."""
    if (value := getattr(options, name)) is not getattr(type(options), name):
        object.__setattr__(options, name, _options.whole(name, value, 1, most))


def parse_bucket(bucket: Buckets | str | None) -> dict[str, Any] | None:
    """Return the key that batches are sorted by; a name stands for Buckets of that name."""
    if bucket is None:
        return None
    return (bucket if isinstance(bucket, Buckets) else Buckets(bucket)).to_config()
