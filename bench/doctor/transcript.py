"""Runs stoker doctor on a typical training script, follows its advice, and writes down the results.

    python -m bench.doctor.transcript [--docs DIR]

The script is imagenet_small.py. Doctor examines it unchanged, with a second worker process, and with the pack and
stoker.Loader. docs/how-to/doctor-transcript.md is written from the real output of each command.
"""

# ruff: noqa: E501 - the page is written as it is to be read
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import data, inject
from .run import HERE, ROOT, SECONDS, WORK, cpu_name, kill_tree, say

STEP = 60  # milliseconds of the accelerator that is simulated
BATCH = 64
SCRIPT = HERE / "imagenet_small.py"
STARTED = re.compile(r"^Epoch: \[0\]\[[1-9]", re.M)


@dataclass
class Look:
    """One way to run the script: its speed, and doctor's verdict."""

    options: str
    images_s: float
    waiting: str
    text: str
    report: dict[str, Any]


class Tried:
    def __init__(self, binary: Path, paths: dict[str, Path], folder: Path) -> None:
        self.binary, self.folder = binary, folder
        self.names = {str(paths["images"]): "photos/", str(paths["pack"]): "train/", str(binary): "stoker"}
        self.environment = {
            **os.environ,
            "STOKER_BINARY": str(binary),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(ROOT / "python" / "src"),
        }

    def command(self, path: Path, options: str) -> list[str]:
        more = ["-b", str(BATCH), "--simulate", str(STEP), *options.split()]
        return [sys.executable, str(SCRIPT), str(path), *more]

    def tidy(self, text: str) -> str:
        """Output without the paths of this machine."""
        for path, name in {**self.names, str(SCRIPT): "imagenet_small.py", sys.executable: "python"}.items():
            text = text.replace(path, name)
        return text.rstrip()

    def look(self, path: Path, options: str, steps: int) -> Look:
        say(f"imagenet_small.py {options}: its speed")
        inject.warm(path)
        command = [*self.command(path, options), "--steps", str(steps), "-p", "5"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True, timeout=120)
        last = done.stdout.strip().splitlines()[-1]
        found = re.match(r"([\d,]+) images/s, (\d+%)", last)
        if found is None:
            raise RuntimeError(f"the script ended with {last!r}")
        say(f"imagenet_small.py {options}: doctor")
        log, saved = self.folder / "log", self.folder / "report.json"
        with open(log, "w") as out:
            job = subprocess.Popen(
                [*self.command(path, options), "-p", "1"], env=self.environment, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        try:
            limit = time.monotonic() + 60
            while len(STARTED.findall(log.read_text())) < 4:
                if job.poll() is not None or time.monotonic() > limit:
                    raise RuntimeError(f"the script did not start: {log.read_text()[-300:]}")
                time.sleep(0.1)
            watched = subprocess.run(
                [str(self.binary), "doctor", "--seconds", str(SECONDS), "--save", str(saved), "--pid", str(job.pid)],
                env=self.environment, capture_output=True, text=True, check=True, timeout=60,
            )  # fmt: skip
        finally:
            kill_tree(job.pid)
            job.wait()
        text = self.tidy(watched.stdout).replace(str(job.pid), "4711")
        return Look(options, float(found[1].replace(",", "")), found[2], text, json.loads(saved.read_text()))


def block(command: str, output: str) -> str:
    return "\n".join(["```", f"$ {command}", *([output] if output else []), "```"])


def page(before: Look, workers: Look, packed: Look, packing: str) -> str:
    gain = packed.images_s / before.images_s
    predicted = before.report["gain"]
    again = workers.images_s / before.images_s
    advice = next((a for a in before.report["advice"] if "worker" in a["title"]), None)
    said = f"{advice['gain']:.2f} times" if advice and advice.get("gain") else "no figure"
    script = f"python imagenet_small.py photos/ -b {BATCH} --simulate {STEP}"
    return f"""# A transcript: doctor on a training script

<!-- Written by `python -m bench.doctor.transcript`; edit bench/doctor/transcript.py instead. -->

The ImageNet example of PyTorch, made small ([imagenet_small.py](../../bench/doctor/imagenet_small.py)): an `ImageFolder` with
RandomResizedCrop, flip and normalisation. A step of {STEP} ms stands for the accelerator. All of this is real output, on
{os.cpu_count()} cores of {cpu_name()}; `python -m bench.doctor.transcript` repeats it.

## 1. As it was found

The script runs with one worker process, at **{before.images_s:,.0f} images per second**. The accelerator could do
{BATCH / STEP * 1000:,.0f}. What is wrong?

{block(f"{script} -j 1 &", "")}
{block(f"stoker doctor --pid 4711 --seconds {SECONDS}", before.text)}

The verdict is **{before.report["verdict"]}**, and without that limit the job would be {predicted:.2f} times as fast.

## 2. More workers

Doctor's figure for more worker processes: {said}. With `-j 2` the script makes **{workers.images_s:,.0f} images per
second: {again:.2f} times**. Doctor again:

{block(f"stoker doctor --pid 4711 --seconds {SECONDS}", workers.text)}

## 3. Pack once, and let the engine decode

{block("stoker pack photos/ train/ --images dct", packing)}

The loader changes in one line, and normalisation moves to the accelerator:

```python
loader = stoker.Loader("train/", {BATCH}, shuffle=True, output="torch",
                       transforms={{"image": [stoker.transforms.RandomResizedCrop(224), stoker.transforms.RandomHorizontalFlip()]}})
```

{block(f"python imagenet_small.py train/ -b {BATCH} --simulate {STEP} --stoker &", "")}
{block(f"stoker doctor --pid 4711 --seconds {SECONDS}", packed.text)}

## What came of it

| | images/s | waits for data | against the first | doctor said before |
|---|---:|---:|---:|---|
| as found, 1 worker | {before.images_s:,.0f} | {before.waiting} | 1.00 | |
| 2 workers | {workers.images_s:,.0f} | {workers.waiting} | {again:.2f} | {said} |
| pack and stoker.Loader | {packed.images_s:,.0f} | {packed.waiting} | {gain:.2f} | {predicted:.2f} times without the limit |

The gain that was predicted before anything was changed and the one there was at the end differ by {abs(predicted / gain - 1):.0%}.
"""


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--docs", type=Path, default=ROOT / "docs/how-to")
    p.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder with photos/")
    p.add_argument("--binary", type=Path, default=Path(os.environ.get("STOKER_BINARY", ROOT / "bin" / "stoker")))
    a = p.parse_args()
    binary = a.binary.resolve()
    paths = data.make(WORK, a.data, binary, say)
    with tempfile.TemporaryDirectory(prefix=inject.PREFIX) as folder:
        tried = Tried(binary, paths, Path(folder))
        pack = Path(folder) / "train"
        tried.names[str(pack)] = "train/"
        done = subprocess.run(
            [str(binary), "pack", str(paths["images"]), str(pack), "--images", "dct"],
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        packing = tried.tidy(done.stdout)
        before = tried.look(paths["images"], "-j 1", 40)
        workers = tried.look(paths["images"], "-j 2", 60)
        packed = tried.look(pack, "--stoker", 70)
    out = a.docs / "doctor-transcript.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(before, workers, packed, packing))
    say(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
