"""Train a model with an image part on four ranks, some records without an image: no step waits for a rank.

    python examples/align_ranks.py                       # 200 steps with align="image"
    python examples/align_ranks.py --steps 100000        # the long form
    python examples/align_ranks.py --no-align            # shows the hang that align prevents

The ranks are processes with gloo on the CPU. Each part of the model has a collective of its own, here a barrier. A rank
without an image in a step does not reach the barrier of the image part, and the others wait for it.
"""

from __future__ import annotations

import argparse
import datetime
import io
import sys
import tempfile
from pathlib import Path

import numpy as np
import stoker
import torch.distributed as dist
import torch.multiprocessing as mp
from PIL import Image


def make_data(path: Path, records: int = 400) -> None:
    """Write a pack of texts, a quarter of them with an image; others have an empty value."""
    image = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(image, "PNG")
    rng = np.random.default_rng(0)
    rows = [{"image": image.getvalue() if rng.random() < 0.25 else b"", "text": f"text {i}"} for i in range(records)]
    stoker.pack(rows, path, kinds={"image": "bytes"}, progress=False)


def train(rank: int, world: int, folder: str, steps: int, align: bool, wait: float) -> None:
    timeout = datetime.timedelta(seconds=wait)
    dist.init_process_group("gloo", f"file://{folder}/meet", timeout, world, rank)
    images, texts = dist.new_group(timeout=timeout), dist.new_group(timeout=timeout)
    loader = stoker.Loader(
        f"{folder}/data", 2, shuffle=True, align="image" if align else None, threads=1,
        ranks=stoker.Ranks(rank, world), limits=stoker.Limits(memory="64MB"),
    )  # fmt: skip
    done = 0
    while done < steps:
        for batch in loader:
            has_image = bool(batch["has_image"][0]) if align else any(len(row) for row in batch["image"])
            if has_image:
                dist.barrier(group=images)  # the image part of the model
            dist.barrier(group=texts)
            done += 1
            if done == steps:
                break
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--no-align", action="store_true")
    parser.add_argument("--wait", type=float, default=120, help="seconds after which a step counts as hanging")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_data(Path(folder, "data"))
        try:
            mp.spawn(train, (a.ranks, folder, a.steps, not a.no_align, a.wait), nprocs=a.ranks)
        except mp.ProcessRaisedException as error:
            print(f"a rank waited in vain: {str(error).strip().splitlines()[-1]}")
            return 1
    print(f"{a.steps} steps on {a.ranks} ranks, none waited in vain")
    return 0


if __name__ == "__main__":
    sys.exit(main())
