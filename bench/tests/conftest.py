"""The fixtures of python/tests."""

from conftest import _frozen, _interrupts, _no_engine_of_records, binary, make, own_cache, photos

__all__ = ["_frozen", "_interrupts", "_no_engine_of_records", "binary", "make", "own_cache", "photos"]
