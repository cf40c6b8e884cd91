"""Batches on an accelerator.

The ring is registered as pinned memory once, so that copies out of it need no staging. They run on a stream of their
own, one batch ahead of the loop; a slot of the ring goes back to the engine when the copies out of it have ended, and
the memory of a tensor is not used again before the loop's stream is done with it.

What is done with the accelerator is in ``Device``, so that a test can take its place.
"""

from __future__ import annotations

import collections
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ._batch import INDEX, Batch
from ._errors import ConfigError, StokerError
from ._ragged import Ragged, Strings

if TYPE_CHECKING:
    from ._loader import Loader, _Epoch

# Batches that are on their way to the device before they are asked for.
_AHEAD = 1


class Device(Protocol):
    """What feeding an accelerator takes."""

    def pin(self, address: int, size: int) -> str:
        """Register memory, from which copies then need no staging. Returns why it cannot be, "" when it is."""
        ...

    def unpin(self, address: int) -> None:
        """Undo ``pin``."""
        ...

    def copy(self, tensors: list[Any]) -> tuple[list[Any], Any]:
        """Begin to copy, on a stream of its own. Returns the tensors on the device, and the event of the end."""
        ...

    def take(self, tensors: list[Any], event: Any) -> None:
        """Make the current stream wait for the event; the tensors' memory is its own until it has used them."""
        ...

    def ended(self, event: Any, wait: bool = False) -> bool:
        """Whether an event has come to pass; ``wait`` waits for it."""
        ...


class Cuda:
    """A device of CUDA, or of ROCm, by PyTorch."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self.device = device
        self._stream = torch.cuda.Stream(device)

    def pin(self, address: int, size: int) -> str:
        """Register memory."""
        with self._torch.cuda.device(self.device):
            runtime = self._torch.cuda.cudart()
            code = int(runtime.cudaHostRegister(address, size, 0))
            if code == 0:
                return ""
            return f"cudaHostRegister of {size >> 20} MiB: {runtime.cudaGetErrorString(runtime.cudaError(code))}"

    def unpin(self, address: int) -> None:
        """Undo that."""
        with self._torch.cuda.device(self.device):
            self._torch.cuda.cudart().cudaHostUnregister(address)

    def copy(self, tensors: list[Any]) -> tuple[list[Any], Any]:
        """Begin to copy on the side stream."""
        with self._torch.cuda.stream(self._stream):
            out = [t.to(self.device, non_blocking=True) for t in tensors]
            event = self._torch.cuda.Event()
            event.record(self._stream)
        return out, event

    def take(self, tensors: list[Any], event: Any) -> None:
        """Have the loop's stream wait, and own the tensors."""
        current = self._torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for t in tensors:
            t.record_stream(current)

    def ended(self, event: Any, wait: bool = False) -> bool:
        """Look at an event."""
        if wait:
            event.synchronize()
        return bool(event.query())


