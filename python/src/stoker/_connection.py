"""One connection to an engine: the ring, the stream of batches and the leases."""

from __future__ import annotations

import collections
import contextlib
import copy
import gc
import json
import mmap
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _wire as wire
from ._errors import (
    BatchesHeld,
    ConfigError,
    EngineDied,
    RecordError,
    StokerError,
    StokerTimeout,
)
from ._process import Engine, anonymous_file, stopped

Root = npt.NDArray[np.uint8]

# Waits are cut into pieces of this length, because some events have no descriptor: another thread has received this
# thread's message, or has closed the loader.
_SLICE = 0.1
# A ring of up to so many slots needs each slot back immediately.
_FEW_SLOTS = 8
# Releases in a packet at most.
_RELEASES = 1024
# The time that another thread has to release a batch when the program holds all of them.
_HELD_GRACE = 5.0
# The time that a new engine may take to answer, and the pause between tries.
_START_GRACE = 2.0
_RETRY = 0.02


class Position(NamedTuple):
    """A place in the stream: ``row`` records of the order of ``epoch`` come before it."""

    epoch: int
    row: int


_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _after_fork() -> None:
    """Drop a forked child's copies of the descriptors, so that they keep nothing alive."""
    for connection in list(_open_connections):
        connection.drop_in_child()


os.register_at_fork(after_in_child=_after_fork)


def connect(path: str) -> socket.socket:
    """Connect to the engine that serves at ``path``, which may be about to start."""
    deadline = time.monotonic() + _START_GRACE
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.connect(path)
            return sock
        except (FileNotFoundError, ConnectionRefusedError) as error:
            sock.close()
            if time.monotonic() >= deadline:
                raise _no_engine(path, error) from None
            time.sleep(_RETRY)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError):
                raise _no_engine(path, error) from None
            raise


def _no_engine(path: str, error: OSError) -> StokerError:
    return StokerError(
        f"no engine answers at {path}: {error.strerror or error}\nhint: start one with: stoker serve --socket {path}"
    )


