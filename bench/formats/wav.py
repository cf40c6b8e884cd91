"""WAV: short recordings of 16 bits, as sets of words and commands have them."""

from .sounds import sound_format

FORMAT = sound_format("audio wav", 3000, 1, 16000, 1, batch=256, bar=5.0, subtype="PCM_16")
