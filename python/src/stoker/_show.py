"""Datasets in a terminal and in a notebook: fields, counts, classes and a few records."""

from __future__ import annotations

import base64
import html as escape_html
import json
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._errors import StokerError

if TYPE_CHECKING:
    from ._dataset import Dataset
    from ._reader import FieldInfo, Record

_RECORDS = 3  # in a terminal
_CARDS = 4  # in a notebook
_SIDE = 224  # pixels of a picture
_CLASSES = 12
_TEXT = 240  # characters

Pixels = npt.NDArray[np.uint8]


def text(data: Dataset) -> str:
    """Return the text of ``repr``."""
    try:
        shown, fields = data._shown(), data.fields
        count = len(data)
    except StokerError as error:
        return f"Dataset({error})"
    lines = [f"Dataset({shown!r}, {_plural(count, 'record')}, {data._info().format})"]
    width = max((len(name) for name in fields), default=0)
    lines += [f"  {name:{width}}  {field}" for name, field in fields.items()]
    if data.classes:
        lines.append(f"  classes: {_classes(data.classes)}")
    lines += [f"  then {_function(f)}" for f in data._maps]
    for i in range(min(count, _RECORDS)):
        try:
            record = data._read([i])[0]
        except Exception as error:  # a bad record, or a function of the user's that fails
            lines.append(f"  [{i}] {type(error).__name__}: {str(error).splitlines()[0]:.100}")
            continue
        lines.append(f"  [{i}] {', '.join(f'{k}: {_short(v, fields.get(k))}' for k, v in record.items())}"[:160])
    return "\n".join(lines)


def _plural(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _classes(names: Sequence[str]) -> str:
    rest = len(names) - _CLASSES
    return ", ".join(map(str, names[:_CLASSES])) + (f" and {rest:,} more" if rest > 0 else "")


def _function(f: Any) -> str:
    return f"map({getattr(f, '__name__', type(f).__name__)})"


def _short(value: Any, field: FieldInfo | None, most: int = 40) -> str:
    if isinstance(value, np.ndarray):
        if field is not None and field.kind == "multilabel" and field.classes and value.size <= 6:
            return ", ".join(field.classes[n] if 0 <= n < len(field.classes) else str(n) for n in value.tolist())
        if value.ndim == 1 and 0 < value.size <= 6:
            return f"[{', '.join(f'{n:.5g}' if isinstance(n, float) else str(n) for n in value.tolist())}]"
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, bytes):
        return f"{_plural(len(value), 'byte')}"
    if isinstance(value, int) and field is not None and field.kind == "label" and 0 <= value < len(field.classes):
        return f"{value} ({field.classes[value]})"
    if isinstance(value, float):
        return f"{value:.6g}"
    out = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    out = " ".join(out.split())
    return out if len(out) <= most else out[: most - 3] + "..."


# --- a notebook ------------------------------------------------------------

_STYLE = (
    "<style>.stoker-data{font-family:system-ui,sans-serif;font-size:13px;line-height:1.4;max-width:100%}"
    ".stoker-data table{border-collapse:collapse;margin:6px 0 10px;font-size:13px}"
    ".stoker-data td,.stoker-data th{text-align:left;padding:2px 14px 2px 0;border:0;background:none;font-weight:400}"
    ".stoker-data th{opacity:.6}.stoker-data code{font-size:12px}"
    ".stoker-data .cards{display:flex;flex-wrap:wrap;gap:12px}"
    ".stoker-data .card{border:1px solid rgba(128,128,128,.35);border-radius:6px;padding:8px;width:240px;"
    "overflow-wrap:anywhere}"
    ".stoker-data .card svg,.stoker-data .card img{display:block;max-width:100%;height:auto;margin:2px 0 6px;"
    "border-radius:3px}"
    ".stoker-data .dim{opacity:.6;font-size:12px}</style>"
)
# Colours of classes and objects, as far apart as possible.
_PALETTE = np.array(
    [
        [230, 25, 75], [60, 180, 75], [0, 130, 200], [245, 130, 48], [145, 30, 180], [70, 240, 240], [240, 50, 230],
        [210, 245, 60], [250, 190, 212], [0, 128, 128], [220, 190, 255], [170, 110, 40], [128, 0, 0], [128, 128, 0],
    ],
    np.uint8,
)  # fmt: skip
# Dark blue to yellow, for spectrograms.
_HEAT = np.array([[13, 8, 66], [65, 68, 135], [33, 145, 140], [94, 201, 98], [253, 231, 37]], np.float32)


