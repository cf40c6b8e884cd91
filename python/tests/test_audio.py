"""Sound, compared with soundfile's decoding and torchaudio's transforms."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import soundfile
import torch

import stoker
from stoker import transforms as st
from support import cli

Make = Callable[..., stoker.Loader]


def _torchaudio() -> Any:
    """Import torchaudio, which looks for the CUDA version that it was built with."""
    was = torch.version.cuda
    try:
        torch.version.cuda = "13.0"  # type: ignore[attr-defined]
        import torchaudio
    finally:
        torch.version.cuda = was  # type: ignore[attr-defined]
    return torchaudio


torchaudio = _torchaudio()


def sound(seconds: float, rate: int, channels: int, seed: int = 0) -> np.ndarray:
    """Return tones that glide through noise: float64 [samples, channels]."""
    rng = np.random.default_rng(seed)
    n = round(seconds * rate)
    t = np.arange(n) / rate
    out = np.empty((n, channels))
    for c in range(channels):
        f = rng.uniform(200, 900)
        out[:, c] = 0.5 * np.sin(2 * np.pi * f * t * (1 + 0.3 * t)) * np.exp(-t) + 0.05 * rng.standard_normal(n)
    return np.clip(out, -0.99, 0.99)


KINDS = [
    ("wav", "WAV", "PCM_U8"), ("wav", "WAV", "PCM_16"), ("wav", "WAV", "PCM_24"), ("wav", "WAV", "PCM_32"),
    ("wav", "WAV", "FLOAT"), ("wav", "WAV", "DOUBLE"), ("wav", "WAV", "ALAW"), ("wav", "WAV", "ULAW"),
    ("wav", "WAVEX", "PCM_24"), ("wav", "RF64", "PCM_16"), ("flac", "FLAC", "PCM_S8"), ("flac", "FLAC", "PCM_16"),
    ("flac", "FLAC", "PCM_24"), ("ogg", "OGG", "VORBIS"), ("opus", "OGG", "OPUS"),
    ("mp3", "MP3", "MPEG_LAYER_III"),
]  # fmt: skip


@pytest.mark.parametrize(("ext", "container", "subtype"), KINDS)
def test_decodes_as_soundfile(make: Make, tmp_path: Path, ext: str, container: str, subtype: str) -> None:
    rates = [8000, 16000, 24000, 48000] if subtype == "OPUS" else [8000, 16000, 22050, 32000, 44100, 48000]
    files = []
    for i, (rate, channels) in enumerate([(r, c) for r in rates for c in (1, 2)]):
        folder = tmp_path / f"{rate}-{channels}"
        folder.mkdir()
        file = folder / f"{i}.{ext}"
        soundfile.write(file, sound(0.4 + 0.17 * i, rate, channels, i), rate, format=container, subtype=subtype)
        files.append(file)
    for file in files:
        expected, rate = soundfile.read(file, dtype="float32", always_2d=True)
        loader = make(f"audio:{file.parent}", batch_size=1, transforms={"audio": [stoker.audio.Decode()]})
        assert loader.sample_rates == {"audio": rate}
        for batch in loader:
            got = batch.audio[0]
            assert got.dtype == np.float32
            assert got.shape == expected.shape, file
            if subtype in ("VORBIS", "OPUS", "MPEG_LAYER_III"):  # other libraries
                assert np.abs(got - expected).max() < 2e-4
            else:
                assert (got == expected).all()
            del got, batch


@pytest.mark.parametrize(
    ("mode", "level"), [("CONSTANT", 0.0), ("CONSTANT", 0.95), ("VARIABLE", 0.3), ("AVERAGE", 0.6)]
)
def test_mp3_of_many_rates(make: Make, tmp_path: Path, mode: str, level: float) -> None:
    """Blocks of both lengths, joint stereo, and parts of recordings."""
    rng = np.random.default_rng(2)
    for i, rate in enumerate([11025, 16000, 32000, 44100]):
        data = sound(1.5, rate, 2, i)
        data[:, 1] = 0.7 * data[:, 0] + 0.3 * data[:, 1]
        for at in rng.integers(0, len(data), 12):  # clicks make short blocks
            data[at : at + 40] = rng.uniform(-0.9, 0.9, data[at : at + 40].shape)
        (tmp_path / str(i)).mkdir()
        file = tmp_path / f"{i}/a.mp3"
        soundfile.write(file, data, rate, format="MP3", bitrate_mode=mode, compression_level=level)
        expected, _ = soundfile.read(file, dtype="float32")
        got = run(make, tmp_path / str(i), [stoker.audio.Decode()])[0]
        assert got.shape == expected.shape
        assert np.abs(got - expected).max() < 1e-5
        part = run(make, tmp_path / str(i), [stoker.audio.CenterCrop(5000)])[0]
        at = (len(got) - 5000) // 2
        assert (got[at : at + 5000] == part.T).all()


def test_folder_of_classes(make: Make, tmp_path: Path) -> None:
    expected = {}
    for i in range(12):
        folder = tmp_path / f"class{i % 3}"
        folder.mkdir(exist_ok=True)
        data = sound(0.1 + 0.05 * i, 8000, 1, i).astype(np.float32)
        soundfile.write(folder / f"{i:02}.wav", data, 8000, subtype="FLOAT")
        expected[f"class{i % 3}/{i:02}"] = data[:, 0]
    (tmp_path / "readme.txt").write_text("about these sounds")
    in_order = [expected[name] for name in sorted(expected)]
    loader = make(tmp_path, batch_size=5, transforms={"audio": [stoker.audio.Mono()]})
    assert loader.classes == ["class0", "class1", "class2"]
    seen = 0
    for batch in loader:
        for row, label, index in zip(batch.audio, batch.label, batch.index, strict=True):
            assert (row == in_order[index]).all()
            assert label == index // 4
            seen += 1
        del batch, row
    assert seen == 12
    # Without operations the files come unmodified.
    batch = next(iter(make(tmp_path, batch_size=12)))
    assert bytes(batch.audio[0]) == (tmp_path / "class0/00.wav").read_bytes()
    # One file is a data set of one.
    assert len(next(iter(make(tmp_path / "class0/00.wav", batch_size=1))).audio) == 1


def test_what_is_not_taken_is_in_info(make: Make, tmp_path: Path) -> None:
    """A cover does not make images of a folder of sound. A format that is not read is a bad record."""
    for i in range(4):
        soundfile.write(tmp_path / f"{i}.wav", sound(0.1, 8000, 1, i), 8000)
    (tmp_path / "cover.jpg").write_bytes(b"a picture")
    for name in ("README.md", "list.csv"):
        (tmp_path / name).write_text("about these sounds")
    loader = make(tmp_path, batch_size=2, transforms={"audio": [stoker.audio.Mono()]})
    assert loader.num_records == 4
    assert loader.info["skipped"] == [
        {
            "reason": f"images in a folder of sound, which folder:{tmp_path} reads",
            "count": 1,
            "examples": ["cover.jpg"],
        },
        {
            "reason": "text, tables and other files that are not media",
            "count": 2,
            "examples": ["README.md", "list.csv"],
        },
    ]
    loader.close()
    (tmp_path / "4.mid").write_bytes(b"MThd")
    options: dict[str, Any] = {
        "batch_size": 5,
        "transforms": {"audio": [stoker.audio.Mono(), stoker.audio.PadOrTrim(seconds=0.1)]},
    }
    with pytest.raises(stoker.RecordError, match=r"4\.mid: sound of a format that is not read: \.mid"):
        list(make(tmp_path, **options))
    with pytest.warns(stoker.SkippedRecords, match=r"4\.mid"):
        assert sum(len(batch.audio) for batch in make(tmp_path, on_error="skip", **options)) == 5


def run(make: Make, folder: Path, ops: list[st.Transform], **options: Any) -> Any:
    return next(iter(make(folder, batch_size=len(list(folder.iterdir())), transforms={"audio": ops}, **options))).audio


@pytest.fixture(scope="module")
def stereo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor, int]:
    folder = tmp_path_factory.mktemp("stereo")
    rate = 22050
    data = sound(2.0, rate, 2, 5).astype(np.float32)
    soundfile.write(folder / "a.wav", data, rate, subtype="FLOAT")
    return folder, torch.from_numpy(data.T.copy()), rate


@pytest.mark.parametrize("to", [8000, 11025, 16000, 22050, 44100, 48000])
def test_resample(make: Make, stereo: tuple[Path, torch.Tensor, int], to: int) -> None:
    same_as_torchaudio(make, *stereo, to, 1e-5)


def test_resample_by_the_smallest_step(make: Make, tmp_path: Path) -> None:
    """Each sample has coefficients of its own; torchaudio has a table of all of them, so the rates are low."""
    rate = 2205
    data = sound(2.0, rate, 2, 5).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", data, rate, subtype="FLOAT")
    same_as_torchaudio(make, tmp_path, torch.from_numpy(data.T.copy()), rate, rate + 1, 1e-3)


def same_as_torchaudio(make: Make, folder: Path, wave: torch.Tensor, rate: int, to: int, near: float) -> None:
    exact = torchaudio.transforms.Resample(rate, to, dtype=torch.float64)(wave.double()).numpy()
    expected = torchaudio.transforms.Resample(rate, to)(wave).numpy()
    got = run(make, folder, [stoker.audio.Resample(to)])[0]
    assert got.shape == expected.T.shape
    assert np.abs(got.T - exact).max() < 1e-6
    # Its coefficients of 32 bits are further off, the more of them there are.
    assert np.abs(got.T - expected).max() < near


def test_resample_with_other_filters(make: Make, stereo: tuple[Path, torch.Tensor, int]) -> None:
    folder, wave, rate = stereo
    for options in [
        {"lowpass_filter_width": 16, "rolloff": 0.85},
        {"resampling_method": "sinc_interp_kaiser"},
        {"lowpass_filter_width": 64, "rolloff": 0.9475937167399596, "resampling_method": "sinc_interp_kaiser"},
    ]:
        expected = torchaudio.transforms.Resample(rate, 16000, **options)(wave).numpy()
        got = run(make, folder, [stoker.audio.Resample(16000, **options)])[0]
        assert np.abs(got.T - expected).max() < 1e-5


def close(got: np.ndarray, expected: np.ndarray) -> None:
    """Require equality within 1e-4 of the value or a millionth of the largest value, the rounding error of float
    sums."""
    assert got.shape == expected.shape
    assert np.all(np.abs(got - expected) <= 1e-4 * np.abs(expected) + 1e-6 * np.abs(expected).max())


SPECTROGRAMS: list[dict[str, Any]] = [
    {},
    {"n_fft": 512, "win_length": 400, "hop_length": 160},
    {"n_fft": 1024, "power": 1.0},
    {"n_fft": 441, "hop_length": 100, "pad": 7},
    {"n_fft": 234, "normalized": True},
    {"n_fft": 400, "normalized": "frame_length", "center": False},
    {"n_fft": 256, "pad_mode": "constant"},
    {"n_fft": 250, "pad_mode": "replicate", "win_length": 131},
]


@pytest.mark.parametrize("options", SPECTROGRAMS)
def test_spectrogram(make: Make, stereo: tuple[Path, torch.Tensor, int], options: dict[str, Any]) -> None:
    folder, wave, _ = stereo
    piece = wave[:, :9000]
    expected = torchaudio.transforms.Spectrogram(**options)(piece).numpy()
    got = run(make, folder, [stoker.audio.PadOrTrim(9000), stoker.audio.Spectrogram(**options)])[0]
    close(got, expected)


MELS: list[dict[str, Any]] = [
    {},
    {"n_fft": 512, "win_length": 400, "hop_length": 160, "n_mels": 80},
    {"n_fft": 400, "hop_length": 160, "n_mels": 64, "norm": "slaney", "mel_scale": "slaney"},
    {"n_fft": 1024, "n_mels": 40, "f_min": 50.0, "f_max": 7600.0, "power": 1.0},
]


@pytest.mark.filterwarnings("ignore:At least one mel filterbank")
@pytest.mark.parametrize("options", MELS)
def test_mel_spectrogram(make: Make, stereo: tuple[Path, torch.Tensor, int], options: dict[str, Any]) -> None:
    folder, wave, rate = stereo
    resampled = torchaudio.transforms.Resample(rate, 16000)(wave)[:, :20000]
    mel = torchaudio.transforms.MelSpectrogram(16000, **options)(resampled)
    ops = [stoker.audio.Resample(16000), stoker.audio.PadOrTrim(20000), stoker.audio.MelSpectrogram(16000, **options)]
    ours = run(make, folder, ops)[0].copy()
    close(ours, mel.numpy())
    mel = torch.from_numpy(ours)  # logarithms make more of what sums of floats differ in
    for options in ({}, {"top_db": 40.0}, {"stype": "magnitude", "top_db": 80.0}):
        expected = torchaudio.transforms.AmplitudeToDB(**options)(mel).numpy()
        assert np.abs(run(make, folder, [*ops, stoker.audio.AmplitudeToDB(**options)])[0] - expected).max() < 1e-4
    assert np.abs(run(make, folder, [*ops, stoker.audio.Log(1e-5)])[0] - torch.log(mel + 1e-5).numpy()).max() < 1e-5


def test_spectrogram_of_any_length(make: Make, tmp_path: Path) -> None:
    waves = []
    for i in range(7):
        data = sound(0.2 + 0.1 * i, 16000, 2, i).astype(np.float32)
        soundfile.write(tmp_path / f"{i}.wav", data, 16000, subtype="FLOAT")
        waves.append(torch.from_numpy(data.T.copy()))
    mel = torchaudio.transforms.MelSpectrogram(16000, n_mels=20)
    rows = run(make, tmp_path, [stoker.audio.MelSpectrogram(n_mels=20)])
    assert rows.row_shape == (2, 20)
    for row, wave in zip(rows, waves, strict=True):
        close(np.moveaxis(row, 0, 2), mel(wave).numpy())
    del row
    mono = run(make, tmp_path, [stoker.audio.Mono(), stoker.audio.MelSpectrogram(n_mels=20)])
    assert mono.row_shape == (20,)
    close(mono[3].T, mel(waves[3].mean(0)).numpy())
    padded = run(make, tmp_path, [stoker.audio.Mono(), stoker.audio.Pad(1000)])
    assert all(n % 1000 == 0 for n in padded.lengths)


def test_gains(make: Make, stereo: tuple[Path, torch.Tensor, int]) -> None:
    folder, wave, _ = stereo
    for gain, kind in [(0.5, "amplitude"), (3.0, "amplitude"), (2.0, "power"), (-4.5, "db")]:
        expected = torchaudio.transforms.Vol(gain, kind)(wave).numpy()
        assert np.abs(run(make, folder, [stoker.audio.Vol(gain, kind)])[0].T - expected).max() < 1e-6
    peak = run(make, folder, [stoker.audio.Normalize()])[0]
    assert np.abs(peak).max() == pytest.approx(1)
    std = run(make, folder, [stoker.audio.Normalize("std")])[0]
    assert std.mean() == pytest.approx(0, abs=1e-6)
    assert std.std() == pytest.approx(1, abs=1e-4)
    half = run(make, folder, [stoker.audio.PadOrTrim(100), st.Normalize([0.1], [0.5]), st.ToDtype("float16")])
    assert half.dtype == np.float16
    assert np.abs(half[0] - (wave[:, :100].numpy() - 0.1) / 0.5).max() < 2e-3


def test_crops(make: Make, tmp_path: Path) -> None:
    rate, names = 16000, []
    for i in range(40):
        n = 4000 + 100 * i
        # A sample's value is its position.
        data = (np.arange(n)[:, None] + np.array([0.0, 0.5])) / 16384
        name = tmp_path / f"{i:02}.{'wav' if i % 2 else 'flac'}"
        soundfile.write(name, data.astype(np.float32), rate, subtype="PCM_24" if i % 2 == 0 else "FLOAT")
        names.append(name)
    crop = [stoker.audio.RandomCrop(seconds=0.25)]

    def starts(epoch: int, **options: Any) -> list[float]:
        loader = make(tmp_path, batch_size=8, seed=3, transforms={"audio": crop}, **options)
        loader.load_state_dict({**loader.state_dict(), "epoch": epoch}) if epoch else None
        found = {}
        for batch in loader:
            assert batch.audio.shape[1:] == (2, 4000)
            position = np.round(batch.audio[:, 0].astype(np.float64) * 16384)
            assert (np.diff(position, axis=1) == 1).all()
            found.update(zip(batch.index.tolist(), position[:, 0].tolist(), strict=True))
            del batch
        return [found[i] for i in range(40)]

    first = starts(0)
    assert first == starts(0, threads=1) == starts(0, shuffle=True)
    assert all(0 <= s <= 100 * i for i, s in enumerate(first))
    assert len(set(first)) > 30
    # A crop after a change of rate is a part of the whole.
    whole = run(make, tmp_path, [stoker.audio.Resample(11025), stoker.audio.Mono()])
    for where in (stoker.audio.CenterCrop(1000), stoker.audio.PadOrTrim(3000), stoker.audio.CenterCrop(6000)):
        pieces = run(make, tmp_path, [stoker.audio.Resample(11025), stoker.audio.Mono(), where])
        for row, piece in zip(whole, pieces[:, 0], strict=True):
            n = len(piece)
            if isinstance(where, stoker.audio.PadOrTrim):
                expected = np.concatenate([row, np.zeros(n, np.float32)])[:n]
            else:
                at = (len(row) - n) // 2 if len(row) >= n else -((n - len(row)) // 2)
                expected = np.concatenate([np.zeros(n, np.float32), row, np.zeros(n, np.float32)])[n + at : 2 * n + at]
            assert np.abs(piece - expected).max() < 1e-6
            del row, piece
    with pytest.raises(stoker.RecordError, match="pad_if_needed"):
        run(make, tmp_path, [stoker.audio.RandomCrop(5000)])


def test_masks(make: Make, stereo: tuple[Path, torch.Tensor, int]) -> None:
    folder, wave, _ = stereo
    spectrum = torchaudio.transforms.Spectrogram()(wave).numpy()
    base = [stoker.audio.PadOrTrim(wave.shape[1]), stoker.audio.Spectrogram()]
    times, bands = [], []
    for seed in range(60):
        masked = run(make, folder, [*base, stoker.audio.TimeMasking(30), stoker.audio.FrequencyMasking(20)], seed=seed)[
            0
        ]
        gone = masked == 0
        t, f = gone.all(axis=(0, 1)), gone.all(axis=(0, 2))
        times.append(int(t.sum()))
        bands.append(int(f.sum()))
        for line in (t, f):
            at = np.flatnonzero(line)
            assert len(at) == 0 or at[-1] - at[0] == len(at) - 1
        close(masked[:, ~f][:, :, ~t], spectrum[:, ~f][:, :, ~t])
        del masked
    assert max(times) <= 30
    assert max(bands) <= 20
    assert 10 < np.mean(times) < 19  # of a uniform draw below 30, rounded down
    assert 6 < np.mean(bands) < 13
    augmented = run(make, folder, [*base, stoker.audio.SpecAugment(2, 20, 2, 15, iid_masks=False)])[0]
    mean = spectrum.mean()
    changed = np.abs(augmented - mean) < 1e-4 * mean
    assert 0 < changed.mean() < 0.6


def test_says_what_is_missing(make: Make, tmp_path: Path) -> None:
    for i, (rate, channels) in enumerate([(8000, 1), (16000, 2), (8000, 1)]):
        soundfile.write(tmp_path / f"{i}.wav", sound(0.2, rate, channels), rate)

    def fails(match: str, *ops: st.Transform) -> None:
        with pytest.raises(stoker.StokerError, match=match):
            run(make, tmp_path, list(ops))

    fails(r"number of channels is not the same.*Mono", stoker.audio.Decode())
    fails(r"rate is not the same.*Resample", stoker.audio.Mono(), stoker.audio.MelSpectrogram())
    fails(r"rate is not the same.*Resample", stoker.audio.Mono(), stoker.audio.RandomCrop(seconds=1))
    fails(r"sample_rate is 16000, but the sound has 8000 Hz", stoker.audio.Mono(), stoker.audio.Resample(8000),
          stoker.audio.MelSpectrogram(16000))  # fmt: skip
    fails("RandomCrop is for images.*audio.RandomCrop", st.RandomCrop(100))
    fails("TimeMasking works on a spectrogram", stoker.audio.Mono(), stoker.audio.TimeMasking(3))
    fails("samples, or seconds|samples or seconds", stoker.audio.RandomCrop())
    fails("prime factor", stoker.audio.Mono(), stoker.audio.Spectrogram(134))
    rows = run(make, tmp_path, [stoker.audio.Mono()])
    assert [len(r) for r in rows] == [1600, 3200, 1600]
    (tmp_path / "3.wav").write_bytes((tmp_path / "0.wav").read_bytes()[:-50])
    with pytest.raises(stoker.RecordError, match=r"3\.wav.*cut off"):
        run(make, tmp_path, [stoker.audio.Mono()])


def test_long_recordings(make: Make, tmp_path: Path) -> None:
    """Recordings too long for a worker are decoded with more memory, or the error names the memory needed."""
    data = sound(60, 48000, 2)
    for i in range(3):
        soundfile.write(tmp_path / f"{i}.flac", data, 48000)
    expected, _ = soundfile.read(tmp_path / "0.flac", dtype="float32")
    loader = make(
        tmp_path,
        batch_size=1,
        limits=stoker.Limits(memory="400MB"),
        transforms={"audio": [stoker.audio.Normalize("std")]},
    )
    for batch in loader:
        want = (expected - expected.mean()) / math.sqrt(expected.var() + 1e-7)
        assert np.abs(batch.audio[0] - want).max() < 1e-4
        del batch
    # A crop at any position needs little memory.
    loader = make(
        tmp_path,
        batch_size=3,
        limits=stoker.Limits(memory="128MB"),
        transforms={"audio": [stoker.audio.CenterCrop(seconds=1)]},
    )
    at = (len(expected) - 48000) // 2
    assert (next(iter(loader)).audio[1] == expected[at : at + 48000].T).all()


@pytest.mark.parametrize("form", ["f32", "i16"])
def test_work_done_once(make: Make, binary: str, tmp_path: Path, form: str) -> None:
    """A pack has the same samples as a loader and torchaudio. Other programs open them as WAV files."""
    folder = tmp_path / "sounds"
    folder.mkdir()
    files = []
    for i, (rate, channels) in enumerate([(44100, 2), (8000, 1), (16000, 2), (22050, 1), (48000, 2)]):
        files.append(folder / f"{i}.flac")
        soundfile.write(files[-1], 0.9 * sound(0.4 + 0.2 * i, rate, channels, i), rate, subtype="PCM_16")
    ops = [stoker.audio.Mono(), stoker.audio.Resample(16000), stoker.audio.PadOrTrim(12000)]
    live = next(iter(make(folder, 5, transforms={"audio": ops}))).audio.copy()
    out = tmp_path / "p"
    stoker.pack(folder, out, transforms={"audio": ops}, audio=form)
    flags = ["--audio-rate", "16000", "--mono", "--audio-samples", "12000", "--audio", form]
    cli(binary, "pack", folder, tmp_path / "q", *flags)
    packed = next(iter(make(out, 5, transforms={"audio": [stoker.audio.PadOrTrim(12000)]}))).audio
    level = 0.0 if form == "f32" else 0.5 / 32768 + 1e-7
    assert packed.shape == live.shape == (5, 1, 12000)
    assert np.abs(packed - live).max() <= level
    again = next(iter(make(tmp_path / "q", 5, transforms={"audio": [stoker.audio.PadOrTrim(12000)]}))).audio
    assert np.array_equal(packed, again)
    for name in (out, tmp_path / "q"):
        with pa.OSFile(str(next(name.glob("*.arrow")))) as source:
            column = pa.ipc.open_file(source).read_all()["audio"]
        for i, row in enumerate(column):
            samples, rate = soundfile.read(io.BytesIO(row["bytes"].as_py()), dtype="float32")
            assert rate == 16000 and np.array_equal(samples, packed[i, 0])
            info = soundfile.info(io.BytesIO(row["bytes"].as_py()))
            assert info.subtype == {"f32": "FLOAT", "i16": "PCM_16"}[form]
    for i, file in enumerate(files):
        wave, rate = soundfile.read(file, dtype="float32", always_2d=True)
        want = torchaudio.transforms.Resample(rate, 16000)(torch.from_numpy(wave.T.copy())).mean(0)[:12000].numpy()
        assert np.abs(packed[i, 0, : len(want)] - want).max() <= 1e-4
        assert (packed[i, 0, len(want) :] == 0).all()
    # Later operations work on it as on any recording.
    mel = [stoker.audio.MelSpectrogram(16000, n_mels=20)]
    near = next(iter(make(out, 5, transforms={"audio": [stoker.audio.PadOrTrim(12000), *mel]}))).audio
    exact = next(iter(make(folder, 5, transforms={"audio": [*ops, *mel]}))).audio
    assert (np.abs(near - exact) <= (0 if form == "f32" else 1e-3 * (1 + exact))).all()


def test_work_done_once_of_any_length(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "sounds"
    folder.mkdir()
    for i, (rate, channels) in enumerate([(44100, 2), (32000, 2), (16000, 2)]):
        soundfile.write(folder / f"{i}.wav", sound(0.3 + 0.2 * i, rate, channels, i), rate)
    live = next(iter(make(folder, 3, transforms={"audio": [stoker.audio.Resample(16000)]}))).audio
    stoker.pack(folder, tmp_path / "p", transforms={"audio": [stoker.audio.Resample(16000)]})
    packed = next(iter(make(tmp_path / "p", 3, transforms={"audio": [stoker.audio.Decode()]}))).audio
    assert all(np.array_equal(packed[i], live[i]) and packed[i].shape[1] == 2 for i in range(3))
    # Variants of random crops, and spectrograms as arrays.
    crop = [stoker.audio.Resample(16000), stoker.audio.RandomCrop(3000)]
    stoker.pack(folder, tmp_path / "v", transforms={"audio": crop}, augment=2, seed=1)
    loader = make(tmp_path / "v", 3, transforms={"audio": [stoker.audio.PadOrTrim(3000)]})
    first, second = (next(iter(loader)).audio.copy() for _ in range(2))
    assert first.shape == second.shape == (3, 2, 3000) and (first != second).any(axis=(1, 2)).all()
    mel = [
        stoker.audio.Resample(16000),
        stoker.audio.Mono(),
        stoker.audio.PadOrTrim(8000),
        stoker.audio.MelSpectrogram(16000, n_mels=16),
    ]
    stoker.pack(folder, tmp_path / "m", transforms={"audio": mel})
    assert np.array_equal(
        next(iter(make(tmp_path / "m", 3))).audio, next(iter(make(folder, 3, transforms={"audio": mel}))).audio
    )
    with pytest.raises(stoker.StokerError, match="rates"):
        stoker.pack(folder, tmp_path / "bad", transforms={"audio": [stoker.audio.Mono()]})
    with pytest.raises(stoker.ConfigError, match="audio="):
        stoker.pack(folder, tmp_path / "bad", transforms={"audio": [stoker.audio.Resample(16000)]}, audio="mp3")


SUBTYPES = [
    (form, subtype, endian)
    for form in ("AIFF", "AU", "CAF", "W64", "WAV", "WAVEX", "RF64")
    for subtype in ("PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")
    for endian in ("FILE", "LITTLE", "BIG")
    if soundfile.check_format(form, subtype, endian)
]


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_containers(make: Make, tmp_path: Path, channels: int) -> None:
    """Every container, type of sample and byte order that soundfile writes is read as soundfile reads it."""
    (tmp_path / "x").mkdir()
    want = []
    for i, (form, subtype, endian) in enumerate(SUBTYPES):
        end = {"WAVEX": "wav", "RF64": "wav"}.get(form, form.lower())
        path = tmp_path / "x" / f"{i:03}.{end}"
        soundfile.write(path, sound(0.1, 8000, channels, i), 8000, format=form, subtype=subtype, endian=endian)
        want.append(soundfile.read(path, dtype="float32", always_2d=True)[0].T)
    batch = next(iter(make(tmp_path / "x", batch_size=len(want), transforms={"audio": [stoker.audio.PadOrTrim(800)]})))
    for got, expected, form in zip(batch.audio, want, SUBTYPES, strict=True):
        np.testing.assert_array_equal(got, expected, str(form))


def test_flac_after_a_tag(make: Make, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", sound(0.1, 8000, 1), 8000)
    data = (tmp_path / "a.flac").read_bytes()
    (tmp_path / "a.flac").write_bytes(b"ID3\x04\0\0\0\0\0\x0a" + b"\0" * 10 + data)
    want = soundfile.read(tmp_path / "a.flac", dtype="float32")[0]
    np.testing.assert_array_equal(
        next(iter(make(tmp_path, batch_size=1, transforms={"audio": [stoker.audio.Decode()]}))).audio[0][:, 0], want
    )


def written_by_ffmpeg(path: Path, codec: str, rate: int, channels: int, form: str | None = None) -> None:
    av = pytest.importorskip("av")
    try:
        with av.open(str(path), "w", format=form) as out:
            stream = out.add_stream(codec, rate=rate, layout="mono" if channels == 1 else "stereo")
            data = (sound(1, rate, channels) * 32767).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(data.reshape(1, -1), "s16", "mono" if channels == 1 else "stereo")
            frame.sample_rate, frame.pts = rate, 0
            resampled = av.AudioResampler(stream.format.name, stream.layout.name, rate, stream.frame_size or None)
            for part in [*resampled.resample(frame), *resampled.resample(None)]:
                out.mux(stream.encode(part))
            out.mux(stream.encode(None))
    except (ValueError, av.FFmpegError) as err:
        pytest.skip(f"PyAV does not write {codec}: {err}")


@pytest.mark.parametrize(
    ("name", "codec", "form"),
    [
        ("a.m4a", "aac", None),
        ("a.m4a", "alac", None),
        ("a.aac", "aac", "adts"),
        ("a.mp2", "mp2", None),
        ("named.mp3", "mp2", "mp2"),
        ("a.wav", "adpcm_ima_wav", None),
        ("a.wav", "adpcm_ms", None),
        ("a.oga", "flac", "ogg"),
        ("a.mka", "flac", "matroska"),
        ("a.wv", "wavpack", None),
        ("a.tta", "tta", None),
        ("a.aiff", "adpcm_ima_qt", None),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_by_ffmpeg(make: Make, tmp_path: Path, name: str, codec: str, form: str | None, channels: int) -> None:
    """Sound that the engine does not read on its own is read through FFmpeg's libraries, as PyAV reads it."""
    av = pytest.importorskip("av")
    written_by_ffmpeg(tmp_path / name, codec, 16000, channels, form)
    with av.open(str(tmp_path / name)) as file:
        to_float = av.AudioResampler("fltp", None, None)
        parts = [to_float.resample(frame)[0].to_ndarray() for frame in file.decode(audio=0)]
    want = np.concatenate(parts, 1)
    with make(tmp_path, batch_size=1, transforms={"audio": [stoker.audio.Decode()]}) as loader:
        np.testing.assert_allclose(next(iter(loader)).audio[0], want.T, atol=1e-7)
    middle = want.shape[1] // 2 - 500
    with make(tmp_path, batch_size=1, transforms={"audio": [stoker.audio.CenterCrop(1000)]}) as loader:
        np.testing.assert_allclose(next(iter(loader)).audio[0], want[:, middle : middle + 1000], atol=1e-7)


def test_the_first_reason(make: Make, tmp_path: Path, binary: str) -> None:
    """The error for a folder of unreadable sound gives the reason, with any operations."""
    for i in range(3):
        soundfile.write(tmp_path / f"{i}.wav", sound(0.1, 8000, 1), 8000)
        data = (tmp_path / f"{i}.wav").read_bytes()
        (tmp_path / f"{i}.wav").write_bytes(data[:-100])
    for ops in ([stoker.audio.Decode()], [stoker.audio.Mono()]):
        with pytest.raises(stoker.StokerError, match=r"can be read: .*0\.wav: wav: .*: the file is cut off"):
            make(tmp_path, batch_size=1, transforms={"audio": ops})
    shown = cli(binary, "inspect", tmp_path)
    assert "can be read" in shown
    assert "0.wav: wav: 1600 bytes of samples" in shown
