"""The maximum rates of the machine: C programs on one core without a loader."""

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
# Images of each set that the decoding programs keep in memory: all of them, like the loaders. The caches hold a part
# of a smaller number, which makes the dct loop 5% faster.
IMAGES = 5000
# Record sizes of the raw suites, the memory they are spread over, and the number gathered at a time.
COPIES = {"raw": (256 * 256 * 3, 800_000_000, 256), "tiny": (32 * 32 * 3, 30_720_000, 256)}


def timed(command: list[str], out: Path, log: Path, limit: float) -> dict[str, Any]:
    """Runs a packer that prints no JSON. Returns its time, its CPU time and the size of its output."""
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
    """Compiles one program, with product against the product's C sources and with their flags. Returns the error."""
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


class Ceilings:
    """The programs. They are built once and run in rounds between those of the loaders. Otherwise the drift of the
    machine, a tenth within an hour, would be part of each ratio."""

    def __init__(self, work: Path, cores: str, say: Callable[[str], None], limit: float) -> None:
        self.work, self.cores, self.say, self.limit = work, cores, say, limit
        self.first = cores.split(",")[0]
        # The error of each program that was built, and the sets with a written list.
        self.built: dict[str, str] = {}
        self.listed: set[str] = set()

    def round(self, suite: str, number: int) -> list[dict[str, Any]]:
        """One round of the upper bounds of a suite; lines of results, or of errors."""
        if suite in ("photos", "gen"):
            lines = self._decode(suite)
        elif suite in COPIES:
            lines = self._copy(*COPIES[suite])
        else:
            lines = []
        return [{**line, "suite": suite, "round": number} for line in lines]

    def decoders(self, suite: str, rounds: int) -> list[dict[str, Any]]:
        """The decoders of other loaders, in Python."""
        if suite not in ("photos", "gen") or runner.broken_env("side", self.work) or not (listing := self._list(suite)):
            return []
        python = runner.short(runner.python_of("side", self.work))
        arguments = ["-m", "bench.decoders", str(min(3, rounds)), str(listing)]
        return [{**line, "suite": suite} for line in self._run(python, self.first, arguments, f"decoders-{suite}")]

    def _decode(self, name: str) -> list[dict[str, Any]]:
        if not (listing := self._list(name)):
            return []
        lines = self._program("decode", self.first, ["1", str(listing)], name, product=True)
        for kind in ("keep", "dct"):
            if (pack := self.work / "packs" / name / f"stoker-{kind}").exists():
                lines.append(self._engine(pack, kind, name))
        return lines

    def _copy(self, size: int, total: int, batch: int) -> list[dict[str, Any]]:
        lines = []
        for threads, pin in ((1, self.first), (2, self.cores)):
            arguments = ["1", str(size), str(total), str(threads), str(batch)]
            lines += self._program("copy", pin, arguments, f"copy-{size}-{threads}", product=False)
        return lines

    def _list(self, name: str) -> Path | None:
        """A file with the names of the images that the decoding programs hold in memory."""
        listing = self.work / f"ceiling-{name}.txt"
        if name not in self.listed:
            files = [f for f in datasets.records(name, self.work) if _has_dct(f)]
            step = max(1, len(files) // IMAGES)
            listing.write_text("".join(f"{f}\n" for f in files[::step][:IMAGES]))
            self.listed.add(name)
        return listing if listing.stat().st_size else None

    def _program(self, name: str, pin: str, arguments: list[str], tag: str, product: bool) -> list[dict[str, Any]]:
        out = self.work / "bin" / name
        if name not in self.built:
            out.parent.mkdir(parents=True, exist_ok=True)
            self.built[name] = build(name, out, product)
        if error := self.built[name]:
            self.say(f"ceiling {name}: does not compile: {error}")
            return [{"program": name, "set": tag, "error": error}]
        return self._run(runner.short(out), pin, arguments, tag)

    def _run(self, name: str, pin: str, arguments: list[str], tag: str) -> list[dict[str, Any]]:
        tags = {"set": tag, "program": name}
        limit = self.limit * 3
        try:
            done = subprocess.run(
                ["taskset", "-c", pin, name, *arguments],
                check=False,
                cwd=runner.ROOT,
                capture_output=True,
                text=True,
                timeout=limit,
            )
            error = runner.scrub(done.stderr[-400:]) if done.returncode else ""
            lines = [{**tags, **json.loads(x)} for x in done.stdout.splitlines() if x.startswith("{")]
        except subprocess.TimeoutExpired:
            lines, error = [], f"still running after {limit:.0f} s: killed"
        if error:
            self.say(f"ceiling {name}: error: {error}")
            return [*lines, {**tags, "error": error}]
        best: dict[str, float] = {}
        for line in lines:
            best[line["variant"]] = max(best.get(line["variant"], 0), line.get("images_s") or line["gb_s"])
        self.say(f"ceiling {tag}: " + ", ".join(f"{k} {v:,.1f}" for k, v in best.items()))
        return lines

    def _engine(self, pack: Path, kind: str, data_set: str) -> dict[str, Any]:
        """The Go engine on one core without a trainer, for comparison with the C loop of the same kernels."""
        procs.warm(pack)
        binary = runner.short(runner.ROOT / "bin/stoker")
        command = ["taskset", "-c", self.first, binary, "bench", "decode", runner.short(pack), "--threads", "1"]
        tags = {"set": data_set, "variant": f"engine-{kind}", "program": "stoker bench decode"}
        try:
            done = subprocess.run(
                [*command, "--json", "--seconds", "3s"],
                check=False,
                cwd=runner.ROOT,
                capture_output=True,
                text=True,
                timeout=self.limit,
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            return {**tags, "error": runner.scrub(str(e))}
        if done.returncode:
            return {**tags, "error": runner.scrub(done.stderr[-400:])}
        report = json.loads(done.stdout)
        self.say(f"ceiling {data_set}: engine-{kind} {report['images_per_cpu_second']:,.1f} images per CPU second")
        return {**tags, "images_s": report["images_per_cpu_second"], "report": report}


def _has_dct(file: Path) -> bool:
    """Leaves out the images that the dct codec does not support (CMYK, RGB JPEGs), so that each variant decodes the
    same images."""
    from PIL import Image

    with Image.open(file) as image:
        return image.mode in ("RGB", "L")
