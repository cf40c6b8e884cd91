"""Sizes as people write them.

The engine's package ``internal/units`` does the same, and writes them as well; tables that the tests of
both sides read hold the two equal (``internal/units/testdata``).
"""

from __future__ import annotations

import re

_BYTES = {"B": 1, "kB": 1000}
for _i, _letter in enumerate("KMGTP", 1):
    _BYTES[_letter + "B"] = 1000**_i
    _BYTES[_letter + "iB"] = 1024**_i

# 64, 1.5, 4e9, 1,457.5: a comma separates thousands.
_SIZE = re.compile(
    r"\s*(\+?(?:[0-9]+(?:,[0-9]{3})*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*", re.ASCII
)


def parse_bytes(text: str) -> int:
    """Read ``"64MB"``, ``"1.5 GiB"`` or ``"110000"``; a ValueError gives the correct form.

    A bare number below 1024 is refused: it is more likely that its unit was left out.
    """
    match = _SIZE.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError('write a number and a unit, such as "2GB" or "512MiB"')
    number, unit = match[1].replace(",", ""), match[2]
    value = float(number)
    if not unit and value < 1024:
        raise ValueError(f'the unit seems to be missing: write "{number}MB", or "{number}B" if so')
    if unit and unit not in _BYTES:
        raise ValueError(_hint(number, unit))
    value *= _BYTES[unit or "B"]
    if not 1 <= value <= 1e18:
        raise ValueError("that is not a plausible size (1 B to 1,000 PB)")
    return int(value)


def _hint(number: str, unit: str) -> str:
    for name in _BYTES:
        if name.lower() == unit.lower() and name != "kB":
            return f'write "{number}{name}"'
    if unit.upper() in ("K", "M", "G", "T", "P"):
        return f'write "{number}{unit.upper()}B" (decimal) or "{number}{unit.upper()}iB" (binary)'
    return "units are B, KB, MB, GB, TB, PB (decimal) and KiB, MiB, GiB, TiB, PiB (binary)"
