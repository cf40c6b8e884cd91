"""Clips of a video, decoded with PyAV by a worker."""

import time

import av
import job
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PATH = job.folder() / "clip.mp4"
if not PATH.exists():
    with av.open(str(PATH), "w") as out:
        stream = out.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 480, 352, "yuv420p"
        rng = np.random.default_rng(0)
        for i in range(50):
            image = np.kron(rng.integers(0, 255, (22, 30, 3), dtype=np.uint8), np.ones((16, 16, 1), dtype=np.uint8))
            out.mux(stream.encode(av.VideoFrame.from_ndarray(np.roll(image, i, 1), format="rgb24")))
        out.mux(stream.encode())


class Clips(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        if job.without("cpu"):
            return torch.zeros(8, 352, 480, 3, dtype=torch.uint8)
        with av.open(str(PATH)) as video:
            frames = []
            for n, frame in enumerate(video.decode(video=0)):
                if n >= 48:
                    break
                if n % 6 == 0:
                    frames.append(torch.from_numpy(frame.to_ndarray(format="rgb24")))
        return torch.stack(frames)


def forward_backward(x):
    time.sleep(0.02)


loader = DataLoader(Clips(), batch_size=2, num_workers=1, shuffle=True, persistent_workers=True)
while True:
    for clips in loader:
        forward_backward(clips)
        job.tick()