def open_device(name: Any) -> Device | None:
    """Return the device that ``device=`` names, None for the CPU, where batches are already.

    Raises:
        ConfigError: PyTorch is not there, or has no such device.
    """
    try:
        import torch
    except ImportError:
        raise ConfigError(f"device={name!r} needs PyTorch, which is not installed") from None
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device={name!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        raise ConfigError(f'device={name!r}: it is "cuda" or the CPU; leave it out and use .to() for others')
    if not torch.cuda.is_available():
        raise ConfigError(f"device={name!r}: PyTorch sees no CUDA device (torch.cuda.is_available() is False)")
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    if device.index >= torch.cuda.device_count():
        raise ConfigError(f"device={name!r}: there are {torch.cuda.device_count()} CUDA devices")
    return Cuda(torch, device)


class _Pending:
    """A batch whose copies were begun."""

    __slots__ = ("batch", "event", "tensors")

    def __init__(self, batch: Batch, tensors: list[Any], event: Any) -> None:
        self.batch, self.tensors, self.event = batch, tensors, event


class Feeder:
    """Copies batches to a device, and keeps what they are copied from until that is done."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # Events, and the batches in the ring that copies read until then.
        self._flying: collections.deque[tuple[Any, Batch]] = collections.deque()
        # What is registered: kept alive, since the mapping must outlive that.
        self._ring: npt.NDArray[np.uint8] | None = None
        self._pinned: list[int] = []

    def adopt(self, ring: npt.NDArray[np.uint8], stride: int) -> None:
        """Register the ring of an engine: as a whole, or as many of its slots as the system allows."""
        self.close()
        address = ring.ctypes.data
        if why := self._device.pin(address, ring.size):
            for at in range(0, ring.size, stride):
                if self._device.pin(address + at, min(stride, ring.size - at)):
                    break
                self._pinned.append(address + at)
            slots = -(-ring.size // stride)
            warnings.warn(
                f"{len(self._pinned)} of {slots} slots of the ring could be registered as pinned memory ({why}); "
                "copies out of the others are staged and wait. Raise the limit of locked memory (ulimit -l), or set a "
                "smaller memory=",
                RuntimeWarning,
                stacklevel=5,
            )
        else:
            self._pinned.append(address)
        self._ring = ring

    def begin(self, batch: Batch) -> _Pending:
        """Begin to copy a batch."""
        tensors: list[Any] = []
        for name, value in batch.items():
            if name == INDEX or isinstance(value, Strings):
                continue
            tensors += [value.values, value.offsets] if isinstance(value, Ragged) else [value]
        copies, event = self._device.copy(tensors)
        self._flying.append((event, batch))
        rest = iter(copies)
        arrays: dict[str, Any] = {}
        for name, value in batch.items():
            if isinstance(value, Strings):
                arrays[name] = value.copy()
            elif name == INDEX:
                arrays[name] = value.clone()  # what one looks at in Python stays in its memory
            elif isinstance(value, Ragged):
                arrays[name] = Ragged(next(rest), next(rest))
            else:
                arrays[name] = next(rest)
        out = Batch(arrays, batch.epoch, batch.step, batch.rows, batch._beside, batch.num_repeated)
        return _Pending(out, copies, event)

    def finish(self, pending: _Pending) -> Batch:
        """Hand over a batch: the loop's stream waits for it, this thread does not."""
        self._device.take(pending.tensors, pending.event)
        return pending.batch

    def sweep(self, wait: bool = False) -> None:
        """Give slots back out of which all copies have ended; ``wait`` waits for the oldest one."""
        while self._flying and self._device.ended(self._flying[0][0], wait):
            self._flying.popleft()
            wait = False

    def close(self) -> None:
        """Wait for all copies, and undo what was registered."""
        while self._flying:
            self.sweep(wait=True)
        for address in self._pinned:
            self._device.unpin(address)
        self._pinned.clear()
        self._ring = None


class DeviceEpoch(Iterator[Batch]):
    """One pass over a loader, whose batches come on a device."""

    def __init__(self, loader: Loader, host: _Epoch, feeder: Feeder) -> None:
        self._loader, self._host, self._feeder = loader, host, feeder
        self._ahead: collections.deque[tuple[_Pending, Any]] = collections.deque()
        # What the host's iterator ended with, and where the loader then stood.
        self._end: tuple[BaseException, Any] | None = None

    def _fetch(self) -> None:
        """Take a batch of the host's and begin to copy it."""
        try:
            batch = next(self._host)
        except (StopIteration, StokerError) as end:
            self._end = end, self._loader._position
        else:
            self._ahead.append((self._feeder.begin(batch), self._loader._position))

    def _more(self) -> bool:
        """Whether the next batch can be had without waiting; a failure comes behind what was made before it."""
        try:
            return self._loader._has_next()
        except StokerError as end:
            self._end = end, self._loader._position
            return False

    def __next__(self) -> Batch:
        self._feeder.sweep()
        if self._ahead and not self._loader._runs(self._host):
            self._ahead.clear()  # another `for` has begun: the host says so
        if not self._ahead and self._end is None:
            if self._loader._full():
                self._feeder.sweep(wait=True)
            self._fetch()
        # The next one is begun before this one is handed over, if it is there.
        while self._end is None and len(self._ahead) <= _AHEAD and self._more():
            self._fetch()
        if self._ahead:
            pending, position = self._ahead.popleft()
            self._loader._position = position
            return self._feeder.finish(pending)
        assert self._end is not None
        end, position = self._end
        if self._loader._runs(self._host):
            self._loader._position = position
        if isinstance(end, StopIteration):
            raise StopIteration
        self._end = None
        raise end.with_traceback(None) from None

    def __len__(self) -> int:
        return len(self._loader)

    def __repr__(self) -> str:
        return repr(self._host)
