"""The hostile places: how each is made, and what a loader does there. Each result is compared with a run elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import ground
from .ground import Group, Outcome, UnavailableError, environment, job, limited, mounted, run

PASSES = "passes"


@dataclass
class Result:
    """A line of the table: what each loader did, "" if it was not run, with the reason of a failure."""

    place: str
    stoker: str
    torch: str
    note: str = ""


@dataclass
class World:
    """The data, the long or short form, and the reference runs."""

    data: Path
    long: bool = False
    torch: bool = True
    known: dict[tuple[str, ...], list[Any]] | None = None

    def reference(self, command: list[str]) -> list[Any]:
        """Return the checksums of a job outside of hostile places."""
        self.known = self.known or {}
        if (key := tuple(command)) not in self.known:
            outcome = run(command, environment())
            if not outcome.ended:
                raise RuntimeError(
                    f"the job fails outside of hostile places, too: {outcome.why()}\n{outcome.errors[-2000:]}"
                )
            self.known[key] = outcome.sums
        return self.known[key]

    def stoker(self, *options: object, source: str = "pack") -> list[str]:
        return job("stoker", self.data / source, *options)

    def pytorch(self, *options: object) -> list[str]:
        return job("torch", self.data / "tree", *options)


def verdict(outcome: Outcome, want: list[Any]) -> str:
    """Return "passes", or what went wrong."""
    if not outcome.ended:
        return outcome.why()
    return PASSES if outcome.sums == want else f"other batches: {len(outcome.sums)}, expected {len(want)}"


Wrap = Callable[[list[str]], list[str]]


def both(
    w: World,
    place: str,
    wrap: Wrap = lambda c: c,
    env: dict[str, str] | None = None,
    *,
    ours: tuple[object, ...] = (),
    theirs: tuple[object, ...] = (),
    source: str = "pack",
    limit: float = 120,
    during: Callable[[subprocess.Popen[bytes]], None] | None = None,
    note: str = "",
) -> Result:
    """Run the same job with both loaders in a place."""
    found = []
    for command in [w.stoker(*ours, source=source)] + ([w.pytorch(*theirs)] if w.torch else []):
        want = w.reference(command)
        found.append(verdict(run(wrap(command), environment(**(env or {})), limit, during), want))
    return Result(place, found[0], found[1] if w.torch else "", note)


# --- the places --------------------------------------------------------------


def small_shm(w: World) -> Iterator[Result]:
    ground.can_mount()
    yield both(w, "`/dev/shm` of 1 MiB", lambda c: mounted("mount -t tmpfs -o size=1m none /dev/shm", c))


def descriptors(w: World) -> Iterator[Result]:
    options = ("--keep", "--batch", 2)
    yield both(
        w, "64 descriptors (`ulimit -n 64`)", lambda c: limited("-n", 64, c), ours=options, theirs=options,
        note="the loop keeps the record numbers of all batches",
    )  # fmt: skip


def tasks(w: World) -> Iterator[Result]:
    def wrap(command: list[str]) -> list[str]:
        return group.wrap(command)

    group = Group()
    try:
        group.set("pids", "16")
        yield both(w, "16 tasks (control group pids)", wrap, theirs=("--workers", 8), note="PyTorch with 8 workers")
    finally:
        group.close()


def homes(w: World) -> Iterator[Result]:
    home = w.data / "home"
    home.mkdir(exist_ok=True)
    auto = {"HOME": str(home), "STOKER_CACHE": "auto"}
    ground.can_mount()
    yield both(
        w, "read-only home", lambda c: mounted(f"mount --bind {home} {home} && mount -o remount,ro,bind {home}", c), auto,
        source="tree",
    )  # fmt: skip
    yield both(
        w,
        "no home",
        lambda c: ["env", "-u", "HOME", "-u", "XDG_CACHE_HOME", *c],
        {"STOKER_CACHE": "auto"},
        source="tree",
    )
    yield both(w, "a home that is not there", env={"HOME": "/dev/null/home", "STOKER_CACHE": "auto"}, source="tree")


def disks(w: World) -> Iterator[Result]:
    ground.can_mount()
    small = w.data / "small"
    small.mkdir(exist_ok=True)
    # The first job fills it: a byte is left for each file.
    script = f"mount -t tmpfs -o size=64k none {small} && dd if=/dev/zero of={small}/full bs=4k 2>/dev/null; true"
    cached = ("--options", json.dumps({"cache": True}), "--epochs", 2)
    yield both(
        w, "full disk: temporary files and cache", lambda c: mounted(script, c),
        {"TMPDIR": str(small), "STOKER_CACHE": "auto", "STOKER_CACHE_DIR": str(small), "HOME": str(small)},
        ours=cached, theirs=("--epochs", 2), source="tree",
    )  # fmt: skip
    pack = [ground.engine(), "pack", str(w.data / "tree"), str(small / "out")]
    listed = ["sh", "-c", f'"$@"; r=$?; ls -A {small} {small}/out; exit $r', "sh", *pack]
    done = subprocess.run(
        mounted(f"mount -t tmpfs -o size=256k none {small}", listed),
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    error = done.stderr.strip()
    said = "no space left" in error.lower() and done.returncode > 0
    yield Result("full disk: `stoker pack`", "one clear error" if said else f"no clear error: {error[-200:]}", "")
    yield both(w, "temporary folder that is not there", env={"TMPDIR": "/dev/null/tmp"})
    readonly = " && ".join(
        f"mount -o bind,ro {d} {d} 2>/dev/null || mount --bind {d} {d} && mount -o remount,ro,bind {d}"
        for d in ("/var/tmp",)
    )
    yield both(
        w, "temporary folders that are read-only",
        lambda c: mounted(f"mount -t tmpfs -o ro none {w.data / 'small'} && {readonly}", c),
        {"TMPDIR": str(small)},
    )  # fmt: skip


def clocks(w: World) -> Iterator[Result]:
    library = next(
        (
            p
            for p in (
                os.environ.get("FAKETIME_LIBRARY", ""),
                *map(str, Path("/usr/lib").glob("*/faketime/libfaketime.so.1")),
            )
            if p and Path(p).exists()
        ),
        None,
    )
    if library is None:
        yield Result("clock of the trainer jumps", "not run: libfaketime is not installed (Debian: libfaketime)", "")
    else:
        file = w.data / "clock"

        def jump(process: subprocess.Popen[bytes]) -> None:
            for at in ("+400d", "-30d", "+0", "+3000d", "-1d", "+0"):
                if process.poll() is not None:
                    return
                (w.data / "clock.new").write_text(at + "\n")
                (w.data / "clock.new").rename(file)
                time.sleep(0.4)

        file.write_text("+0\n")
        env = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        steps = ("--pause", 0.3)
        yield both(
            w, "clock of the trainer jumps by years (libfaketime)", env=env, ours=steps, theirs=steps, during=jump, source="tree",
            note="Go's clock cannot be faked in this way: the engine sees no jump",
        )  # fmt: skip
    if subprocess.run(["unshare", "-T", "true"], capture_output=True, check=False).returncode:
        yield Result("engine in another time namespace", "not run: time namespaces cannot be made (root is needed)", "")
        return
    engine = w.data / "engine-of-another-time"
    engine.write_text(f'#!/bin/sh\nexec unshare -T --monotonic 86400 --boottime 86400 "{ground.engine()}" "$@"\n')
    engine.chmod(0o755)
    command = w.stoker()
    outcome = run(command, environment(STOKER_BINARY=str(engine)))
    yield Result(
        "engine whose monotonic clock is a day ahead (time namespace)", verdict(outcome, w.reference(command)), ""
    )


def stops(w: World) -> Iterator[Result]:
    seconds = 60 if w.long else 1

    def stop(which: Callable[[int], list[int]]) -> Callable[[subprocess.Popen[bytes]], None]:
        def during(process: subprocess.Popen[bytes]) -> None:
            pids = ground.wait_for(lambda: which(process.pid))
            time.sleep(0.5)
            for sig in (signal.SIGSTOP, signal.SIGCONT):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, sig)
                time.sleep(seconds if sig == signal.SIGSTOP else 0)

        return during

    slow = ("--pause", 0.3, "--epochs", 2)
    name = f"SIGSTOP for {seconds} s"
    yield both(w, f"{name}: trainer", during=stop(lambda p: [p]), ours=slow, theirs=slow, limit=240)
    yield both(w, f"{name}: engine, or workers", during=stop(ground.descendants), ours=slow, theirs=slow, limit=240)
    yield both(
        w,
        f"{name}: all",
        during=stop(lambda p: [p, *f] if (f := ground.descendants(p)) else []),
        ours=slow,
        theirs=slow,
        limit=240,
    )


def terminated(w: World) -> Iterator[Result]:
    """The trainer trains twelve more steps after SIGTERM and saves, as jobs of Slurm do."""

    def term(process: subprocess.Popen[bytes]) -> None:
        ground.wait_for(lambda: ground.descendants(process.pid))
        time.sleep(1.5 if w.long else 0.7)
        for pid in [process.pid, *ground.descendants(process.pid)]:  # all of the step, whatever their sessions
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    options = ("--last", 12, "--pause", 0.1, "--epochs", 20)
    found = []
    for command in [w.stoker(*options)] + ([w.pytorch(*options)] if w.torch else []):
        outcome = run(command, environment(), 120, term)
        saved = any("saved" in line for line in outcome.lines) and outcome.ended
        found.append(PASSES if saved else outcome.why())
    yield Result(
        "SIGTERM to all processes of the step",
        *found,
        *([""] if not w.torch else []),
        note="12 more steps, then the state is saved",
    )


def address_space(w: World) -> Iterator[Result]:
    for gib in (4, 2) if w.long else (2,):
        yield both(
            w,
            f"address space of {gib} GiB (`ulimit -v`)",
            lambda c, g=gib: limited("-v", g << 20, c),
            ours=("--memory", "200MB"),
        )


def stale(w: World) -> Iterator[Result]:
    if not os.access("/dev/fuse", os.W_OK):
        raise UnavailableError("/dev/fuse cannot be opened")
    at = w.data / "stale"
    at.mkdir(exist_ok=True)
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("stalefs.py")), str(w.data / "tree"), str(at), "40"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        if server.stdout.readline() != b"ready\n":
            raise UnavailableError("a FUSE file system cannot be mounted (root is needed)")
        found = []
        for loader in ("stoker", "torch") if w.torch else ("stoker",):
            want = w.reference(job(loader, w.data / "tree", "--epochs", 2))
            found.append(verdict(run(job(loader, at, "--epochs", 2), environment()), want))
        yield Result(
            "NFS handles that go stale (FUSE, ESTALE)",
            *found,
            *([""] if not w.torch else []),
            note="after each 40 reads all open files are stale",
        )
    finally:
        subprocess.run(["umount", "-l", str(at)], check=False, capture_output=True)
        server.kill()
        server.communicate()


def packers(w: World) -> Iterator[Result]:
    """Two packers of different data write one output at the same time."""
    ground.gen(w.data / "other", 40, "96x96")
    bad: list[str] = []
    refused = 0
    rounds = 20 if w.long else 3
    for k in range(rounds):
        out = w.data / f"twice-{k}"
        running = [
            subprocess.Popen(
                [ground.engine(), "pack", str(w.data / source), str(out), "--images", "keep"],
                env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            for source in ("tree", "other")
        ]  # fmt: skip
        errors = [p.communicate(timeout=120)[1] for p in running]
        codes = [p.returncode for p in running]
        refused += codes.count(1)
        checked = subprocess.run(
            [ground.engine(), "verify", str(out)], capture_output=True, text=True, check=False, env=environment()
        )
        if 0 not in codes or checked.returncode:
            bad.append(f"exit codes {codes}: {' '.join(errors).strip()[:150]}; {checked.stderr.strip()[:150]}")
        left = [p.name for p in w.data.iterdir() if p.name.startswith(out.name) and p != out]
        if left:
            bad.append(f"left: {left}")
        shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(w.data / "other")
    text = (
        bad[0] if bad else f"{PASSES}: the pack is whole in {rounds} of {rounds} rounds, {refused} packers were refused"
    )
    yield Result("two packers on one output", text, "")


def tiny_files(w: World) -> Iterator[Result]:
    """Hard links to a few images: each is a file of its own for a loader."""
    count = 1_000_000 if w.long else 20_000
    root = w.data / "tiny"
    ground.gen(w.data / "seeds", 40, "16x16")
    seeds = sorted((w.data / "seeds").rglob("*.jpg"))
    for folder in range(count // 1000):
        (root / f"{folder:04}").mkdir(parents=True)
        for i in range(1000):
            n = folder * 1000 + i
            os.link(seeds[n % len(seeds)], root / f"{folder:04}/{i:04}.jpg")
    listing = w.data / "tiny.txt"
    try:
        code = (
            "import sys,time,resource,stoker\nt=time.monotonic()\n"
            "l=stoker.Loader(sys.argv[1],256,shuffle=True,seed=1,transforms={'image':[stoker.transforms.CenterCrop(16)]},limits=stoker.Limits(memory='500MB'))\n"
            "n=0;s=set();first=0\nfor b in l:\n"
            "    first=first or time.monotonic()-t\n    n+=len(b);s.update(b.index.tolist())\n"
            "p=l._epochs.connection._process.pid\n"
            "rss=[int(x.split()[1]) for x in open(f'/proc/{p}/status') if x.startswith('VmHWM')][0]\n"
            "import json;print(json.dumps({'sum':[n,len(s)],'first':first,'all':time.monotonic()-t,'rss':rss}));print(json.dumps({'end':1}))"
        )
        outcome = run([sys.executable, "-c", code, str(root)], environment(), 1200)
        ours = outcome.why()
        if outcome.ended:
            d = outcome.lines[0]
            ours = (
                f"{PASSES}: first batch after {d['first']:.1f} s, an epoch in {d['all']:.0f} s, engine of {d['rss'] >> 10} MiB"
                if d["sum"] == [count, count]
                else f"other records: {d['sum']}"
            )
        theirs = ""
        if w.torch:
            outcome = run(job("torch", root, "--batch", 256, "--most", 40), environment(), 600)
            d = outcome.lines[-1] if outcome.lines else {}
            theirs = outcome.why()
            if outcome.ended:
                seconds = d["first"] + (d["seconds"] - d["first"]) / 39 * (count / 256 - 1)
                theirs = (
                    f"{PASSES}: first batch after {d['first']:.1f} s, an epoch in {seconds:.0f} s (from 40 batches)"
                )
        yield Result(f"{count:,} tiny files", ours, theirs)
    finally:
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(w.data / "seeds", ignore_errors=True)
        listing.unlink(missing_ok=True)


FORKS = """
import os, sys, threading, time, json, {imports}
{make}
stop = False
def loop():
    while not stop:
        for batch in loader:
            if stop: break
