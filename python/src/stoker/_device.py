"""Batches on an accelerator.

The ring is registered as pinned memory once, so that copies out of it need no staging. They run on a stream of their
own, one batch ahead of the loop. A slot of the ring returns to the engine when the copies out of it have ended. The
memory of a tensor is not used again before the loop's stream has finished with it.

All calls of the accelerator are in ``Device``, so that a test can replace it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._batch import INDEX, SOFT, ArraySpec, Batch
from ._errors import ConfigError, warn
from ._fused import OnDevice
from ._ragged import Ragged, Strings

if TYPE_CHECKING:
    from ._connection import Connection

# The axes of images in the order of channel, height and width.
_NHWC = (0, 3, 1, 2)

Work = Callable[[list[Any]], list[Any]]


class Device:
    """The operations that feeding an accelerator needs. This one is the CPU, whose memory has the batches already."""

    def pin(self, address: int, size: int) -> str:
        """Register memory, from which copies then need no staging. Returns why it cannot be, "" when it is."""
        return ""

    def unpin(self, address: int) -> None:
        """Undo ``pin``."""

    def stage(self, tensor: Any) -> Any:
        """Return a tensor in memory that is registered: a copy of one that is not."""
        return tensor

    def copy(self, tensors: list[Any], work: Work | None = None) -> tuple[list[Any], Any]:
        """Begin to copy, on a stream of its own, and to do ``work`` with the copies afterwards.

        Returns the result (the copies, or the results of ``work``) and the event of its end.
        """
        return (work(tensors) if work else tensors), None

    def take(self, tensors: list[Any], event: Any) -> None:
        """Make the current stream wait for the event; the tensors' memory is its own until it has used them."""

    def ended(self, event: Any, wait: bool = False) -> bool:
        """Whether an event has ended; ``wait`` waits for it."""
        return True


class Cuda(Device):
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

    def stage(self, tensor: Any) -> Any:
        """Copy a tensor to pinned memory, which PyTorch keeps for the next one."""
        return tensor if tensor.is_pinned() else tensor.pin_memory()

    def copy(self, tensors: list[Any], work: Work | None = None) -> tuple[list[Any], Any]:
        """Begin to copy on the side stream."""
        with self._torch.cuda.stream(self._stream):
            out = [t.to(self.device, non_blocking=True) for t in tensors]
            if work is not None:
                out = work(out)
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
        """Query an event."""
        if wait:
            event.synchronize()
        return bool(event.query())


