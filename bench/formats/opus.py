"""Opus: clips of speech."""

from .sounds import sound_format

FORMAT = sound_format("audio opus", 200, 8, 48000, 1, batch=16, format="OGG", subtype="OPUS")
