"""Packs a data set for one loader, with that loader's own writer, and prints the time.

    python -m bench.packs KIND SOURCE OUT [--workers N] [--side N]

Run in the environment of that loader (see suite.py). Each record keeps its number, so that the arms can be checked.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from . import procs


def images(source: Path) -> list[Path]:
    return sorted(p for p in source.glob("*/*") if p.is_file())


# Datasets that FFCV's and LitData's workers index. They must be importable, so they are at the top level.
class Encoded:
    """(bytes of the file, number)"""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return self.files[number].read_bytes(), number


class Decoded(Encoded):
    """(pixels, number)"""

    def __getitem__(self, number: int) -> tuple[Any, int]:
        import numpy as np
        from PIL import Image

        return np.asarray(Image.open(self.files[number]).convert("RGB")), number


class Rows:
    """(row of a .npy file, number)"""

    def __init__(self, path: Path) -> None:
        import numpy as np

        self.rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        import numpy as np

        return np.array(self.rows[number]), number


def ffcv(source: Path, out: Path, workers: int, how: str) -> None:
    import numpy as np
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    def same_bytes(self: Any, destination: Any, data: Any, allocate: Any) -> None:
        destination["mode"] = 0
        destination["width"], destination["height"] = Image.open(io.BytesIO(data)).size
        destination["data_ptr"], storage = allocate(len(data))
        storage[:] = np.frombuffer(data, np.uint8)

    data: Any = Decoded(images(source)) if how == "q90" else Rows(source) if how == "raw" else Encoded(images(source))
    if how == "same":
        # FFCV's writer always re-encodes; this stores the original JPEG instead. Its reader is untouched.
        RGBImageField.encode = same_bytes
    image = RGBImageField(write_mode="raw" if how == "raw" else "jpg", jpeg_quality=90)
    DatasetWriter(str(out), {"image": image, "label": IntField()}, num_workers=workers).from_indexed_dataset(data)


def ffcv_same(source: Path, out: Path, workers: int) -> None:
    ffcv(source, out, workers, "same")


def ffcv_q90(source: Path, out: Path, workers: int) -> None:
    ffcv(source, out, workers, "q90")


def ffcv_raw(source: Path, out: Path, workers: int) -> None:
    ffcv(source, out, workers, "raw")


def ffcv_array(source: Path, out: Path, workers: int) -> None:
    """Rows of a .npy file, unchanged."""
    from ffcv.fields import IntField, NDArrayField
    from ffcv.writer import DatasetWriter

    rows = Rows(source)
    array = NDArrayField(dtype=rows.rows.dtype, shape=rows.rows.shape[1:])
    DatasetWriter(str(out), {"image": array, "label": IntField()}, num_workers=workers).from_indexed_dataset(rows)


def ffcv_extract(source: Path, out: Path, _workers: int) -> None:
    """The JPEGs inside a .beton as a folder of files: the same smaller bytes for the other loaders."""
    from ffcv.reader import Reader

    reader = Reader(str(source))
    sizes = {int(ptr): int(size) for _, ptr, size in reader.alloc_table.tolist()}
    name = next(n for n, handler in reader.handlers.items() if type(handler).__name__ == "RGBImageField")
    column = reader.metadata[reader.metadata.dtype.names[list(reader.handlers).index(name)]]
    with open(source, "rb") as beton:
        for number, pointer in enumerate(column["data_ptr"].reshape(-1).tolist()):
            beton.seek(pointer)
            folder = out / f"{number // (-(-len(column) // 10)):02d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:05d}.jpg").write_bytes(beton.read(sizes[pointer]))


def wds(source: Path, out: Path, _workers: int) -> None:
    import webdataset

    out.mkdir(parents=True)
    if source.suffix == ".npy":
        rows = Rows(source)
        order = list(range(len(rows)))

        def one(number: int) -> dict[str, bytes]:
            return {"raw": rows[number][0].tobytes()}
    else:
        files = images(source)
        order = list(range(len(files)))

        def one(number: int) -> dict[str, bytes]:
            return {"jpg": files[number].read_bytes()}

    random.Random(0).shuffle(order)
    with webdataset.ShardWriter(str(out / "s-%04d.tar"), maxcount=max(1, len(order) // 20), verbose=0) as shard:
        for number in order:
            shard.write({"__key__": f"{number:07d}", "number": str(number), **one(number)})


def turbo_tar(source: Path, out: Path, _workers: int) -> None:
    """One tar with the files in the order of their numbers, which is all that TurboLoader's fast path reads."""
    with tarfile.open(out, "w") as tar:
        for number, file in enumerate(images(source)):
            tar.add(file, arcname=f"{number:07d}.jpg")


def mds(source: Path, out: Path, _workers: int) -> None:
    from streaming import MDSWriter

    if source.suffix == ".npy":
        rows = Rows(source)
        shape = ",".join(map(str, rows.rows.shape[1:]))
        with MDSWriter(out=str(out), columns={"image": f"ndarray:{rows.rows.dtype}:{shape}", "number": "int"}) as shard:
            for number in range(len(rows)):
                shard.write({"image": rows[number][0], "number": number})
        return
    with MDSWriter(out=str(out), columns={"image": "bytes", "number": "int"}) as shard:
        for number, file in enumerate(images(source)):
            shard.write({"image": file.read_bytes(), "number": number})


def _litdata_file(record: tuple[str, int]) -> dict[str, Any]:
    from PIL import Image

    # A PIL image that came from a JPEG file is stored as the bytes of that file.
    return {"image": Image.open(record[0]), "number": record[1]}


def _litdata_row(record: tuple[str, int]) -> dict[str, Any]:
    return {"image": Rows(Path(record[0]))[record[1]][0], "number": record[1]}


def litdata(source: Path, out: Path, workers: int) -> None:
    from litdata import optimize

    if source.suffix == ".npy":
        inputs = [(str(source), n) for n in range(len(Rows(source)))]
        fn: Any = _litdata_row
    else:
        inputs = [(str(f), n) for n, f in enumerate(images(source))]
        fn = _litdata_file
    optimize(fn=fn, inputs=inputs, output_dir=str(out), chunk_bytes="64MB", num_workers=workers)


KINDS = {f.__name__: f for f in (ffcv_same, ffcv_q90, ffcv_raw, ffcv_array, ffcv_extract, wds, turbo_tar, mds, litdata)}


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("kind", choices=sorted(KINDS))
    p.add_argument("source", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    part = a.out.with_name(a.out.name + ".part")
    for old in (a.out, part):
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    # Importing the writer is not packing.
    __import__(
        {"ffcv": "ffcv.writer", "wds": "webdataset", "mds": "streaming", "litdata": "litdata", "turbo": "turboloader"}[
            a.kind.split("_")[0]
        ]
    )
    procs.warm(a.source)
    me = os.getpid()
    cpu, start = procs.cpu_seconds(me), time.perf_counter()
    KINDS[a.kind](a.source, part, a.workers)
    seconds, cpu = time.perf_counter() - start, procs.cpu_seconds(me) - cpu
    part.rename(a.out)
    count = 0 if a.source.suffix in (".npy", ".beton") else len(images(a.source))
    size = sum(f.stat().st_size for f in procs.files_below(a.out))
    print(json.dumps({"kind": a.kind, "seconds": seconds, "cpu_s": cpu, "images": count, "bytes": size}), flush=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
