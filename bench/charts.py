"""Pictures for the pages, drawn by the program that draws all others: `stoker chart`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

BINARY = Path(os.environ.get("STOKER_BINARY", Path(__file__).resolve().parent.parent / "bin" / "stoker"))


def draw(path: Path, kind: str, chart: dict[str, Any]) -> None:
    """Draws one chart into an SVG file. internal/chart documents the fields of each kind (bars, matrix, scatter)."""
    if not BINARY.exists():
        raise SystemExit(f"bench: {BINARY} draws the pictures and is not built; run make build")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({kind: chart})
    done = subprocess.run([BINARY, "chart", path], input=text, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: {path.name} could not be drawn: {done.stderr.strip()}")
