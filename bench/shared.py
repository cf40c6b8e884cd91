"""Jobs that share one engine: their CPU time, TensorSocket next to them, jobs of several speeds, the memory of ranks.

Usage: python -m bench.shared [cpu] [tensorsocket] [speeds] [memory] [--data PHOTOS] [--rounds 3] [--seconds 15]

cpu           CPU time per sample of equal jobs, with an engine each and with a common one. Their streams are equal.
tensorsocket  Samples per second of four equal jobs over one engine, and over one TensorSocket producer, in turns
              (target: 1.5 x; bench/setup.sh tensorsocket installs it).
speeds        The fastest of three jobs of speeds 1, 1/2 and 1/4, compared with alone (target: 0.97).
memory        Memory of the engine with 8 ranks, compared with one rank and the rings of the others (target: 1.15 x).
              Also the CPU time, and the time of opening, and the same with an engine each. --data takes a pack, too.

Without --data it makes 1,000 photos. Each part takes at most 6 minutes. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .procs import TICKS, stat

ROOT = Path(__file__).resolve().parent.parent
BATCH = 32
FASTER, FASTEST, LARGER = 1.5, 0.97, 1.15


# --- a job -------------------------------------------------------------------


def job(o: dict[str, Any]) -> None:
    """Be one of the jobs: open, wait for a line of input, go through batches, print what was measured, wait again."""
    import stoker
    from stoker import transforms as T

    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    limits = stoker.Limits(shared=o["shared"], **({"memory": o["memory"]} if o["memory"] else {}))
    loader = stoker.Loader(
        o["data"], BATCH, shuffle=True, seed=0, cache=False, limits=limits,
        ranks=stoker.Ranks(o["rank"], o["world"]) if o["world"] > 1 else None,
        transforms={"image": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]},
    )  # fmt: skip
    connection = loader._epochs.live()
    engine = connection._engine_pid()
    opening, opened = time.monotonic() - begun, spent(engine)
    print("open", flush=True)
    sys.stdin.readline()
    before = resource.getrusage(resource.RUSAGE_SELF)  # without the imports
    h, samples, batches, begun, due = hashlib.blake2b(digest_size=8), 0, 0, time.monotonic(), 0.0
    first = 0 if o["epochs"] else 10  # batches before the time is taken
    while not o["epochs"] or loader.epoch < o["epochs"]:
        for batch in loader:
            if o["epochs"]:
                h.update(batch.index.tobytes())
                h.update(batch.image[::8, ::16].tobytes())
            else:
                batch.image[:, ::16, ::16].sum()
            batches += 1
            if batches == first:
                begun = due = time.monotonic()
            samples += len(batch) if batches > first else 0
            if o["step"] and batches >= first:  # a step of an accelerator, which begins when the batch is there
                due = max(due, time.monotonic()) + o["step"]
                time.sleep(max(0.0, due - time.monotonic()))
            if not o["epochs"] and batches > first and time.monotonic() - begun >= o["seconds"]:
                break
        if not o["epochs"] and batches > first and time.monotonic() - begun >= o["seconds"]:
            break
    seconds = time.monotonic() - begun
    own = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "samples": samples, "seconds": seconds, "engine": engine, "hash": h.hexdigest(),
        "spent": spent(engine), "opening": opening, "opened": opened,
        "own": own.ru_utime + own.ru_stime - before.ru_utime - before.ru_stime,
        "lagged": connection._second is not None, "ring": loader.info["memory"]["ring"],
        "memory": engine_memory(engine),
    }  # fmt: skip
    print(json.dumps(found), flush=True)
    sys.stdin.readline()
    loader.close()


def spent(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = stat(pid)
    return sum(map(int, fields[11:13])) / TICKS if fields else 0.0


def engine_memory(pid: int) -> int:
    """Return the bytes of an engine that are not files: its heap, and the rings."""
    total = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            total += int(line.split()[1]) << 10
    return total


def run(data: str, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run jobs that begin together, and return what each has measured."""
    plain = {
        "data": data,
        "shared": True,
        "memory": "",
        "rank": 0,
        "world": 1,
        "epochs": 0,
        "seconds": 10.0,
        "step": 0.0,
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.shared", "--job", json.dumps(plain | j)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "LOCAL_WORLD_SIZE": str((plain | j)["world"])},
        )
        for j in jobs
    ]  # fmt: skip

    def answers() -> list[str]:
        return [p.stdout.readline().strip() for p in running if p.stdout is not None]

    def go() -> None:
        for p in running:
            if p.stdin is not None:
                p.stdin.write("\n")
                p.stdin.flush()

    try:
        for word in ("ready", "open"):
            if answers() != [word] * len(jobs):
                raise SystemExit("bench: a job could not open its loader")
            go()
        found = [json.loads(line) for line in answers()]
        go()
    finally:
        for p in running:
            p.kill() if sys.exc_info()[0] else None
            p.communicate()
    return found