def open_device(name: Any) -> Device | None:
    """Return the device that ``device=`` names, None for the CPU.

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


def feeder(device: Any, seed: int) -> BatchFeeder | None:
    """Return the feeder of the device that ``device=`` names, None if there is nothing to do.

    Raises:
        ConfigError: there is no such device.
    """
    if (found := wanted(device)) is None:
        return None
    return BatchFeeder(found, work_on(device), seed)


def work_on(device: Any) -> OnDevice | None:
    """Return the work on the device, None if batches are only copied."""
    return device if isinstance(device, OnDevice) else None


def wanted(device: Any) -> Device | None:
    """Return the device that ``device=`` names, None if no copy is needed."""
    if device is None:
        return None
    on_device = work_on(device)
    found = open_device(device if on_device is None else on_device.device)
    return Device() if found is None and on_device is not None else found


class Pending:
    """A copy that has begun: the result to hand over, its tensors, and the event of its end."""

    __slots__ = ("event", "tensors", "what")

    def __init__(self, what: Any, tensors: list[Any], event: Any) -> None:
        self.what, self.tensors, self.event = what, tensors, event


class Feeder:
    """Copies tensors to a device, and holds their sources until the copies have ended."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # Events, and the sources of the copies until then.
        self._flying: collections.deque[tuple[Any, Any]] = collections.deque()
        # The rings that are registered, by the connection of each: kept alive, since a mapping must outlive that.
        self._rings: dict[Connection, tuple[npt.NDArray[np.uint8], list[int]]] = {}

    def adopt(self, connection: Connection) -> None:
        """Register the ring of an engine: as a whole, or as many of its slots as the system allows."""
        if connection in self._rings or connection.private:  # registering private memory would copy it
            return
        for gone in [c for c in self._rings if c.closed]:
            self._settle()
            self._forget(gone)
        ring, stride = connection.whole_ring(), connection.stride
        address, pinned = ring.ctypes.data, []
        if why := self._device.pin(address, ring.size):
            for at in range(0, ring.size, stride):
                if self._device.pin(address + at, min(stride, ring.size - at)):
                    break
                pinned.append(address + at)
            slots = -(-ring.size // stride)
            warn(
                f"{len(pinned)} of {slots} slots of the ring could be registered as pinned memory ({why}); "
                "copies out of the others are staged and wait. Raise the limit of locked memory (ulimit -l), or set a "
                "smaller limits=stoker.Limits(memory=...)",
                RuntimeWarning,
            )
        else:
            pinned.append(address)
        self._rings[connection] = ring, pinned

    def _forget(self, connection: Connection) -> None:
        for address in self._rings.pop(connection)[1]:
            self._device.unpin(address)

    def begin(
        self, held: Any, tensors: list[Any], rebuild: Callable[[list[Any]], Any], work: Work | None = None
    ) -> Pending:
        """Begin to copy tensors, and to work on them; ``rebuild`` makes the final result.

        ``held`` keeps the memory of the tensors.
        """
        staged = [t if self._registered(t) else self._device.stage(t) for t in tensors]
        out, event = self._device.copy(staged, work)
        beside = [s for s, t in zip(staged, tensors, strict=True) if s is not t]
        self._flying.append((event, (held, beside)))
        return Pending(rebuild(out), out, event)

    def _registered(self, tensor: Any) -> bool:
        """Whether a tensor is in a ring that was registered, if only in part."""
        at = tensor.data_ptr()
        return any(ring.ctypes.data <= at < ring.ctypes.data + ring.size for ring, _ in self._rings.values())

    def finish(self, pending: Pending) -> Any:
        """Hand over the result: the loop's stream waits for it, this thread does not."""
        self._device.take(pending.tensors, pending.event)
        return pending.what

    def sweep(self, wait: bool = False) -> None:
        """Release the memory of finished copies; ``wait`` waits for the oldest one."""
        while self._flying and self._device.ended(self._flying[0][0], wait):
            self._flying.popleft()
            wait = False

    def _settle(self) -> None:
        while self._flying:
            self.sweep(wait=True)

    def close(self) -> None:
        """Wait for all copies, and undo the registrations."""
        self._settle()
        for connection in list(self._rings):
            self._forget(connection)


class BatchFeeder:
    """Copies batches of a Loader to a device."""

    def __init__(self, device: Device, on_device: OnDevice | None, seed: int) -> None:
        self.feeder = Feeder(device)
        # The program gets copies, so that it cannot write to the ring.
        self.only_reads = type(device) is not Device
        self.on_device = on_device
        self._seed = seed
        # The arrays that are worked on, and the axes of each in the order of channel, height and width.
        self._images: dict[str, tuple[int, ...]] = {}
        self._label, self._classes = "", 0

    def expect(
        self, specs: Sequence[ArraySpec], layouts: Mapping[str, str], classes: Mapping[str, Sequence[str]], mapped: bool
    ) -> None:
        """Set the arrays of the batches.

        ``layouts`` gives the layout of each image, ``classes`` the names of each label's classes. If functions of the
        user define the arrays (``mapped``), OnDevice must name them.
        """
        if (of := self.on_device) is None:
            return
        if mapped:
            if of.images is None or (of.mixup and (of.labels is None or of.num_classes is None)):
                raise ConfigError(
                    "on_device=OnDevice(...) after map= or batch_map=: name images=, and for mixup= also labels= and "
                    "num_classes="
                )
            self._images = {str(name): _NHWC for name in of.images}
            if of.mixup:
                self._label, self._classes = str(of.labels), of.num_classes or 0
            return
        known = [s.name for s in specs if s.name != INDEX]
        named = of.images if of.images is not None else [s.name for s in specs if s.kind == "image" and not s.varies]
        for name in named:
            if name not in known:
                raise ConfigError(f"on_device=OnDevice(images={name!r}): the batch has {', '.join(known)}")
            self._images[str(name)] = _NHWC if layouts.get(str(name)) == "NHWC" else (0, 1, 2, 3)
        if not self._images:
            raise ConfigError(
                f"on_device= is for images, and the batch has none of one size: it has {', '.join(known)}"
            )
        if of.mixup:
            labels = [s.name for s in specs if s.kind == "label"]
            self._label = str(of.labels) if of.labels is not None else labels[0] if labels else ""
            if self._label not in known:
                raise ConfigError(f"on_device=OnDevice(mixup=): the batch has no label {self._label!r} to mix along")
            self._classes = of.num_classes or len(classes.get(self._label, ()))
            if self._classes < 2:
                raise ConfigError("on_device=OnDevice(mixup=): the source has no names of classes; set num_classes=")

    def begin(self, batch: Batch) -> Pending:
        """Begin to copy a batch."""
        tensors: list[Any] = []
        places: dict[str, int] = {}
        for name, value in batch.items():
            if name == INDEX or isinstance(value, Strings):
                continue
            places[name] = len(tensors)
            tensors += [value.values, value.offsets] if isinstance(value, Ragged) else [value]

        def rebuild(copies: list[Any]) -> Batch:
            arrays: dict[str, Any] = {}
            for name, value in batch.items():
                if isinstance(value, Strings):
                    arrays[name] = value.copy()
                elif name == INDEX:
                    arrays[name] = value.clone()  # what one looks at in Python stays in its memory
                elif isinstance(value, Ragged):
                    arrays[name] = Ragged(copies[places[name]], copies[places[name] + 1])
                else:
                    arrays[name] = copies[places[name]]
            if self._label:
                index = arrays.pop(INDEX)
                arrays |= {self._label + SOFT: copies[-1], INDEX: index}
            return Batch(arrays, batch.epoch, batch.step, len(batch), batch._beside, batch.num_repeated)

        return self.feeder.begin(batch, tensors, rebuild, self._work(batch, places))

    def _work(self, batch: Batch, places: dict[str, int]) -> Work | None:
        if (of := self.on_device) is None:
            return None
        draw = of.draw(self._seed, batch.epoch, batch.step, batch[INDEX].numpy())

        def work(copies: list[Any]) -> list[Any]:
            out = list(copies)
            for name, axes in self._images.items():
                image = copies[places[name]]
                out[places[name]] = of.apply(image.permute(axes) if image.dim() == 4 else image, draw)
            if self._label:
                out.append(of.soft(copies[places[self._label]], draw.share, self._classes))
            return out

        return work