class Connection:
    """A session with an engine.

    Several threads may wait and receive concurrently. Only one may start streams and take events.
    """

    def __init__(self, sock: socket.socket, process: Engine | None, where: str) -> None:
        """Take over a connected socket. ``process`` is the engine unless another program started it."""
        self._sock = sock
        sock.setblocking(False)
        self._process = process
        self._where = where
        self._receive_lock = threading.Lock()
        self._buffer = memoryview(bytearray(wire.MAX_MESSAGE))
        self._events: collections.deque[wire.BatchReady | wire.EpochEnd | wire.Failure] = collections.deque()
        self._ready: tuple[wire.Ready, list[int]] | None = None
        # Answers to those who ask for statistics, and who still does.
        self._stats: dict[int, bytes] = {}
        self._asked: set[int] = set()
        self._requests = 0
        self._gen = 0
        # The batches that the program holds, and those that have yet to be released, by lease.
        self._held: dict[int, tuple[int, weakref.ref[Root]]] = {}
        self._unsent: dict[int, int] = {}
        # The number of releases sent together. In a ring of many slots, batches are so small that waking the engine
        # costs more than building one. All are sent when the engine has less than half of its slots.
        self._together = 1
        self._waiters: list[select.poll] = []
        self._closing = threading.Lock()
        self._dead: StokerError | None = None
        self._ring: mmap.mmap | None = None
        self._ring_fds: list[int] = []
        self._keep_ring = False
        self._stride = self._ring_slots = 0
        # Other clients get the same memory. It is mapped privately if the program may write to it, so that what it
        # writes is its own. A second ring may come, for the time in which this program is behind the others.
        self._common = self.private = False
        self._second: tuple[mmap.mmap, wire.Ring] | None = None
        # The request to the engine, which bounds its answers.
        self._batch_size = 0
        self.slots = 0
        self.closed = False
        self.info: dict[str, Any] = {}
        # The position to continue at when the next event is taken, None if the stream cannot continue.
        self.cursor: Position | None = None
        self._torn = False
        _open_connections.add(self)

    # --- opening -----------------------------------------------------------

    def open(self, config: dict[str, Any], timeout: float, keep_ring: bool = False) -> None:
        """Ask for a pipeline and map its ring, whose descriptor may be kept for other processes."""
        self._keep_ring = keep_ring
        self._batch_size = config["batch_size"]
        raw = json.dumps(config, separators=(",", ":"), allow_nan=False).encode()
        if len(raw) > wire.MAX_CONFIG:
            raise ConfigError(f"the configuration has {len(raw)} bytes, the limit is {wire.MAX_CONFIG}")
        if len(raw) <= wire.MAX_INLINE_CONFIG:
            self._send(wire.pack(wire.Open(raw)))
        else:
            fd = anonymous_file("stoker-config")
            try:
                with open(fd, "wb", closefd=False) as f:
                    f.write(raw)
                self._send(wire.pack(wire.Open(b"", True, len(raw))), fd)
            finally:
                os.close(fd)
        deadline = time.monotonic() + timeout
        while self._ready is None:
            if not self._receive(deadline):
                raise StokerTimeout(
                    f"the engine did not open {config['source']} within {timeout:g} s; "
                    "limits=stoker.Limits(timeout=SECONDS) sets how long to wait"
                )
        ready, fds = self._ready
        try:
            if not 2 <= len(fds) <= 3 or ready.info_size > wire.MAX_CONFIG:
                raise wire.WireError(f"READY with {len(fds)} descriptors and a description of {ready.info_size} bytes")
            self.info = json.loads(os.pread(fds[1], ready.info_size, 0))
            if not 0 <= self.info["slot_bytes"] <= ready.slot_stride:
                raise wire.WireError(f"slots of {self.info['slot_bytes']} bytes, {ready.slot_stride} apart")
            if self.info.get("shared"):
                self._common, self.private = True, not self.info.get("pinned")
                self._together = 1  # the engine must know who waits for a batch
            self._ring = self._map(fds[0], ready.ring_size)
            self.slots = min(self.slots, int(self.info.get("slots", self.slots)))
            self._keep(fds[0])
            if len(fds) > 2 and self._process is not None:
                self._process.note_in_flight(os.dup(fds[2]))
        except (wire.WireError, ValueError, KeyError, TypeError) as error:
            raise self._broken(error) from None
        except OSError as error:
            raise StokerError(f"the ring of {ready.ring_size} bytes cannot be mapped: {error.strerror}") from None
        finally:
            for fd in fds:
                os.close(fd)

    def _map(self, fd: int, size: int) -> mmap.mmap:
        flags = mmap.MAP_PRIVATE if self.private else mmap.MAP_SHARED
        return mmap.mmap(fd, size, flags, mmap.PROT_READ | mmap.PROT_WRITE)

    def _keep(self, fd: int) -> None:
        if self._keep_ring:
            self._ring_fds.append(os.dup(fd))

    def ring(self, second: bool = False) -> tuple[int, int, int]:
        """Return the size of the ring, the distance of its slots, and its descriptor, -1 if it was not kept.

        With ``second`` it describes the second ring.
        """
        if self._ring is None:
            raise StokerError("the loader was closed")
        if second and self._second is not None:
            return len(self._second[0]), self._second[1].slot_stride, self._ring_fds[1]
        return len(self._ring), self._stride, self._ring_fds[0] if self._ring_fds else -1

    @property
    def stride(self) -> int:
        """The distance of the slots of the ring."""
        return self._stride

    def whole_ring(self) -> Root:
        """Return the whole ring."""
        if self._ring is None:
            raise StokerError("the loader was closed")
        return np.frombuffer(self._ring, np.uint8)

    # --- the stream --------------------------------------------------------

    def start(self, position: Position) -> None:
        """Begin the stream again at ``position``. Batches on their way are dropped."""
        self._gen += 1
        stale = [e for e in self._events if isinstance(e, wire.BatchReady)]
        self._events.clear()
        for batch in stale:
            self._release(batch.slot, batch.lease)
        self._send(wire.pack(wire.Start(self._gen, position.epoch, position.row)))
        self.cursor = position

    def order(self, batches: Iterable[npt.NDArray[np.int64]]) -> None:
        """Set the records of the stream's next batches, if the configuration has ``order: "client"``."""
        most, packet = 8 * wire.MAX_ORDER, b""
        for records in batches:
            raw = records.astype("<i8", copy=False).tobytes()
            for at in range(0, len(raw), most):
                message = wire.pack_order(self._gen, at + most >= len(raw), raw[at : at + most])
                if len(packet) + len(message) > wire.MAX_MESSAGE:
                    self._send(packet)
                    packet = b""
                packet += message
        self._send(packet)

    def wait(self, timeout: float) -> None:
        """Wait until the stream has an event to take.

        Raises:
            EngineDied, StokerTimeout, RecordError, BatchesHeld, StokerError
        """
        if self._events or (len(self._held) < self.slots and self._take() and self._events):
            return
        deadline = time.monotonic() + timeout
        held_until = None
        while not self._events:
            until = deadline
            if len(self._held) >= self.slots:
                held_until = self._all_held(held_until)
                until = min(deadline, held_until)
            if not self._receive(until) and time.monotonic() >= deadline:
                raise self._timed_out(timeout)

    def ready(self) -> bool:
        """Say whether the stream has an event to take, without waiting for one; raises as ``wait`` does."""
        while not self._events:
            if self.closed:
                raise StokerError("the loader was closed")
            self._send_releases_in_time()
            if not self._take():
                if self._process is not None and self._process.wait(0) is not None and not self._take():
                    raise self._lost()
                return bool(self._events)
        return True

    def waiters(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when ``ready`` may say something new."""
        process = -1 if self._process is None else self._process.pidfd
        return tuple(fd for fd in (self._sock.fileno(), process) if fd >= 0)

    def take(self) -> wire.BatchReady | wire.EpochEnd:
        """Return the event that wait has waited for, or raise the failure that it is."""
        event = self._events.popleft()
        if isinstance(event, wire.Failure):
            self.cursor = None
            raise self._failure(event)
        return event

    def _all_held(self, deadline: float | None) -> float:
        """Release what can be released; return how long to wait for another thread to drop a batch."""
        gc.collect()
        self.release_dead()
        now = time.monotonic()
        if deadline is None:
            # Only another thread could release a batch.
            deadline = now + (_HELD_GRACE if threading.active_count() > 1 else 0)
        if len(self._held) >= self.slots and now >= deadline:
            raise BatchesHeld(
                f"all {self.slots} batches that the engine has room for are still in use, so it cannot make "
                "another one. A batch is in use while any of its arrays, or a view of one, is alive.\n"
                "hint: keep copies (batch.copy(), or .clone() of a tensor), or make room with "
                "limits=stoker.Limits(prefetch=N, memory=SIZE)"
            )
        return deadline

    def lease(self, batch: wire.BatchReady, size: int) -> Root:
        """Return the bytes of a slot; the slot goes back when the last view of them is gone."""
        if self._ring is None:
            raise StokerError("the loader was closed")
        ring, number, stride = self._ring, batch.slot, self._stride
        if number >= wire.MAX_SLOTS and self._second is not None:
            ring, number, stride = self._second[0], number - wire.MAX_SLOTS, self._second[1].slot_stride
        if self.private:
            # Pages that the program wrote are copies, which hide the new batch.
            ring.madvise(mmap.MADV_DONTNEED, number * stride, stride)
        root: Root = np.frombuffer(ring, np.uint8, size, number * stride)
        slot, lease = batch.slot, batch.lease
        # The callback runs in whatever thread drops the last view, in the middle of anything:
        # it takes no lock.
        self._held[lease] = slot, weakref.ref(root, lambda _: self._release(slot, lease))
        return root

    @property
    def held(self) -> int:
        """The number of batches that the program holds."""
        return len(self._held)

    def release_dead(self) -> None:
        """Release dropped batches whose callback was interrupted."""
        for lease, (slot, root) in list(self._held.items()):
            if root() is None:
                self._release(slot, lease)

    def _release(self, slot: int, lease: int) -> None:
        # An interrupt may end this anywhere, so each step may be done again: the engine ignores a
        # lease that it has back.
        if not self.closed:
            self._unsent[lease] = slot
            self._held.pop(lease, None)
            if len(self._unsent) >= self._together:
                self._send_releases()

    def _send_releases(self) -> None:
        unsent = list(self._unsent.items())
        for at in range(0, len(unsent), _RELEASES):
            some = unsent[at : at + _RELEASES]
            try:
                self._sock.send(b"".join([wire.pack_release(slot, lease) for lease, slot in some]))
            except BlockingIOError:
                return  # the next wait tries again
            except OSError:
                pass  # the engine is gone; the next wait says so
            for lease, _ in some:
                self._unsent.pop(lease, None)

    def stats(self, timeout: float) -> dict[str, Any]:
        """Return the engine's counters, or nothing when it does not answer in time."""
        self._requests = (self._requests + 1) & 0xFFFFFFFF
        request = self._requests
        self._asked.add(request)
        try:
            self._send(wire.pack(wire.Stats(request)))
            deadline = time.monotonic() + timeout
            while request not in self._stats:
                if not self._receive(deadline):
                    return {}
            answer: dict[str, Any] = json.loads(self._stats[request])
        except ValueError as error:
            raise self._broken(error) from None
        finally:
            self._asked.discard(request)
            self._stats.pop(request, None)
        return answer

    # --- the socket --------------------------------------------------------

    def _receive(self, deadline: float) -> bool:
        """Receive a message, or wait a little; return False when the deadline has passed."""
        if self.closed:
            raise StokerError("the loader was closed")
        self._send_releases_in_time()
        left = deadline - time.monotonic()
        try:
            found = self._poll(max(min(left, _SLICE), 0))
        except (OSError, ValueError):
            return True  # closed by another thread
        if not found:
            return left > 0
        if not self._take() and self._process is not None and any(fd == self._process.pidfd for fd, _ in found):
            # The engine has ended, and a process forked from this one holds its end of the socket.
            raise self._lost()
        return True

    def _send_releases_in_time(self) -> None:
        if self._unsent and (len(self._unsent) >= self._together or 2 * self._away() > self.slots):
            self._send_releases()

    def _away(self) -> int:
        """The number of slots that the engine cannot fill."""
        return len(self._held) + len(self._unsent)

    def _poll(self, seconds: float) -> list[tuple[int, int]]:
        """Wait for the engine's messages or its end."""
        # Made once, for it is used for most batches; another thread makes its own.
        try:
            waiter = self._waiters.pop()
        except IndexError:
            waiter = select.poll()
            waiter.register(self._sock, select.POLLIN)
            if self._process is not None and self._process.pidfd >= 0:
                waiter.register(self._process.pidfd, select.POLLIN)
        found = waiter.poll(seconds * 1000)
        self._waiters.append(waiter)
        return found

    def _take(self) -> bool:
        """Receive a message without waiting; report whether there was one."""
        with self._receive_lock:
            if self._dead is not None:
                raise self._dead_again()
            try:
                if self._ready is None:
                    return self._take_with_descriptors()
                if self._common:
                    return self._take_shared()
                size = self._sock.recv_into(self._buffer)
                if size == 0:
                    raise self._lost()
                for message in wire.split(self._buffer[:size]):
                    self._dispatch(self._parse(message))
            except BlockingIOError:
                return False
            except ConnectionResetError:
                pass  # reported once; what the engine sent before its end comes next
            except OSError:
                raise self._lost() from None
            except StokerError:
                raise
            except BaseException:
                self.tear()
                raise
            return True

    def _take_shared(self) -> bool:
        """Take a packet that may bring the second ring."""
        data, fds, _, _ = socket.recv_fds(self._sock, wire.MAX_MESSAGE, 4)
        try:
            if not data:
                raise self._lost()
            for raw in wire.split(memoryview(data)):
                message = self._parse(raw)
                if isinstance(message, wire.Ring):
                    if len(fds) != 1 or self._second is not None:
                        raise self._broken(wire.WireError(f"RING with {len(fds)} descriptors"))
                    self._second = self._map(fds[0], message.ring_size), message
                    self._keep(fds[0])
                else:
                    self._dispatch(message)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _take_with_descriptors(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._sock, wire.MAX_MESSAGE, 4)
        if not data:
            raise self._lost()
        message = self._parse(data)
        if isinstance(message, wire.Ready):
            self.slots = self._ring_slots = message.slots
            self._stride = message.slot_stride
            self._together = message.slots // 4 if message.slots > _FEW_SLOTS else 1
            self._ready = (message, fds)
            return True
        for fd in fds:
            os.close(fd)
        self._dispatch(message)
        return True

    def _parse(self, data: bytes | memoryview) -> wire.Message:
        try:
            return wire.unpack(data)
        except wire.WireError as error:
            raise self._broken(error) from None

    def _in_second_ring(self, slot: int) -> bool:
        return self._second is not None and 0 <= slot - wire.MAX_SLOTS < self._second[1].slots

    def _dispatch(self, message: wire.Message) -> None:
        if isinstance(message, wire.BatchReady):
            if message.slot >= self._ring_slots and not self._in_second_ring(message.slot):
                raise self._broken(wire.WireError(f"BATCH in slot {message.slot} of {self.slots}"))
            if message.rows > self._batch_size:
                raise self._broken(wire.WireError(f"BATCH of {message.rows} rows; batch_size is {self._batch_size}"))
            if message.gen == self._gen:
                self._events.append(message)
            else:
                self._release(message.slot, message.lease)
        elif isinstance(message, wire.EpochEnd):
            if message.skipped < 0:
                raise self._broken(wire.WireError(f"EPOCH_END with {message.skipped} records that were replaced"))
            if message.gen == self._gen:
                self._events.append(message)
        elif isinstance(message, wire.Failure):
            if message.code in (wire.CODE_RECORD, wire.CODE_STREAM):
                if message.gen == self._gen:
                    self._events.append(message)
            else:
                self._dead = self._failure(message)
                raise self._dead_again()
        elif isinstance(message, wire.Stats):
            if message.request in self._asked:
                self._stats[message.request] = message.json
        else:
            raise self._broken(wire.WireError(f"unexpected {type(message).__name__}"))

    def _send(self, message: bytes, *fds: int) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                if fds:
                    socket.send_fds(self._sock, [message], list(fds))
                else:
                    self._sock.send(message)
                return
            except BlockingIOError:
                # The engine reads at all times, so that the socket has space immediately unless the engine is stopped.
                if time.monotonic() > deadline:
                    why = stopped(self._engine_pid()) or "the engine does not take messages"
                    raise StokerTimeout(why) from None
                waiter = select.poll()
                waiter.register(self._sock, select.POLLOUT)
                waiter.poll(100)
            except OSError:
                if self.closed:
                    raise StokerError("the loader was closed") from None
                raise self._lost() from None

    # --- failures ----------------------------------------------------------

    def _lost(self) -> StokerError:
        """The connection has ended, and this side has not closed it."""
        if self._dead is None:
            if self.closed:
                return StokerError("the loader was closed")
            if self._process is not None:
                self._dead = self._process.died()
            else:
                self._dead = EngineDied(f"the engine at {self._where} closed the connection")
        return self._dead_again()

    def _dead_again(self) -> StokerError:
        """Return a copy of the error that ended the session: a raised one holds the user's frames and batches."""
        self.cursor = None
        return copy.copy(self._dead) or StokerError("the session has ended")

    def _broken(self, error: Exception) -> StokerError:
        if isinstance(error, wire.OtherVersion):
            self._dead = StokerError(f"{error} ({self._where})")
            return self._dead_again()
        self._dead = StokerError(
            f"the engine sent something that this package does not understand ({error}); "
            f"package and engine ({self._where}) must be of the same version"
        )
        return self._dead_again()

    def _failure(self, f: wire.Failure) -> StokerError:
        hint = f"\nhint: {f.hint}" if f.hint else ""
        if f.code == wire.CODE_RECORD:
            text = f"record {f.record} ({f.name}) cannot be used: {f.reason}"
            hint = hint or '\nhint: on_error="skip" replaces such records by others and counts them'
            return RecordError(text + hint, f.record, f.name, f.reason)
        if f.code == wire.CODE_CONFIG:
            return ConfigError(f.reason + hint)
        if f.code == wire.CODE_PROTOCOL:
            return self._broken(wire.WireError(f.reason))
        return StokerError(f.reason + hint)

    def _timed_out(self, timeout: float) -> StokerTimeout:
        pid = self._engine_pid()
        if (why := stopped(pid)).startswith(f"the engine (process {pid}) is stopped"):
            return StokerTimeout(f"no batch within {timeout:g} s; {why}", why.partition("\n")[0])
        stats: dict[str, Any] = {}
        with contextlib.suppress(StokerError):
            stats = self.stats(2)
        waiting = str(stats.get("waiting", ""))
        if waiting:
            said = f"the engine waits for: {waiting}"
        elif stats:
            said = "the engine names nothing that it waits for: the batch may have come just now"
        else:
            waiting = said = (stopped(pid) or f"the engine (process {pid}) does not answer").partition("\n")[0]
        return StokerTimeout(
            f"no batch within {timeout:g} s; {said}\nhint: limits=stoker.Limits(timeout=SECONDS) sets how long to wait",
            waiting,
        )

    def _engine_pid(self) -> int:
        """Return the process number of the engine, also if another program has started it."""
        if self._process is not None:
            return self._process.pid
        try:
            peer = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return -1
        return int(struct.unpack("3i", peer)[0])

    def tear(self) -> None:
        """Give up the stream: an exception, such as KeyboardInterrupt, may have lost an event."""
        self._torn = True
        self.cursor = None

    @property
    def ended(self) -> EngineDied | None:
        """How the engine has ended, as far as this connection has noticed."""
        return self._dead if isinstance(self._dead, EngineDied) else None

    @property
    def usable(self) -> bool:
        """Whether the stream can continue."""
        return not (self.closed or self._torn or self._dead)

    # --- the end -----------------------------------------------------------

    def close(self) -> None:
        """End the session, and the engine when it is this loader's own. Arrays that are in use stay valid."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
            self.cursor = None
        _open_connections.discard(self)
        with contextlib.suppress(OSError):
            self._sock.send(wire.pack(wire.Close()))
        self._sock.close()
        self._drop()
        if self._process is not None:
            self._process.end()

    def drop_in_child(self) -> None:
        """Close a forked child's copies; the session belongs to the parent and continues."""
        self.closed = True
        self._sock.close()
        self._drop()
        if self._process is not None:
            self._process.forget()

    def _drop(self) -> None:
        self._held.clear()
        self._events.clear()
        while self._ring_fds:
            os.close(self._ring_fds.pop())
        # Arrays keep the mapping for as long as they need it.
        self._ring = self._second = None
