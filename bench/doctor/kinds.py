"""Kinds of jobs in addition to those of the matrix: other loaders and other loops, as users write them.

    python -m bench.doctor.kinds [--set tuning|heldout|all] [--only NAMES] [--seconds 10] [--truth] [--out FILE]

The matrix (cells.py) varies how scarce a resource is. Here the kinds differ in how they are written. Half of them
were not used to make rules: they are run, but nothing is tuned on them. Each runs while `stoker doctor --json`
watches it. With --truth it also runs without the scarce resource, to measure the real gain.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import inject, score

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = Path(os.environ.get("STOKER_BENCH_WORK", ROOT / "bench" / "work"))
FED = {"accelerator", "healthy"}
UNKNOWN = "unknown"
TUNING, HELDOUT = "tuning", "heldout"
# The minimum gain for which a job counts as starved, and the band around it in which either answer is right. Both are
# the same as in the matrix (score.py).
STARVED, BAND = score.STARVED, score.BAND
PREPARE = 180.0  # seconds that making the data of a kind may take


@dataclass(frozen=True)
class Kind:
    """A script of jobs/ and its properties: the resource it lacks ("" for none, "a/b" if both are right), its set,
    its imports (separated by spaces), its number of ranks, and its environment of bench/setup.sh. `beside` is the
    number of other programs that compute at the same time, and `memory` its limit in megabytes."""

    name: str
    lacks: str
    set: str
    needs: str = ""
    ranks: int = 1
    venv: str = ""
    beside: int = 0
    memory: int = 0

    @property
    def python(self) -> str:
        return str(WORK / "venv" / self.venv / "bin" / "python") if self.venv else sys.executable


KINDS = [
    Kind("sleeping_service", "latency", TUNING, "torch"),
    Kind("sleeping_serial", "latency", HELDOUT, "torch"),
    Kind("flock_workers", "latency", TUNING, "torch"),
    Kind("mutex_workers", "latency", HELDOUT, "torch"),
    Kind("thread_prefetch", "cpu", TUNING),
    # It lacked nothing: its work is more now. No rule was changed.
    Kind("thread_torch", "cpu", HELDOUT, "torch"),
    Kind("queue_feeder", "cpu", TUNING),
    Kind("pool_imap", "cpu", HELDOUT),
    Kind("generator_jsonl", "cpu", TUNING),
    # Its step was so short that it took several times as long while a batch was being built. No rule was changed.
    Kind("get_batch_numpy", "cpu", HELDOUT, "torch"),
    Kind("asyncio_fetch", "network", TUNING),
    # A rule was changed after its first run as a held-out one.
    Kind("requests_threads", "network", TUNING, "requests"),
    Kind("csv_main", "cpu", HELDOUT),
    Kind("tar_stream", "", HELDOUT, "torch"),
    Kind("sqlite_rows", "cpu", TUNING, "torch"),
    # Its work is more now, which was at the border. No rule was changed.
    Kind("hdf5_gzip", "cpu", HELDOUT, "h5py"),
    Kind("mmap_main", "storage", TUNING, "torch"),
    # It dropped its pages itself, which took more time than reading them; now it reads each but once.
    Kind("lmdb_cold", "storage", TUNING, "lmdb"),
    Kind("zip_images", "cpu", TUNING, "PIL"),
    Kind("short_epochs", "handoff/cpu", TUNING, "torch"),
    Kind("iterable_stream", "latency", TUNING, "torch"),
    # A rule was changed after its first run as a held-out one.
    Kind("iterable_parse", "cpu", TUNING, "torch"),
    Kind("ddp_slow_rank", "latency", TUNING, "torch", 2),
    Kind("ddp_even", "", HELDOUT, "torch", 2),
    Kind("metrics_head", "", TUNING, "torch"),
    # A rule was changed after its first run as a held-out one.
    Kind("checkpoints", "", TUNING, "torch"),
    Kind("jax_loop", "cpu", TUNING, "jax"),
    # A rule was changed after its first run as a held-out one.
    Kind("lightning_fit", "cpu", TUNING, "lightning"),
    # A rule was changed after its first run as a held-out one.
    Kind("hf_trainer", "handoff", TUNING, "transformers accelerate"),
    Kind("thread_fed", "", TUNING),
    Kind("queue_fed", "", HELDOUT),
    Kind("tfdata_map", "cpu", TUNING, "tensorflow", venv="tf"),
    Kind("tfdata_fed", "", HELDOUT, "tensorflow", venv="tf"),
    Kind("grain_map", "cpu", HELDOUT, "grain", venv="grain"),
    Kind("grain_fed", "", TUNING, "grain", venv="grain"),
    Kind("ray_data", "cpu", TUNING, "ray", venv="ray"),
    Kind("neighbours", "cpu", TUNING, "torch", beside=3),
    Kind("neighbours_fed", "", HELDOUT, "torch", beside=2),
    # Its file lay in memory that counted to another group; now it drops it first. A rule was changed after that.
    Kind("memory_limit", "memory/storage", TUNING, "torch", memory=700),
    Kind("epochs_seconds", "handoff/cpu", HELDOUT, "torch"),
    Kind("subprocess_pipe", "cpu", TUNING),
    # A rule was changed after its first run as a held-out one.
    Kind("socket_feeder", "cpu", TUNING),
    # A rule was changed after its first run as a held-out one.
    Kind("shared_ring", "cpu", TUNING),
    Kind("native_threads", "cpu", TUNING),
    Kind("asyncio_main", "network", HELDOUT),
    Kind("zip_fed", "", HELDOUT, "torch"),
    Kind("iterable_fed", "", TUNING, "torch"),
    Kind("evaluation_fed", "", TUNING, "torch"),
    Kind("logging_fed", "", HELDOUT, "torch"),
    Kind("renamed", "cpu", TUNING, "torch"),
    # A rule was changed after its first run as a held-out one.
    Kind("forkserver_workers", "cpu", TUNING, "torch"),
    # Replacements for kinds that are no longer held out.
    Kind("executor_processes", "cpu", HELDOUT),
    # A rule was changed after its first run as a held-out one.
    Kind("parquet_rows", "cpu", TUNING, "pyarrow"),
    Kind("urllib_workers", "network", HELDOUT, "torch"),
    Kind("condition_buffer", "latency", HELDOUT),
    Kind("get_batch_fed", "", HELDOUT, "torch"),
    Kind("executor_fed", "", HELDOUT),
    # Its data were at an end before its truth was measured. No rule was changed.
    Kind("zarr_chunks", "cpu", HELDOUT, "torch zarr"),
    Kind("pandas_chunks", "cpu", HELDOUT, "torch pandas"),
    Kind("video_clips", "cpu", HELDOUT, "torch av"),
    Kind("audio_features", "cpu", HELDOUT, "torch soundfile scipy"),
    # A rule was changed after its first run as a held-out one.
    Kind("tokenize_collate", "cpu", TUNING, "torch"),
    Kind("aiohttp_thread", "network", HELDOUT, "aiohttp"),
    Kind("rate_limited", "latency", HELDOUT, "torch"),
    Kind("webdataset_fed", "", HELDOUT, "torch webdataset"),
    Kind("hdf5_fed", "", HELDOUT, "torch h5py"),
    # An eighth of its time it really waited: its step is more now. No rule was changed.
    Kind("lightning_fed", "", HELDOUT, "lightning"),
    # A rule was changed after its first run as a held-out one.
    Kind("asyncio_fed", "", TUNING),
    Kind("sqlite_fed", "", HELDOUT, "torch"),
    # A rule was changed after its first run as a held-out one.
    Kind("jax_fed", "", TUNING, "jax"),
    # A rule was changed after its first run as a held-out one.
    Kind("jax_queue_fed", "", TUNING, "jax"),
    # A rule was changed after its first run as a held-out one.
    Kind("jax_augment", "cpu", TUNING, "jax"),
    # Replacements for kinds that are no longer held out.
    Kind("asyncio_executor", "network", HELDOUT),
    Kind("asyncio_pool_fed", "", HELDOUT, "torch"),
    Kind("collate_decode", "cpu", HELDOUT, "torch PIL"),
    Kind("lightning_decode", "cpu", HELDOUT, "lightning"),
    # Replacements for kinds that are no longer held out.
    Kind("jax_train_state", "cpu", HELDOUT, "jax"),
    Kind("jax_scan_fed", "", HELDOUT, "jax"),
    Kind("pool_map_decode", "cpu", HELDOUT, "torch PIL"),
    Kind("replay_fed", "", HELDOUT, "torch"),
]


@dataclass
class Result:
    kind: str
    set: str
    lacks: str
    verdict: str
    gain: float
    confidence: float
    line: str
    advice: list[str]
    real: float | None = None
    overhead: float = 0  # CPU time of the watching, of one core
    waiting: float = 0
    verified: dict[str, Any] | None = None

    @property
    def starved(self) -> bool:
        return starves(self.lacks, self.real)

    @property
    def right(self) -> bool:
        """Either is right at the border."""
        named = bool(self.lacks) and self.verdict in self.lacks.split("/")
        fed = self.verdict in FED
        return named or fed if borders(self.lacks, self.real) else named if self.starved else fed

    @property
    def found(self) -> bool:
        return finds(self.verdict, self.lacks, self.real)

    @property
    def wrong(self) -> bool:
        """Starved called fed, or the other way round."""
        return not self.found and self.verdict != UNKNOWN


def starves(lacks: str, real: float | None) -> bool:
    """Whether a kind is short of data here: by its measured gain if known, otherwise by its script. On a sufficiently
    fast machine, a script that computes much lacks nothing."""
    return bool(lacks) and (real is None or real >= STARVED)


def borders(lacks: str, real: float | None) -> bool:
    return bool(lacks) and real is not None and abs(real - STARVED) < BAND


def finds(verdict: str, lacks: str, real: float | None) -> bool:
    """Whether starved is called starved and fed is called fed. Either is right if the gain is at the edge, "unknown"
    never."""
    return verdict != UNKNOWN and (borders(lacks, real) or (verdict not in FED) == starves(lacks, real))


def command(kind: Kind, *options: str) -> list[str]:
    script = str(HERE / "jobs" / f"{kind.name}.py")
    if kind.ranks > 1:
        port = 29400 + os.getpid() % 500
        start = [
            kind.python,
            "-m",
            "torch.distributed.run",
            f"--nproc-per-node={kind.ranks}",
            f"--master-port={port}",
        ]
        return [*start, script, *options]
    return [kind.python, script, *options]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}


def missing(kind: Kind) -> str:
    """The reason why a kind cannot run here, "" if it can."""
    if kind.venv and not Path(kind.python).exists():
        return f"bench/setup.sh {kind.venv} makes its environment"
    if kind.memory:
        try:
            inject.check("memory", WORK)
        except inject.Unavailable as why:
            return str(why)
    find = f"import importlib.util as i, sys; sys.exit(any(i.find_spec(n) is None for n in {kind.needs.split()!r}))"
    if kind.needs and subprocess.run([kind.python, "-c", find], check=False).returncode:
        return f"{kind.needs} is not installed"
    return ""


@contextlib.contextmanager
def conditions(kind: Kind, without: str = "") -> Iterator[list[inject.Group]]:
    """Sets up the other programs and the memory limit of a kind. Yields the groups that it joins."""
    with contextlib.ExitStack() as stack:
        groups = []
        if kind.beside and without != "cpu":
            stack.callback(inject.Antagonists(kind.beside).close)
        if kind.memory and without not in ("memory", "everything"):
            groups.append(inject.Group("kind", {"memory": {"memory.limit_in_bytes": str(kind.memory << 20)}}))
            stack.callback(groups[0].close)
        yield groups


_prepared: set[str] = set()


def prepare(kind: Kind) -> None:
    """Lets a kind make its data, once, so that no watched or timed run does."""
    if kind.name not in _prepared:
        _prepared.add(kind.name)
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command(kind, "--seconds", "0.1"), env=environment(), capture_output=True, timeout=PREPARE, check=False
            )


def diagnose(kind: Kind, stoker: str, seconds: float, *flags: str) -> Result:
    prepare(kind)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as words, conditions(kind) as groups:
        report = Path(folder, "report.json")
        watched = command(kind, "--seconds", str(seconds + 4 if not flags else 600))

        def join() -> None:
            for group in groups:
                group.join(os.getpid())

        job = subprocess.Popen(
            [stoker, "doctor", *flags, "--seconds", str(seconds), "--save", str(report), "--", *watched],
            env=environment(), stdout=subprocess.DEVNULL, stderr=words, start_new_session=True,
            preexec_fn=join if groups else None,
        )  # fmt: skip
        said = ""
        try:
            job.wait(timeout=2 * seconds + 120)
        except subprocess.TimeoutExpired:
            said = "no end"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)  # the remaining processes of its group
        job.wait()
        words.seek(0)
        said = said or words.read().decode(errors="replace")
        if not report.exists():
            return Result(kind.name, kind.set, kind.lacks, "", 1, 0, said[-300:], [])
        if job.returncode:
            return Result(kind.name, kind.set, kind.lacks, "", 1, 0, f"the job failed: {said.strip()[-300:]}", [])
        r = json.loads(report.read_text())
    advice = [f"{a['title']} ({a.get('gain', 0):.2f}): {a.get('command', '')}" for a in r["advice"] or []]
    advice = [a.replace(kind.python, "python").replace(f"{ROOT}{os.sep}", "") for a in advice]
    return Result(
        kind.name, kind.set, kind.lacks, r["verdict"], r["gain"], r["confidence"], r["line"], advice,
        overhead=r["overhead"], waiting=r["waiting"], verified=r.get("verified"),
    )  # fmt: skip


def rate(kind: Kind, seconds: float, without: str = "") -> float:
    prepare(kind)
    with conditions(kind, without) as groups:

        def join() -> None:
            for group in groups:
                group.join(os.getpid())

        done = subprocess.run(
            command(kind, "--seconds", str(seconds), *(["--without", without] if without else [])),
            env=environment(), capture_output=True, text=True, timeout=seconds + 120, check=False,
            preexec_fn=join if groups else None,
        )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("rate "):
            return float(line.split()[1])
    raise RuntimeError(f"{kind.name}: {done.stderr.strip()[-300:]}")


def truth(kind: Kind, seconds: float) -> float:
    """The speed-up of the job without the scarce resource, compared with unchanged runs before and after."""
    before = rate(kind, seconds)
    free = rate(kind, seconds, kind.lacks.split("/")[0])
    return free / statistics.mean([before, rate(kind, seconds)])


def summary(results: list[Result]) -> list[str]:
    lines = []
    for which in (TUNING, HELDOUT):
        some = [r for r in results if r.set == which]
        starved, fed = [r for r in some if r.starved], [r for r in some if not r.starved]
        shares = [sum(r.found for r in group) / len(group) for group in (starved, fed) if group]
        if not shares:
            continue
        lines.append(
            f"{which}: {sum(r.right for r in some)} of {len(some)} verdicts right, balanced accuracy of starved and fed"
            f" {statistics.mean(shares):.2f}, starved called fed {sum(r.wrong for r in starved)} of {len(starved)}"
            f", false alarms {sum(r.wrong for r in fed)} of {len(fed)}"
        )
        errors = [abs(r.gain / r.real - 1) for r in starved if r.real and r.verdict not in FED]
        if errors:
            lines.append(
                f"{which}: error of the gain {statistics.median(errors):.0%} in the median, {max(errors):.0%} at worst"
            )
    return lines


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="stoker doctor beside jobs of many kinds")
    parser.add_argument("--set", choices=(TUNING, HELDOUT, "all"), default="all")
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--truth", action="store_true", help="measure the real gain too")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args(argv)
    kinds = [k for k in KINDS if args.set in (k.set, "all") and (not args.only or k.name in args.only.split(","))]
    if args.list:
        for k in kinds:
            print(f"{k.set:8} {k.name:18} {k.lacks or 'nothing'}")
        return
    stoker = os.environ.get("STOKER_BINARY", str(ROOT / "bin" / "stoker"))
    results = []
    for k in kinds:
        if why := missing(k):
            print(f"{k.name}: left out, {why}", flush=True)
            continue
        r = diagnose(k, stoker, args.seconds)
        if not r.verdict:
            print(f"{k.name}: left out, {r.line}", flush=True)
            continue
        if args.truth and k.lacks:
            r.real = truth(k, args.seconds)
        results.append(r)
        real = f", really {r.real:.2f}" if r.real else ""
        mark, lacks = "right" if r.right else "WRONG", k.lacks or "nothing"
        print(f"{mark} {k.name}: lacks {lacks}; said {r.verdict} {r.gain:.2f}{real}", flush=True)
        print(f"      {r.line}", *r.advice, sep="\n      ", flush=True)
    print("\n".join(summary(results)))
    if args.out:
        args.out.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
