"""Benchmarks of remote data; see __main__.py."""