# --- the parts ---------------------------------------------------------------


def cpu(data: str, a: Any) -> bool:
    """Compare the CPU time of equal jobs."""
    spent = {}
    for shared in (False, True):
        found = run(data, [{"shared": shared, "epochs": 2, "memory": "256MB"}] * a.jobs)
        samples = sum(f["samples"] for f in found)
        engines = {f["engine"]: max(g["spent"] for g in found if g["engine"] == f["engine"]) for f in found}
        trainers = sum(f["own"] for f in found)
        spent[shared] = (sum(engines.values()) + trainers) / samples
        print(
            f"{'one shared engine' if shared else 'an engine each'}: {a.jobs} jobs, {samples} samples, "
            f"{1000 * spent[shared]:.3f} ms of CPU per sample (engines {1000 * sum(engines.values()) / samples:.3f}, "
            f"trainers {1000 * trainers / samples:.3f}); streams {', '.join({f['hash'] for f in found})}; "
            f"{sum(f['lagged'] for f in found)} jobs lagged",
            flush=True,
        )
    print(f"cpu: one engine takes {spent[True] / spent[False]:.3f} of the CPU time of {a.jobs}")
    return True


def tensorsocket(data: str, a: Any) -> bool:
    """Compare the samples per second of all jobs together with TensorSocket, in turns."""
    python = Path(os.environ.get("STOKER_BENCH_WORK", ROOT / "bench/work")) / "venv/tensorsocket/bin/python"
    if not python.exists():
        print(f"tensorsocket: not measured: {python} is missing; bench/setup.sh tensorsocket installs it")
        return True
    rates: dict[str, list[float]] = {"stoker": [], "tensorsocket": []}
    for n in range(a.rounds):
        for name, values in rates.items():
            if name == "stoker":
                found = [f["samples"] / f["seconds"] for f in run(data, [{"seconds": a.seconds}] * a.jobs)]
            else:
                found = theirs(str(python), data, a)
            values.append(sum(found))
            print(f"round {n + 1}, {name}: {values[-1]:.0f} samples/s of {a.jobs} jobs", flush=True)
    ratio = statistics.median(rates["stoker"]) / statistics.median(rates["tensorsocket"])
    print(f"tensorsocket: one engine gives {ratio:.2f} x the samples of TensorSocket (target: {FASTER})")
    return ratio >= FASTER