threads = [threading.Thread(target=loop)]
[t.start() for t in threads]
{lock}
bad = 0
for k in range({count}):
    pid = os.fork()
    if pid == 0:
        try:
            {child}
        except BaseException as e:
            print(json.dumps({{"child": repr(e)[:200]}}), flush=True)
            os._exit(1)
        os._exit(0)
    deadline = time.monotonic() + 30
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done: bad += status != 0; break
        if time.monotonic() > deadline:
            os.kill(pid, 9); os.waitpid(pid, 0); bad += 1
            print(json.dumps({{"child": "hangs"}}), flush=True)
            if bad > 2: break
            break
        time.sleep(0.001)
    if bad > 2: break
stop = True
[t.join() for t in threads]
print(json.dumps({{"end": True, "bad": bad}}), flush=True)
os._exit(0 if not bad else 1)
"""
FORK_STOKER = {
    "imports": "stoker",
    "make": "make = lambda: stoker.Loader(sys.argv[1], 32, transforms={'image': [stoker.transforms.CenterCrop(64)]}, "
    "limits=stoker.Limits(memory='60MB', prefetch=2), threads=1)\nloader = make()",
    "lock": "",
    "child": """
            try: iter(loader)
            except stoker.StokerError: pass
            else: raise SystemExit('the loader of the parent is usable')
            if k % 10 == 0:
                with make() as mine: assert len(next(iter(mine))) == 32
