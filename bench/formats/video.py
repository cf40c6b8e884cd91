"""Video: random frames of H.264 with the default settings of encoders, compared with torchcodec in a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format
from .torch_side import batches

FILES, SECONDS, RATE, WIDTH, HEIGHT, EVERY = 8, 40, 25, 640, 360, 5


def make(folder: Path) -> None:
    """Camera-like motion over textures with some noise: 250 frames between key frames at most, as x264 has it."""
    import av

    rng = np.random.default_rng(0)
    (folder / "videos").mkdir()
    y, x = np.mgrid[0 : HEIGHT + 200, 0 : WIDTH + 400].astype(np.float32)
    for i in range(FILES):
        f = rng.uniform(0.01, 0.2, (6, 2))
        scene = np.stack([sum(np.sin(x * a + y * b + c) for a, b in f) * 18 + 128 for c in range(3)], -1)
        scene = np.clip(scene + rng.normal(0, 12, scene.shape), 0, 255).astype(np.uint8)
        with av.open(folder / f"videos/{i}.mp4", "w") as file:
            stream = file.add_stream("libx264", rate=RATE, options={"preset": "fast"})
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            for k in range(SECONDS * RATE):
                left, top = int(200 + 199 * np.sin(k / 97 + i)), int(100 + 99 * np.cos(k / 61))
                rgb = np.ascontiguousarray(scene[top : top + HEIGHT, left : left + WIDTH])
                file.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
            file.mux(stream.encode())


class Frames:
    """Every fifth frame of all videos, by number."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted((folder / "videos").iterdir())
        self.each = SECONDS * RATE // EVERY
        self.open: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.files) * self.each

    def __getitem__(self, n: int) -> Any:
        from torchcodec.decoders import VideoDecoder

        file, k = divmod(n, self.each)
        if file not in self.open:
            self.open[file] = VideoDecoder(self.files[file], dimension_order="NHWC", num_ffmpeg_threads=1)
        return self.open[file].get_frame_at(k * EVERY).data


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Frames(folder), batch)


FORMAT = Format(
    name="video",
    library="torchcodec in a DataLoader",
    make=make,
    url=lambda folder: f"{folder / 'videos'}?frames=1&step={EVERY}",
    reference=reference,
    loader={"shuffle": True},
    what=f"{FILES} videos of {SECONDS} s, H.264 of {WIDTH}x{HEIGHT}, single frames at random",
    bar=2.0,
    batch=128,
    whole=False,
)
