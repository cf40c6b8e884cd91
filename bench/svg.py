"""Draws horizontal bars as SVG, by hand: no plotting library, sharp at any size, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH = 860
LABEL = 300
RIGHT = 128
ROW = 25
BAR = 15
FONT = "-apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
INK, SOFT, GRID = "#1f2933", "#616e7c", "#e4e7eb"
OURS, OURS_DARK, THEIRS, THEIRS_DARK = "#e8590c", "#b8410a", "#a9b4c0", "#7b8794"


@dataclass
class Bar:
    label: str
    value: float
    low: float
    high: float
    ours: bool = False
    # Shown behind the value, such as a ratio.
    remark: str = ""


@dataclass
class Group:
    title: str
    bars: Sequence[Bar]


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _step(top: float) -> float:
    """A round distance between grid lines, four to eight of them."""
    step = 1e-3
    while True:
        for factor in (1, 2, 2.5, 5):
            if top / (step * factor) <= 6:
                return step * factor
        step *= 10


def bars(path: Path, title: str, subtitle: str, groups: Sequence[Group], unit: str, footer: str = "") -> None:
    """Writes one chart. Bars of all groups share the scale; whiskers go from the lowest to the highest round."""
    groups = [g for g in groups if g.bars]
    top = max(max(b.value, b.high) for g in groups for b in g.bars) * 1.02
    scale = (WIDTH - LABEL - RIGHT) / top
    height = 92 + sum(ROW * len(g.bars) + (34 if g.title else 8) for g in groups) + 34 + (18 if footer else 0)
    out = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            f' role="img" aria-label="{escape(title)}" font-family="{FONT}">'
        ),
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff" stroke="{GRID}"/>',
        _text(24, 36, title, 19, INK, weight=650),
        _text(24, 58, subtitle, 12.5, SOFT),
    ]
    start, end = 76, height - 40 - (18 if footer else 0)
    step = _step(top)
    for i in range(int(top / step) + 1):
        x = LABEL + i * step * scale
        out.append(f'<line x1="{x:.1f}" y1="{start}" x2="{x:.1f}" y2="{end}" stroke="{GRID}"/>')
        out.append(_text(x, end + 17, f"{i * step:,g}", 11, SOFT, anchor="middle"))
    out.append(_text(WIDTH - 24, end + 17, unit, 11, SOFT, anchor="end"))
    y: float = start
    for group in groups:
        if group.title:
            out.append(f'<rect x="16" y="{y + 7}" width="{WIDTH - 32}" height="20" rx="4" fill="#f5f7fa"/>')
            out.append(_text(24, y + 21, group.title, 12, INK, weight=600))
        y += 34 if group.title else 8
        for bar in group.bars:
            middle = y + ROW / 2 - 2
            width = max(bar.value * scale, 1.5)
            fill, dark = (OURS, OURS_DARK) if bar.ours else (THEIRS, THEIRS_DARK)
            out.append(
                _text(LABEL - 10, middle + 4, bar.label, 12.5, INK, anchor="end", weight=650 if bar.ours else 400)
            )
            y0 = middle - BAR / 2
            out.append(f'<rect x="{LABEL}" y="{y0:.1f}" width="{width:.1f}" height="{BAR}" rx="3" fill="{fill}"/>')
            x = LABEL + width
            if bar.high > bar.low:
                a, b = LABEL + bar.low * scale, LABEL + bar.high * scale
                line = f"M{a:.1f} {middle} H{b:.1f} M{a:.1f} {middle - 3} v6 M{b:.1f} {middle - 3} v6"
                out.append(f'<path d="{line}" stroke="{dark}" fill="none"/>')
                x = max(x, b)
            value = f'<tspan font-weight="{650 if bar.ours else 500}">{number(bar.value)}</tspan>'
            if bar.remark:
                value += f'<tspan fill="{SOFT}" dx="6">{escape(bar.remark)}</tspan>'
            out.append(f'<text x="{x + 7:.1f}" y="{middle + 4}" font-size="12" fill="{INK}">{value}</text>')
            y += ROW
    if footer:
        out.append(_text(24, height - 12, footer, 11, SOFT))
    out.append("</svg>")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(out) + "\n")


def _text(x: float, y: float, text: str, size: float, fill: str, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{escape(text)}</text>'
    )
