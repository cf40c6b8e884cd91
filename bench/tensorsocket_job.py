"""TensorSocket's side of bench.shared: one producer around torch's DataLoader, and the jobs that take its batches.

It runs in bench/work/venv/tensorsocket, and imports nothing of bench.

    python bench/tensorsocket_job.py producer PHOTOS --ports 6000
    python bench/tensorsocket_job.py consumer --ports 6000 --seconds 20
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time

import torch
import torch.multiprocessing

BATCH = 32


def produce(photos: str, ports: int, workers: int) -> None:
    """Send batches of the photos, epoch after epoch, until this process is killed."""
    from tensorsocket import TensorProducer
    from torch.utils.data import ConcatDataset, DataLoader
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    # The producer drops the last batches of an epoch, so one epoch is longer than the measurement.
    data = ConcatDataset([ImageFolder(photos, transforms.Compose(steps))] * 100)
    loader = DataLoader(data, BATCH, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True)
    # A job that attaches later than the others gets nothing until the next epoch, unless it is in the rubber band.
    band = 64 / len(loader)
    # It pickles each message as a whole for each job: two batches at a time are faster than eight, and one fails.
    options = {"rubber_band_pct": band, "producer_batch_size": 2}
    producer = TensorProducer(loader, ports, ports + 1, (ports + 2, ports + 3), **options)
    said = 0.0
    while True:  # a job whose heartbeat was late makes it raise KeyError, and can go on
        if time.monotonic() > said + 2:  # a job that attaches may miss the first message, and would wait forever
            producer.send_len, said = True, time.monotonic()
        with contextlib.suppress(StopIteration, KeyError):
            next(producer)


def consume(ports: int, seconds: float) -> None:
    """Take batches for this time after the first ones, and print the number of samples and the seconds."""
    from tensorsocket import TensorConsumer

    print("ready", flush=True)
    loader = TensorConsumer(ports, ports + 1, (ports + 2, ports + 3), batch_size=BATCH)
    samples, begun, batches = 0, 0.0, 0
    while not begun or time.monotonic() - begun < seconds:
        for images, _ in loader:
            images[:, :, ::16, ::16].sum()
            batches += 1
            if begun:
                samples += len(images)
            elif batches == 10:
                begun = time.monotonic()
            if begun and time.monotonic() - begun >= seconds:
                break
    print(samples, time.monotonic() - begun, flush=True)


def main() -> None:
    """Be the producer or a consumer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["producer", "consumer"])
    parser.add_argument("photos", nargs="?", default="")
    parser.add_argument("--ports", type=int, default=6000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    a = parser.parse_args()
    torch.set_num_threads(1)
    # Without this a descriptor is passed for each tensor, which is slower.
    torch.multiprocessing.set_sharing_strategy("file_system")
    logging.disable(logging.INFO)  # tensorsocket prints every line that any library logs
    if a.role == "producer":
        produce(a.photos, a.ports, a.workers)
    else:
        consume(a.ports, a.seconds)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
