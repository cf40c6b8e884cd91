"""Benchmarks of Stoker against the loaders that people would pick instead (see docs/internals/benchmarks.md)."""

import os

# Folders are measured as they are; what measures their cache asks for it.
os.environ.setdefault("STOKER_CACHE", "off")
