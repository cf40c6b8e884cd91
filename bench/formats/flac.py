"""FLAC: speech in pieces of some seconds, as LibriSpeech has it."""

from .sounds import sound_format

FORMAT = sound_format("audio flac", 400, 12, 16000, 1, batch=32, subtype="PCM_16")
