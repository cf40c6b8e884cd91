"""Regions of a page that other commands write: they are preserved when the page is rewritten."""

from __future__ import annotations

import re

_REGION = re.compile(r"<!-- (\w+):begin [^\n]*-->\n(.*?)<!-- \1:end -->\n", re.DOTALL)


def put(page: str, name: str, text: str) -> str:
    """Return the page with the text in the region of that name, which is at the end of a page that has none."""
    region = f"<!-- {name}:begin (made by a command; do not edit) -->\n{text.strip()}\n<!-- {name}:end -->\n"
    for found in _REGION.finditer(page):
        if found[1] == name:
            return page[: found.start()] + region + page[found.end() :]
    return page.rstrip("\n") + "\n\n" + region


def keep(old: str, new: str) -> str:
    """Return a new page with the regions of the old one."""
    for found in _REGION.finditer(old):
        new = put(new, found[1], found[2])
    return new
