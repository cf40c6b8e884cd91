"""The cost of a process tree and the load of the machine, from /proc; standard library only."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def stat(pid: int | str) -> list[str] | None:
    """The fields of /proc/PID/stat after the command name: [0] state, [1] parent, [11:15] times."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def tree(root: int) -> dict[int, list[str]]:
    """The process and all its descendants, with their stat fields."""
    children: dict[int, list[tuple[int, list[str]]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat(entry)) is not None:
            children.setdefault(int(fields[1]), []).append((int(entry), fields))
    found: dict[int, list[str]] = {}
    if (fields := stat(root)) is not None:
        found[root] = fields
    todo = [root]
    while todo:
        for pid, fields in children.get(todo.pop(), []):
            found[pid] = fields
            todo.append(pid)
    return found


def cpu_seconds(root: int) -> float:
    """User and system time of the tree, children that already ended included."""
    return sum(sum(map(int, f[11:15])) for f in tree(root).values()) / TICKS


def memory(root: int) -> dict[str, float]:
    """MiB of the whole tree, each shared page counted once: all, private, shared memory, file pages."""
    total = {"Pss": 0, "Pss_Anon": 0, "Pss_File": 0, "Pss_Shmem": 0, "Rss": 0}
    count = 0
    for pid in tree(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        count += 1
        for line in lines:
            key, _, rest = line.partition(":")
            if key in total:
                total[key] += int(rest.split()[0])
    mib = {k: v / 1024 for k, v in total.items()}
    return {
        "pss": mib["Pss"],
        "private": mib["Pss_Anon"],
        "shmem": mib["Pss_Shmem"],
        "file": mib["Pss_File"],
        "rss": mib["Rss"],
        "procs": count,
    }


def bytes_read(root: int) -> tuple[int, int]:
    """Bytes that the tree got from read calls (page cache included, mmap not), and from the disk."""
    asked = disk = 0
    for pid in tree(root):
        try:
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, value = line.partition(": ")
            if key == "rchar":
                asked += int(value)
            elif key == "read_bytes":
                disk += int(value)
    return asked, disk


def machine_busy() -> tuple[float, float]:
    """CPU seconds the machine has spent working, and had stolen by its host, since it booted."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _wait, irq, soft, steal = fields[:8]
    return (user + nice + system + irq + soft) / TICKS, steal / TICKS


def files_below(path: Path) -> list[Path]:
    """Every file of a folder, or the file itself."""
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.is_file())


libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def resident(path: Path) -> tuple[int, int]:
    """Bytes of the files below path that are in the page cache, and their size (as fincore(1) counts)."""
    have = size = 0
    for file in files_below(path):
        length = file.stat().st_size
        if length == 0:
            continue
        size += length
        fd = os.open(file, os.O_RDONLY)
        try:
            address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
            if address in (None, ctypes.c_void_p(-1).value):
                continue
            pages = (length + PAGE - 1) // PAGE
            vector = ctypes.create_string_buffer(pages)
            if libc.mincore(address, length, vector) == 0:
                held = sum(b & 1 for b in vector.raw)
                have += min(held * PAGE, length)
            libc.munmap(address, length)
        finally:
            os.close(fd)
    return have, size


def warm(path: Path) -> float:
    """Reads every file below path that is not in the page cache. Returns the resident share."""
    have, size = resident(path)
    if size and have < size:
        buffer = bytearray(1 << 20)
        for file in files_below(path):
            with open(file, "rb", buffering=0) as f:
                while f.readinto(buffer):
                    pass
        have, size = resident(path)
    return have / size if size else 1.0


def describe_machine() -> dict[str, object]:
    """The facts about the machine that a reader needs to interpret the figures."""
    info: dict[str, object] = {"kernel": platform.release(), "arch": platform.machine()}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = (s.strip() for s in line.partition(":"))
        if key == "model name":
            info["cpu"] = value
        elif key == "model":
            info.setdefault("cpu_model", value)
        elif key == "flags":
            names = ("avx2", "bmi2", "avx512f", "avx512_vbmi", "avx512vbmi")
            info["features"] = [n for n in names if n in value.split()]
            break
    info["cores"] = len(os.sched_getaffinity(0))
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            info["memory_gib"] = round(int(line.split()[1]) / 1024 / 1024, 1)
    try:
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
        info["system"] = release.get("PRETTY_NAME", "").strip('"')
    except OSError:
        pass
    info["python"] = platform.python_version()
    info["time"] = time.strftime("%Y-%m-%d %H:%M:%S")
    return info


def use_memory(size: int) -> None:
    """Use so many bytes of memory once and release them, so that the machine has them when they are needed."""
    code = "import sys, numpy; numpy.ones(int(sys.argv[1]), numpy.uint8)"
    subprocess.run([sys.executable, "-c", code, str(size)], check=True)
