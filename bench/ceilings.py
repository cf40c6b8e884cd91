"""What the machine can do at most: C programs on one core without any loader around them."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import datasets, procs, runner

HERE = Path(__file__).resolve().parent / "ceiling"
CDEC = runner.ROOT / "internal/cdec"
# Images of each set that the decoding programs hold in memory: all, as the loaders have. Of few the caches hold a part,
# which makes the dct loop 5% faster.
IMAGES = 5000
# Record sizes of the raw suites, and the memory they are spread over.
COPIES = ((256 * 256 * 3, 800_000_000, 256), (32 * 32 * 3, 30_720_000, 256))


def timed(command: list[str], out: Path, log: Path, limit: float) -> dict[str, Any]:
    """Runs a packer that prints no JSON; gives its time, CPU time and the size of what it wrote."""
    log.parent.mkdir(parents=True, exist_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=runner.ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
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


def build(name: str, out: Path, product: bool) -> str:
    """Compiles one program; with product, against the product's C sources and with their flags. Gives the error."""
    command = ["gcc", "-O3", "-std=gnu11", "-Wall", "-Wextra", "-o", str(out), str(HERE / f"{name}.c")]
    libraries = ["-lpthread"]
    if product:
        text = "\n".join(f.read_text() for f in sorted(CDEC.glob("*.go")))
        flags = {w for line in re.findall(r"^#cgo CFLAGS: (.*)$", text, re.MULTILINE) for w in line.split()}
        command += [*sorted(flags - {"-Werror"}), f"-I{CDEC}", *map(str, sorted(CDEC.glob("*.c")))]
        libraries = ["-l:libjpeg.a", "-lm", *libraries]
    try:
        done = subprocess.run([*command, *libraries], check=False, capture_output=True, text=True)
    except OSError as e:
        return str(e)
    return runner.scrub(done.stderr[-600:]) if done.returncode else ""


def measure(work: Path, rounds: int, cores: str, say: Callable[[str], None], limit: float) -> list[dict[str, Any]]:
    """Builds and runs the programs; lines of results, or of errors."""
    out: list[dict[str, Any]] = []
    bins = work / "bin"
    bins.mkdir(parents=True, exist_ok=True)
    first = cores.split(",")[0]

    def run(name: str, pin: str, arguments: list[str], **tags: Any) -> None:
        command = ["taskset", "-c", pin, name, *arguments]
        try:
            done = subprocess.run(
                command, check=False, cwd=runner.ROOT, capture_output=True, text=True, timeout=limit * 3
            )
            error = runner.scrub(done.stderr[-400:]) if done.returncode else ""
            lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
        except subprocess.TimeoutExpired:
            lines, error = [], f"still running after {limit * 3:.0f} s: killed"
        if error:
            out.append({**tags, "program": name, "error": error})
            say(f"ceiling {name}: error: {error}")
        out.extend({**tags, "program": name, **line} for line in lines)
        best: dict[str, float] = {}
        for line in lines:
            best[line["variant"]] = max(best.get(line["variant"], 0), line.get("images_s") or line["gb_s"])
        say(f"ceiling {tags}: " + ", ".join(f"{k} {v:,.1f}" for k, v in best.items()))

    error = build("decode", bins / "decode", product=True)
    if error:
        out.append({"program": "decode", "error": error})
        say(f"ceiling decode: does not compile: {error}")
    for name in ("photos", "gen"):
        files = [f for f in datasets.records(name, work) if _has_dct(f)]
        if not files:
            continue
        step = max(1, len(files) // IMAGES)
        listing = work / f"ceiling-{name}.txt"
        listing.write_text("".join(f"{f}\n" for f in files[::step][:IMAGES]))
        if not error:
            run(runner.short(bins / "decode"), first, [str(rounds), str(listing)], set=name)
        for kind in ("keep", "dct"):
            if (pack := work / "packs" / name / f"stoker-{kind}").exists():
                out.extend(_engine(pack, kind, name, rounds, first, say, limit))
        if not runner.broken_env("side", work):
            python = runner.short(runner.python_of("side", work))
            run(python, first, ["-m", "bench.decoders", str(min(3, rounds)), str(listing)], set=f"decoders-{name}")
    if error := build("copy", bins / "copy", product=False):
        out.append({"program": "copy", "error": error})
        say(f"ceiling copy: does not compile: {error}")
    else:
        for size, total, batch in COPIES:
            for threads in (1, 2):
                pin = first if threads == 1 else cores
                run(
                    runner.short(bins / "copy"),
                    pin,
                    [str(rounds), str(size), str(total), str(threads), str(batch)],
                    set=f"copy-{size}-{threads}",
                )
    return out


def _engine(
    pack: Path, kind: str, data_set: str, rounds: int, core: str, say: Callable[[str], None], limit: float
) -> list[dict[str, Any]]:
    """The Go engine on one core without a trainer, to lay beside the C loop of the same kernels."""
    procs.warm(pack)
    binary = runner.short(runner.ROOT / "bin/stoker")
    command = ["taskset", "-c", core, binary, "bench", "decode", runner.short(pack), "--threads", "1", "--json"]
    lines: list[dict[str, Any]] = []
    for number in range(rounds):
        tags = {"set": data_set, "variant": f"engine-{kind}", "round": number, "program": "stoker bench decode"}
        try:
            done = subprocess.run(
                [*command, "--seconds", "3s"],
                check=False,
                cwd=runner.ROOT,
                capture_output=True,
                text=True,
                timeout=limit,
            )
            if done.returncode:
                return [*lines, {**tags, "error": runner.scrub(done.stderr[-400:])}]
        except (OSError, subprocess.TimeoutExpired) as e:
            return [*lines, {**tags, "error": runner.scrub(str(e))}]
        report = json.loads(done.stdout)
        lines.append({**tags, "images_s": report["images_per_cpu_second"], "report": report})
    say(f"ceiling {data_set}: engine-{kind} {max(x['images_s'] for x in lines):,.1f} images per CPU second")
    return lines


def _has_dct(file: Path) -> bool:
    """Leaves out what the dct codec leaves out (CMYK, RGB JPEGs), so that each variant decodes the same images."""
    from PIL import Image

    with Image.open(file) as image:
        return image.mode in ("RGB", "L")
