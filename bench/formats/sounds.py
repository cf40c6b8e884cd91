"""Files of sound, written by soundfile, and soundfile in a DataLoader as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import Format
from .torch_side import batches


def write(folder: Path, count: int, seconds: float, rate: int, channels: int, ext: str, **options: str) -> None:
    """Tones and noise that change, as music and speech do."""
    import soundfile

    rng = np.random.default_rng(0)
    n = round(seconds * rate)
    t = np.arange(n) / rate
    (folder / "sounds").mkdir()
    for i in range(count):
        f = rng.uniform(100, 2000, (6, channels))
        loud = rng.uniform(0.02, 0.15, (6, channels)) * (1 + np.sin(2 * np.pi * rng.uniform(0.3, 4, (6, channels))))
        wave = np.einsum("kc,knc->nc", loud, np.sin(2 * np.pi * f[:, None] * t[:, None] * (1 + 0.1 * t[:, None])))
        wave = np.clip(0.5 * wave + 0.01 * rng.standard_normal((n, channels)), -0.99, 0.99)
        soundfile.write(folder / f"sounds/{i:05}.{ext}", wave, rate, **options)


class Sounds:
    """Samples in the form of torchaudio.load: float32 [channels, samples]."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted((folder / "sounds").iterdir())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> np.ndarray:
        import soundfile

        return soundfile.read(self.files[i], dtype="float32", always_2d=True)[0].T


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Sounds(folder), batch)


def fields(samples: int) -> dict[str, object]:
    import stoker

    return {"audio": [stoker.audio.PadOrTrim(samples)]}  # all of them have so many


def sound_format(
    name: str, count: int, seconds: float, rate: int, channels: int, batch: int, bar: float = 1.0, **options: str
) -> Format:
    """One of the formats; options are passed to soundfile.write."""
    ext = "wav" if name == "audio wav" else name.split()[1]
    many = "mono" if channels == 1 else "stereo"
    return Format(
        name=name,
        library="soundfile in a DataLoader",
        make=lambda folder: write(folder, count, seconds, rate, channels, ext, **options),
        url=lambda folder: str(folder / "sounds"),
        reference=reference,
        loader={"shuffle": True, "transforms": lambda: fields(round(seconds * rate))},
        bar=bar,
        batch=batch,
        what=f"{count:,} files of {seconds:g} s, {rate:,} Hz, {many}, decoded as a whole",
    )
