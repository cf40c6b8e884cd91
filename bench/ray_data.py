"""Ray Data and stoker.ray.pack: read JPEGs of a folder, resize them, write them. Prints images per second."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data
import stoker.ray
from stoker._binary import find_binary


def resized(row: dict[str, Any]) -> dict[str, Any]:
    from PIL import Image

    image = Image.open(io.BytesIO(row["bytes"])).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return {"image": np.asarray(image).reshape(-1), "path": row["path"]}


def ray_data(data: Path, out: Path) -> None:
    rows = ray.data.read_binary_files(str(data), include_paths=True, file_extensions=["jpg"])
    rows.map(resized).write_parquet(str(out))


def ours(data: Path, out: Path) -> None:
    stoker.ray.pack(data, out, images="raw", resize=f"{SIZE}x{SIZE}", cpus=1, progress=False)


SIZE = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, help="a folder of JPEGs; by default 4,000 of 500x375 are made")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ray.init(include_dashboard=False, log_to_driver=False, object_store_memory=1 << 30)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory(dir=".") as work:
        data = options.data
        if data is None:
            data = Path(work, "photos")
            args = ["--count", "4000", "--classes", "10", "--size", "500x375", "--tree"]
            subprocess.run([find_binary(), "gen", "images", str(data), *args], check=True, capture_output=True)
        count = sum(1 for _ in data.rglob("*.jpg"))
        rates: dict[str, list[float]] = {"Ray Data": [], "Stoker": []}
        for i in range(options.rounds + 1):  # the first one starts workers
            for name, run in (("Ray Data", ray_data), ("Stoker", ours)):
                out = Path(work, f"out-{i}-{name.split()[0]}")
                began = time.monotonic()
                run(data, out)
                if i:
                    rates[name].append(count / (time.monotonic() - began))
                shutil.rmtree(out)
        print(json.dumps({name: [round(r) for r in sorted(all_)] for name, all_ in rates.items()}))


main()
