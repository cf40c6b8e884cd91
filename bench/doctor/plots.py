"""The two plots of the matrix as SVG: who was taken for whom, and the predicted against the measured gain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from bench.svg import FONT, GRID, INK, OURS, SOFT

COLOURS = {
    "cpu": "#e8590c",
    "storage": "#1971c2",
    "network": "#2f9e44",
    "memory": "#9c36b5",
    "handoff": "#c2255c",
}


def _text(x: float, y: float, text: str, size: float, fill: str, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )


def _page(width: int, height: int, title: str, subtitle: str, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" font-family="{FONT}">\n'
        f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff" stroke="{GRID}"/>\n'
    )
    texts = [_text(24, 36, title, 19, INK, weight=650), _text(24, 58, subtitle, 12.5, SOFT)]
    return head + "\n".join([*texts, *body]) + "\n</svg>\n"


def confusion(
    path: Path,
    title: str,
    subtitle: str,
    rows: Sequence[str],
    columns: Sequence[str],
    counts: Mapping[tuple[str, str], int],
    right: Mapping[tuple[str, str], int],
) -> None:
    """Rows are what was lacking by measurement, columns what doctor said; a cell is the darker the larger its share of
    its row, and its figure is set in bold where the answer was right."""
    left, top, width, height = 150, 118, 84, 40
    body = [_text(left + width * len(columns) / 2, 84, "doctor said", 12.5, SOFT, "middle")]
    for j, column in enumerate(columns):
        body.append(_text(left + (j + 0.5) * width, top - 12, column, 12.5, INK, "middle"))
    for i, row in enumerate(rows):
        y = top + i * height
        total = sum(counts.get((row, c), 0) for c in columns)
        body.append(_text(left - 12, y + height / 2 + 4, row, 12.5, INK, "end", 600))
        for j, column in enumerate(columns):
            n, good = counts.get((row, column), 0), right.get((row, column), 0)
            share = n / total if total else 0.0
            colour = OURS if good == n else "#495057"
            x = left + j * width
            body.append(
                f'<rect x="{x + 1.5}" y="{y + 1.5}" width="{width - 3}" height="{height - 3}" rx="5" '
                f'fill="{colour if n else "#f8f9fa"}" fill-opacity="{0.12 + 0.88 * share if n else 1:.2f}"/>'
            )
            if n:
                ink = "#ffffff" if share > 0.5 else INK
                weight = 700 if good == n else 500
                body.append(_text(x + width / 2, y + height / 2 + 5, str(n), 14, ink, "middle", weight))
        good = sum(right.get((row, c), 0) for c in columns)
        body.append(_text(left + width * len(columns) + 12, y + height / 2 + 4, f"{good} of {total}", 12.5, SOFT))
    w, h = left + width * len(columns) + 90, top + height * len(rows) + 24
    path.write_text(_page(w, h, title, subtitle, body))


def gains(path: Path, title: str, subtitle: str, points: Sequence[tuple[str, float, float, bool]]) -> None:
    """(resource, measured, predicted, verdict right) on logarithmic axes; the band is 20% to either side."""
    left, top, side = 76, 84, 470
    limit = max([1.2, *(max(m, p) for _, m, p, _ in points)]) * 1.15
    low = min([0.95, *(min(m, p) for _, m, p, _ in points)]) * 0.97
    span = math.log(limit / low)

    def at(gain: float) -> float:
        return math.log(max(gain, low) / low) / span * side

    def clip(gain: float) -> float:
        return min(max(gain, low), limit)

    bottom = top + side
    band = [
        (low, clip(low * 1.2)),
        (limit / 1.2, limit),
        (limit, limit),
        (limit, limit * 0.8),
        (low / 0.8, low),
        (low, low),
    ]
    shape = " ".join(f"{left + at(x):.1f},{bottom - at(y):.1f}" for x, y in band)
    body = [f'<polygon points="{shape}" fill="#fff4e6"/>']
    for tick in (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32):
        if low <= tick <= limit:
            x, y = left + at(tick), bottom - at(tick)
            body.append(f'<path d="M{x:.1f} {top} V{bottom} M{left} {y:.1f} H{left + side}" stroke="{GRID}"/>')
            body.append(_text(x, bottom + 18, f"{tick:g} x", 11, SOFT, "middle"))
            body.append(_text(left - 8, y + 4, f"{tick:g} x", 11, SOFT, "end"))
    body.append(
        f'<line x1="{left}" y1="{bottom}" x2="{left + side}" y2="{top}" stroke="{SOFT}" stroke-dasharray="4 4"/>'
    )
    for resource, measured, predicted, right in points:
        fill = COLOURS.get(resource, SOFT)
        x, y = left + at(clip(measured)), bottom - at(clip(predicted))
        opacity = "0.8" if right else "0"
        body.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" fill-opacity="{opacity}" '
            f'stroke="{fill}" stroke-width="1.5"/>'
        )
    x = left + side + 24
    for i, (name, colour) in enumerate(COLOURS.items()):
        body.append(f'<circle cx="{x}" cy="{top + 12 + 22 * i}" r="5" fill="{colour}" fill-opacity="0.8"/>')
        body.append(_text(x + 12, top + 16 + 22 * i, name, 12.5, INK))
    y = top + 12 + 22 * len(COLOURS)
    body.append(f'<circle cx="{x}" cy="{y}" r="5" fill="none" stroke="{SOFT}" stroke-width="1.5"/>')
    body.append(_text(x + 12, y + 4, "wrong verdict", 12.5, INK))
    body.append(f'<rect x="{x - 6}" y="{y + 15}" width="12" height="12" fill="#fff4e6" stroke="{GRID}"/>')
    body.append(_text(x + 12, y + 25, "within 20%", 12.5, INK))
    body.append(
        _text(left + side / 2, bottom + 40, "measured: the loop with the resource removed", 12.5, SOFT, "middle")
    )
    name = _text(0, 0, "predicted by doctor", 12.5, SOFT, "middle")
    body.append(f'<g transform="translate(22 {top + side / 2}) rotate(-90)">{name}</g>')
    path.write_text(_page(left + side + 140, bottom + 58, title, subtitle, body))
