"""Stoker's benchmark: every arm in a separate process, on the same bytes and cores, in interleaved rounds.

    make bench                          everything (about an hour and a half on 2 cores)
    make bench QUICK=1                  against torch only, under 5 minutes
    make bench SUITES="photos raw" ROUNDS=3 SECONDS_PER_ARM=4
    .venv/bin/python -m bench.run --help

Results go to bench/results/<machine>-<commit>.json after every run, so an interrupted measurement loses nothing: the
same command with --resume continues it. `python -m bench.report` writes tables and plots into
docs/internals/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # started as bench/run.py
    os.execv(sys.executable, [sys.executable, "-m", "bench.run", *sys.argv[1:]])

from . import ceilings, datasets, gates, procs, runner, stored
from .suite import FLOW, FOREGROUND, HANDOFF, MEMORY, PACKING, SUITES, Arm, Suite

ROOT = runner.ROOT
STEPS = ("gates", "tune", "measure", "flow", "handoff", "foreground", "memory", "ceilings", "packing")


def say(text: str) -> None:
    print(f"bench: {text}", flush=True)


class Bench:
    """One measurement: its folders, its options, and the results so far."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        self.work: Path = a.work
        self.limit: float = a.limit
        machine = procs.describe_machine()
        commit = _git("rev-parse", "--short=10", "HEAD") or "unknown"
        self.path: Path = a.out or ROOT / "bench/results" / f"{_slug(machine)}-{commit}.json"
        self.results: dict[str, Any] = {
            "machine": machine,
            "commit": commit,
            "changed_files": bool(_git("status", "--porcelain", "--untracked-files=no")),
            "settings": {"rounds": a.rounds, "seconds": a.seconds, "warmup": a.warmup, "cores": a.cores},
            "stoker": _stoker_version(),
            "versions": {},
            "data": {},
            "gates": {},
            "tuning": [],
            "runs": [],
            "flow": [],
            "handoff": [],
            "foreground": [],
            "memory": [],
            "ceilings": [],
            "packing": [],
            "failed": {},
        }
        if a.resume and self.path.exists():
            self.results |= json.loads(self.path.read_text())
            say(f"going on with {runner.short(self.path)}")
        self.bounds = ceilings.Ceilings(a.work, a.cores, say, a.limit)
        self.tuned: dict[str, int] = {}
        self.tuned_path = self.work / "tuned.json"
        if self.tuned_path.exists() and not a.retune:
            self.tuned = json.loads(self.tuned_path.read_text())

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stored.save(self.path, self.results)

    def workers(self, arm: Arm) -> int:
        return self.tuned.get(arm.name, arm.workers)

    def command(self, arm: Arm, suite: Suite, workers: int | None = None) -> list[str]:
        return runner.arm_command(
            arm, suite, self.work, self.workers(arm) if workers is None else workers, self.a.cores
        )

    def fail(self, arm: str, what: str, error: str) -> None:
        error = runner.scrub(error)
        self.results["failed"][arm] = f"{what}: {error}"
        say(f"{arm}: {what}: {error.splitlines()[-1] if error else ''}")

    # -- preparation -------------------------------------------------------------------------------------------------

    def arms(self, suite: Suite) -> list[Arm]:
        """The suite's requested arms that can run: environment, data and pack exist."""
        ready = []
        for arm in suite.arms:
            if self.a.arms and not re.search(self.a.arms, arm.name):
                continue
            if arm.missing:
                self.fail(f"{suite.name}/{arm.name}", "not there", arm.missing)
                continue
            if error := runner.broken_env(arm.env, self.work):
                self.fail(arm.name, "environment", error)
                continue
            try:
                self.pack(arm, suite)
            except (datasets.MissingError, OSError) as e:
                self.fail(arm.name, "data", str(e))
                continue
            ready.append(arm)
        return ready

    def data(self, suite: Suite) -> bool:
        try:
            out = datasets.make(suite.data_set, self.work, self.a.data, say)
        except datasets.MissingError as e:
            say(f"{suite.title}: skipped: {e}")
            self.results["failed"][suite.name] = runner.scrub(str(e))
            return False
        files = [p for p in procs.files_below(out) if p.suffix != ".bmp"]
        size = sum(f.stat().st_size for f in files)
        self.results["data"][suite.data_set] = {"files": len(files), "bytes": size}
        return True

    def pack(self, arm: Arm, suite: Suite) -> None:
        """Makes the data of the arm unless it exists."""
        out = self.work / arm.folder(suite.data_set)
        if arm.pack == "" or out.exists():
            return self._lossy(arm, suite)
        say(f"packing {runner.short(out)}")
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = self.work / "data" / suite.data_set
        kind = arm.pack
        if kind.endswith("-q90"):
            kind, folder = kind.removesuffix("-q90"), self._q90(suite)
        done = self.pack_with(kind, arm.env, folder, out)
        if "error" in done:
            shutil.rmtree(out, ignore_errors=True)
            raise datasets.MissingError(done["error"])
        self._lossy(arm, suite)

    def _lossy(self, arm: Arm, suite: Suite) -> None:
        """The files that the pixels of a lossy arm are compared with."""
        if "lossy" in arm.classes:
            self._q90(suite)

    def pack_with(
        self, kind: str, env: str, folder: Path, out: Path, cores: str = "", workers: int = 2
    ) -> dict[str, Any]:
        """Packs a folder with one writer. Returns seconds, cpu_s and bytes."""
        pin = ["taskset", "-c", cores] if cores else []
        if kind.startswith("stoker-"):
            images, _, side = kind.removeprefix("stoker-").partition("-")
            source = folder / "bmp" if images == "raw" and not side else folder
            if images == "rows":
                source = folder / "records.npy"
            procs.warm(source)
            binary = runner.short(ROOT / "bin/stoker")
            command = [*pin, binary, "pack", runner.short(source), runner.short(out)]
            command += [] if images == "rows" else ["--images", images]
            command += ["--resize", f"{side}x{side}"] if side else []
            return ceilings.timed(command, out, self.work / "logs/pack.log", max(self.limit, 900))
        source = folder
        if (folder / "records.npy").exists():
            source = folder / "records.npy"
        python = runner.short(runner.python_of(env, self.work))
        command = [*pin, python, "-m", "bench.packs", kind, runner.short(source), runner.short(out)]
        return runner.run([*command, "--workers", str(workers)], max(self.limit, 900), self.work / "logs/pack.log")

    def _q90(self, suite: Suite) -> Path:
        """FFCV's own q90 JPEGs of a data set, as files."""
        folder = self.work / "data" / f"{suite.data_set}-q90"
        if not folder.exists():
            beton = self.work / "packs" / suite.data_set / "ffcv_q90.beton"
            if error := runner.broken_env("ffcv", self.work):
                raise datasets.MissingError(f"no q90 JPEGs without FFCV: {error}")
            if not beton.exists():
                done = self.pack_with("ffcv_q90", "ffcv", self.work / "data" / suite.data_set, beton)
                if "error" in done:
                    raise datasets.MissingError(done["error"])
            done = self.pack_with("ffcv_extract", "ffcv", beton, folder)
            if "error" in done:
                raise datasets.MissingError(done["error"])
        return folder

    # -- steps -------------------------------------------------------------------------------------------------------

    def run_arm(self, arm: Arm, suite: Suite, extra: list[str], workers: int | None = None) -> dict[str, Any]:
        command = self.command(arm, suite, workers)
        share = procs.warm(self.work / arm.folder(suite.data_set))
        got = runner.run([*command, *extra], self.limit, self.work / "logs" / f"{arm.name}.log")
        got.update(suite=suite.name, name=arm.name, workers=self.workers(arm) if workers is None else workers)
        got["resident"] = share
        got["command"] = " ".join(command)
        self.results["versions"].update(got.pop("versions", {}))
        return got

    def gates(self, suite: Suite, arms: list[Arm]) -> list[Arm]:
        """The arms whose figures count."""
        passed = []
        cache = self.work / "gates.json"
        known: dict[str, Any] = json.loads(cache.read_text()) if cache.exists() else {}
        for arm in arms:
            key = f"{suite.name}/{arm.name}"
            mark = "" if arm.ours else gates.fingerprint(arm, suite, self.work)
            verdict = self.results["gates"].get(key)
            if verdict is None or not verdict["ok"]:
                verdict = known.get(mark)
            if verdict is None:
                say(f"{key}: checks")
                procs.warm(self.work / arm.folder(suite.data_set))
                try:
                    verdict = gates.check(arm, suite, self.work, self.workers(arm), self.a.cores, self.limit)
                except (ArithmeticError, LookupError, OSError, ValueError) as e:  # the arm's output was not readable
                    verdict = {"ok": False, "error": f"{type(e).__name__}: {e}"}
                if mark and verdict["ok"]:
                    known[mark] = verdict
                    cache.write_text(json.dumps(known, indent=1) + "\n")
            self.results["gates"][key] = verdict
            self.save()
            line = ", ".join(
                f"{k}={verdict[k]}" for k in ("once", "same", "pixels", "max_difference", "psnr_db") if k in verdict
            )
            say(f"{key}: {'ok' if verdict['ok'] else 'NOT OK'} {line} {verdict.get('error', '')[-200:]}")
            if verdict["ok"] or not arm.comparable:
                passed.append(arm)
            elif "error" in verdict:
                self.fail(key, "check", verdict["error"])
            else:
                self.fail(key, "check", f"not passed, so no figure: {line}")
        return passed

    def tune(self, suite: Suite, arms: list[Arm], until: float = 0) -> None:
        """Makes one short run of each setting. The arm is measured with the fastest."""
        for arm in arms:
            if len(arm.tries) < 2 or arm.name in self.tuned:
                continue
            best: tuple[float, int] | None = None
            # The likeliest first, in case the time runs out.
            for workers in sorted(arm.tries, key=lambda n: abs(n - arm.workers)):
                if until and best and time.monotonic() > until:
                    say(f"tune {arm.name}: no time to try workers={workers}")
                    continue
                got = self.run_arm(arm, suite, ["--seconds", str(min(3, self.a.seconds)), "--warmup", "1.5"], workers)
                self.results["tuning"].append(got)
                rate = got.get("examples_s", 0.0)
                say(f"tune {arm.name} workers={workers}: {rate:,.0f} {suite.unit} {_error(got)}")
                if rate and (best is None or rate > best[0]):
                    best = (rate, workers)
            if best:
                self.tuned[arm.name] = best[1]
                self.tuned_path.write_text(json.dumps(self.tuned, indent=1) + "\n")
            self.save()

    def measure(self, suite: Suite, arms: list[Arm], rounds: int, until: float = 0) -> None:
        """Interleaved rounds, a new random order in each."""
        for number in range(rounds):
            order: list[Arm | None] = list(arms)
            if "ceilings" in self.a.steps and not self.a.arms:
                order.append(None)
            random.Random(f"{suite.name} {number}").shuffle(order)
            for arm in order:
                if arm is None:
                    self.ceiling(suite, number)
                    continue
                if until and number > 0 and time.monotonic() > until:
                    say("out of time: no more rounds")
                    return
                if self.done("runs", suite=suite.name, name=arm.name, round=number):
                    continue
                got = self.run_arm(arm, suite, ["--seconds", str(self.a.seconds), "--warmup", str(self.a.warmup)])
                got["round"] = number
                self.results["runs"].append(got)
                self.save()
                say(f"round {number + 1}/{rounds} {suite.name}/{arm.name}: {_line(got, suite)}")

    def done(self, step: str, **what: Any) -> bool:
        """Whether a resumed measurement has this already."""
        return any(all(line.get(k) == v for k, v in what.items()) for line in self.results[step])

    def flow(self) -> None:
        """The cost of the hand-off alone: batches of one tiny record."""
        suite = SUITES["gen"]
        if not self.data(suite):
            return
        for number in range(min(3, self.a.rounds)):
            for arm in FLOW:
                if self.done("flow", name=arm.name, round=number):
                    continue
                self.pack(arm, suite)
                got = self.run_arm(arm, suite, ["--mode", "flow", "--seconds", "2"])
                got["round"] = number
                self.results["flow"].append(got)
                self.save()
                say(f"hand-off in flow, {arm.name}: {got.get('flow_us', float('nan')):,.1f} us per batch {_error(got)}")

    def handoff(self, suite: Suite, arms: list[Arm]) -> None:
        names = HANDOFF.get(suite.name, ())
        for number in range(min(3, self.a.rounds)):
            for arm in (a for a in arms if a.name in names):
                if self.done("handoff", suite=suite.name, name=arm.name, round=number):
                    continue
                got = self.run_arm(arm, suite, ["--mode", "handoff", "--seconds", "2"])
                got["round"] = number
                self.results["handoff"].append(got)
                self.save()
                say(f"hand-off {arm.name}: {got.get('handoff_us', float('nan')):,.0f} us {_error(got)}")

    def foreground(self, suite: Suite, arms: list[Arm]) -> None:
        for number in range(min(2, self.a.rounds)):
            for arm in (a for a in arms if a.name in FOREGROUND):
                if self.done("foreground", name=arm.name, round=number):
                    continue
                got = self.run_arm(arm, suite, ["--mode", "foreground", "--seconds", "4"])
                got["round"] = number
                self.results["foreground"].append(got)
                self.save()
                say(f"foreground {arm.name}: {got.get('slowdown', float('nan')):.2f} x slower {_error(got)}")

    def memory(self, suite: Suite, arms: list[Arm]) -> None:
        for arm in (a for a in arms if a.name in MEMORY):
            for workers in MEMORY[arm.name]:
                if self.done("memory", name=arm.name, workers=workers):
                    continue
                got = self.run_arm(arm, suite, ["--seconds", "3", "--warmup", "4"], workers)
                self.results["memory"].append(got)
                self.save()
                memory = got.get("memory_mib", {})
                say(f"memory {arm.name} x{workers}: {memory.get('private', 0):.0f} MiB private {_error(got)}")

    def ceiling(self, suite: Suite, number: int) -> None:
        """A round of the programs that bound a suite."""
        if self.done("ceilings", suite=suite.name, round=number):
            return
        self.results["ceilings"] += self.bounds.round(suite.name, number)
        self.save()

    def decoders(self, suite: Suite) -> None:
        """The decoders that the other loaders use."""
        if not self.done("ceilings", suite=suite.name, set=f"decoders-{suite.name}"):
            self.results["ceilings"] += self.bounds.decoders(suite.name, self.a.rounds)
            self.save()

    def packing(self, suite: Suite) -> None:
        core = self.a.cores.split(",")[0]
        folder = self.work / "data" / suite.data_set
        count = len(datasets.records(suite.data_set, self.work))
        for number in range(min(3, self.a.rounds)):
            order = list(PACKING)
            random.Random(f"packing {number}").shuffle(order)
            for label, kind, env in order:
                if (env and runner.broken_env(env, self.work)) or self.done("packing", kind=kind, round=number):
                    continue
                out = self.work / "packs" / "speed" / kind
                procs.warm(folder)
                got = self.pack_with(kind, env, folder, out, cores=core, workers=1)
                got.update(label=label, kind=kind, round=number, records=count)
                if "seconds" in got:
                    got["images_s"] = count / got["seconds"]
                shutil.rmtree(out, ignore_errors=True) if out.is_dir() else out.unlink(missing_ok=True)
                self.results["packing"].append(got)
                self.save()
                say(f"packing {kind}: {got.get('images_s', 0):,.0f} images/s on one core {_error(got)}")


