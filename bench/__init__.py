"""Benchmarks of Stoker against the loaders that people would pick instead (see docs/internals/benchmarks.md)."""

import os

# Folders are measured without a cache. Benchmarks of the cache enable it.
os.environ.setdefault("STOKER_CACHE", "off")
