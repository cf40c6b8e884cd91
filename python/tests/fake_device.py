"""A device that is none, and holds loaders to the rules of real ones."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import torch


class Fake:
    """Copies are made when they are waited for, as late as possible.

    The source of a copy must not have changed by then: the engine writes to a slot that was released too early. Tensors
    hold nonsense until the loop's stream has waited, and must belong to that stream when they are handed over. Work
    after the copies runs twice. It first runs on nonsense, when it is requested, because the stream has not come that
    far. Then it runs on the copied data.
    """

    LIMIT = 1 << 62  # of pinned memory

    def __init__(self) -> None:
        self.pinned: dict[int, int] = {}
        self.copies: dict[int, list[tuple[int, bytes, Any, Any, Any]]] = {}
        # The work that follows the copies of an event: the function, its arguments and the promised results.
        self.works: dict[int, tuple[Any, list[Any], list[Any]]] = {}
        self.staged: list[Any] = []
        self.events = self.ended_events = 0
        self.owned: set[int] = set()
        self.connections: list[Callable[[], Any]] = []
        self.broken: list[str] = []
        self.most_flying = 0

    def pin(self, address: int, size: int) -> str:
        if any(a < address + size and address < a + n for a, n in self.pinned.items()):
            self.broken.append("memory is registered twice")
        if sum(self.pinned.values()) + size > self.LIMIT:
            return "out of memory"
        self.pinned[address] = size
        return ""

    def unpin(self, address: int) -> None:
        if self.pinned.pop(address, None) is None:
            self.broken.append("memory that is not registered")

    def stage(self, tensor: Any) -> Any:
        """Return pinned memory. The caller must hold it until the copy out of it has ended."""
        copy = tensor.clone()
        self.staged.append(weakref.ref(copy))
        return copy

    def copy(self, tensors: list[Any], work: Any = None) -> tuple[list[Any], int]:
        out: list[Any] = []
        self.events += 1
        for t in tensors:
            at, size = t.data_ptr(), t.numel() * t.element_size()
            inside = any(a <= at and at + size <= a + n for a, n in self.pinned.items())
            inside = inside or any(s() is t for s in self.staged)
            if size and self.LIMIT > 1 << 60 and not inside:
                self.broken.append("it is not copied from pinned memory")
            to = torch.empty_like(t).fill_(1)
            # No reference to t: it would keep the slot.
            held = next((s for s in self.staged if s() is t), lambda: True)
            self.copies.setdefault(self.events, []).append((at, ctypes.string_at(at, size), t.clone(), to, held))
            out.append(to)
        self.copies.setdefault(self.events, [])
        self.most_flying = max(self.most_flying, len(self.copies))
        if work is None:
            return out, self.events
        made = work(out)  # of nonsense, until the copies have come
        promised = [m if any(m is o for o in out) else m.clone().fill_(1) for m in made]
        self.works[self.events] = work, out, promised
        return promised, self.events

    def _run(self, event: int) -> None:
        for at, then, value, to, held in self.copies.pop(event, []):
            if held() is None:
                self.broken.append("pinned memory has gone back before its copy had ended")
                continue
            if then and not self.leased(at):
                self.broken.append("a slot has gone back before its copy had ended")
            if ctypes.string_at(at, len(then)) != then:
                self.broken.append("a slot was written to before its copy had ended")
            to.copy_(value)
        if event in self.works:
            work, copies, promised = self.works.pop(event)
            for to, made in zip(promised, work(copies), strict=True):
                to.copy_(made)

    def leased(self, address: int) -> bool:
        """Report whether an address is in a slot that one of the loaders holds."""
        for find in self.connections:
            connection = find()
            if connection is None or connection.closed:
                continue
            at = address - connection.whole_ring().ctypes.data
            if 0 <= at < connection.ring()[0]:
                held = {slot for slot, root in connection._held.values() if root() is not None}
                return at // connection.stride in held
        return True  # of one that is not looked at

    def take(self, tensors: list[Any], event: int) -> None:
        self._run(event)
        self.owned |= {id(t) for t in tensors}

    def ended(self, event: int, wait: bool = False) -> bool:
        if wait:
            self._run(event)
        return event not in self.copies

    def watch(self, find: Callable[[], Any]) -> None:
        """Watch the slots of the connection that a function finds."""
        self.connections.append(find)