def full(bench: Bench) -> None:
    a = bench.a
    suites = [SUITES[name] for name in a.suites]
    for suite in suites:
        if not bench.data(suite):
            continue
        arms = bench.arms(suite)
        if "tune" in a.steps:
            bench.tune(suite, arms)
        if "gates" in a.steps:
            arms = bench.gates(suite, arms)
        if "measure" in a.steps:
            bench.measure(suite, arms, a.rounds)
        if "ceilings" in a.steps and not a.arms:
            for number in range(a.rounds):  # those that no round of the arms had
                bench.ceiling(suite, number)
            bench.decoders(suite)
        if "handoff" in a.steps:
            bench.handoff(suite, arms)
        if "foreground" in a.steps and suite.name == suites[0].name:
            bench.foreground(suite, arms)
        if "memory" in a.steps and suite.name == suites[0].name:
            bench.memory(suite, arms)
        if "packing" in a.steps and suite.name == suites[0].name and not a.arms:
            bench.packing(suite)
    if "flow" in a.steps and not a.arms:
        bench.flow()
    bench.save()


def quick(bench: Bench) -> None:
    """This loader against torch's, in under 5 minutes: the sweep of its workers, then rounds of the best settings."""
    start = time.monotonic()
    suite = SUITES["gen"]
    if not bench.data(suite):
        raise SystemExit(1)
    bench.tuned = {}
    bench.tuned_path = bench.work / "tuned-quick.json"
    bench.a.arms = bench.a.arms or "^(" + "|".join(arm.name for arm in suite.arms if arm.quick) + ")$"
    arms = bench.arms(suite)
    stoker = [arm for arm in arms if arm.ours]
    # The checks of torch's arms belong to the full run; these five minutes are for figures.
    bench.gates(suite, stoker)
    bench.limit = min(bench.limit, 45)
    bench.tune(suite, arms, until=start + 120)
    bench.measure(suite, arms, bench.a.rounds, until=start + 225)
    bench.flow()
    bench.save()
    summary(bench, suite)
    say(f"done in {time.monotonic() - start:.0f} s; all figures are in {runner.short(bench.path)}")


