"""Tests of the benchmarks, with the fixtures of the Python package's tests. `make test-python` runs both."""

import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
sys.path.append(str(CHECKOUT / "python/tests"))