""",
}


def forks(w: World) -> Iterator[Result]:
    """A thread takes batches, and holds the loader's locks, while the trainer forks."""
    count = 1000 if w.long else 20
    outcome = run(
        [sys.executable, "-c", FORKS.format(count=count, **FORK_STOKER), str(w.data / "pack")], environment(), 900
    )
    text = PASSES if outcome.ended else f"{outcome.why()} {[x for x in outcome.lines if 'child' in x][:2]}"
    theirs = ""
    if w.torch:
        # A lock of the program, as those of tokenizers, HDF5 and OpenCV: a thread holds it when a worker is forked.
        code = (
            "import threading,time,json,torch\nfrom torch.utils.data import DataLoader,Dataset\nlock=threading.Lock()\n"
            "class D(Dataset):\n    def __len__(self): return 64\n    def __getitem__(self,i):\n        with lock: return i\n"
            "def busy():\n    while True:\n        with lock: time.sleep(0.002)\n"
            "threading.Thread(target=busy,daemon=True).start()\n"
            "for _ in range(5):\n    for b in DataLoader(D(),8,num_workers=2,timeout=20): pass\nprint(json.dumps({'end':1}))"
        )
        outcome = run([sys.executable, "-c", code], environment(), 90)
        theirs = PASSES if outcome.ended else outcome.why()
    yield Result(
        f"fork while a thread holds locks, {count:,} times",
        text,
        theirs,
        "PyTorch: its workers are forked while a thread of the program holds a lock",
    )


