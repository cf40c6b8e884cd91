"""Benchmarks of Stoker against the loaders that people would pick instead (see docs/benchmarks.md)."""
