"""MP3: clips of music."""

from .sounds import sound_format

FORMAT = sound_format("audio mp3", 200, 8, 44100, 2, batch=16, format="MP3", subtype="MPEG_LAYER_III")
