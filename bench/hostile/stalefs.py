"""A read-only file system whose handles go stale, as those of NFS do when a server exports its files again.

    python bench/hostile/stalefs.py FOLDER MOUNTPOINT EVERY

It shows FOLDER at MOUNTPOINT through FUSE. After each EVERY reads all open files are stale: reads of them return ESTALE,
until they are opened again. It prints "ready", and exits when it is unmounted. It needs root and /dev/fuse.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import sys

HEADER = struct.Struct("<IIQQIIII")
READ = struct.Struct("<QQI")
LOOKUP, FORGET, GETATTR, OPEN, READ_FILE, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 17, 18, 25, 26
OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET, DESTROY = 27, 28, 29, 36, 42, 38
SILENT = (FORGET, BATCH_FORGET, INTERRUPT)
DIRECT_IO = 1  # past the page cache, so that each read arrives here


class Files:
    """The files, by the numbers that the kernel knows them by."""

    def __init__(self, root: str, every: int) -> None:
        self.paths, self.nodes = {1: root}, {root: 1}
        self.handles: dict[int, tuple[int, int]] = {}  # descriptor and generation
        self.lists: dict[int, list[str]] = {}
        self.every, self.reads, self.generation, self.last = every, 0, 0, 0

    def attributes(self, path: str) -> bytes:
        s = os.stat(path)
        mode = s.st_mode & ~0o222
        times = (int(s.st_atime), int(s.st_mtime), int(s.st_ctime), 0, s.st_mtime_ns % 10**9, s.st_ctime_ns % 10**9)
        return struct.pack(
            "<6Q10I", s.st_ino, s.st_size, s.st_blocks, *times[:3], *times[3:], mode, s.st_nlink, 0, 0, 0, 4096, 0
        )

    def node(self, path: str) -> int:
        if path not in self.nodes:
            self.nodes[path] = len(self.nodes) + 1
            self.paths[self.nodes[path]] = path
        return self.nodes[path]

    def answer(self, op: int, node: int, data: bytes) -> bytes:
        path = self.paths.get(node, "")
        if op == INIT:
            major, minor, ahead, _ = struct.unpack_from("<4I", data)
            return struct.pack("<4I2H2I2HI7I", major, min(minor, 31), ahead, 0, 16, 12, 131072, 1, 32, 0, 0, *[0] * 7)
        if op == LOOKUP:
            found = os.path.join(path, os.fsdecode(data.rstrip(b"\0")))
            return struct.pack("<4Q2I", self.node(found), 0, 1, 1, 0, 0) + self.attributes(found)
        if op == GETATTR:
            return struct.pack("<Q2I", 1, 0, 0) + self.attributes(path)
        if op in (OPEN, OPENDIR):
            self.last += 1
            if op == OPENDIR:
                self.lists[self.last] = sorted(os.listdir(path))
            else:
                self.handles[self.last] = os.open(path, os.O_RDONLY), self.generation
            return struct.pack("<QII", self.last, DIRECT_IO if op == OPEN else 0, 0)
        if op == READ_FILE:
            handle, offset, size = READ.unpack_from(data)
            fd, generation = self.handles[handle]
            self.reads += 1
            if self.reads % self.every == 0:
                self.generation += 1
            if generation != self.generation:
                raise OSError(errno.ESTALE, "stale")
            return os.pread(fd, size, offset)
        if op == READDIR:
            handle, offset, size = READ.unpack_from(data)
            out = b""
            for at, name in enumerate(self.lists[handle][offset:], offset + 1):
                full = os.path.join(path, name)
                kind = stat.S_IFMT(os.lstat(full).st_mode) >> 12
                raw = os.fsencode(name)
                entry = struct.pack("<QQII", self.node(full), at, len(raw), kind) + raw
                entry += bytes(-len(entry) % 8)
                if len(out) + len(entry) > size:
                    break
                out += entry
            return out
        if op in (RELEASE, RELEASEDIR):
            (handle,) = struct.unpack_from("<Q", data)
            self.lists.pop(handle, None)
            if handle in self.handles:
                os.close(self.handles.pop(handle)[0])
            return b""
        if op == STATFS:
            return struct.pack("<5Q10I", 1 << 20, 0, 0, 1 << 20, 0, 4096, 255, 4096, *[0] * 7)
        if op in (FLUSH, DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not supported")


def serve(root: str, mountpoint: str, every: int) -> None:
    """Mount, and answer the kernel until the file system is unmounted."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"stale", os.fsencode(mountpoint), b"fuse", 1 | 2 | 4, options):
        raise SystemExit(f"stalefs: mount: {os.strerror(ctypes.get_errno())}")
    print("ready", flush=True)
    files = Files(os.path.abspath(root), every)
    while True:
        try:
            request = os.read(fd, 1 << 18)
        except OSError as err:
            if err.errno == errno.ENODEV:
                return
            if err.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                continue
            raise
        _, op, unique, node, *_ = HEADER.unpack_from(request)
        try:
            data, code = files.answer(op, node, request[HEADER.size :]), 0
        except OSError as err:
            data, code = b"", err.errno or errno.EIO
        if op not in SILENT:
            with contextlib.suppress(OSError):  # the request was interrupted
                os.write(fd, struct.pack("<IiQ", 16 + len(data), -code, unique) + data)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
