"""Image operations on the device: cast, scale, normalise, flip, MixUp and layout, in one pass over the pixels.

A batch travels as bytes, a quarter of the size of floats. With Triton and a GPU, one kernel reads each byte once and
writes each number once. Otherwise torch's operations give the same result.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._described import choice
from ._errors import ConfigError, warn
from ._map._seeds import mixed, mixed_array

_FLIP, _MIXUP = 0x666C6970, 0x6D697875  # so that one draw says nothing of the other
_BLOCK = 1024
# An option of the kernel's compiler. By default it fuses multiplication and addition. Newer versions need the option.
OPTIONS = {"enable_fp_fusion": True}


class Draw(NamedTuple):
    """The random numbers of a batch."""

    flips: npt.NDArray[np.bool_] | None  # of each row
    share: float  # of an image itself in the mixture with the one before it; 1 for no mixture


class OnDevice:
    """Brings batches to a device, where one kernel works on their images.

    ::

        device=stoker.OnDevice("bfloat16", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), flip=0.5,
                        layout="channels_last")

    Images then travel as bytes after the transforms, and become numbers there: bytes of 0 to 255 become numbers of 0 to
    1, then ``(x - mean) / std``. Images are rows of 8 or 16 bits or floats, all of one size. Other arrays of the batch
    come unchanged. On the CPU PyTorch does the same.

    Args:
        dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``, or torch's.
        device: the device of the batches: ``"cuda"``, ``"cuda:1"`` or ``"cpu"``.
        mean: the value to subtract from each scaled channel, one number or one per channel.
        std: the divisor after that.
        scale: scale whole numbers to 0 to 1 first, as ``ToDtype(scale=True)`` does.
        flip: the probability that an image is mirrored left to right; it depends on (seed, epoch, record) alone.
        mixup: the alpha of ``MixUp``; 0 for none. Each image is mixed with the one before it in the batch, with a share
            that is drawn per batch, and labels become soft labels.
        num_classes: the number of classes of the soft labels. Default: that of the source.
        layout: ``"NCHW"`` or ``"channels_last"``, which has the same shape with channels next to each other.
        images: the arrays to work on, by name (by place in a tuple). Default: all images of a ``stoker.Loader`` that
            are not masks, the first tensor with four axes of a ``stoker.torch.DataLoader``.
        labels: the labels to mix with the images. Default: the label of the source, the first tensor of whole numbers
            with one axis.
    """

    __module__ = "stoker"

    def __init__(
        self,
        dtype: Any = "float32",
        *,
        device: Any = "cuda",
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        scale: bool = True,
        flip: float = 0.0,
        mixup: float = 0.0,
        num_classes: int | None = None,
        layout: str = "NCHW",
        images: str | int | Sequence[str | int] | None = None,
        labels: str | int | None = None,
    ) -> None:
        self.dtype = choice("dtype", str(dtype).removeprefix("torch."), ("float32", "float16", "bfloat16"))
        self.device = device
        self.mean, self.std = _numbers("mean", mean), _numbers("std", std)
        if any(s == 0 for s in self.std):
            raise ConfigError(f"std={std!r} must not be 0")
        if len(self.mean) > 1 and len(self.std) > 1 and len(self.mean) != len(self.std):
            raise ConfigError(f"mean has {len(self.mean)} numbers and std {len(self.std)}")
        self.scale = bool(scale)
        self.flip, self.mixup = _number("flip", flip, 0, 1), _number("mixup", mixup, 0, 1e6)
        if num_classes is not None and not 2 <= int(num_classes) <= 1 << 24:
            raise ConfigError(f"num_classes={num_classes!r} must be at least 2")
        self.num_classes = None if num_classes is None else int(num_classes)
        self.layout = choice("layout", layout, ("NCHW", "channels_last"))
        self.images = None if images is None else [images] if isinstance(images, str | int) else list(images)
        self.labels = labels

    def __repr__(self) -> str:
        default = OnDevice()
        parts = [repr(self.dtype)]
        parts += [f"{k}={v!r}" for k, v in vars(self).items() if k != "dtype" and v != getattr(default, k)]
        return f"OnDevice({', '.join(parts)})"

    def draw(self, seed: int, epoch: int, step: int, records: npt.NDArray[np.int64]) -> Draw:
        """Return the random numbers of a batch, which depend on nothing else."""
        flips, share = None, 1.0
        if self.flip:
            flips = _uniform(mixed(seed, epoch, _FLIP), records) < self.flip
        if self.mixup and len(records) > 1:
            first = int(records[0]) & (1 << 63) - 1  # so that ranks differ
            share = float(np.random.default_rng([mixed(seed, epoch, _MIXUP), step, first]).beta(self.mixup, self.mixup))
        return Draw(flips, share)

    def apply(self, images: Any, draw: Draw) -> Any:
        """Return the changed images, a tensor of rows with the axes channel, height and width in any memory order.

        The result has these axes and the memory order of ``layout``, on the device of the images.
        """
        import torch

        if images.dim() == 3:
            images = images.unsqueeze(1)
        if images.dim() != 4 or images.is_complex():
            raise ConfigError(f"on_device= is for images, rows of channels, height and width; this has {images.shape}")
        channels = images.shape[1]
        for name, found in (("mean", self.mean), ("std", self.std)):
            if len(found) not in (1, channels):
                raise ConfigError(f"{name} has {len(found)} numbers, and images have {channels} channels")
        factors, terms = _affine(self, channels, _most(torch, images.dtype) if self.scale else 1.0, images.device)
        memory = torch.channels_last if self.layout == "channels_last" else torch.contiguous_format
        out = torch.empty(images.shape, dtype=getattr(torch, self.dtype), device=images.device, memory_format=memory)
        flips = None
        if draw.flips is not None:
            flips = torch.from_numpy(draw.flips).to(images.device, non_blocking=True)
        if not (images.is_cuda and out.numel() and _by_kernel(images, out, factors, terms, flips, draw.share)):
            by_torch(images, out, factors, terms, flips, draw.share)
        return out

    def soft(self, labels: Any, share: float, classes: int) -> Any:
        """Return soft labels, float32 [rows, classes]: the label's own share, and the rest for the one before it."""
        import torch

        out = torch.zeros((len(labels), classes), device=labels.device)
        rows = torch.arange(len(labels), device=labels.device)
        out[rows, labels.long()] = share
        return out.index_put_((rows, labels.roll(1).long()), torch.tensor(1 - share, device=labels.device), True)


