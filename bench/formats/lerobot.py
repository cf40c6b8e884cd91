"""LeRobot's data sets: two cameras, a state and 16 future actions, compared with LeRobot's own class in a
DataLoader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

EPISODES, LENGTH, FPS, WIDTH, HEIGHT, AHEAD = 20, 100, 30, 320, 240, 16
CAMERAS = ("observation.images.top", "observation.images.wrist")
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"


def make(folder: Path) -> None:
    """Version 3 as LeRobot lays it out: a key frame in two, half of the episodes in each file of video."""
    import av
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    root, n, rng = folder / "robot", EPISODES * LENGTH, np.random.default_rng(0)
    for sub in ("meta/episodes/chunk-000", "data/chunk-000"):
        (root / sub).mkdir(parents=True)
    numbers = {"dtype": "int64", "shape": [1], "names": None}
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": [14], "names": None},
        "action": {"dtype": "float32", "shape": [14], "names": None},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }
    camera = {"dtype": "video", "shape": [HEIGHT, WIDTH, 3], "names": ["height", "width", "channels"]}
    features |= dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), numbers)
    features |= dict.fromkeys(CAMERAS, camera)
    about = {
        "codebase_version": "v3.0", "robot_type": "none", "total_episodes": EPISODES, "total_frames": n,
        "total_tasks": 1, "chunks_size": 1000, "fps": FPS, "splits": {"train": f"0:{EPISODES}"},
        "video_path": VIDEO, "features": features,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    }  # fmt: skip
    (root / "meta/info.json").write_text(json.dumps(about))
    pd.DataFrame({"task_index": [0]}, index=["move it"]).to_parquet(root / "meta/tasks.parquet")
    frame = np.tile(np.arange(LENGTH), EPISODES)
    columns = {
        "observation.state": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n * 14, np.float32)), 14),
        "action": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n * 14, np.float32)), 14),
        "timestamp": pa.array((frame / FPS).astype(np.float32)), "frame_index": pa.array(frame),
        "episode_index": pa.array(np.arange(n) // LENGTH), "index": pa.array(np.arange(n)),
        "task_index": pa.array(np.zeros(n, np.int64)),
    }  # fmt: skip
    pq.write_table(pa.table(columns), root / "data/chunk-000/file-000.parquet")
    begin, half = np.arange(EPISODES) * LENGTH, EPISODES // 2
    episodes: dict[str, Any] = {
        "episode_index": np.arange(EPISODES), "tasks": [["move it"]] * EPISODES, "length": [LENGTH] * EPISODES,
        "data/chunk_index": [0] * EPISODES, "data/file_index": [0] * EPISODES,
        "dataset_from_index": begin, "dataset_to_index": begin + LENGTH,
    }  # fmt: skip
    y, x = np.mgrid[0 : HEIGHT + 100, 0 : WIDTH + 200].astype(np.float32)
    for k, name in enumerate(CAMERAS):
        start = np.arange(EPISODES) % half * LENGTH / FPS
        episodes |= {f"videos/{name}/chunk_index": [0] * EPISODES}
        episodes |= {f"videos/{name}/file_index": np.arange(EPISODES) // half}
        episodes |= {f"videos/{name}/from_timestamp": start, f"videos/{name}/to_timestamp": start + LENGTH / FPS}
        scene = np.stack([np.sin(x * 0.05 * (c + 1) + y * 0.07 + k) * 60 + 128 for c in range(3)], -1)
        scene = np.clip(scene + rng.normal(0, 10, scene.shape), 0, 255).astype(np.uint8)
        for file in range(2):
            path = root / VIDEO.format(video_key=name, chunk_index=0, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            with av.open(path, "w") as out:
                stream = out.add_stream("libx264", rate=FPS, options={"g": "2", "crf": "30"})
                stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
                for i in range(half * LENGTH):
                    left, top = int(100 + 99 * np.sin(i / 37 + file)), int(50 + 49 * np.cos(i / 23))
                    rgb = np.ascontiguousarray(scene[top : top + HEIGHT, left : left + WIDTH])
                    out.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
                out.mux(stream.encode())
    pq.write_table(pa.table(episodes), root / "meta/episodes/chunk-000/file-000.parquet")


def reference(folder: Path, batch: int) -> Iterator[int]:
    import os

    os.environ["HF_HUB_OFFLINE"] = "1"
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    data = LeRobotDataset(
        "bench/robot", root=folder / "robot", delta_timestamps={"action": [k / FPS for k in range(AHEAD)]},
        video_backend="torchcodec", download_videos=False,
    )  # fmt: skip
    return batches(data, batch)


FORMAT = Format(
    name="lerobot",
    library="lerobot's class in a DataLoader",
    make=make,
    url=lambda folder: f"{folder / 'robot'}?deltas=action=0:{AHEAD}",
    reference=reference,
    loader={"shuffle": True},
    what=f"{EPISODES * LENGTH:,} moments, two cameras of {WIDTH}x{HEIGHT} in H.264, {AHEAD} actions ahead",
    bar=3.0,
    batch=32,
    env="robots",
    whole=False,
)
