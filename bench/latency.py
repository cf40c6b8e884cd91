"""Slow storage: the share of the rate of the same pack in memory that remains.

    make bench SUITES=latency                        about 8 minutes on 2 cores
    make bench SUITES=latency ROUNDS=7 LOOKAHEAD=64MB

Each read of the engine is delayed below everything that plans and repeats reads (STOKER_TEST_FAULTS), and never
served from mapped memory. The arms of a round follow each other immediately, in an order that changes. The result is
the median of the rounds' ratios to the run from memory. Results go to bench/results/latency-<machine>-<commit>.json.
"""

from __future__ import annotations

import argparse
import random
import statistics
from typing import Any

from . import datasets, procs, runner, stored
from .against import Side, arguments
from .run import _git, _slug
from .suite import STOKER, SUITES

ROOT = runner.ROOT
# The delayed reads, and the required share of the rate from memory.
ARMS = {
    "from memory": ("", 1.0),
    "no latency, read": ("delay=0s", 0.0),
    "20 ms on every read": ("delay=20ms", 0.95),
    "1% of the reads 2 s late": ("delay=2s,chance=0.01", 0.90),
    "both": ("delay=20ms; delay=2s,chance=0.01", 0.0),
    "100 ms on every read": ("delay=100ms", 0.0),
}


def say(text: str) -> None:
    print(f"latency: {text}", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--suite", default="photos", choices=["photos", "gen"])
    p.add_argument("--lookahead", default="256MiB")
    p.add_argument("--arms", nargs="*", default=list(ARMS), choices=list(ARMS), metavar="ARM")
    arguments(p, seconds=6, warmup=4)
    a = p.parse_args()
    a.work = a.work.resolve()
    machine, commit = procs.describe_machine(), _git("rev-parse", "--short=10", "HEAD")
    path = a.out or ROOT / "bench/results" / f"latency-{_slug(machine)}-{commit}.json"
    suite, side = SUITES[a.suite], Side(commit, ROOT, a.work)
    datasets.make(suite.data_set, a.work, a.data.resolve(), say)
    side.pack(STOKER, suite)
    pack = side.reads(STOKER, suite)
    procs.warm(pack)
    result: dict[str, Any] = {
        "machine": machine,
        "commit": commit,
        "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "settings": {k: getattr(a, k) for k in ("suite", "lookahead", "rounds", "seconds", "warmup", "cores")},
        "rounds": [],
    }
    command = runner.arm_command(STOKER, suite, a.work, 0, a.cores)
    command[command.index("--data") + 1] = runner.short(pack)
    command += ["--seconds", str(a.seconds), "--warmup", str(a.warmup), "--option", f"lookahead={a.lookahead}"]
    for number in range(a.rounds):
        order = list(a.arms)
        random.Random(number).shuffle(order)
        runs = {}
        for arm in order:
            log = a.work / "logs/latency.log"
            variables = side.environment | {"STOKER_TEST_FAULTS": ARMS[arm][0]}
            runs[arm] = runner.short_result(runner.run(command, a.limit, log, variables))
            say(f"round {number + 1}/{a.rounds} {arm}: {runs[arm].get('examples_s', 0):,.0f} img/s "
                f"{runs[arm].get('error', '')[-200:]}")  # fmt: skip
        result["rounds"].append(runs)
        path.parent.mkdir(parents=True, exist_ok=True)
        stored.save(path, result)
    for arm in a.arms:
        rates = [r[arm]["examples_s"] for r in result["rounds"] if "error" not in r[arm]]
        shares = [r[arm]["examples_s"] / r["from memory"]["examples_s"] for r in result["rounds"]
                  if "error" not in r[arm] and "error" not in r.get("from memory", {"error": ""})]  # fmt: skip
        if rates and shares:
            print(f"  {arm:26s} {statistics.median(rates):8,.0f} img/s   {statistics.median(shares):.3f} of memory "
                  f"({min(shares):.2f}-{max(shares):.2f})   bar {ARMS[arm][1]:.2f}")  # fmt: skip
    say(f"all figures are in {runner.short(path)}")


if __name__ == "__main__":
    main()
