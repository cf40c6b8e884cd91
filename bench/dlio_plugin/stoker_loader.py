"""Stoker as a data loader of DLIO (dlio-benchmark 2.0): the storage benchmark itself measures it.

    PYTHONPATH=bench/dlio_plugin:python/src dlio_benchmark workload=unet3d_a100 \
        ++workload.reader.data_loader_classname=stoker_loader.StokerLoader \
        ++workload.reader.data_loader_sampler=index ++workload.dataset.data_folder=DIR

Each rank of mpirun is one accelerator and takes its rows of the same global batches. DLIO's own loaders hand over a
small constant instead of the bytes that they read. This one delivers the bytes of every file, in this process's
memory, and sums a sample of them.

Environment:
  STOKER_DLIO_SOURCE  what to load, instead of files:DATA_FOLDER/train
  STOKER_SOCKET       socket of a running `stoker serve` that all ranks share. By default each has its own engine.
  STOKER_DLIO_OPTIONS JSON with more arguments of stoker.Loader, such as {"threads": 2, "limits": {"memory": "4GB"}}
  STOKER_DLIO_OUT     folder for rank-N.json: the records that this rank received
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import stoker
from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader

# The bytes of each batch that are summed: one in many pages, because summing is not part of the measurement.
STRIDE = 65_537
# Of every so many batches one row is noted, to be compared with its file after the run: every 4,097th byte of it,
# which is about one per page.
NOTED, NOTED_STRIDE = 8, 4097
# MADV_POPULATE_WRITE of linux/mman.h.
POPULATE = 23


class StokerLoader(BaseDataLoader):  # type: ignore[misc]
    """DLIO makes one for training and, with evaluation, one for validation."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)

    def read(self) -> None:
        """Open the data; once per run."""
        a = self._args
        train = self.dataset_type is DatasetType.TRAIN
        folder = Path(a.data_folder).resolve() / ("train" if train else "valid")
        self.steps = a.training_steps if train else a.eval_steps
        options = json.loads(os.environ.get("STOKER_DLIO_OPTIONS") or "{}")
        self.loader = stoker.Loader(
            os.environ.get("STOKER_DLIO_SOURCE") or f"files:{folder}",
            batch_size=self.batch_size,
            shuffle=True,
            seed=a.seed,
            drop_last=True,
            ranks=stoker.Ranks(a.my_rank, a.comm_size),
            limits=stoker.Limits(**options.pop("limits", {})),
            **options,
        )
        # The field with the bytes: the first one that comes with each batch.
        self.field = self.loader.info["arrays"][0]["name"]
        self.batches = self.rows = self.bytes = self.checksum = 0
        self.noted: list[tuple[int, int, int]] = []
        self.populate()

    def populate(self) -> None:
        """Allocate the memory of all batches now, before DLIO's clock starts, like a loader that pins its memory."""
        connection = self.loader._connection
        ring = connection._ring if connection is not None else None
        if ring is not None:
            # Before Linux 5.14 it cannot; the first use of each slot does it then.
            with contextlib.suppress(OSError):
                ring.madvise(POPULATE)

    def next(self) -> Iterator[Any]:
        """Yield the batches of an epoch; DLIO stops after its number of steps."""
        given = 0
        while given < self.steps:
            for batch in self.loader:
                data = batch[self.field]
                values = getattr(data, "values", data)
                self.checksum += int(values.reshape(-1)[::STRIDE].sum())
                if self.batches % NOTED == 0:
                    row = data[0]
                    size = getattr(row, "nbytes", len(row))
                    self.noted.append((int(batch["index"][0]), int(size), int(row.reshape(-1)[::NOTED_STRIDE].sum())))
                    del row
                self.batches += 1
                self.rows += len(batch)
                self.bytes += values.nbytes
                yield data
                # The loop's variables would hold two batches while it waits for the third.
                del batch, data, values
                given += 1
                if given == self.steps:
                    break

    def finalize(self) -> None:
        """Write the received records; DLIO calls this after every epoch."""
        out = os.environ.get("STOKER_DLIO_OUT")
        if out:
            stats = self.loader.stats()
            result = {
                "batches": self.batches,
                "rows": self.rows,
                "bytes": self.bytes,
                "checksum": self.checksum % (1 << 31),
                "noted": self.noted,
                "wait_seconds": stats["wait_seconds"],
                "engine": stats["engine"],
            }
            Path(out, f"rank-{self._args.my_rank}.json").write_text(json.dumps(result, default=float) + "\n")