def summary(bench: Bench, suite: Suite) -> None:
    """The few lines that QUICK=1 is for."""
    rates: dict[str, list[float]] = {}
    firsts: dict[str, list[float]] = {}
    collected: list[int] = []
    for run in bench.results["runs"]:
        if "error" not in run and run["suite"] == suite.name:
            rates.setdefault(run["name"], []).append(run["examples_s"])
            firsts.setdefault(run["name"], []).append(run["first_batch_s"])
            collected += run.get("gc_in_steady_epochs", [])
    best = max((statistics.median(v), k) for k, v in rates.items() if k.startswith("torch")) if rates else (0.0, "")
    print()
    for name, values in sorted(rates.items(), key=lambda x: -statistics.median(x[1])):
        middle = statistics.median(values)
        ratio = f"{middle / best[0]:5.2f} x" if best[0] else ""
        workers = next(r["workers"] for r in bench.results["runs"] if r["name"] == name)
        print(
            f"  {name:20s} workers {workers}  {middle:8,.0f} {suite.unit} ({min(values):,.0f}-{max(values):,.0f})"
            f"  {ratio} of {best[1]}  first batch {statistics.median(firsts[name]):.2f} s"
        )
    for arm in FLOW:
        taken = [h["flow_us"] for h in bench.results["flow"] if h["name"] == arm.name and "flow_us" in h]
        if taken:
            print(f"  hand-off, {arm.name.removeprefix('flow-')}: {statistics.median(taken):.1f} us per batch")
    if collected:
        print(f"  garbage collections in a steady epoch: {statistics.median(collected):.0f} (most: {max(collected)})")
    print()


