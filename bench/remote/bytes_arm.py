"""Epochs of a pack whose images are not decoded: the time for reading them. The first epoch includes the start-up,
the others (`steady`, their mean) do not.

    python -m bench.remote.bytes_arm URL ORDER [EPOCHS]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import stoker

HEADERS = 66  # of Ethernet, IPv4 and TCP with timestamps


def received() -> int:
    """The bytes received over the network so far, without the headers of frames. Several frames may count as one,
    with the headers of one frame."""

    def total(what: str) -> int:
        counters = Path("/sys/class/net").glob(f"*/statistics/{what}")
        return sum(int(p.read_text()) for p in counters if p.parts[-3] != "lo")

    return total("rx_bytes") - HEADERS * total("rx_packets")


def main() -> None:
    url, order, *more = sys.argv[1:]
    epochs = int(more[0]) if more else 2
    shuffle: bool | str = True if order == "full" else order
    opened = time.perf_counter()
    data = stoker.open(url).kinds({"image": "bytes"}).select("image")
    with stoker.Loader(data, batch_size=256, shuffle=shuffle, seed=1) as loader:
        ready = time.perf_counter() - opened
        first, seen, size, ends, came = 0.0, 0, 0, [], []
        records: list[int] = []
        of_first = 0
        for _ in range(epochs):
            for batch in loader:
                if not first:
                    first = time.perf_counter() - opened
                    records, of_first = batch["index"].tolist(), sum(len(record) for record in batch["image"])
                if not ends:
                    seen += len(batch["index"])
                    size += sum(len(record) for record in batch["image"])
            ends.append(time.perf_counter())
            came.append(received())
        read = loader.stats()["engine"]["bytes"]
    # The amount read ahead at the end of an epoch varies. Over several epochs the differences cancel.
    steady = (ends[-1] - ends[0]) / (epochs - 1)
    result = {"epoch_s": ends[0] - opened, "steady_s": steady, "first_batch_s": first, "open_s": ready}
    result["received_s"] = (came[-1] - came[0]) / (ends[-1] - ends[0])
    result |= {"first_records": records, "first_bytes": of_first}
    print(json.dumps(result | {"examples": seen, "bytes": size, "read_bytes": read}))


if __name__ == "__main__":
    main()
