"""An engine that misbehaves on demand, for tests of the client.

It speaks docs/reference/protocol.md over the inherited socket and serves numbers instead of images. The source names
the misbehaviour: ``fake:slots=3&die_at=5``.
"""

from __future__ import annotations

import argparse
import array
import json
import mmap
import os
import signal
import socket
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs

from engine_wire import Release, pack, unpack, wire

STRIDE = 1 << 16


class Engine:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        data, fds, _, _ = socket.recv_fds(sock, wire.MAX_MESSAGE, 4)
        opened = unpack(data)
        raw = os.pread(fds[0], opened.file_size, 0) if opened.in_file else opened.config
        self.config = json.loads(raw)
        query = parse_qs(self.config["source"].partition(":")[2])
        self.options = {k: v[0] for k, v in query.items()}
        self.length = self.number("len", 20)
        self.slots = self.number("slots", 3)
        self.batch = self.config["batch_size"]
        self.steps = -(-self.length // self.batch)
        self.dtype = self.options.get("dtype", "uint8")
        self.size = {"uint8": 1, "bfloat16": 2, "float16": 2, "float32": 4}[self.dtype]

    def number(self, name: str, default: int = -1) -> int:
        return int(self.options.get(name, default))

    def send(self, message: object, *fds: int) -> None:
        socket.send_fds(self.sock, [pack(message)], list(fds))

    def open(self) -> None:
        if "die_open" in self.options and self.first_time():
            print("panic: cannot open\n\ngoroutine 1 [running]:", file=sys.stderr, flush=True)
            sys.exit(2)
        if "refuse" in self.options:
            self.send(wire.Failure(0, wire.CODE_CONFIG, -1, "", "no such folder: /x", "make it"))
            sys.exit(0)
        if "hang_open" in self.options:
            time.sleep(1000)
        shape, size = [2, 4, 3], 24 * self.size
        rows = [
            {"name": "label", "kind": "label", "dtype": "int64", "shape": [], "offset": 0, "row_bytes": 8},
            {"name": "image", "kind": "image", "dtype": self.dtype, "shape": shape, "offset": 8192, "row_bytes": size},
            {"name": "index", "dtype": "int64", "shape": [], "offset": 4096, "row_bytes": 8},
        ]
        names = [o["name"] for o in self.config["outputs"]]
        rows += [
            {"name": n, "dtype": "uint8", "shape": [2], "offset": 16384 + 64 * i, "row_bytes": 2}
            for i, n in enumerate(names)
            if n != "image"
        ]
        info = {
            "len": self.length, "steps": self.number("steps", self.steps), "arrays": rows,
            "slot_bytes": self.number("slot_bytes", STRIDE),
            "classes": {"label": ["cat", "dog"]}, "fingerprint": self.options.get("fingerprint", "f00d"),
            "identity": {
                "seed": self.config["seed"], "order": f"1:{'full' if self.config['shuffle'] else 'source'}",
                "manifest": self.options.get("fingerprint", "f00d"), "pipeline": "00000001-00000002",
            },
            "config": self.config, "pid": os.getpid(),
        }  # fmt: skip
        ring = os.memfd_create("ring")
        os.ftruncate(ring, self.slots * STRIDE)
        self.ring = mmap.mmap(ring, 0)
        described = os.memfd_create("info")
        text = json.dumps(info).encode()
        os.write(described, text)
        said = self.number("info_size", len(text))
        self.send(wire.Ready(said, self.slots, STRIDE, self.slots * STRIDE), ring, described)

    def first_time(self) -> bool:
        """Whether the file of the option `unless` was not there; it is there afterwards."""
        if "unless" not in self.options:
            return True
        first = not Path(self.options["unless"]).exists()
        Path(self.options["unless"]).touch()
        return first

    def fill(self, slot: int, epoch: int, first: int, rows: int) -> None:
        base = slot * STRIDE
        ids = array.array("q", [(first + i + epoch) % self.length for i in range(rows)])
        self.ring[base : base + 8 * rows] = array.array("q", [i % 2 for i in ids]).tobytes()
        self.ring[base + 4096 : base + 4096 + 8 * rows] = ids.tobytes()
        if self.dtype == "uint8":
            pixels = b"".join(bytes((i + k) % 256 for k in range(24)) for i in ids)
        else:
            one = {"bfloat16": b"\x80\x3f", "float16": b"\x00\x3c", "float32": b"\x00\x00\x80\x3f"}[self.dtype]
            pixels = one * 24 * rows
        self.ring[base + 8192 : base + 8192 + len(pixels)] = pixels

    def run(self) -> None:
        free = list(range(self.slots))
        leases: dict[int, int] = {}
        lease = gen = epoch = row = 0
        stopped = True
        while True:
            waiting = stopped or not free
            data = b""
            try:
                data = self.sock.recv(wire.MAX_MESSAGE, 0 if waiting else socket.MSG_DONTWAIT)
                if not data:
                    return
            except BlockingIOError:
                pass
            for part in wire.split(memoryview(data)) if data else ():
                message = unpack(part)
                if isinstance(message, wire.Close):
                    return
                if isinstance(message, wire.Start):
                    gen, epoch, row = message
                    stopped = False
                elif isinstance(message, Release):
                    if leases.get(message.slot) == message.lease:
                        del leases[message.slot]
                        free.append(message.slot)
                elif isinstance(message, wire.Stats):
                    stats = {"waiting": "fetch: reading x.arrow for 3 s", "free": len(free), "gen": gen}
                    self.send(wire.Stats(message.request, json.dumps(stats).encode()))
                    self.send(wire.Stats(message.request + 1000, b"{}"))  # which nobody has asked for
            if data:
                continue
            if row == self.number("fail_at"):
                self.send(wire.Failure(gen, wire.CODE_RECORD, row, "a/b.jpg", "truncated", ""))
                stopped = True
                continue
            if row == self.number("stream_fail_at"):
                self.send(wire.Failure(gen, wire.CODE_STREAM, -1, "", "x.arrow: input/output error", ""))
                stopped = True
                continue
            if row == self.number("stuck_at") and self.first_time():
                stopped = True
                continue
            if row == self.number("die_at") and self.first_time():
                print("something is wrong", file=sys.stderr, flush=True)
                os.kill(os.getpid(), int(self.options.get("signal", signal.SIGSEGV)))
            if row == self.number("garbage_at"):
                self.sock.send(b"garbage!")
                stopped = True
                continue
            if row >= self.length:
                skipped = self.number("skipped", 0)
                self.send(wire.EpochEnd(gen, epoch, skipped, "record 3 (a.jpg): truncated" if skipped > 0 else ""))
                epoch, row = epoch + 1, 0
                continue
            rows = min(self.batch, self.length - row)
            slot = free.pop(0)
            self.fill(slot, epoch, row, rows)
            step = row // self.batch
            row += rows
            after = (epoch, row) if row < self.length else (epoch + 1, 0)
            lease += 1
            leases[slot] = lease
            if "slow" in self.options:
                time.sleep(float(self.options["slow"]))
            said = self.number("rows_said", rows)
            self.send(wire.BatchReady(gen, slot, said, lease, epoch, step, *after))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--fd", type=int)
    parser.add_argument("--in-flight", type=int)
    parser.add_argument("--parent", type=int)
    args = parser.parse_args()
    engine = Engine(socket.socket(fileno=args.fd))
    engine.open()
    engine.run()


if __name__ == "__main__":
    main()
