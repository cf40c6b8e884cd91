"""The demo of video: clips come from video files, and a small classifier learns how things move in them.

`make demo KIND=video` runs it; DATA=folder takes videos of your own, in one folder per class. Generated videos are
MJPEG in AVI files, which the program decodes without libraries. For H.264 and others it needs FFmpeg's libraries.
"""

from __future__ import annotations

import argparse
import io
import struct
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import stoker
from demo import STOKER, WORK, Watch, bold, dim, engines, made, memory, run, show, start, step
from learn import Network
from PIL import Image
from stoker import transforms as T

WAYS = {
    "left": (-1, 0, 0), "right": (1, 0, 0), "up": (0, -1, 0), "down": (0, 1, 0),
    "nearer": (0, 0, 1), "away": (0, 0, -1),
}  # fmt: skip
EACH, RATE, FRAMES, SIDE, EPOCHS, BATCH, CELLS = 24, 12, 8, 64, 12, 24, 4

Floats = npt.NDArray[np.float32]


def picture(texture: npt.NDArray[np.uint8], x: float, y: float, zoom: float) -> bytes:
    """A window of a texture, as a JPEG."""
    image = Image.fromarray(texture)
    half = 80 / zoom
    box = (256 + x - half * 1.25, 256 + y - half, 256 + x + half * 1.25, 256 + y + half)
    out = io.BytesIO()
    image.resize((160, 128), Image.Resampling.BILINEAR, box=box).save(out, "JPEG", quality=85)
    return out.getvalue()


def avi(frames: list[bytes]) -> bytes:
    """A file of MJPEG."""

    def chunk(kind: bytes, *parts: bytes) -> bytes:
        body = b"".join(parts)
        return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)

    head = chunk(b"strh", b"vidsMJPG", bytes(12), struct.pack("<II", 1, RATE), bytes(28))
    form = chunk(b"strf", struct.pack("<IiiHH4s", 40, 160, 128, 1, 24, b"MJPG"), bytes(20))
    lists = chunk(b"LIST", b"hdrl", chunk(b"avih", bytes(56)), chunk(b"LIST", b"strl", head, form))
    return chunk(b"RIFF", b"AVI ", lists, chunk(b"LIST", b"movi", *(chunk(b"00dc", f) for f in frames)))


def generate(folder: Path) -> None:
    """Write EACH videos of every way to move: a camera over textures, at its own pace, never quite straight."""
    rng = np.random.default_rng(0)
    for way, (dx, dy, dz) in WAYS.items():
        for part in ("train", "test"):
            (folder / part / way).mkdir(parents=True)
        for i in range(EACH):
            rough = rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)
            texture = np.asarray(Image.fromarray(rough).resize((512, 512), Image.Resampling.BICUBIC))
            speed, frames = rng.uniform(1.5, 4), []
            shake = np.cumsum(rng.normal(0, 0.3, (48, 2)), axis=0)
            for k in range(48):
                far = speed * (k - 24)
                x, y = dx * far + shake[k, 0], dy * far + shake[k, 1]
                frames.append(picture(texture, x, y, 1.6 * 1.02 ** (dz * far / 2)))
            part = "test" if i % 4 == 0 else "train"
            (folder / part / way / f"{i:03}.avi").write_bytes(avi(frames))


def motion(clips: npt.NDArray[np.uint8]) -> Floats:
    """The motion in a grid of cells: changes in time times those in space."""
    gray = clips.astype(np.float32).mean(axis=-1)
    change = np.diff(gray, axis=1)
    still = (gray[:, 1:] + gray[:, :-1]) / 2
    out = []
    for axis in (2, 3):
        slope = np.gradient(still, axis=axis)
        size = still.shape[2] // CELLS, still.shape[3] // CELLS
        cells = (change * slope).reshape(len(clips), -1, CELLS, size[0], CELLS, size[1]).sum(axis=(1, 3, 5))
        norm = (slope * slope).reshape(len(clips), -1, CELLS, size[0], CELLS, size[1]).sum(axis=(1, 3, 5))
        out.append((cells / (norm + 1)).reshape(len(clips), -1))
    return np.concatenate(out, axis=1)


def loader(folder: Path, training: bool) -> stoker.Loader:
    """Clips of FRAMES frames; while training, cut out at another place every time, the same one in all frames."""
    crop: T.Transform = T.RandomResizedCrop(SIDE, scale=(0.5, 1))
    ops = [crop] if training else [T.Resize((SIDE, SIDE))]
    url = f"{folder}?frames={FRAMES}&stride=2&step=8"
    return stoker.Loader(
        url, batch_size=BATCH, shuffle=training, seed=0, drop_last=training, transforms={"frames": ops}
    )


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Learn how things move in videos.")
    parser.add_argument("--data", type=Path, help="a folder with train/ and test/ of your own (default: generated)")
    own: Path | None = parser.parse_args().data
    WORK.mkdir(exist_ok=True)
    if own is None:
        step(1, f"{EACH * len(WAYS)} videos of a camera that moves in {len(WAYS)} ways")
        videos = made(WORK / f"videos-{EACH * len(WAYS)}", generate)
    else:
        videos = own.expanduser().resolve()
        if not (videos / "train").is_dir() or not (videos / "test").is_dir():
            sys.exit(f"demo: {own} has no train/ and test/\n  hint: make demo KIND=video DATA=folder with both in it")
        step(1, f"your videos in {videos}")
    run("inspect", f"{videos / 'train'}?frames={FRAMES}&stride=2&step=8")
    with loader(videos / "train", True) as train, loader(videos / "test", False) as test:
        classes = train.classes or []
        step(2, f"learn {len(classes)} ways to move from clips of {FRAMES} frames, {len(train)} batches an epoch")
        network = Network(2 * CELLS * CELLS, len(classes))
        head = f"{'epoch':>5}  {'training':>8}  {'held out':>8}  {'frames/s':>9}  {'waiting for data':>16}  memory"
        print(dim(f"  {head}"))
        for epoch in range(EPOCHS):
            right = seen = 0
            watch = Watch()
            for batch in watch.over(train):
                right += network.learn(motion(batch.frames) * 4, batch.label.copy(), 3e-3)
                seen += len(batch)
            figures = f"{watch.figures(seen * FRAMES, 9)}  {memory(engines())}"
            if epoch % 3 != 2:
                continue
            found = [network.scores(motion(b.frames) * 4)[1].argmax(axis=1) == b.label for b in test]
            held_out = float(np.concatenate(found).mean())
            print(f"  {epoch + 1:>5}  {right / seen:8.1%}  {bold(f'{held_out:8.1%}')}  {figures}", flush=True)
    print(f"\nOf {bold(f'{held_out:.1%}')} of the clips of videos that it never saw it knows how the camera moves.")
    print(f"Look into them with: {show(STOKER)} inspect '{show(videos / 'train')}?frames=16'")


if __name__ == "__main__":
    start(main)
