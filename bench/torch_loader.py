"""stoker.torch.DataLoader's worker processes beside torch's, with the same number of workers.

    .venv/bin/python bench/torch_loader.py [--workers 2] [--only TEXT]

Each shape of data runs in a process of its own, in turns. Speed is that of the second half of an epoch, memory what
all processes have near its end together with what lies in shared memory (nothing else should use any then), and the
first batch counts from ``iter()``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python" / "src"))


def rows(i: int) -> Any:
    return FIRST[i % 64], i


def table(i: int) -> Any:
    return {"x": SMALL[i % 64], "y": i, "w": i / 2}


def boxes(i: int) -> Any:
    return IMAGE[i % 8], {"boxes": SMALL[i % 64].view(16, 4), "labels": i}


def work(i: int) -> Any:
    x = IMAGE[i % 8].float()
    return ((x - x.mean()) / x.std()).numpy(), i


def stamped(batch: Any) -> Any:
    import torch

    return torch.utils.data.default_collate(batch), time.monotonic()


def path_of(i: int) -> Any:
    return i


class Data:
    def __init__(self, make: Any, n: int) -> None:
        self.make, self.n = make, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


class Paths:
    """What an ImageFolder of ImageNet's size is made of."""

    def __init__(self) -> None:
        folder = "/data/imagenet/train/n"
        self.samples = [(f"{folder}{i % 1000:08}/n{i % 1000:08}_{i}.JPEG", i % 1000) for i in range(1_200_000)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Any:
        return self.samples[i][1] + len(self.samples[i][0])


def listed(batch: Any) -> Any:
    return tuple(zip(*batch, strict=True))


# name: records, arguments of the loader, what makes a record
SHAPES: dict[str, tuple[int, dict[str, Any], Any]] = {
    "images, float32, 64 x 3 x 224 x 224 (38.5 MB)": (64 * 60, {"batch_size": 64}, rows),
    "the same, in a loop of 100 ms": (64 * 60, {"batch_size": 64}, rows),
    "table, 1,024 rows of 64 numbers": (1024 * 150, {"batch_size": 1024}, table),
    "detection, lists of tensors, 16 images": (16 * 200, {"batch_size": 16, "collate_fn": listed}, boxes),
    "NumPy, normalised in Python, 32 images": (32 * 60, {"batch_size": 32}, work),
    "hand-off of 38.5 MB": (64 * 60, {"batch_size": 64, "collate_fn": stamped, "prefetch_factor": 1}, rows),
    "small batches of 8 numbers": (8 * 6000, {"batch_size": 8}, path_of),
    "1.2 million paths": (0, {"batch_size": 256, "shuffle": True}, None),
}


def shared() -> int:
    """Return the shared memory of the whole system: a batch that is on its way belongs to no process with torch."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Shmem:")) * 1024


def used() -> int:
    """Return it and what this process and its children have beside it."""
    own = 0
    for pid in [os.getpid(), *(p.pid for p in multiprocessing.active_children())]:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_File:")):
                own += int(line.split()[1]) * 1024
    return own + shared()


def here(name: str, ours: bool, workers: int) -> None:
    """Measure one."""
    import torch
    import torch.utils.data
    from stoker.torch import DataLoader

    global FIRST, SMALL, IMAGE
    n, arguments, make = SHAPES[name]
    FIRST = torch.rand(64 if make is rows else 1, 3, 224, 224)
    SMALL = torch.rand(64, 64)
    IMAGE = torch.randint(0, 256, (8, 3, 320, 320), dtype=torch.uint8)
    cls = DataLoader if ours else torch.utils.data.DataLoader
    dataset = Data(make, n) if make else Paths()
    # One worker, one batch ahead: the loop waits for each.
    workers = 1 if "prefetch_factor" in arguments else workers
    loader = cls(dataset, num_workers=workers, **arguments)
    half = len(loader) // 2
    before = shared()
    begin = time.perf_counter()
    iterator = iter(loader)
    next(iterator)
    first = time.perf_counter() - begin
    count = 1
    waits, reads = [], []
    for batch in iterator:
        count += 1
        if arguments.get("collate_fn") is stamped:
            (images, _), made = batch
            waits.append(time.monotonic() - made)
            images.view(-1)[::1024].sum()  # a number of each page
            reads.append(time.monotonic() - made)
            del images
        if "loop of" in name:
            time.sleep(0.1)
        if count == half:
            middle = time.perf_counter()
        if count == len(loader) - 2 * workers:
            memory = used() - before
        del batch
    seconds = time.perf_counter() - middle
    figures = {"first": first, "rate": (count - half) / seconds, "memory": memory / 1e6}
    if waits:
        figures |= {"taken": sorted(waits)[len(waits) // 2], "read": sorted(reads)[len(reads) // 2]}
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        here(args.one[0], args.one[1] == "ours", args.workers)
        return
    print("| data | batches/s, torch | ours | | MB, torch | ours | first batch, torch | ours |")
    print("|---|---|---|---|---|---|---|---|")
    for name in SHAPES:
        if args.only not in name:
            continue
        best: dict[str, list[dict[str, float]]] = {"torch": [], "ours": []}
        for _ in range(args.rounds):
            for which, runs in best.items():
                command = [sys.executable, __file__, "--workers", str(args.workers), "--one", name, which]
                out = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
                if out.returncode:
                    sys.exit(out.stderr)
                runs.append(json.loads(out.stdout))
        t, o = ({k: sorted(r[k] for r in runs)[len(runs) // 2] for k in runs[0]} for runs in best.values())
        if "taken" in t:
            print(
                f"{name}: from collate to the loop {t['taken'] * 1e6:.0f} us with torch, {o['taken'] * 1e6:.0f} ours; "
                f"with each of its pages read {t['read'] * 1e6:.0f} and {o['read'] * 1e6:.0f}"
            )
            continue
        print(
            f"| {name} | {t['rate']:.1f} | {o['rate']:.1f} | {o['rate'] / t['rate']:.2f} x | {t['memory']:.0f} | "
            f"{o['memory']:.0f} | {t['first']:.2f} s | {o['first']:.2f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
