"""Run benchmarks: `make bench SUITES="cache gpu"`, or python -m bench cache gpu. `make bench SUITES=list` lists them.

Options are environment variables, such as ROUNDS=5 and ONLY=regex. The list shows the options of each suite.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .suite import SUITES as COMPARED

ROOT = Path(__file__).resolve().parent.parent
# The options of all suites, and their flags if these differ from the name in lower case.
FLAGS = {
    "SECONDS_PER_ARM": "--seconds",
    "SECONDS_EACH": "--seconds",
}
SWITCHES = ("RESUME", "QUICK")


@dataclass(frozen=True)
class Suite:
    """A measurement: its module, the required installations, its options, and the writer of its page."""

    about: str
    minutes: int
    module: str
    setup: str = ""
    options: tuple[str, ...] = ("ROUNDS", "DATA")
    report: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    # Exit codes that report a result, not a failed measurement.
    done: tuple[int, ...] = (0,)


def compared(*names: str) -> Suite:
    """The comparison with other loaders: all of its data, or some kinds."""
    quick = bool(os.environ.get("QUICK"))
    return Suite(
        f"the speed of loaders side by side: {', '.join(names or COMPARED)}", 45 * len(names or COMPARED), "bench.run",
        "" if quick else "bench/setup.sh", ("QUICK", "STEPS", "ARMS", "ROUNDS", "SECONDS_PER_ARM", "DATA", "RESUME"),
        () if quick else ("bench.report",), ("--suites", *names) if names else (),
    )  # fmt: skip


SUITES = {
    "all": compared(),
    **{name: compared(name) for name in COMPARED},
    "remote": Suite(
        "buckets: CPU per GB, first epochs, a slow link, predictions, a cold disk", 120, "bench.remote",
        "bench/setup.sh side mds remote", ("ONLY", "ROUNDS", "DATA"), ("bench.remote --report",),
    ),
    "latency": Suite("storage that answers late, and the same pack in memory", 8, "bench.latency", "",
                     ("ROUNDS", "LOOKAHEAD", "DATA")),
    "cache": Suite("the automatic cache of a folder, without it, and packs", 5, "bench.learn",
                   report=("bench.learn --report",)),
    "order": Suite("how well orders shuffle for their memory; nothing is timed", 10, "bench.order",
                   "bench/setup.sh mds side", ("SEEDS", "ONLY")),
    "scale": Suite("what 10,000 ranks ask of the machines; nothing is read", 8, "bench.simulate", "", ()),
    "formats": Suite("each format as it is, and with its own library", 15, "bench.formats",
                     "bench/setup.sh tf mds side robots ffcv", ("ONLY", "ROUNDS"), ("bench.formats --report",)),
    "writers": Suite("packing and converting, and the writers of other formats", 5, "bench.writers",
                     "bench/setup.sh mds side ffcv", ("ROUNDS", "ONLY"), ("bench.writers --report",)),
    "run": Suite("public training scripts under stoker run", 40, "bench.takeover", "bench/setup.sh public",
                 ("ONLY", "ROUNDS", "CHECKOUTS"), ("bench.takeover --report",)),
    "gpu": Suite("batches on an accelerator", 10, "bench.gpu"),
    "storage": Suite("simulated accelerators, and DLIO's PyTorch loader; 9 GB of data", 20, "bench.dlio",
                     "bench/dlio_setup.sh", ("ROUNDS", "WORKLOADS", "RESUME"), ("bench.dlio --report",)),
    "feeders": Suite("servers that build batches for a trainer, and their transport", 7, "bench.feeders", "",
                     ("ROUNDS", "SECONDS_EACH"), ("bench.feeders --report",)),
    "whatif": Suite("whether the what-if of stoker bench is right", 4, "bench.whatif", "", ("ROUNDS",)),
    "planner": Suite("whether stoker plan predicts right", 9, "bench.planner", "", ("RESUME", "ROUNDS")),
    "doctor": Suite("whether stoker doctor is right", 60, "bench.doctor.run", "bench/setup.sh side",
                    ("SET", "ONLY", "RESUME", "DATA"), ("bench.doctor.report", "bench.doctor.transcript"), done=(0, 1)),
    "doctor-kinds": Suite(
        "stoker doctor on jobs of many kinds, and TraceML; its advice, tried", 90, "bench.doctor.beside",
        "bench/setup.sh tf grain ray traceml",
        ("PARTS", "SET", "ONLY", "SECONDS_EACH", "RUNS", "BUDGET", "RESUME", "TRUTHS"),
    ),
    "shared": Suite("jobs that share one engine: CPU time, TensorSocket, several speeds, memory of 8 ranks", 12,
                    "bench.shared", "bench/setup.sh tensorsocket", ("ROUNDS", "DATA"), done=(0, 1)),
    "reliability": Suite("public test files, compared with their reference libraries", 10, "bench.reliability", "",
                         ("COLLECTIONS",), fixed=("--fetch",)),
}  # fmt: skip
DEFAULTS = {"COLLECTIONS": "bench/work/collections"}


def arguments(suite: Suite) -> list[str]:
    """The options of a suite that are set, as flags."""
    flags = list(suite.fixed)
    for name in suite.options:
        value = os.environ.get(name) or DEFAULTS.get(name, "")
        if not value:
            continue
        flags.append(FLAGS.get(name, "--" + name.lower().replace("_", "-")))
        if name not in SWITCHES:
            # An option with several words, such as STEPS="tune measure", becomes several arguments.
            flags += value.split() if name in ("STEPS", "PARTS") or suite.module == "bench.remote" else [value]
    return flags


def main(names: list[str]) -> int:
    """Run the suites, and return the exit code."""
    if names == ["list"]:
        for name, suite in SUITES.items():
            print(f"{name:13} {suite.minutes:>4} min  {suite.about}; {' '.join(suite.options)}")
        return 0
    unknown = [n for n in names if n not in SUITES]
    if unknown:
        print(f"bench: there is no suite {unknown[0]}: make bench SUITES=list lists them", file=sys.stderr)
        return 2
    known = {o for s in SUITES.values() for o in s.options}
    # The kinds of data of one comparison share a result file.
    together = [n for n in names if n in COMPARED]
    chosen = [(n, SUITES[n]) for n in names if n not in COMPARED]
    if together or not names:
        chosen.insert(0, (" ".join(together) or "all", compared(*together)))
    for name, suite in chosen:
        ignored = sorted(o for o in known - set(suite.options) if os.environ.get(o))
        if ignored:
            takes = f"it takes {', '.join(suite.options)}" if suite.options else "it takes none"
            print(f"bench: {name} does not take {ignored[0]}; {takes}", file=sys.stderr)
            return 2
        commands = [[sys.executable, "-m", suite.module, *arguments(suite)]]
        part = os.environ.get("ONLY") or os.environ.get("SET")
        reports = [r for r in suite.report if not (part and r == "bench.doctor.transcript")]
        commands += [[sys.executable, "-m", *shlex.split(r)] for r in reports]
        if suite.setup:
            subprocess.run(shlex.split(suite.setup), cwd=ROOT, check=False)
        for i, command in enumerate(commands):
            code = subprocess.run(command, cwd=ROOT, check=False).returncode
            if code and (i or code not in suite.done):
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
