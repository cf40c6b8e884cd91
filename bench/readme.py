"""Writes the results of the README and its picture, from the newest files of bench/results: python -m bench.readme."""

from __future__ import annotations

import json
from pathlib import Path

from . import stored
from .figures import Figures, table
from .suite import SUITES

ROOT = Path(__file__).resolve().parent.parent
PICTURE = "docs/img/waiting.svg"


def picture(before: float, after: float, least: float) -> str:
    """Draws the time of a step before and after: the part of the accelerator, and the wait for data."""
    scale = 420 / before
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 170" font-family="sans-serif" font-size="14">',
        "<title>Time of a training step before and after: the wait for data is gone</title>",
        '<rect width="720" height="170" fill="#fff"/>',
        '<text x="16" y="26" font-weight="bold">ResNet-50 on one H100, ms per step of 256 images</text>',
    ]
    for y, name, step in ((48, "PyTorch's DataLoader", before), (92, "Stoker", after)):
        busy, wait = min(least, step) * scale, max(0.0, step - least) * scale
        out += [
            f'<text x="16" y="{y + 20}">{name}</text>',
            f'<rect x="180" y="{y}" width="{busy:.1f}" height="30" fill="#2a9d5c"/>',
            f'<rect x="{180 + busy:.1f}" y="{y}" width="{wait:.1f}" height="30" fill="#d9534f"/>',
            f'<text x="{190 + busy + wait:.1f}" y="{y + 20}">{step:.0f} ms</text>',
        ]
    out += [
        '<rect x="180" y="140" width="14" height="14" fill="#2a9d5c"/><text x="200" y="152">the GPU computes</text>',
        '<rect x="340" y="140" width="14" height="14" fill="#d9534f"/><text x="360" y="152">it waits for data</text>',
        "</svg>",
    ]
    return "\n".join(out) + "\n"


def main() -> None:
    gpu = json.loads(stored.newest("gpu-*.json").read_text())["rounds"][-1]["step"]
    torch, ours, least = (gpu[arm]["step_ms"] for arm in ("torch", "stoker", "cached"))
    figures = Figures(json.loads(stored.newest("amd-epyc-*.json").read_text()))
    suite = SUITES["photos"]
    rivals = [a for a in figures.measured(suite, "bytes") if not a.ours and a.comparable]
    best = max(figures.median(suite.name, a.name) or 0 for a in rivals)
    keep, dct = (figures.median(suite.name, f"stoker-{kind}") or 0 for kind in ("keep", "dct"))
    epyc, rival = "2 cores of AMD EPYC", f"{best:,.0f}/s, tf.data"
    step = [f"{torch:.0f} ms, DataLoader", f"{ours:.0f} ms", f"{torch / ours:.1f}"]
    rows = [
        ["ResNet-50 step", "NVIDIA H100, 16 cores", *step],
        ["photos, same JPEG bytes", epyc, rival, f"{keep:,.0f}/s", f"{keep / best:.1f}"],
        ["photos, packed once", epyc, rival, f"{dct:,.0f}/s", f"{dct / best:.1f}"],
    ]
    (ROOT / PICTURE).parent.mkdir(exist_ok=True)
    (ROOT / PICTURE).write_text(picture(torch, ours, least))
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition("<!-- results:begin -->\n")
    after = rest.partition("<!-- results:end -->")[2]
    text = table(["what", "hardware", "other loader", "Stoker", "times"], rows, 4)
    readme.write_text(f"{before}<!-- results:begin -->\n{text}\n<!-- results:end -->{after}")
    print(f"bench: wrote README.md and {PICTURE}")


if __name__ == "__main__":
    main()
