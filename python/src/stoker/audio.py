"""Transforms of audio, with the names, arguments and results of torchaudio where it has them.

A list of them makes the engine decode: ``fields={"audio": [stoker.audio.Resample(16000), stoker.audio.Mono(),
stoker.audio.RandomCrop(seconds=1)]}``. Rows of one length are ``[channels, samples]`` or ``[channels, bands, frames]``
as in torchaudio; those of different lengths come as ``Ragged`` with time first: ``[samples, channels]`` or
``[frames, channels, bands]``, after ``Mono`` without the axis of channels. The engine checks all arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ._transform import Transform

__all__ = [
    "AmplitudeToDB",
    "CenterCrop",
    "Decode",
    "FrequencyMasking",
    "Log",
    "MelSpectrogram",
    "Mono",
    "Normalize",
    "Pad",
    "PadOrTrim",
    "RandomCrop",
    "RandomGain",
    "Resample",
    "SpecAugment",
    "Spectrogram",
    "TimeMasking",
    "Vol",
]


@dataclass(frozen=True, repr=False)
class Decode(Transform):
    """Decode and do no more: samples from -1 to 1 as ``float32``. Other transforms of audio imply it."""

    OP: ClassVar[str] = "DecodeAudio"


@dataclass(frozen=True, repr=False)
class Resample(Transform):
    """Change the sampling rate, from that of each recording, as ``torchaudio.transforms.Resample`` does.

    Args:
        rate: samples per second.
        lowpass_filter_width: sharpness of the filter.
        rolloff: its cut-off, as a part of the Nyquist frequency.
        resampling_method: ``"sinc_interp_hann"`` or ``"sinc_interp_kaiser"``.
        beta: of the Kaiser window.
    """

    rate: int
    lowpass_filter_width: int = 6
    rolloff: float = 0.99
    resampling_method: str = "sinc_interp_hann"
    beta: float | None = None


@dataclass(frozen=True, repr=False)
class Mono(Transform):
    """The mean of all channels. Cheapest in front of ``Resample``."""


@dataclass(frozen=True, repr=False)
class RandomCrop(Transform):
    """Cut a piece out at a random place; only what it needs is decoded, where the format allows that.

    Args:
        samples: length of the piece at the rate that the sound has here.
        seconds: the same in seconds.
        pad_if_needed: fill up shorter recordings with zeros at their end; they are errors otherwise.
    """

    OP: ClassVar[str] = "RandomAudioCrop"

    samples: int | None = None
    seconds: float | None = None
    pad_if_needed: bool = False


@dataclass(frozen=True, repr=False)
class CenterCrop(Transform):
    """Cut the middle out. Shorter recordings get zeros at both ends.

    Args:
        samples: length of the piece.
        seconds: the same in seconds.
    """

    OP: ClassVar[str] = "CenterAudioCrop"

    samples: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, repr=False)
class PadOrTrim(Transform):
    """Keep the beginning. Shorter recordings get zeros at their end.

    Args:
        samples: length of the piece.
        seconds: the same in seconds.
    """

    samples: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, repr=False)
class Pad(Transform):
    """Append zeros up to a multiple of a number of samples.

    Args:
        multiple: number of samples.
    """

    OP: ClassVar[str] = "PadAudio"

    multiple: int


@dataclass(frozen=True, repr=False)
class Vol(Transform):
    """Multiply by a gain, then cut off at -1 and 1, as ``torchaudio.transforms.Vol`` does.

    Args:
        gain: the factor, or decibels.
        gain_type: ``"amplitude"``, ``"power"`` or ``"db"``.
    """

    gain: float
    gain_type: str = "amplitude"


@dataclass(frozen=True, repr=False)
class RandomGain(Transform):
    """Multiply by a random gain, drawn in decibels.

    Args:
        min_db: the least.
        max_db: the most.
        p: how often.
    """

    min_db: float = -6.0
    max_db: float = 6.0
    p: float = 1.0


@dataclass(frozen=True, repr=False)
class Normalize(Transform):
    """Make recordings equally loud.

    Args:
        mode: ``"peak"`` divides by the largest absolute value, ``"std"`` gives mean 0 and standard deviation 1.
    """

    OP: ClassVar[str] = "NormalizeAudio"

    mode: str = "peak"


@dataclass(frozen=True, repr=False)
class Spectrogram(Transform):
    """Power or magnitude by frequency and time, as ``torchaudio.transforms.Spectrogram``.

    Args:
        n_fft: samples of a transform; its prime factors are at most 61.
        win_length: samples of a window, by default ``n_fft``.
        hop_length: samples between windows, by default half a window.
        pad: zeros at both ends.
        window: ``"hann"`` or ``"hamming"``.
        power: 2 for powers, 1 for magnitudes.
        normalized: ``True`` or ``"window"`` divides by the window's norm, ``"frame_length"`` by the root of ``n_fft``.
        center: the middle of the first window lies on the first sample.
        pad_mode: what lies beyond the ends: ``"reflect"``, ``"constant"`` or ``"replicate"``.
    """

    n_fft: int = 400
    win_length: int | None = None
    hop_length: int | None = None
    pad: int = 0
    window: str = "hann"
    power: float = 2.0
    normalized: bool | str = False
    center: bool = True
    pad_mode: str = "reflect"


@dataclass(frozen=True, repr=False)
class MelSpectrogram(Transform):
    """Power or magnitude by mel band and time, as ``torchaudio.transforms.MelSpectrogram``.

    Args:
        sample_rate: rate that the sound must have here; by default the one that it has.
        n_fft: samples of a transform; its prime factors are at most 61.
        win_length: samples of a window, by default ``n_fft``.
        hop_length: samples between windows, by default half a window.
        f_min: lowest frequency.
        f_max: highest frequency, by default half the rate.
        pad: zeros at both ends.
        n_mels: number of bands.
        window: ``"hann"`` or ``"hamming"``.
        power: 2 for powers, 1 for magnitudes.
        normalized: ``True`` or ``"window"`` divides by the window's norm, ``"frame_length"`` by the root of ``n_fft``.
        center: the middle of the first window lies on the first sample.
        pad_mode: what lies beyond the ends: ``"reflect"``, ``"constant"`` or ``"replicate"``.
        norm: ``"slaney"`` divides bands by their width.
        mel_scale: ``"htk"`` or ``"slaney"``.
    """

    sample_rate: int | None = None
    n_fft: int = 400
    win_length: int | None = None
    hop_length: int | None = None
    f_min: float = 0.0
    f_max: float | None = None
    pad: int = 0
    n_mels: int = 128
    window: str = "hann"
    power: float = 2.0
    normalized: bool | str = False
    center: bool = True
    pad_mode: str = "reflect"
    norm: str | None = None
    mel_scale: str = "htk"


@dataclass(frozen=True, repr=False)
class AmplitudeToDB(Transform):
    """Decibels, as ``torchaudio.transforms.AmplitudeToDB``.

    Args:
        stype: ``"power"`` or ``"magnitude"``: what the values are.
        top_db: the most that a value may lie below the largest one of the record.
    """

    stype: str = "power"
    top_db: float | None = None


@dataclass(frozen=True, repr=False)
class Log(Transform):
    """Natural logarithm of the values and an offset.

    Args:
        offset: what is added first.
    """

    offset: float = 1e-6


@dataclass(frozen=True, repr=False)
class FrequencyMasking(Transform):
    """Set random bands in a row to 0, as ``torchaudio.transforms.FrequencyMasking``.

    Args:
        freq_mask_param: the number of bands is drawn below this.
        iid_masks: each channel has its own.
    """

    freq_mask_param: int
    iid_masks: bool = False


@dataclass(frozen=True, repr=False)
class TimeMasking(Transform):
    """Set random frames in a row to 0, as ``torchaudio.transforms.TimeMasking``.

    Args:
        time_mask_param: the number of frames is drawn below this.
        iid_masks: each channel has its own.
        p: the largest part of the frames that is masked.
    """

    time_mask_param: int
    iid_masks: bool = False
    p: float = 1.0


@dataclass(frozen=True, repr=False)
class SpecAugment(Transform):
    """Several masks over time and bands, as ``torchaudio.transforms.SpecAugment``.

    Args:
        n_time_masks: number of masks over frames.
        time_mask_param: the length of each is drawn below this.
        n_freq_masks: number of masks over bands.
        freq_mask_param: the number of bands of each is drawn below this.
        iid_masks: each channel has its own.
        p: the largest part of the frames, or bands, that a mask covers.
        zero_masking: masks are 0, and not the mean of the spectrogram.
    """

    n_time_masks: int
    time_mask_param: int
    n_freq_masks: int
    freq_mask_param: int
    iid_masks: bool = True
    p: float = 1.0
    zero_masking: bool = False
