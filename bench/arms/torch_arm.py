"""torch DataLoader over an ImageFolder.

--decode pillow        the tutorial: ImageFolder's own loader, torchvision transforms on PIL images
--decode torchvision   torchvision.io.decode_jpeg, torchvision transforms on tensors
--decode torchcodec    its image decoder, torchvision transforms on tensors
--decode simplejpeg | cv2
--option spdl=1        the same dataset in SPDL's loader with torch's arguments, instead of torch's
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torchvision
from torch.utils.data import DataLoader, Sampler
from torchvision.datasets import ImageFolder
from torchvision.io import read_file

from .augment import Lazy, transforms
from .harness import Job, Stream, main


class Numbered(ImageFolder):
    """An ImageFolder that returns the record's number instead of the class, so that a check can follow it."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return super().__getitem__(index)[0], index


class Epochs(Sampler[int]):
    """Shuffled epochs, one after another without a gap: an epoch boundary would cost this loader its prefetch."""

    def __init__(self, count: int, seed: int, epochs: int) -> None:
        self.count, self.seed, self.epochs = count, seed, epochs

    def __iter__(self) -> Iterator[int]:
        epoch = 0
        while not self.epochs or epoch < self.epochs:
            order = torch.Generator().manual_seed(self.seed + epoch)
            yield from torch.randperm(self.count, generator=order).tolist()
            epoch += 1

    def __len__(self) -> int:
        return self.count if self.epochs else 1 << 40


class Tensors:
    """Reads a file and decodes it with torchvision or with one of the other decoders."""

    def __init__(self, job: Job) -> None:
        self.decode, self.torch = Lazy(job), job.decode == "torchvision"

    def __call__(self, path: str) -> Any:
        if self.torch:
            return self.decode(read_file(path))
        with open(path, "rb") as f:
            return self.decode(f.read())


def open_stream(job: Job) -> Stream:
    torch.manual_seed(job.seed)
    if job.decode == "pillow":
        dataset = Numbered(job.data, transform=transforms(job, pillow=True))
    else:
        dataset = Numbered(job.data, loader=Tensors(job))
    more: dict[str, Any] = {}
    make: Any = DataLoader
    if "spdl" in job.options:
        from spdl.dataloader import get_pytorch_dataloader as make
    elif job.workers:
        more = {"prefetch_factor": int(job.options.get("prefetch", 2)), "persistent_workers": True}
    loader = make(
        dataset,
        batch_size=job.batch,
        sampler=Epochs(len(dataset), job.seed, job.epochs),
        num_workers=job.workers,
        drop_last=job.epochs == 0,
        **more,
    )
    for images, numbers in loader:
        yield images.numpy(), numbers.numpy()


def facts() -> dict[str, object]:
    return {"versions": {"torch": torch.__version__, "torchvision": torchvision.__version__}}


if __name__ == "__main__":
    main("torch", open_stream, facts)
