"""The diagnosis matrix: stoker doctor watches training loops that lack a resource, and should name that resource.

    python -m bench.doctor.run --set tuning|heldout|all [--only TEXT] [--truth | --no-truth] [--resume] [--list]

Each cell (see cells.py) runs twice: once with `stoker doctor --json`, and once with resources removed one at a time,
to find out what it really lacks (truth.py, cached per cell). The rate of the unchanged loop is measured while doctor
watches, and the gain of a removal is relative to that rate. Results go to bench/results/doctor-MACHINE-COMMIT.json.
bench/doctor/score.py judges them, and bench/doctor/report.py writes docs/internals/diagnosis-matrix.md.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import procs, stored

from . import cells as matrix
from . import data, inject, score, truth
from .cells import Cell

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = Path(os.environ.get("STOKER_BENCH_WORK", ROOT / "bench" / "work"))
SECONDS = 10  # that doctor watches
VERDICT_LIMIT = 60  # seconds after which doctor is given up
DISTURBED = 0.25  # cores in use by other processes from which on a measurement is repeated
START_LIMIT = 90  # seconds in which a loop must have made its first steps
SETTLE_LIMIT = 8  # seconds that are given to a loop that was just made slow
LATE = ("cpu", "blkio")  # groups that a job joins when it runs: importing its frameworks is not measured
KEPT = (
    "verdict",
    "confidence",
    "waiting",
    "gain",
    "gains",
    "line",
    "seconds",
    "loader",
    "stages",
    "evidence",
    "overhead",
)
NAMES = re.compile(r"\b(prepare|unroll)\b")  # the names of removals, which do not change the measurement
LINE = re.compile(r"^([\d.]+) step (\d+) data ([\d.]+) batch ([\d.]+)$", re.M)


def say(text: str) -> None:
    print(f"bench-doctor: {text}", flush=True)


# --- requirements of a cell ------------------------------------------------------------


class Setup:
    """Paths that all cells share: data, binaries, interpreters."""

    def __init__(self, binary: Path, source: Path) -> None:
        self.binary = binary
        self.work = WORK / "doctor"
        self.work.mkdir(parents=True, exist_ok=True)
        self.temporary = self.work / f"{inject.PREFIX}{os.getpid()}-files"
        self.temporary.mkdir(exist_ok=True)
        self.data = data.make(WORK, source, binary, say)
        self._slow: Path | None = None
        self.zygotes: dict[str, Zygote] = {}
        self.others = inject.Others()
        self.resident: set[Path] = set()  # files that are in the page cache because they were read here
        self.environment = {
            **os.environ,
            "STOKER_BINARY": str(binary),
            "PYTHONUNBUFFERED": "1",
            # One thread of PyTorch: two cores are few, and the loaders need them.
            "OMP_NUM_THREADS": "1",
        }

    def python(self, script: str) -> Path:
        """The interpreter that has the imports of a script."""
        side = WORK / "venv" / "side" / "bin" / "python"
        if script == "shards":
            if not side.exists():
                raise inject.Unavailable("WebDataset is not installed (bench/setup.sh side)")
            return side
        return Path(sys.executable)

    def slow(self) -> Path:
        if self._slow is None:
            self._slow = self.work / "slow"
            done = subprocess.run(
                ["go", "build", "-buildvcs=false", "-o", str(self._slow), "."],
                cwd=HERE / "slow", capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise inject.Unavailable(f"bench/doctor/slow does not build: {done.stderr.strip()[-200:]}")
        return self._slow

    def warm(self, path: Path) -> None:
        if path not in self.resident:
            inject.warm(path)
            self.resident.add(path)

    def evict(self, path: Path) -> None:
        inject.evict(path)
        self.resident.discard(path)

    def zygote(self, script: str) -> Zygote:
        python = self.python(script)
        if str(python) not in self.zygotes:
            self.zygotes[str(python)] = Zygote(python, self.environment)
        return self.zygotes[str(python)]

    def close(self) -> None:
        for zygote in self.zygotes.values():
            zygote.close()
        self.others.close()
        shutil.rmtree(self.temporary, ignore_errors=True)


class Zygote:
    """truth.py, kept running."""

    def __init__(self, python: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [str(python), str(HERE / "truth.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, start_new_session=True,
        )  # fmt: skip

    def ask(self, job: dict[str, Any], limit: float = 60) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        line = self.process.stdout.readline() if ready else ""
        return json.loads(line) if line else {"error": "the truth runner does not answer"}

    def close(self) -> None:
        kill_tree(self.process.pid)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def kill_tree(pid: int) -> None:
    """Kills a process and its descendants, in any session."""
    for member in procs.tree(pid):
        with contextlib.suppress(OSError):
            os.kill(member, signal.SIGKILL)


@contextlib.contextmanager
def conditions(setup: Setup, c: Cell, without: str = "") -> Iterator[tuple[list[inject.Group], str]]:
    """Makes a cell's conditions, except those of the removed resource. Returns the groups that the job joins and the
    address of its data."""
    wanted = dict(c.conditions)
    for name in {
        "cpu": ["quota", "busy"],
        "storage": ["bps", "iops", "fuse", "cold"],
        "memory": ["memory", "swap"],
    }.get(without, []):
        wanted.pop(name, None)
    if without == "network":
        wanted["http"] = (0, 0)  # truth.py goes round the server
    path = setup.data[c.data]
    with contextlib.ExitStack() as stack:
        groups: list[inject.Group] = []
        limits: dict[str, dict[str, str]] = {}
        if "quota" in wanted:
            limits["cpu"] = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(int(wanted["quota"] * 100000))}
        for name, file in (("bps", "blkio.throttle.read_bps_device"), ("iops", "blkio.throttle.read_iops_device")):
            if name in wanted:
                device = inject.block_device(path)
                limits.setdefault("blkio", {})[file] = f"{device} {int(wanted[name])}"
        if "swap" in wanted:
            stack.callback(inject.Swap(setup.work, 2 << 30).close)
        if "memory" in wanted:
            limits["memory"] = {"memory.limit_in_bytes": str(int(wanted["memory"]) << 20)}
        if limits:
            group = inject.Group("job", limits)
            groups.append(group)
            stack.callback(group.close)
        address = str(path)
        if "fuse" in wanted or "http" in wanted:
            kind = "fs" if "fuse" in wanted else "http"
            latency, bandwidth = wanted["fuse" if kind == "fs" else "http"]
            setup.warm(path)
            served = path if kind == "fs" else setup.data["served"]
            mount = setup.work / f"{inject.PREFIX}{os.getpid()}-mount"
            slow = inject.Slow(setup.slow(), kind, served, latency, bandwidth, mount)
            stack.callback(slow.close)
            address = slow.address
            if kind == "http" and c.script == "shards":
                address += "/shards"
        elif wanted.get("cold"):
            setup.evict(path)
        else:
            setup.warm(path)
        if "busy" in wanted:
            stack.callback(inject.Antagonists(wanted["busy"]).close)
        yield groups, address


# --- truth ----------------------------------------------------------------------


def truth_key(c: Cell) -> str:
    """A fingerprint of the cell and the scripts that it runs, without the names of functions."""
    text = repr((truth.VERSION, c.script, c.data, c.argv, sorted(c.conditions.items()), matrix.removals(c)))
    for file in (HERE / "train" / f"{c.script}.py", HERE / "train" / "common.py"):
        text += NAMES.sub("", file.read_text())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measure_truth(setup: Setup, c: Cell, rate: float | None = None) -> dict[str, Any]:
    """Steps per second with each resource removed in turn, and the gain of each. rate is the rate of the unchanged
    loop, if known."""
    rates: dict[str, float] = {}
    wait = None
    todo = matrix.removals(c)
    if rate:
        rates[""] = rate
        todo.remove("")
    started, repeats, disturbed = time.monotonic(), 2, 0.0
    while todo:
        removed = todo.pop(0)
        with conditions(setup, c, removed) as (groups, address):
            before = setup.others.reading()
            answer = setup.zygote(c.script).ask(
                {
                    "script": c.script,
                    "argv": ["--data", address, *c.argv],
                    "remove": removed,
                    "groups": [str(f / "cgroup.procs") for g in groups for f in g.folders],
                    "local": str(setup.data["served"]),
                    "cold": "cold" in c.conditions,
                    "warm": 0.6,
                    "seconds": 1.8,
                }
            )
        if "error" in answer:
            return {"key": truth_key(c), "error": f"{removed or 'nothing'} removed: {answer['error']}"}
        others = setup.others.cores(before)
        if others > DISTURBED and repeats:
            repeats -= 1
            todo.insert(0, removed)
            continue
        disturbed = max(disturbed, others)
        rates[removed] = answer["rate"]
        if not removed:
            wait = answer["wait"]
        if removed == "everything" and rates["everything"] > 1.05 * rates[""]:
            todo += [r for r in matrix.data_removals(c) if r not in rates]
    gains = {r: rate / rates[""] for r, rate in rates.items() if r}
    return {
        "key": truth_key(c),
        "rates": rates,
        "gains": gains,
        "wait": wait,
        "seconds": time.monotonic() - started,
        "others": disturbed,
    }


# --- a run with doctor ------------------------------------------------------------


class Machine(threading.Thread):
    """Samples the inputs of tools that watch the machine: busy and iowait shares of all cores, twice a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float, float]] = []
        self.ended = threading.Event()

    @staticmethod
    def read() -> tuple[float, float, float]:
        fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), sum(fields) - fields[3] - fields[4], fields[4]

    def run(self) -> None:
        before = self.read()
        while not self.ended.wait(0.5):
            now = self.read()
            total = max(1.0, now[0] - before[0])
            self.samples.append((time.time(), (now[1] - before[1]) / total, (now[2] - before[2]) / total))
            before = now

    def close(self) -> None:
        self.ended.set()
        self.join()


