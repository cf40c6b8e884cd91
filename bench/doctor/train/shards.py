"""Trains on tar shards with WebDataset: --data is a folder of *.tar, or the URL of one with a list in index.txt."""

from __future__ import annotations

import io
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import common
import torch
import webdataset as wds
from PIL import Image
from torch.utils.data import default_collate
from torchvision import transforms

warnings.filterwarnings("ignore", category=UserWarning, module="webdataset")


def find_shards(data: str) -> list[str]:
    if not data.startswith("http"):
        return sorted(str(p) for p in Path(data).glob("*.tar"))
    with urllib.request.urlopen(f"{data}/index.txt", timeout=60) as answer:
        return [f"pipe:curl -s -f {data}/{name}" for name in answer.read().decode().split()]


class Decode:
    def __init__(self, size: int, blurs: int) -> None:
        blur = [transforms.GaussianBlur(9) for _ in range(blurs)]
        self.transform = transforms.Compose(
            [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(), *blur]
        )

    def __call__(self, sample: dict[str, Any]) -> tuple[Any, int]:
        image = Image.open(io.BytesIO(sample["jpg"])).convert("RGB")
        return self.transform(image), int(sample["cls"])


def collate(items: list[Any]) -> Any:
    return default_collate(items)


def make_loader(decode: Any, args: Any) -> Any:
    shards = find_shards(args.data)
    data = (
        wds.WebDataset(shards, shardshuffle=len(shards), workersplitter=wds.split_by_worker, seed=args.seed)
        .repeat()
        .shuffle(64)
        .map(decode)
        .batched(args.batch, collation_fn=collate, partial=False)
    )
    return wds.WebLoader(data, batch_size=None, num_workers=args.workers, persistent_workers=args.workers > 0)


def main(argv: list[str] | None = None) -> None:
    p = common.parser(__doc__)
    p.add_argument("--blurs", type=int, default=0)
    args = p.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    loader = make_loader(Decode(args.size, args.blurs), args)
    step = common.make_step(args.step)
    progress = common.Progress()
    for images, labels in loader:
        progress.data()
        step(images, labels)
        progress.step()


if __name__ == "__main__":
    main()
