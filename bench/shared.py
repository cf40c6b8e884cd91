"""The CPU time of equal jobs on one machine: with an engine each, and with one that they share.

Usage: python -m bench.shared DATA [--jobs 4] [--epochs 2]. It prints the CPU time of trainers and engines per sample
that the jobs got, and the hash of each job's stream, which has to be the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
from typing import Any

from .procs import TICKS, stat


def job(data: str, shared: bool, epochs: int) -> None:
    """Be one of the jobs: open, wait for the others, go through the epochs."""
    import stoker
    from stoker import transforms as T

    loader = stoker.Loader(
        data, 32, shuffle=True, seed=0, limits=stoker.Limits(memory="256MB", shared=shared),
        transforms={"image": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]},
    )  # fmt: skip
    connection = loader._epochs.live()
    engine = connection._engine_pid()
    print("open", flush=True)
    sys.stdin.readline()
    before = resource.getrusage(resource.RUSAGE_SELF)  # without the imports
    h, samples = hashlib.blake2b(digest_size=8), 0
    for _ in range(epochs):
        for batch in loader:
            h.update(batch.index.tobytes())
            h.update(batch.image[::8, ::16].tobytes())
            samples += len(batch)
    alone = connection._second is not None
    fields = stat(engine)
    spent = sum(map(int, fields[11:13])) / TICKS if fields else 0.0
    own = resource.getrusage(resource.RUSAGE_SELF)
    print(
        samples,
        engine,
        spent,
        own.ru_utime + own.ru_stime - before.ru_utime - before.ru_stime,
        h.hexdigest(),
        alone,
        flush=True,
    )
    sys.stdin.readline()
    loader.close()


def measure(data: str, shared: bool, jobs: int, epochs: int) -> float:
    """Run the jobs and return the CPU seconds per sample."""
    command = [
        sys.executable,
        "-m",
        "bench.shared",
        data,
        "--epochs",
        str(epochs),
        "--job",
        "shared" if shared else "own",
    ]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(jobs)]

    def answers() -> list[list[str]]:
        return [p.stdout.readline().split() for p in running if p.stdout is not None]

    def go() -> None:
        for p in running:
            if p.stdin is not None:
                p.stdin.write("\n")
                p.stdin.flush()

    assert answers() == [["open"]] * jobs
    go()
    found = answers()
    go()
    for p in running:
        p.communicate()
    samples = sum(int(a[0]) for a in found)
    engines = {a[1]: max(float(b[2]) for b in found if b[1] == a[1]) for a in found}
    trainers = sum(float(a[3]) for a in found)
    hashes = {a[4] for a in found}
    cpu = (sum(engines.values()) + trainers) / samples
    lagged = sum(a[5] == "True" for a in found)
    print(
        f"{'one shared engine' if shared else 'an engine each'}: {jobs} jobs, {samples} samples, "
        f"{1000 * cpu:.3f} ms of CPU per sample (engines {1000 * sum(engines.values()) / samples:.3f}, trainers "
        f"{1000 * trainers / samples:.3f}); streams {', '.join(hashes)}; {lagged} jobs lagged"
    )
    return cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--job", choices=["own", "shared"], help=argparse.SUPPRESS)
    args: Any = parser.parse_args()
    if args.job:
        job(os.path.abspath(args.data), args.job == "shared", args.epochs)
        return
    alone, shared = (measure(args.data, s, args.jobs, args.epochs) for s in (False, True))
    print(f"ratio: {shared / alone:.3f}")


if __name__ == "__main__":
    main()