def steps_in(log: str, start: float, end: float) -> list[tuple[float, float, float]]:
    """(time, waited, whole step) of the steps that ended in a time."""
    found = [(float(m[1]), float(m[3]), float(m[4])) for m in LINE.finditer(log)]
    return [s for s in found if start <= s[0] <= end]


def signals(steps: list[tuple[float, float, float]], samples: list[tuple[float, float, float]]) -> dict[str, Any]:
    """The inputs for the rules of other tools, measured exactly. They are the true share of waiting from the loop
    itself, the true utilisation of the (simulated) accelerator in each sample, and CPU and iowait from the kernel."""
    whole = sum(s[2] for s in steps)
    starving = 0
    for i, (at, busy, _) in enumerate(samples):
        begin = samples[i - 1][0] if i else at - 0.5
        used = 0.0
        for end, waited, length in steps:
            used += max(0.0, min(end, at) - max(end - length + waited, begin))
        if busy > 0.9 and used / (at - begin) < 0.1:
            starving += 1
    return {
        "wait": sum(s[1] for s in steps) / whole if whole else None,
        "rate": len(steps) / whole if whole else None,
        "steps": len(steps),
        "busy": sum(s[1] for s in samples) / max(1, len(samples)),
        "iowait": sum(s[2] for s in samples) / max(1, len(samples)),
        "starving": starving / max(1, len(samples)),
    }


