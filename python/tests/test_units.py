"""Sizes are read as the engine reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stoker
from stoker import _options, _units

TABLES = json.loads((Path(__file__).parents[2] / "internal/units/testdata/tables.json").read_text())


@pytest.mark.parametrize(("text", "size"), TABLES["sizes"].items())
def test_sizes(text: str, size: int) -> None:
    assert _units.parse_bytes(text) == size
    assert _options.size("memory", text) == size


@pytest.mark.parametrize("text", TABLES["refused"])
def test_refused_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|units are|plausible size"):
        _units.parse_bytes(text)
    with pytest.raises(stoker.ConfigError, match="memory must be"):
        _options.size("memory", text)


def test_sizes_as_numbers() -> None:
    assert _options.size("memory", None) == 0
    assert _options.size("memory", 5) == 5
    for wrong in (0, -1, 1.5, True, b"1GB"):
        with pytest.raises(stoker.ConfigError, match="memory must be"):
            _options.size("memory", wrong)
