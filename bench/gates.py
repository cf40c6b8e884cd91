"""The checks that a loader must pass before its figure counts.

once   each record exactly once in an epoch
same   the same seed gives the same batches, pixels included, in another process
pixels the image of each record equals the one that Pillow decodes, cropped and resized in the same way
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import datasets, runner
from .suite import Arm, Suite

# Decoders, IDCTs and resize filters differ between loaders. A different picture, or one that is flipped or cropped
# elsewhere, is far below this.
SAME_PICTURE_DB = 24.0


def check(arm: Arm, suite: Suite, work: Path, workers: int, cores: str, limit: float) -> dict[str, Any]:
    """Runs the arm's checks. The result has ok, the three verdicts and the measurements."""
    base = [*runner.arm_command(arm, suite, work, workers, cores), "--mode", "check"]
    log = work / "logs" / f"{arm.name}-check.log"
    count = _count(arm, suite, work)
    epoch = runner.run([*base, "--seed", "7", "--records", str(count)], limit, log)
    if "error" in epoch:
        return {"ok": False, "error": epoch["error"]}
    again = runner.run([*base, "--seed", "7", "--records", str(count), "--batches", "3"], limit, log)
    keep = work / "logs" / f"{arm.name}-keep.npz"
    geometry = [] if arm.geometry == "none" else ["--geometry", "centre"]
    some = runner.run([*base, *geometry, "--records", str(count), "--batches", "1", "--keep", str(keep)], limit, log)
    result: dict[str, Any] = {
        "records": count,
        "rows": epoch["rows"],
        "distinct": epoch["distinct"],
        "once": epoch["distinct"] == count and epoch["rows"] >= count and epoch["range"] == [0, count - 1],
        "same": "error" not in again and again["digests"] == epoch["digests"][:3],
    }
    if "error" in some:
        result["pixels_error"] = some["error"]
        result["pixels"] = False
    else:
        result.update(_compare(keep, arm, suite, work))
    # For some loaders, the order is not a function of the seed by design. The table mentions it, but their speed
    # still counts. Everything else is a condition.
    result["ok"] = result["once"] and result["pixels"] and (result["same"] or not arm.ours)
    return result


def fingerprint(arm: Arm, suite: Suite, work: Path) -> str:
    """A fingerprint of everything that determines a rival's verdict: its code here, its versions, the data. Rivals
    with the same fingerprint are not checked again. Stoker always is."""
    here = Path(__file__).resolve().parent
    digest = hashlib.blake2b(repr((arm, suite.data_set, suite.size)).encode(), digest_size=8)
    for file in (
        here / "arms" / f"{arm.module}.py",
        here / "arms/augment.py",
        here / "arms/harness.py",
        here / "gates.py",
    ):
        digest.update(file.read_bytes())
    freeze = work / "setup" / f"{arm.env}.freeze"
    digest.update(freeze.read_bytes() if freeze.exists() else b"")
    reads = work / arm.folder(suite.data_set)
    digest.update(str(reads.stat().st_mtime_ns if reads.exists() else 0).encode())
    return digest.hexdigest()


def _count(arm: Arm, suite: Suite, work: Path) -> int:
    if arm.geometry == "none":
        import numpy as np

        return len(np.load(work / "data" / suite.data_set / "records.npy", mmap_mode="r"))
    return len(datasets.records(suite.data_set, work))


def reference(files: Sequence[Path], size: int) -> Any:
    """The centred square of each file, decoded and resized by Pillow: the definition that Stoker follows."""
    import numpy as np
    from PIL import Image

    out = []
    for file in files:
        image = Image.open(file).convert("RGB")
        w, h = image.size
        side = min(w, h)
        x, y = (w - side) // 2, (h - side) // 2
        # Crop first: with resize(box=...) the filter would read pixels outside the box.
        cut = image.crop((x, y, x + side, y + side))
        out.append(np.asarray(cut.resize((size, size), Image.Resampling.BILINEAR)))
    return np.stack(out)


def _compare(keep: Path, arm: Arm, suite: Suite, work: Path) -> dict[str, Any]:
    import numpy as np

    got = np.load(keep)
    images, ids = got["images"], got["ids"]
    if arm.geometry == "none":
        records = np.load(work / "data" / suite.data_set / "records.npy", mmap_mode="r")
        equal = bool((images == records[ids]).all())
        return {"pixels": equal, "max_difference": 0 if equal else None, "psnr_db": None}
    lossy = "lossy" in arm.classes
    name = f"{suite.data_set}-q90" if lossy else suite.data_set
    want = reference([datasets.records(name, work)[i] for i in ids], suite.size)
    if images.shape[1] == 3:
        images = images.transpose(0, 2, 3, 1)
    difference = np.abs(images.astype(np.int16) - want)
    error = float((difference.astype(np.float64) ** 2).mean())
    psnr = 99.0 if error == 0 else float(10 * np.log10(255**2 / error))
    worst = int(difference.max())
    return {
        "pixels": worst <= 1 if arm.ours else psnr >= SAME_PICTURE_DB,
        "max_difference": worst,
        "psnr_db": round(psnr, 1),
    }
