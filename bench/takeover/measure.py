"""One run of a script: the rates of its loaders, and the resources of all of its processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import procs, runner
from . import HOOK, Place, Script

ROOT = runner.ROOT
ARMS = ("python", "stoker run")
# Plain Python that repeats the training loader's first batch: the time of the rest of the script.
REST = "the rest"
# The interval between samples of the processes, in seconds. Each sample takes milliseconds per GB of memory.
_LOOK = 2.0


def environment(log: Path) -> dict[str, str]:
    """The same for both arms."""
    path = os.pathsep.join([str(HOOK), str(ROOT / "python/src")])
    return {
        **os.environ, "PYTHONPATH": path, "STOKER_BENCH_LOG": str(log), "PYTHONDONTWRITEBYTECODE": "1",
        "STOKER_BINARY": os.environ.get("STOKER_BINARY", str(ROOT / "bin/stoker")),
        "STOKER_PYTHON_HOOK": str(ROOT / "python/src/stoker/_hook"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
        "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "TQDM_DISABLE": "1",
        "WANDB_DISABLED": "true", "COLUMNS": "200",
        # The user's default settings, with a new cache folder each time.
        "STOKER_CACHE": "auto", "STOKER_CACHE_DIR": str(log.parent / "cache"),
    }  # fmt: skip


def run(script: Script, place: Place, arm: str, python: Path, cores: str, limit: float) -> dict[str, Any]:
    """Run a script in one of the arms."""
    shutil.rmtree(place.out, ignore_errors=True)
    place.out.mkdir(parents=True)
    if script.prepare:
        script.prepare(place)
    log = place.out / "passes.jsonl"
    variables = environment(log) | ({"STOKER_BENCH_SAME": "1"} if arm == REST else {})
    file = place.checkout / script.path
    command = [str(python), str(file), *script.arguments(place)]
    if arm == "stoker run":
        command = [variables["STOKER_BINARY"], "run", "--", *command]
    if cores:
        command = ["taskset", "-c", cores, *command]
    # Its own files are found from its folder. Its output goes to an empty folder.
    variables["PYTHONPATH"] += os.pathsep + str(file.parent)
    start = time.monotonic()
    with (place.out / "stdout").open("w") as out, (place.out / "stderr").open("w") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=place.out, env=variables,
            start_new_session=True,
        )  # fmt: skip
        try:
            used = _watch(process, limit)
        finally:
            _end(process)
    got: dict[str, Any] = {"arm": arm, "wall_s": time.monotonic() - start, **used}
    said = (place.out / "stderr").read_text(errors="replace")
    if got["wall_s"] >= limit:
        return got | {"error": f"still running after {limit:.0f} s: killed"}
    if process.returncode:
        got["error"] = runner.scrub("\n".join(said.strip().splitlines()[-6:]))[-900:] or f"exit {process.returncode}"
        return got
    text = (place.out / "stdout").read_text(errors="replace") + said
    losses = re.findall(script.loss, text)
    got |= {"loss": float(losses[-1])} if losses else {}
    got |= {"report": runner.scrub(said.partition("\nstoker run:\n")[2])[:4000]} if arm == "stoker run" else {}
    got["epochs"] = training(passes(log))
    if not got["epochs"]:
        got["error"] = "no DataLoader was used in it"
    return got


def passes(log: Path) -> list[dict[str, Any]]:
    """The records of the hook."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def training(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The passes over the training loader: that which gave the most samples."""
    rows: dict[int, int] = {}
    for one in found:
        rows[one["loader"]] = rows.get(one["loader"], 0) + one["rows"]
    if not rows:
        return []
    most = max(rows, key=lambda loader: rows[loader])
    mine = sorted((x for x in found if x["loader"] == most), key=lambda x: x["at"])
    # A pass that was cut short, such as a check before the first epoch, does not count.
    whole = max(x["rows"] for x in mine)
    keys = ("dataset", "rows", "batches", "seconds", "first_s", "waited_s")
    return [{k: x[k] for k in keys} | {"rate": x["rows"] / x["seconds"]} for x in mine if x["rows"] == whole]


def _watch(process: subprocess.Popen[bytes], limit: float) -> dict[str, float]:
    """Wait for the end; returns the processor time and the most memory of all processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = memory = 0.0
    deadline = time.monotonic() + limit
    while process.poll() is None:
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        cpu = max(cpu, procs.cpu_seconds(process.pid))
        memory = max(memory, procs.memory(process.pid)["pss"])
        try:
            process.wait(_LOOK)
        except subprocess.TimeoutExpired:
            continue
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": max(cpu, waited), "memory_mib": memory}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