def _number(name: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} must be a number from {low:g} to {high:g}")
    return float(value)


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    try:
        found = (float(value),) if np.ndim(value) == 0 else tuple(map(float, value))
    except (TypeError, ValueError):
        found = ()
    if not found or not all(map(np.isfinite, found)):
        raise ConfigError(f"{name}={value!r} must be a number or a list of numbers, one per channel")
    return found


def _uniform(seed: int, records: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return a number from 0 to 1 for each record (SplitMix64)."""
    with np.errstate(over="ignore"):
        x = mixed_array(records.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed))
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _most(torch: Any, dtype: Any) -> float:
    """Return the whole number that stands for 1."""
    if dtype.is_floating_point:
        return 1.0
    return 65535.0 if dtype == torch.uint16 else float(torch.iinfo(dtype).max)


def _affine(of: OnDevice, channels: int, most: float, device: Any) -> tuple[Any, Any]:
    """Return factor and term of each channel: ``x * factor + term`` is scaled and normalised."""
    return _affine_of(of.mean, of.std, channels, most, device)


@functools.lru_cache(64)
def _affine_of(
    mean: tuple[float, ...], std: tuple[float, ...], channels: int, most: float, device: Any
) -> tuple[Any, Any]:
    import torch

    means, stds = np.broadcast_to(mean, channels), np.broadcast_to(std, channels)
    both = (1 / (most * stds), -means / stds)
    return tuple(torch.tensor(x.astype(np.float32), device=device) for x in both)


def by_torch(images: Any, out: Any, factors: Any, terms: Any, flips: Any, share: float) -> None:
    """Do it by torch's operations."""
    import torch

    x = images.to(torch.float32)
    if flips is not None:
        x = torch.where(flips[:, None, None, None], x.flip(3), x)
    x = torch.addcmul(terms[:, None, None], x, factors[:, None, None])
    if share != 1.0:
        x = share * x + (1 - share) * x.roll(1, 0)
    out.copy_(x)


def launch(kernel: Any, images: Any, out: Any, factors: Any, terms: Any, flips: Any, share: float) -> None:
    """Do it by the kernel, on the current stream of the images' device."""
    import torch

    rows, channels, height, width = images.shape
    source = images.view(torch.int16) if images.dtype == torch.uint16 else images
    blocks = -(-out.numel() // _BLOCK)
    marks = images if flips is None else flips.view(torch.uint8)
    kernel[(blocks,)](
        source, out, factors, terms, marks, float(share), out.numel(), rows, channels, height, width,
        *source.stride(), CHANNELS_LAST=bool(channels > 1 and out.stride(1) == 1), FLIP=flips is not None,
        MIX=share != 1.0, UNSIGNED16=images.dtype == torch.uint16, BLOCK=_BLOCK, **OPTIONS,
    )  # fmt: skip


# The kernel, None if no kernel runs here, "" before the first attempt.
_kernel: Any = ""


def _by_kernel(*what: Any) -> bool:
    """Run the kernel; False if that is not possible, with one warning."""
    global _kernel
    if _kernel == "":
        try:
            from . import _triton
        except ImportError:
            _kernel = None
        else:
            _kernel = _triton.images
    if _kernel is None:
        return False
    try:
        launch(_kernel, *what)
    except Exception as error:
        # The kernel is compiled at its first launch, which needs a C compiler and a Triton that knows the device. If
        # the device itself has failed, PyTorch's operations fail as well.
        _kernel = None
        warn(
            f"on_device= does with PyTorch's operations what one kernel could do faster: Triton cannot compile it here "
            f"({type(error).__name__}: {(str(error).strip() or 'no text').splitlines()[-1]:.200})",
            RuntimeWarning,
        )
        return False
    return True