def _line(got: dict[str, Any], suite: Suite) -> str:
    if "error" in got:
        return _error(got)
    text = f"{got['examples_s']:,.0f} {suite.unit}, {got['cpu_s_per_1k']:.2f} CPU-s per 1,000"
    if got["cores_foreign"] + got["cores_stolen"] > 0.15:
        text += f"  (disturbed: {got['cores_foreign'] + got['cores_stolen']:.2f} cores went elsewhere)"
    return text


def _error(got: dict[str, Any]) -> str:
    return "" if "error" not in got else "error: " + (got["error"].splitlines() or [""])[-1]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=False, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def _stoker_version() -> str:
    binary = ROOT / "bin/stoker"
    if not binary.exists():
        return ""
    text = subprocess.run([str(binary), "version"], check=False, capture_output=True, text=True).stdout
    return text.strip().partition("\n")[0]


def _slug(machine: dict[str, Any]) -> str:
    if name := os.environ.get("STOKER_BENCH_MACHINE"):
        return name
    cpu = re.sub(r"\((?:R|TM)\)|CPU|Processor|@.*", "", str(machine.get("cpu", machine["arch"])))
    words = re.sub(r"[^a-z0-9]+", "-", f"{cpu} {machine.get('cpu_model', '')}".lower()).strip("-")
    return f"{words}-{machine['cores']}c"


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--quick", action="store_true", help="against torch only, under 5 minutes")
    p.add_argument("--smoke", action="store_true", help="one round of a second each: does everything run?")
    p.add_argument(
        "--suites", nargs="*", default=list(SUITES), choices=list(SUITES), metavar="SUITE", help=" ".join(SUITES)
    )
    p.add_argument("--steps", nargs="*", default=list(STEPS), choices=STEPS, metavar="STEP", help=" ".join(STEPS))
    p.add_argument("--arms", default="", metavar="REGEX", help="only arms whose name matches")
    p.add_argument("--rounds", type=int, default=0)
    p.add_argument("--seconds", type=float, default=0, help="shortest window of an arm")
    p.add_argument("--warmup", type=float, default=0)
    p.add_argument("--limit", type=float, default=120, help="an arm that takes longer is killed and reported")
    p.add_argument("--cores", default="", help="cores for taskset; the first two by default")
    p.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared/data", help="folder with photos/ and cifar10_test_jpeg.tar"
    )
    p.add_argument("--work", type=Path, default=ROOT / "bench/work")
    p.add_argument("--out", type=Path, help="result file")
    p.add_argument("--resume", action="store_true", help="go on with the result file")
    p.add_argument("--retune", action="store_true", help="forget the settings that were found before")
    a = p.parse_args()
    short = a.quick or a.smoke
    a.rounds = a.rounds or (1 if a.smoke else 3 if a.quick else 5)
    a.seconds = a.seconds or (1 if a.smoke else 3 if short else 5)
    a.warmup = a.warmup or (0.5 if a.smoke else 1.5 if short else 2.5)
    a.cores = a.cores or ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    a.work = a.work.resolve()
    a.data = a.data.resolve()
    if a.smoke:
        a.out = a.out or a.work / "smoke.json"
    return a


def main() -> None:
    a = parse()
    # As Ctrl-C: the arm that runs is ended with all its processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bench = Bench(a)
    if load := [x for x in os.getloadavg()[:1] if x > 0.5]:
        say(f"the machine is busy (load {load[0]:.1f}); figures will be too")
    try:
        quick(bench) if a.quick else full(bench)
    except KeyboardInterrupt:
        bench.save()
        say(f"interrupted; what was measured is in {runner.short(bench.path)}; --resume goes on")
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
