"""Record batches of a Parquet file that become Python objects in the training process."""

import time

import job
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PATH = job.folder() / "rows.parquet"
if not PATH.exists():
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({f"c{i}": rng.random(1 << 16) for i in range(24)}), PATH, row_group_size=1 << 13)


def rows():
    while True:
        for group in pq.ParquetFile(PATH).iter_batches(batch_size=1024):
            if job.without("cpu"):
                yield [[0.0]]
                continue
            yield [list(row.values()) for row in group.to_pylist()]


def optimise(batch):
    time.sleep(0.01)


def main():
    for batch in rows():
        optimise(batch)
        job.tick()


main()