def theirs(python: str, data: str, a: Any) -> list[float]:
    """Run a producer and the jobs, and return the samples per second of each job."""
    script = str(ROOT / "bench/tensorsocket_job.py")
    for ports in range(6000, 7000, 10):  # four free ones
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", ports)):
                break
    options = ["--ports", str(ports)]
    workers = str(len(os.sched_getaffinity(0)))
    consumers: list[subprocess.Popen[str]] = []
    producer = None
    try:
        command = [python, script, "consumer", *options, "--seconds", str(a.seconds)]
        consumers += [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(a.jobs)]
        for c in consumers:  # all are there before the first batch
            if c.stdout is None or c.stdout.readline().strip() != "ready":
                raise SystemExit("tensorsocket: a job does not start")
        command = [python, script, "producer", data, *options, "--workers", workers]
        producer = subprocess.Popen(command, start_new_session=True)
        out = [c.communicate(timeout=120 + 3 * a.seconds)[0].split() for c in consumers]
        return [int(o[-2]) / float(o[-1]) for o in out]
    except subprocess.TimeoutExpired:
        raise SystemExit("tensorsocket: a job got no batches") from None
    finally:
        for c in consumers:
            c.kill()
            c.wait()
        if producer is not None:
            os.killpg(producer.pid, 9)
            producer.wait()


def speeds(data: str, a: Any) -> bool:
    """Compare the fastest of three jobs with the same job alone, in turns."""
    free = run(data, [{"seconds": a.seconds / 2}])[0]
    step = 2 * BATCH * free["seconds"] / free["samples"]  # the engine is half busy with the fastest one
    print(f"a batch takes {500 * step:.1f} ms; steps of the fastest job: {1000 * step:.1f} ms", flush=True)
    alone, among = [], []
    for n in range(a.rounds):
        for values, factors in ((alone, (1,)), (among, (1, 2, 4))):
            found = run(data, [{"seconds": a.seconds, "step": f * step} for f in factors])
            values.append(found[0]["samples"] / found[0]["seconds"])
        print(f"round {n + 1}: {alone[-1]:.1f} samples/s alone, {among[-1]:.1f} with two slower jobs", flush=True)
    ratio = statistics.median(among) / statistics.median(alone)
    print(f"speeds: the fastest job has {ratio:.3f} of its speed alone (target: {FASTEST})")
    return ratio >= FASTEST


def memory(data: str, a: Any) -> bool:
    """Compare the memory of an engine with 8 ranks and with one."""
    found = {}
    for world, shared in ((1, None), (8, None), (8, False)):
        got = run(data, [{"rank": r, "world": world, "shared": shared, "seconds": a.seconds} for r in range(world)])
        engines = {g["engine"]: [h for h in got if h["engine"] == g["engine"]] for g in got}
        total = {
            name: sum(max(g[name] for g in of) for of in engines.values()) for name in ("memory", "opened", "spent")
        }
        found[world, shared] = total["memory"], [g["ring"] for g in got]
        samples = sum(g["samples"] for g in got)
        print(
            f"{world} ranks, {len(engines)} engines: {int(total['memory']) >> 20} MiB, rings of "
            f"{sum(g['ring'] for g in got) >> 20} MiB; opening took up to {max(g['opening'] for g in got):.2f} s and "
            f"{total['opened']:.2f} s of CPU; {samples} samples, "
            f"{1000 * (total['spent'] - total['opened']) / samples:.3f} ms of CPU each",
            flush=True,
        )
    one, own = found[1, None]
    eight, rings = found[8, None]
    most = one - own[0] + sum(rings)
    print(
        f"memory: 8 ranks take {eight / most:.2f} x one rank and the rings, {eight >> 20} of {most >> 20} MiB "
        f"(target: {LARGER})"
    )
    return eight <= LARGER * most


PARTS = {"cpu": cpu, "tensorsocket": tensorsocket, "speeds": speeds, "memory": memory}


def main() -> int:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--data", help="a folder of photos, with a folder for each class")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15, help="of each measurement")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.job:
        job(a.job)
        return 0
    if unknown := set(a.parts) - set(PARTS):
        parser.error(f"there is no part {unknown.pop()}: {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="stoker-shared-") as folder:
        data = os.path.abspath(a.data) if a.data else f"{folder}/photos"
        if not a.data:
            from .hostile import ground

            ground.gen(Path(data), 1000, "500x375")
        os.environ["STOKER_RUNTIME_DIR"] = f"{folder}/run"
        os.mkdir(f"{folder}/run", 0o700)
        passed = [PARTS[name](data, a) for name in a.parts or PARTS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
