"""A training loop over one loader. It prints a line of JSON per batch: its checksum, and the state after it.

    python bench/hostile/job.py stoker PATH --epochs 2

It imports nothing of bench, so that it runs in the environment of any loader.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import select
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 128


def pixels(image: Any) -> np.ndarray[Any, Any]:
    """Return an image, resized."""
    return np.array(image.convert("RGB").resize((SIDE, SIDE)))


class Files:
    """A dataset as tutorials of PyTorch write it: a list of files, opened with Pillow."""

    def __init__(self, path: str, o: argparse.Namespace) -> None:
        self.files = (
            sorted(str(p) for p in Path(path).rglob("*.jpg")) if not o.list else Path(o.list).read_text().split()
        )
        self.crash, self.skip = o.crash, o.skip

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        from PIL import Image

        if i == self.crash:
            os.kill(os.getpid(), signal.SIGSEGV)
        with Image.open(self.files[i]) as image:
            return pixels(image), i


def opened(sample: dict[str, Any], name: str) -> Any:
    """Return the pixels of an encoded or decoded image of a sample."""
    from PIL import Image

    value = sample[name]
    return pixels(Image.open(io.BytesIO(value)) if isinstance(value, (bytes, bytearray)) else value)


def torch_loader(dataset: Any, o: argparse.Namespace, **more: Any) -> Any:
    import torch
    from torch.utils.data import DataLoader

    if o.method:
        more["multiprocessing_context"] = o.method
    if o.workers:
        more |= {"timeout": o.timeout, "persistent_workers": False}
    return DataLoader(dataset, o.batch, num_workers=o.workers, generator=torch.Generator().manual_seed(1), **more)


def batches(loader: str, path: str, o: argparse.Namespace) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (pixels or other values, numbers, state) of each batch."""
    if loader == "stoker":
        yield from of_stoker(path, o)
        return
    import torch

    torch.set_num_threads(1)
    if loader == "torch":
        from torch.utils.data import default_collate

        made = torch_loader(Files(path, o), o, shuffle=True, collate_fn=default_collate)
    elif loader == "webdataset":
        import webdataset

        shards = sorted(str(p) for p in Path(path).glob("*.tar"))
        handler = webdataset.warn_and_continue if o.skip else webdataset.reraise_exception
        rows = webdataset.WebDataset(shards, shardshuffle=False, handler=handler).decode("pil", handler=handler)
        made = torch_loader(rows.map(lambda s: (opened(s, "jpg"), int(s["cls"])), handler=handler), o)
    elif loader == "litdata":
        import litdata

        rows = litdata.StreamingDataset(path, shuffle=False)
        rows.transform = litdata_row
        made = litdata.StreamingDataLoader(rows, batch_size=o.batch, num_workers=o.workers)
    elif loader == "mds":
        from streaming import StreamingDataset

        class Rows(StreamingDataset):
            def __getitem__(self, at: int) -> Any:
                sample = super().__getitem__(at)
                name = "image" if "image" in sample else "jpg"
                return opened(sample, name), int(sample.get("label", sample.get("cls", 0)))

        rows = Rows(local=path, shuffle=False, batch_size=o.batch)
        made = torch_loader(rows, o)
    else:
        raise SystemExit(f"job: there is no loader {loader}")
    state = json.loads(o.state) if o.state else None
    if state and hasattr(made, "load_state_dict"):
        made.load_state_dict(state)
    for _ in range(o.epochs):
        for images, numbers in made:
            yield (
                images.numpy(),
                numbers.numpy(),
                made.state_dict() if hasattr(made, "state_dict") and o.states else None,
            )


def litdata_row(sample: dict[str, Any]) -> Any:
    name = "image" if "image" in sample else "jpg"
    return opened(sample, name), int(sample.get("label", sample.get("cls", 0)))


def of_stoker(path: str, o: argparse.Namespace) -> Iterator[tuple[Any, Any, Any]]:
    import stoker
    from stoker import _restarts

    if o.window >= 0:
        _restarts._WINDOW = o.window
    made: dict[str, Any] = {"shuffle": True, "seed": 1, "batch_size": o.batch, **json.loads(o.options)}
    if o.crop:
        made["transforms"] = {"image": [stoker.transforms.CenterCrop(SIDE)]}
    if o.skip:
        made["on_error"] = "skip"
    limits = {"timeout": o.timeout or 300, **({"memory": o.memory} if o.memory else {})}
    with stoker.Loader(path, limits=stoker.Limits(**limits), **made) as loader:
        if o.state:
            loader.load_state_dict(json.loads(o.state))
        while loader.state_dict()["epoch"] < o.epochs:
            for batch in loader:
                first = next(iter(batch))
                yield first, batch.index, loader.state_dict() if o.states else None
            if o.note:
                print(
                    json.dumps({"restarts": loader._epochs.restarts.total, "files": len(os.listdir("/proc/self/fd"))}),
                    flush=True,
                )


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("loader")
    p.add_argument("path")
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--timeout", type=float, default=0, help="of a batch; 0: the loader's own")
    p.add_argument("--memory", default="")
    p.add_argument("--method", default="", help="how PyTorch starts workers")
    p.add_argument("--options", default="{}", help="more arguments of stoker.Loader, as JSON")
    p.add_argument("--list", default="", help="a file with the paths of the images, for torch")
    p.add_argument("--no-crop", dest="crop", action="store_false")
    p.add_argument("--skip", action="store_true", help="skip bad records")
    p.add_argument("--keep", action="store_true", help="keep the numbers of all batches, as metrics do")
    p.add_argument("--states", action="store_true", help="print the state after each batch")
    p.add_argument("--state", default="", help="continue there")
    p.add_argument("--crash", type=int, default=-1, help="the record at which the process crashes")
    p.add_argument("--pause", type=float, default=0, help="seconds for each step")
    p.add_argument(
        "--note", action="store_true", help="print the restarts of the engine and the open files after each epoch"
    )
    p.add_argument("--most", type=int, default=0, help="end after this many batches")
    p.add_argument("--window", type=float, default=-1, help="the seconds in which five ends of the engine are an error")
    p.add_argument(
        "--last", type=int, default=0, help="after SIGTERM: train this many steps and save, as Slurm's users do"
    )
    o = p.parse_args()
    told = []
    if o.last:
        signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    kept, left, first = [], o.last, 0.0
    begun = time.monotonic()
    for count, (images, numbers, state) in enumerate(batches(o.loader, o.path, o), 1):
        sums = [
            zlib.crc32(np.ascontiguousarray(a)) for a in (images, numbers) if str(getattr(a, "dtype", "")) != "object"
        ]
        line = {"rows": len(numbers), "sum": sums}
        if o.states:
            line |= {"numbers": [int(i) for i in numbers], "state": state}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        if o.keep:
            kept.append(numbers)
        if told:
            left -= 1
            if left <= 0:
                print(json.dumps({"saved": True}), flush=True)
                break
        if count == 1:
            first = time.monotonic() - begun
        if count == o.most:
            break
        if o.pause:
            select.select([], [], [], o.pause)  # time.sleep fails under libfaketime
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"end": True, "seconds": time.monotonic() - begun, "first": first, "peak_kib": peak}), flush=True)
    if o.most:
        os._exit(0)  # and not after the batches that workers have begun
    return 0


if __name__ == "__main__":
    sys.exit(main())