def spawned(w: World) -> Iterator[Result]:
    """A script without `if __name__ == "__main__"`, with spawn as the start method."""
    script = w.data / "unguarded.py"
    ours = (
        "import multiprocessing as mp, sys, json, stoker\nmp.set_start_method('spawn', force=True)\n"
        "loader = stoker.Loader(sys.argv[1], 32, transforms={'image': [stoker.transforms.CenterCrop(64)]})\n"
        "n = sum(len(b) for b in loader)\nassert n == 192, n\nprint(json.dumps({'end': 1}))\n"
    )
    theirs = (
        "import multiprocessing as mp, sys, json\nfrom torch.utils.data import DataLoader\nmp.set_start_method('spawn', force=True)\n"
        "loader = DataLoader(list(range(192)), 32, num_workers=2, timeout=30)\n"
        "n = sum(len(b) for b in loader)\nassert n == 192, n\nprint(json.dumps({'end': 1}))\n"
    )
    found = []
    for text in (ours, theirs) if w.torch else (ours,):
        script.write_text(text)
        outcome = run([sys.executable, str(script), str(w.data / "pack")], environment(), 120)
        found.append(PASSES if outcome.ended else outcome.why())
    yield Result("spawn, in a script without a main guard", *found, *([""] if not w.torch else []))
    child = (
        "import multiprocessing as mp, sys, json, stoker\ndef work(path, q):\n"
        "    with stoker.Loader(path, 32, transforms={'image': [stoker.transforms.CenterCrop(64)]}) as l: q.put(sum(len(b) for b in l))\n"
        "if __name__ == '__main__':\n    for method in ('spawn', 'forkserver', 'fork'):\n        c = mp.get_context(method); q = c.Queue()\n"
        "        p = c.Process(target=work, args=(sys.argv[1], q)); p.start(); assert q.get(timeout=60) == 192; p.join(60); assert p.exitcode == 0\n"
        "    print(json.dumps({'end': 1}))\n"
    )
    script.write_text(child)
    outcome = run([sys.executable, str(script), str(w.data / "pack")], environment(), 200)
    yield Result("a loader in a child of spawn, forkserver and fork", PASSES if outcome.ended else outcome.why(), "")