def wait_for_steps(log: Path, process: subprocess.Popen[Any], seconds: float, steps: int, limit: float) -> bool:
    """Waits until the loop has made enough steps and run long enough since the first of them. The queues of its
    loader are then in their final state, full or empty."""
    end = time.monotonic() + limit
    before = log.read_text(errors="replace").count("\n")
    first = 0.0
    while time.monotonic() < end:
        count = log.read_text(errors="replace").count("\n") - before
        if count and not first:
            first = time.monotonic()
        if first and time.monotonic() - first >= seconds and count >= steps:
            return True
        if process.poll() is not None:
            raise RuntimeError("the loop ended")
        time.sleep(0.05)
    return False


def run_doctor(setup: Setup, c: Cell, seed: int, seconds: int) -> dict[str, Any]:
    """Runs a loop while doctor watches it."""
    log, out = setup.temporary / "log", setup.temporary / "doctor.json"
    errors = setup.temporary / "errors"
    log.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        groups, address = stack.enter_context(conditions(setup, c))
        script = HERE / "train" / f"{c.script}.py"
        job = [str(setup.python(c.script)), str(script), "--data", address, "--seed", str(seed), *c.argv]

        def join() -> None:
            for group in groups:
                group.join(os.getpid(), but=LATE)

        log_file = stack.enter_context(open(log, "w"))
        error_file = stack.enter_context(open(errors, "w"))
        process = subprocess.Popen(
            job, stdout=log_file, stderr=error_file, env=setup.environment, preexec_fn=join, start_new_session=True
        )
        stack.callback(process.wait)
        stack.callback(kill_tree, process.pid)
        late = any(group.has(LATE) for group in groups)
        if not wait_for_steps(log, process, 0 if late else 1, 1 if late else 4, START_LIMIT):
            raise RuntimeError(f"the loop made no steps: {errors.read_text(errors='replace')[-300:]}")
        if late:
            for group in groups:
                for member in procs.tree(process.pid):
                    group.join(member, only=LATE)
            if c.conditions.get("cold"):
                setup.evict(setup.data[c.data])
            wait_for_steps(log, process, 1, 5, SETTLE_LIMIT)
        command = [str(setup.binary), "doctor", "--json", "--seconds", str(seconds), "--pid", str(process.pid)]
        machine = Machine()
        stack.callback(machine.close)
        machine.start()
        start, begin, before = time.time(), time.monotonic(), setup.others.reading()
        with open(out, "w") as out_file:
            watcher = subprocess.Popen(
                command, stdout=out_file, stderr=error_file, env=setup.environment, start_new_session=True
            )
            stack.callback(watcher.wait)
            stack.callback(kill_tree, watcher.pid)
            try:
                code = watcher.wait(VERDICT_LIMIT)
            except subprocess.TimeoutExpired:
                return {"error": f"no verdict within {VERDICT_LIMIT} s"}
        wall, end = time.monotonic() - begin, time.time()
        others = setup.others.cores(before)
        machine.close()
    try:
        report = json.loads(out.read_text())
    except ValueError:
        return {"error": f"exit code {code}: {errors.read_text(errors='replace').strip()[-300:]}"}
    kept = {k: report.get(k) for k in KEPT}
    kept["advice"] = [a.get("title") for a in report.get("advice") or []]
    steps = steps_in(log.read_text(errors="replace"), start, end)
    return {"doctor": kept, "wall": wall, "others": others, "signals": signals(steps, machine.samples)}


