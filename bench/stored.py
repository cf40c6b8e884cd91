"""The files in bench/results: JSON with one line per run, so that they are short and can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def text(data: Any) -> str:
    """Return JSON whose top level, and the lists in it, have one line per element."""
    if isinstance(data, list):
        return "[\n" + ",\n".join(_short(v) for v in data) + "\n]\n"
    lines = []
    for key, value in data.items():
        if isinstance(value, list) and len(value) > 1:
            lines.append(f"{json.dumps(key)}: [\n" + ",\n".join(_short(v) for v in value) + "\n]")
        else:
            lines.append(f"{json.dumps(key)}: {_short(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _short(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=float)


def save(path: Path, data: Any) -> None:
    """Write a result file, whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text(data))
    part.rename(path)


def newest(pattern: str, but: tuple[str, ...] = ()) -> Path:
    """Return the newest results file, by the time in it. The time of the file itself is that of the checkout."""
    found = [f for f in FOLDER.glob(pattern) if not f.name.startswith(but or ("\0",))]
    if not found:
        raise SystemExit(
            f"bench: there are no results {pattern} in {FOLDER.name}: make bench SUITES=list says what makes them"
        )
    return max(found, key=lambda f: (_time(json.loads(f.read_text())), f.name))


def _time(data: dict[str, Any]) -> str:
    machine = data.get("machine")
    return str((machine.get("time") if isinstance(machine, dict) else None) or data.get("date") or "")
