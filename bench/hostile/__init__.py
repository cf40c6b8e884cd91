"""Loaders in hostile places, and what faults do to them. `python -m bench.hostile` writes docs/internals/faults.md."""