NOTEBOOK = """
import json, sys, types, signal, threading, os, time
sys.path.insert(0, {root!r})
from bench.hostile import ground
main = types.ModuleType("__main__")  # the cells' module, which no file holds
sys.modules["__main__"] = main
names = main.__dict__
names["path"] = sys.argv[1]
def cell(code): exec(compile(code, "<cell>", "exec"), names)
cell({imports!r})
for k in range({count}):
    cell({make!r})
    if k % 3 == 2:  # the user presses stop
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            cell({forever!r})
        except KeyboardInterrupt:
            pass
        timer.join()
    else:
        cell({loop!r})
deadline = time.monotonic() + 30
while len(left := ground.descendants(os.getpid())) > {most} and time.monotonic() < deadline: time.sleep(0.05)
print(json.dumps({{"left": len(left)}}))
assert len(left) <= {most}, f"{{len(left)}} processes are left of cells that ran again"
print(json.dumps({{"end": 1}}))
sys.stdout.flush()
os._exit(0)
"""


def notebook(w: World) -> Iterator[Result]:
    """The cell that makes the loader is run again and again, and loops are interrupted."""
    count = 60 if w.long else 6
    ours = {
        "imports": "import stoker",
        "make": "loader = stoker.Loader(path, 32, shuffle=True, transforms={'image': [stoker.transforms.CenterCrop(64)]})",
        "loop": "assert sum(len(b) for b in loader) == 192",
        "forever": "while True:\n    for batch in loader: pass",
        "most": 1,
    }
    theirs = {
        "imports": "import torch\nfrom torch.utils.data import DataLoader, Dataset\nimport multiprocessing as mp",
        "make": "class Data(Dataset):\n    def __len__(self): return 192\n    def __getitem__(self, i): return i\n"
        "loader = DataLoader(Data(), 32, num_workers=2, timeout=30, multiprocessing_context='forkserver')",
        "loop": ours["loop"],
        "forever": ours["forever"],
        "most": 4,
    }
    found = []
    for values in (ours, theirs) if w.torch else (ours,):
        code = NOTEBOOK.format(root=str(ground.ROOT), count=count if values is ours else 3, **values)
        outcome = run([sys.executable, "-c", code, str(w.data / "pack")], environment(), 300)
        found.append(PASSES if outcome.ended else outcome.why())
    yield Result(f"notebook cells run again {count} times, some interrupted", *found, *([""] if not w.torch else []),
                 note="PyTorch with the start method forkserver, the default since Python 3.14")  # fmt: skip


PLACES: dict[str, Callable[[World], Iterator[Result]]] = {
    "shm": small_shm,
    "descriptors": descriptors,
    "tasks": tasks,
    "homes": homes,
    "disks": disks,
    "clocks": clocks,
    "stops": stops,
    "term": terminated,
    "forks": forks,
    "spawn": spawned,
    "notebook": notebook,
    "stale": stale,
    "address": address_space,
    "packers": packers,
    "files": tiny_files,
}


def results(w: World, only: str = "") -> Iterator[Result]:
    """Run the places. One that this machine cannot make has the reason as its result."""
    for name, place in PLACES.items():
        if only and name not in only.split(","):
            continue
        try:
            yield from place(w)
        except UnavailableError as err:
            yield Result(name, f"not run: {err}", "")
