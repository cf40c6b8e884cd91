"""Ogg Vorbis: clips of music."""

from .sounds import sound_format

FORMAT = sound_format("audio ogg", 200, 8, 44100, 2, batch=16, format="OGG", subtype="VORBIS")