def html(data: Dataset) -> str:
    """Return the HTML for a notebook."""
    try:
        shown, fields, count = _quoted(data._shown()), data.fields, len(data)
    except StokerError as error:
        return f"<div class='stoker-data'>{_STYLE}{_quoted(error)}</div>"
    rows = "".join(
        f"<tr><td><code>{_quoted(f.name)}</code></td><td>{_quoted(f.kind)}</td><td><code>{_quoted(_type(f))}</code></td>"
        f"<td>{_quoted(_classes(f.classes))}</td></tr>"
        for f in fields.values()
    )
    head = f"<b>{shown}</b> <span class='dim'>{_plural(count, 'record')}, {_quoted(data._info().format)}"
    if data.classes:
        head += f", {_plural(len(data.classes), 'class').replace('classs', 'classes')}"
    head += "".join(f", then {_quoted(_function(f))}" for f in data._maps) + "</span>"
    table = f"<table><tr><th>field</th><th>kind</th><th>type</th><th>classes</th></tr>{rows}</table>"
    cards = "".join(_card(data, i, fields) for i in _chosen(count))
    return f"<div class='stoker-data'>{_STYLE}{head}{table}<div class='cards'>{cards}</div></div>"


def _chosen(count: int) -> list[int]:
    """Return a few records, all over the data."""
    n = min(count, _CARDS)
    return sorted({i * (count - 1) // max(n - 1, 1) for i in range(n)})


def _type(f: FieldInfo) -> str:
    if not f.dtype:
        return ""
    sides = ", ".join("?" if n < 0 else str(n) for n in f.shape)
    return f"{f.dtype}[{sides}]{' ' + f.format if f.format else ''}"


def _quoted(value: object) -> str:
    return escape_html.escape(str(value))


def _card(data: Dataset, i: int, fields: dict[str, FieldInfo]) -> str:
    try:
        record = data._read([i])[0]
    except Exception as error:  # a bad record, or a function of the user's that fails
        said = f"{type(error).__name__}: {error}"
        return f"<div class='card'><span class='dim'>[{i}]</span><br>{_quoted(said)}</div>"
    parts, done = _pictures(record, fields)
    for name, value in record.items():
        if name in done:
            continue
        drawn = _drawn(record, name, value, fields.get(name))
        parts.append(
            drawn or f"<div><code>{_quoted(name)}</code> {_quoted(_short(value, fields.get(name), _TEXT))}</div>"
        )
    name = record.name.rsplit("/", 1)[-1]
    return f"<div class='card'><div class='dim'>[{i}] {_quoted(name)}</div>{''.join(parts)}</div>"


def _pictures(record: Record, fields: dict[str, FieldInfo]) -> tuple[list[str], set[str]]:
    """Return the images of a record, with boxes, key points and masks on the first of them."""
    parts: list[str] = []
    done: set[str] = set()
    first = True
    for name, field in fields.items():
        image = record.get(name)
        if field.kind != "image" or not isinstance(image, np.ndarray) or image.ndim not in (2, 3) or not image.size:
            continue
        done.add(name)
        h, w = image.shape[:2]
        over = ""
        pixels = _gray_or_rgb(image)
        if first:
            pixels, drawn = _masked(pixels, record, fields)
            over = _outlines(record, fields)
            done |= drawn | {f.name for f in fields.values() if f.kind in ("boxes", "keypoints")}
            first = False
        label = next((f for f in fields.values() if f.kind == "label" and isinstance(record.get(f.name), int)), None)
        caption = "" if label is None else f", {label.name} {_short(record[label.name], label)}"
        if label is not None:
            done.add(label.name)
        parts.append(_svg(w, h, _png(_smaller(pixels)), over))
        parts.append(f"<div><code>{_quoted(name)}</code> {w} x {h}{_quoted(caption)}</div>")
        counts = [f"{len(record[n])} {n}" for n in sorted(done) if fields[n].kind == "boxes" and over]
        parts.append(f"<div class='dim'>{_quoted(', '.join(counts))}</div>" if counts else "")
    return parts, done


def _svg(w: int, h: int, png: str, over: str) -> str:
    wide = min(_SIDE, round(_SIDE * w / max(w, h)))
    return (
        f"<svg viewBox='0 0 {w} {h}' width='{wide}' height='{max(1, round(wide * h / w))}'>"
        f"<image href='{png}' width='{w}' height='{h}' preserveAspectRatio='none'/>{over}</svg>"
    )


def _masked(pixels: Pixels, record: Record, fields: dict[str, FieldInfo]) -> tuple[Pixels, set[str]]:
    """Blend the masks of a record with its image."""
    done: set[str] = set()
    for name, field in fields.items():
        mask = record.get(name)
        if field.kind not in ("mask", "masks") or not isinstance(mask, np.ndarray):
            continue
        if mask.shape[-2:] != pixels.shape[:2]:
            continue
        done.add(name)
        if field.kind == "masks":  # of objects: each has its own colour
            numbers = np.zeros(mask.shape[1:], np.int64)
            for k, one in enumerate(mask):
                numbers[one > 0] = k + 1
        else:
            numbers = mask.astype(np.int64)
        colours = _PALETTE[(numbers - 1) % len(_PALETTE)]
        blended = (pixels.astype(np.uint16) + colours) // 2
        pixels = np.where((numbers > 0)[..., None], blended, pixels).astype(np.uint8)
    return pixels, done


def _outlines(record: Record, fields: dict[str, FieldInfo]) -> str:
    """Return boxes with their classes, and key points, as SVG in the pixels of the image."""
    out = []
    for name, field in fields.items():
        value = record.get(name)
        if not isinstance(value, np.ndarray):
            continue
        if field.kind == "boxes":
            of = next((f for f in fields.values() if f.boxes == name and f.kind == "multilabel"), None)
            for k, (x, y, w, h) in enumerate(_corners(value, field.format).tolist()):
                colour = "#" + "".join(f"{c:02x}" for c in _PALETTE[k % len(_PALETTE)])
                labels = None if of is None else record.get(of.name)
                named = ""
                if of is not None and labels is not None and k < len(labels) and 0 <= labels[k] < len(of.classes):
                    named = of.classes[labels[k]]
                out.append(
                    f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(w, 0):.1f}' height='{max(h, 0):.1f}' fill='none' "
                    f"stroke='{colour}' stroke-width='2' vector-effect='non-scaling-stroke'/>"
                )
                if named:
                    out.append(_tag(x, y, named, colour, record))
        elif field.kind == "keypoints":
            out += [
                f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{_unit(record):.1f}' fill='#ffe119' stroke='#000' "
                "stroke-width='1' vector-effect='non-scaling-stroke'/>"
                for x, y in value.reshape(-1, 2).tolist()
            ]
    return "".join(out)


def _unit(record: Record) -> float:
    """Return about 3 pixels of the picture, in pixels of the image."""
    sides = [max(v.shape[:2]) for v in record.values() if isinstance(v, np.ndarray) and v.ndim == 3]
    return 3 * max(sides, default=_SIDE) / _SIDE


def _tag(x: float, y: float, name: str, colour: str, record: Record) -> str:
    unit = _unit(record)
    return (
        f"<rect x='{x:.1f}' y='{y:.1f}' width='{2.2 * unit * len(name) + 2 * unit:.1f}' height='{5 * unit:.1f}' "
        f"fill='{colour}'/><text x='{x + unit:.1f}' y='{y + 3.9 * unit:.1f}' font-size='{4 * unit:.1f}' fill='#fff' "
        f"font-family='sans-serif'>{_quoted(name)}</text>"
    )


def _corners(boxes: npt.NDArray[Any], form: str) -> npt.NDArray[Any]:
    """Return boxes as left, upper side, width and height."""
    out = boxes.astype(np.float64)
    if form == "XYXY":
        out[:, 2:] -= out[:, :2]
    elif form == "CXCYWH":
        out[:, :2] -= out[:, 2:] / 2
    return out


def _drawn(record: Record, name: str, value: Any, field: FieldInfo | None) -> str:
    """Return a picture of a recording, clip, volume or mask; empty for other values."""
    if field is None or not isinstance(value, np.ndarray) or not value.size:
        return ""
    shape = " x ".join(map(str, value.shape))
    if field.kind == "audio" and value.ndim == 2:
        rate = record.sample_rates.get(name, 0)
        seconds = f"{len(value) / rate:.2f} s, {rate:,} Hz, " if rate else ""
        note = f"{seconds}{_plural(value.shape[1], 'channel')}"
        return f"{_wave(value)}{_spectrogram(value)}<div><code>{_quoted(name)}</code> {note}</div>"
    if field.kind == "frames":
        some = value[:: max(1, len(value) // 4)][:4]
        strip = np.concatenate([_smaller(_gray_or_rgb(f), _SIDE // 2) for f in some], axis=1)
        return f"{_img(strip)}<div><code>{_quoted(name)}</code> {shape}</div>"
    if field.kind == "volume" and value.ndim >= 3:
        v = value.reshape(-1, *value.shape[-3:])[0]
        z, y, x = (n // 2 for n in v.shape)
        low, high = float(v.min()), float(v.max())
        slices = [_smaller(_gray_or_rgb(s, low, high), _SIDE // 3) for s in (v[z], v[:, y], v[:, :, x])]
        return f"{''.join(map(_img, slices))}<div><code>{_quoted(name)}</code> {shape}, {value.dtype}</div>"
    if field.kind == "mask" and value.ndim == 2:
        colours = np.where((value > 0)[..., None], _PALETTE[(value.astype(np.int64) - 1) % len(_PALETTE)], 0)
        return f"{_img(_smaller(colours.astype(np.uint8)))}<div><code>{_quoted(name)}</code> {shape}</div>"
    return ""


def _wave(samples: npt.NDArray[Any], columns: int = 224, height: int = 48) -> str:
    """Return the waveform of the first channel."""
    mono = samples[:, 0]
    edges = np.linspace(0, len(mono), min(columns, len(mono)) + 1).astype(int)[:-1]
    top, bottom = np.maximum.reduceat(mono, edges), np.minimum.reduceat(mono, edges)
    scale = max(float(np.abs(mono).max()), 1e-9)
    y = [(height / 2) * (1 - v / scale) for v in (top, bottom)]
    lines = "".join(f"M{i} {a:.1f}V{b + 0.5:.1f}" for i, (a, b) in enumerate(zip(*y, strict=True)))
    return (
        f"<svg viewBox='0 0 {len(edges)} {height}' width='{_SIDE}' height='{height}' preserveAspectRatio='none'>"
        f"<path d='{lines}' stroke='#f58231' stroke-width='1'/></svg>"
    )


def _spectrogram(samples: npt.NDArray[Any], columns: int = 224, size: int = 256) -> str:
    """Return the spectrogram of the first channel, in decibels: low frequencies are below."""
    mono = samples[:, 0].astype(np.float32)
    if len(mono) < size:
        mono = np.pad(mono, (0, size - len(mono)))
    at = np.linspace(0, len(mono) - size, min(columns, max(1, len(mono) // 32))).astype(int)
    frames = mono[at[:, None] + np.arange(size)] * np.hanning(size).astype(np.float32)
    power = np.abs(np.fft.rfft(frames, axis=1)).T[::-1] ** 2
    decibels = 10 * np.log10(np.maximum(power, 1e-10))
    share = np.clip((decibels - decibels.max() + 80) / 80, 0, 1) * (len(_HEAT) - 1)
    low = np.minimum(share.astype(int), len(_HEAT) - 2)
    part = (share - low)[..., None]
    pixels = (_HEAT[low] * (1 - part) + _HEAT[low + 1] * part).astype(np.uint8)
    return f"<img src='{_png(pixels)}' style='width:{_SIDE}px;height:80px' alt='spectrogram'>"


def _gray_or_rgb(image: npt.NDArray[Any], low: float | None = None, high: float | None = None) -> Pixels:
    """Return an image as uint8 [height, width, 3]; other numbers than uint8 from black to white."""
    if image.dtype != np.uint8 or low is not None:
        values = np.nan_to_num(image.astype(np.float32))
        low = float(values.min()) if low is None else low
        high = float(values.max()) if high is None else high
        image = ((values - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[2] != 3:
        image = np.repeat(image[..., :1], 3, axis=2)
    return image


def _smaller(pixels: Pixels, side: int = _SIDE) -> Pixels:
    """Return pixels with at most ``side`` of them on a side, each the mean of several."""
    h, w = pixels.shape[:2]
    k = -(-max(h, w) // side)
    if k < 2:
        return pixels
    h, w = max(h // k, 1), max(w // k, 1)
    part = pixels[: h * k, : w * k]
    if part.shape[0] < k or part.shape[1] < k:  # a very long image
        return pixels[::k, ::k]
    smaller: Pixels = part.reshape(h, k, w, k, 3).mean(axis=(1, 3)).astype(np.uint8)
    return smaller


def _img(pixels: Pixels) -> str:
    return f"<img src='{_png(pixels)}' style='display:inline-block;margin-right:3px' alt=''>"


def _png(pixels: Pixels) -> str:
    """Return pixels as the URL of a PNG."""
    h, w = pixels.shape[:2]
    rows = np.concatenate([np.zeros((h, 1), np.uint8), pixels.reshape(h, w * 3)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + chunk(b"IEND", b"")
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
