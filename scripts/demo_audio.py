"""The demo of audio: recordings become log-mel spectrograms in the engine, and a small network learns words from them.

`make demo KIND=audio` runs it; DATA=folder takes recordings of your own, in one folder per class or named after their
class as 7_jackson_3.wav. A fifth of them is held out.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import stoker
from demo import STOKER, WORK, Watch, bold, dim, engines, made, memory, run, show, start, step
from learn import Network
from stoker import transforms as T

CLASSES, TAKES, RATE, EPOCHS, BATCH = 8, 60, 16000, 40, 64
EXTENSIONS = (".wav", ".flac", ".ogg", ".opus", ".mp3")

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def record(rng: np.random.Generator, word: int) -> npt.NDArray[np.int16]:
    """One take of an invented word: syllables of three formants each, at another pitch and pace every time."""
    syllables = np.random.default_rng(word).uniform([300, 900, 2200], [900, 2200, 3600], (3, 3))
    out = []
    for formants in syllables * rng.uniform(0.92, 1.08):
        t = np.arange(int(RATE * rng.uniform(0.11, 0.2))) / RATE
        pitch = rng.uniform(90, 220) * (1 + 0.1 * np.sin(2 * np.pi * 3 * t))
        buzz = np.zeros_like(t)
        for k in range(1, 30):
            f = k * pitch
            near = np.exp(-(((f[:, None] - formants) / 150) ** 2)).sum(axis=1)
            buzz += near * np.sin(2 * np.pi * np.cumsum(f) / RATE)
        out.append(buzz * np.sin(np.pi * t / t[-1]))
    sound = np.concatenate([np.zeros(rng.integers(0, 1600)), *out])
    sound = sound / np.abs(sound).max() * rng.uniform(0.2, 0.9) + rng.standard_normal(len(sound)) * 0.02
    return (np.clip(sound, -1, 1) * 32767).astype(np.int16)


def generate(folder: Path) -> None:
    """Write CLASSES words of TAKES takes each."""
    rng = np.random.default_rng(0)
    for word in range(CLASSES):
        (folder / f"word{word}").mkdir(parents=True)
        for take in range(TAKES):
            with wave.open(str(folder / f"word{word}/{take:03}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(RATE)
                file.writeframes(record(rng, word).tobytes())


def split(folder: Path, lists: Path) -> tuple[list[str], int]:
    """Write train.csv and test.csv: every fifth recording of a class, in a random order, is held out."""
    files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in EXTENSIONS)
    flat = all(f.parent == folder for f in files)
    by_class: dict[str, list[Path]] = {}
    for file in files:
        by_class.setdefault(file.stem.split("_")[0] if flat else file.relative_to(folder).parts[0], []).append(file)
    classes = sorted(by_class)
    rng = np.random.default_rng(0)
    lists.mkdir(parents=True, exist_ok=True)
    with open(lists / "train.csv", "w", newline="") as train, open(lists / "test.csv", "w", newline="") as test:
        out = csv.writer(train), csv.writer(test)
        for writer in out:
            writer.writerow(["path", "label"])
        for number, name in enumerate(classes):
            for i, file in enumerate(rng.permutation(np.array(by_class[name], dtype=object))):
                out[i % 5 == 0].writerow([os.path.relpath(file, lists), number])
    return classes, len(files)


def loader(table: Path, training: bool) -> stoker.Loader:
    """Log-mel spectrograms of the first second; while training, with another gain and masks every time."""
    ops: list[T.Transform] = [stoker.audio.Mono(), stoker.audio.Resample(8000), stoker.audio.PadOrTrim(seconds=1)]
    if training:
        ops.append(stoker.audio.RandomGain(-10, 10))
    ops += [stoker.audio.MelSpectrogram(n_fft=256, hop_length=128, n_mels=40), stoker.audio.AmplitudeToDB(top_db=60)]
    if training:
        ops.append(stoker.audio.SpecAugment(1, 8, 1, 6, zero_masking=False))
    url = f"{table}?audio:audio=path&label:label=label"
    return stoker.Loader(url, batch_size=BATCH, shuffle=training, seed=0, transforms={"audio": ops})


def batches(of: stoker.Loader) -> Iterator[tuple[Floats, Labels]]:
    """An epoch, each spectrogram with mean 0 and deviation 1."""
    for batch in of:
        x = batch.audio.reshape(len(batch), -1)
        x = (x - x.mean(axis=1, keepdims=True)) / (x.std(axis=1, keepdims=True) + 1e-3)
        yield x, batch.label.copy()


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description="Learn words from recordings.")
    parser.add_argument("--data", type=Path, help="a folder of recordings of your own (default: generated ones)")
    own: Path | None = parser.parse_args().data
    WORK.mkdir(exist_ok=True)
    if own is None:
        step(1, f"{CLASSES * TAKES} recordings of {CLASSES} words that nobody speaks")
        sounds = made(WORK / f"sounds-{CLASSES * TAKES}", generate)
    else:
        sounds = own.expanduser().resolve()
        if not sounds.is_dir():
            sys.exit(f"demo: {own} is not a folder\n  hint: make demo KIND=audio DATA=path/to/folder of recordings")
        step(1, f"your recordings in {sounds}")
    run("inspect", sounds)
    lists = WORK / "sounds-lists"
    classes, count = split(sounds, lists)
    if len(classes) < 2:
        sys.exit(f"demo: {sounds} has {len(classes)} classes: one folder per class, or names such as dog_17.wav")
    step(2, f"learn {len(classes)} words from four fifths of {count:,} recordings, on log-mel spectrograms")
    with loader(lists / "train.csv", True) as train, loader(lists / "test.csv", False) as test:
        network = Network(int(np.prod(train.info["arrays"][0]["shape"])), len(classes))
        head = f"{'epoch':>5}  {'training':>8}  {'held out':>8}  {'recordings/s':>12}  {'waiting for data':>16}  memory"
        print(dim(f"  {head}"))
        for epoch in range(EPOCHS):
            right = seen = 0
            watch = Watch()
            for x, labels in watch.over(batches(train)):
                right += network.learn(x, labels, 1e-3 * (1 - epoch / EPOCHS))
                seen += len(labels)
            figures = f"{watch.figures(seen, 12)}  {memory(engines())}"
            if epoch % 5 != 4:
                continue
            found = [(network.scores(x)[1].argmax(axis=1) == labels) for x, labels in batches(test)]
            held_out = np.concatenate(found)
            print(f"  {epoch + 1:>5}  {right / seen:8.1%}  {bold(f'{held_out.mean():8.1%}')}  {figures}", flush=True)
    print(f"\n{bold(f'{held_out.mean():.1%}')} of {len(held_out)} recordings that it had never heard are understood.")
    print(f"The lists are {show(lists)}; look into the sounds with: {show(STOKER)} inspect {show(sounds)}")


if __name__ == "__main__":
    start(main)