# --- the matrix --------------------------------------------------------------------


def commit() -> str:
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "rev-parse", "--short=10", "HEAD"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def machine_name() -> str:
    short = re.sub(r"\((r|tm)\)|processor|cpu|@.*", "", cpu_name().lower())
    return re.sub(r"[^a-z0-9]+", "-", short).strip("-") + f"-{os.cpu_count()}c"


class Results:
    """The file of results. It is rewritten after each run, so that an interrupted matrix can continue. Truths do not
    depend on doctor, so they are also saved in a separate file, from which later matrices take them."""

    def __init__(self, path: Path, kept_truths: Path) -> None:
        self.path, self.kept_truths = path, kept_truths
        self.content: dict[str, Any] = {"truth": {}, "runs": {}, "skipped": {}}
        if path.exists():
            self.content = json.loads(path.read_text())
        self.truths: dict[str, Any] = json.loads(kept_truths.read_text()) if kept_truths.exists() else {}

    def truth(self, c: Cell) -> dict[str, Any] | None:
        """The known results of a cell."""
        for known in (self.content["truth"].get(c.id), self.truths.get(c.id)):
            if known is not None and known["key"] == truth_key(c) and "error" not in known:
                self.content["truth"][c.id] = known
                return known
        return None

    def rate(self, c: Cell) -> float | None:
        """Steps per second of an unchanged cell, from the runs that doctor watched."""
        return score.watched_rate(self.content["runs"], c.id)

    def add_truth(self, c: Cell, found: dict[str, Any]) -> None:
        self.content["truth"][c.id] = found
        if "error" not in found:
            self.truths[c.id] = found
            write_json(self.kept_truths, self.truths)

    def save(self) -> None:
        write_json(self.path, self.content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stored.save(path, dict(sorted(content.items())))


def results_path(binary: Path, resume: bool) -> Path:
    """A new file, or to resume the newest one of this machine that this very program was judged in."""
    folder = ROOT / "bench" / "results"
    if resume:
        files = sorted(folder.glob(f"doctor-{machine_name()}-*.json"), key=lambda p: p.stat().st_mtime, reverse=True)
        for file in files:
            if json.loads(file.read_text()).get("binary") == digest(binary):
                return file
    return folder / f"doctor-{machine_name()}-{commit()}.json"


def digest(binary: Path) -> str:
    return hashlib.sha256(binary.read_bytes()).hexdigest()[:16]


def describe(c: Cell, run: dict[str, Any], known: dict[str, Any] | None) -> str:
    if "error" in run:
        return f"{c.id}: {run['error']}"
    d, s = run["doctor"], run["signals"]
    gains = known.get("gains", {}) if known else {}
    real = ", ".join(f"{k} {v:.2f}" for k, v in sorted(gains.items(), key=lambda g: -g[1]))
    said = ", ".join(f"{k} {v:.2f}" for k, v in sorted((d["gains"] or {}).items(), key=lambda g: -g[1]) if v)
    return (
        f"{c.id}: says {d['verdict']} (gain {d['gain']:.2f}, waiting {d['waiting']:.0%}; {said}); "
        f"true gains {real}; waited {s['wait'] or 0:.0%}; {run['wall']:.1f} s"
    )


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--set", choices=[matrix.TUNING, matrix.HELDOUT, "all"], default="all")
    p.add_argument("--only", default="", help="cells whose name has this text in it")
    p.add_argument("--truth", action="store_true", help="measure the truths only, without doctor")
    p.add_argument("--no-truth", action="store_true", help="run doctor only; truths may follow")
    p.add_argument("--resume", action="store_true", help="leave out what the results have already")
    p.add_argument("--list", action="store_true", help="print the cells and end")
    p.add_argument("--seconds", type=int, default=SECONDS, help="that doctor watches")
    p.add_argument("--budget", type=float, default=0, help="begin nothing more after so many seconds")
    p.add_argument("--out", type=Path, help="file of results")
    p.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder with photos/")
    p.add_argument("--binary", type=Path, default=Path(os.environ.get("STOKER_BINARY", ROOT / "bin" / "stoker")))
    a = p.parse_args()

    chosen = [c for c in matrix.all_cells() if a.set in ("all", c.set) and a.only in c.id]
    if a.list:
        for c in chosen:
            print(c.set, c.runs, c.id)
        print(f"{len(chosen)} cells, {sum(c.runs for c in chosen)} runs")
        return 0
    if not chosen:
        say(f"no cell of the set {a.set} has {a.only!r} in its name")
        return 2
    # A shell starts background processes with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    if not a.binary.is_file():
        say(f"there is no program at {a.binary}; run make build")
        return 2
    # Before anything of our own is there: a group of this process would hide the others.
    inject.sweep(WORK / "doctor")
    setup = Setup(a.binary.resolve(), a.data)
    results = Results(a.out or results_path(a.binary, a.resume), setup.work / f"truth-{machine_name()}.json")
    if not a.resume:
        for key in [f"{c.id}#{seed}" for c in chosen for seed in range(c.runs)]:
            results.content["runs"].pop(key, None)
    results.content.update(
        machine=machine_name(), cpu=cpu_name(), cores=os.cpu_count(), kernel=platform.release(), commit=commit(),
        binary=digest(a.binary), seconds=a.seconds, date=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )  # fmt: skip
    try:
        return run_all(setup, chosen, results, a)
    except KeyboardInterrupt:
        say("interrupted; --resume goes on")
        return 130
    finally:
        setup.close()


def run_all(setup: Setup, chosen: list[Cell], results: Results, a: argparse.Namespace) -> int:
    began = time.monotonic()
    kept = results.content
    failed = 0
    for c in chosen:
        try:
            for condition in c.conditions:
                inject.check(condition, setup.work)
            setup.python(c.script)
            known = results.truth(c)
            tasks: list[int | str] = [*([] if a.truth else range(c.runs)), *([] if a.no_truth else ["truth"])]
            for task in tasks:
                if a.budget and time.monotonic() - began > a.budget:
                    say("the time is over; --resume goes on")
                    return 1
                if task == "truth":
                    if known is None:
                        known = measure_truth(setup, c, results.rate(c))
                        results.add_truth(c, known)
                        failed += "error" in known
                        say(f"{c.id}: {known.get('error') or _gains(known)}")
                elif not (a.resume and "doctor" in kept["runs"].get(f"{c.id}#{task}", {})):
                    run = run_doctor(setup, c, int(task) + 1, a.seconds)
                    if run.get("others", 0) > DISTURBED:
                        say(f"{c.id}: others used {run['others']:.1f} cores; once more")
                        run = run_doctor(setup, c, int(task) + 1, a.seconds)
                    kept["runs"][f"{c.id}#{task}"] = {"set": c.set, "cell": c.id, "injection": c.injection, **run}
                    failed += "error" in run
                    say(describe(c, run, known))
                results.save()
            kept["skipped"].pop(c.id, None)
        except inject.Unavailable as why:
            say(f"{c.id}: skipped: {why}")
            kept["skipped"][c.id] = str(why)
        except RuntimeError as error:
            say(f"{c.id}: {error}")
            failed += 1
        results.save()
    return 1 if failed else 0


def _gains(known: dict[str, Any]) -> str:
    gains = ", ".join(f"{k} {v:.2f}" for k, v in sorted(known["gains"].items(), key=lambda g: -g[1]))
    spent = f"{known['seconds']:.0f} s, others {known['others']:.2f} cores"
    return f"{known['rates']['']:.1f} steps/s; gains {gains} ({spent})"


if __name__ == "__main__":
    sys.exit(main())
