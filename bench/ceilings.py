"""What the machine can do at most: C programs on one core without any loader around them."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import procs, runner

HERE = Path(__file__).resolve().parent / "ceiling"


def timed(command: list[str], out: Path, log: Path, limit: float) -> dict[str, Any]:
    """Runs a packer that prints no JSON; gives its time, CPU time and the size of what it wrote."""
    log.parent.mkdir(parents=True, exist_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    try:
        done = subprocess.run(command, check=False, cwd=runner.ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"still running after {limit:.0f} s: killed"}
    except OSError as e:
        return {"error": runner.scrub(str(e))}
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    log.write_text(done.stderr)
    # 3: finished, but some inputs were bad; the checks notice records that are missing.
    if done.returncode not in (0, 3):
        return {"error": runner.scrub(done.stderr.strip()[-600:]) or f"exit {done.returncode}"}
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = sum(f.stat().st_size for f in procs.files_below(out))
    return {"seconds": seconds, "cpu_s": cpu, "bytes": size, "command": " ".join(command)}


def measure(work: Path, rounds: int, say: Callable[[str], None], limit: float) -> list[dict[str, Any]]:
    raise NotImplementedError
