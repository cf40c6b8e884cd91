#!/usr/bin/env python3
"""Writes the golden files of the augmentations, from torchvision itself.

    scripts/gen_aug_golden.py [--check]

Go tests compare the kernels with internal/cdec/testdata/aug and, for other pixels
than RGB and gray of uint8, internal/cdec/testdata/aug_types (inputs and the outputs
of torchvision.transforms.v2.functional for given parameters), and the search spaces with internal/transform/testdata/aug_space.json, so that they need
no torch. --check writes nothing and fails when the files are not what the
installed torchvision gives (up to one level: its float sums differ a little
from processor to processor).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

ROOT = Path(__file__).resolve().parent.parent
AUG = ROOT / "internal/cdec/testdata/aug"
TYPES = ROOT / "internal/cdec/testdata/aug_types"
SPACE = ROOT / "internal/transform/testdata/aug_space.json"


def picture(w: int, h: int, seed: int) -> np.ndarray:
    """Gradients, edges and noise in RGB."""
    rng = np.random.RandomState(seed)
    y, x = np.mgrid[0:h, 0:w]
    img = np.stack([x * 255.0 / w, y * 255.0 / h, 128 + 100 * np.sin(x / 5.0 + y / 7.0)], axis=-1)
    img[h // 3 : h // 2, w // 4 : w // 2] = [250, 3, 30]
    img[h // 2 :, w // 2 : w // 2 + 3] = [0, 255, 255]
    img += rng.randint(-20, 21, img.shape)
    return np.clip(img, 0, 255).astype(np.uint8)


def inputs() -> dict[str, np.ndarray]:
    level = np.array([0, 1, 2, 31, 64, 85, 100, 127, 128, 129, 170, 200, 223, 253, 254, 255], np.uint8)
    r, g, b = np.meshgrid(level, level, level, indexing="ij")
    return {
        "wide": picture(45, 33, 1),
        "square": picture(34, 34, 2),
        "dull": (picture(45, 33, 3) // 5 + 90).astype(np.uint8),
        "flat": np.full((9, 11, 3), 77, np.uint8),
        "cube": np.stack([r, g, b], axis=-1).reshape(64, 64, 3),
        "mask": (picture(45, 33, 4)[..., :1] // 32).astype(np.uint8),
    }


def tensor(a: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(a.copy()).permute(2, 0, 1)


def array(t: torch.Tensor) -> np.ndarray:
    return t.permute(1, 2, 0).contiguous().numpy()


class Cases:
    def __init__(self, inputs: dict[str, np.ndarray]) -> None:
        self.inputs = inputs
        self.cases: list[dict[str, Any]] = []
        self.outputs: list[np.ndarray] = []

    def add(self, op: str, source: str, run: Callable[[torch.Tensor], torch.Tensor], **params: Any) -> None:
        out = array(run(tensor(self.inputs[source])))
        if out.dtype != self.inputs[source].dtype:
            raise TypeError(f"{op} of {source} gave {out.dtype}")
        self.cases.append({"op": op, "input": source, "w": out.shape[1], "h": out.shape[0], "params": params})
        self.outputs.append(out)


def colour(c: Cases) -> None:
    for f in [0.0, 0.3, 0.73, 1.0, 1.5, 2.7]:
        c.add("brightness", "wide", lambda t, f=f: F.adjust_brightness(t, f), factor=f)
    for f in [0.0, 0.4, 1.0, 1.63]:
        for source in ["wide", "dull", "mask"]:
            c.add("contrast", source, lambda t, f=f: F.adjust_contrast(t, f), factor=f)
    for f in [0.0, 0.35, 1.0, 1.4, 3.0]:
        c.add("saturation", "cube", lambda t, f=f: F.adjust_saturation(t, f), factor=f)
    for f in [-0.5, -0.31, -0.1, 0.0, 0.05, 0.25, 0.5]:
        c.add("hue", "cube", lambda t, f=f: F.adjust_hue(t, f), factor=f)
    c.add("grayscale", "cube", lambda t: F.rgb_to_grayscale(t, num_output_channels=3))
    c.add("invert", "wide", F.invert)
    for bits in [0, 1, 4, 7, 8]:
        c.add("posterize", "wide", lambda t, b=bits: F.posterize(t, b), bits=bits)
    for th in [0.0, 127.5, 128.0, 255.0]:
        c.add("solarize", "wide", lambda t, th=th: F.solarize(t, th), threshold=th)
    for source in ["wide", "dull", "flat", "mask"]:
        c.add("equalize", source, F.equalize)
        c.add("autocontrast", source, F.autocontrast)


def filters(c: Cases) -> None:
    for f in [0.0, 0.5, 1.0, 2.0, 3.7]:
        c.add("sharpness", "wide", lambda t, f=f: F.adjust_sharpness(t, f), factor=f)
    c.add("sharpness", "mask", lambda t: F.adjust_sharpness(t, 1.9), factor=1.9)
    for k, s in [
        ((3, 3), (0.1, 0.1)),
        ((3, 3), (1.0, 1.0)),
        ((5, 9), (0.8, 1.7)),
        ((23, 23), (2.0, 2.0)),
        ((31, 7), (9.0, 9.0)),
    ]:
        c.add("blur", "wide", lambda t, k=k, s=s: F.gaussian_blur(t, list(k), list(s)), kernel=k, sigma=s)
    c.add("blur", "mask", lambda t: F.gaussian_blur(t, [5, 5], [1.1, 1.1]), kernel=(5, 5), sigma=(1.1, 1.1))


AFFINE = [
    dict(angle=0.0, translate=[0, 0], scale=1.0, shear=[0.0, 0.0]),
    dict(angle=0.0, translate=[7, -4], scale=1.0, shear=[0.0, 0.0]),
    dict(angle=33.7, translate=[0, 0], scale=1.0, shear=[0.0, 0.0]),
    dict(angle=-14.2, translate=[3, 5], scale=0.63, shear=[11.3, -7.9]),
    dict(angle=171.1, translate=[-2, 1], scale=1.71, shear=[0.0, 21.0]),
    dict(angle=5.3, translate=[200, 0], scale=1.0, shear=[0.0, 0.0]),
]


def geometry(c: Cases) -> None:
    for params in AFFINE:
        for mode in ["nearest", "bilinear"]:
            for fill in [None, [0.0], [10.0, 200.0, 77.0]]:
                c.add(
                    "affine",
                    "wide",
                    lambda t, p=params, m=mode, f=fill: F.affine(t, **p, interpolation=m, fill=f),
                    **params,
                    mode=mode,
                    fill=fill,
                )
    tilted = dict(AFFINE[3], center=[4.0, 21.5])
    c.add(
        "affine",
        "wide",
        lambda t: F.affine(t, **tilted, interpolation="bilinear", fill=[0.0]),
        **tilted,
        mode="bilinear",
        fill=[0.0],
    )
    shear = dict(AFFINE[0], shear=[16.7, 0.0], center=[0.0, 0.0])
    c.add("affine", "wide", lambda t: F.affine(t, **shear, interpolation="nearest"), **shear, mode="nearest", fill=None)
    c.add(
        "affine",
        "mask",
        lambda t: F.affine(t, **AFFINE[3], interpolation="nearest", fill=[0.0]),
        **AFFINE[3],
        mode="nearest",
        fill=[0.0],
    )
    for source in ["wide", "square"]:
        for angle in [0.0, 90.0, 180.0, -90.0, 27.3, -133.9]:
            for expand in [False, True]:
                c.add(
                    "rotate",
                    source,
                    lambda t, a=angle, e=expand: F.rotate(t, a, interpolation="bilinear", expand=e, fill=[0.0]),
                    angle=angle,
                    expand=expand,
                    mode="bilinear",
                    fill=[0.0],
                )
    c.add(
        "rotate",
        "wide",
        lambda t: F.rotate(t, 40.1, interpolation="nearest", center=[3.0, 30.0], fill=[9.0]),
        angle=40.1,
        expand=False,
        mode="nearest",
        fill=[9.0],
        center=[3.0, 30.0],
    )
    for mode in ["constant", "edge", "reflect", "symmetric"]:
        for source in ["wide", "mask"]:
            fill = [0.0] if source == "mask" or mode != "constant" else [1.0, 128.0, 254.0]
            c.add(
                "pad_crop",
                source,
                lambda t, m=mode, f=fill: F.crop(F.pad(t, [9, 6, 4, 11], fill=f, padding_mode=m), 2, 3, 44, 50),
                padding=[9, 6, 4, 11],
                top=2,
                left=3,
                mode=mode,
                fill=fill,
            )
    c.add(
        "pad_crop",
        "wide",
        lambda t: F.crop(t, 7, 11, 20, 13),
        padding=[0, 0, 0, 0],
        top=7,
        left=11,
        mode="constant",
        fill=[0.0],
    )


def type_inputs() -> dict[str, np.ndarray]:
    """Pictures of 19x15 of other types and numbers of channels than `inputs` has."""
    rng = np.random.RandomState(9)
    found = {}
    for name, dtype, channels in [
        ("u8x2", np.uint8, 2),
        ("u8x4", np.uint8, 4),
        ("u16x1", np.uint16, 1),
        ("u16x2", np.uint16, 2),
        ("u16x3", np.uint16, 3),
        ("u16x4", np.uint16, 4),
        ("f32x1", np.float32, 1),
        ("f32x2", np.float32, 2),
        ("f32x3", np.float32, 3),
        ("f32x4", np.float32, 4),
    ]:
        wide = picture(19, 15, channels)
        img = np.concatenate([wide, 255 - wide[::-1, :, :1]], axis=-1)[..., :channels] / 255.0
        img = np.clip(img + rng.uniform(-0.002, 0.002, img.shape), 0, 1)
        top = 1 if dtype == np.float32 else np.iinfo(dtype).max
        found[name] = (img * top).astype(dtype)
    return found


def types(c: Cases) -> None:
    for name, a in c.inputs.items():
        top = 1.0 if a.dtype == np.float32 else float(np.iinfo(a.dtype).max)
        fill = [top * v for v in (0.1, 0.9, 0.3, 0.5)][: a.shape[2]]
        whole = a.dtype != np.float32
        fill = [float(int(v)) if whole else float(np.float32(v)) for v in fill]
        c.add("invert", name, F.invert)
        c.add("posterize", name, lambda t: F.posterize(t, 3), bits=3)
        c.add("equalize", name, F.equalize)
        threshold = float(int(top * 0.4)) if whole else 0.4
        if a.dtype != np.uint16:  # which torch cannot compare
            c.add("solarize", name, lambda t, th=threshold: F.solarize(t, th), threshold=threshold)
        c.add("blur", name, lambda t: F.gaussian_blur(t, [3, 7], [0.8, 1.9]), kernel=(3, 7), sigma=(0.8, 1.9))
        for p in [AFFINE[3], AFFINE[2]]:
            for mode in ["nearest", "bilinear"]:
                for f in [None, fill]:
                    c.add(
                        "affine",
                        name,
                        lambda t, p=p, m=mode, f=f: F.affine(t, **p, interpolation=m, fill=f),
                        **p,
                        mode=mode,
                        fill=f,
                    )
        for angle in [90.0, 180.0, -90.0]:
            c.add(
                "rotate",
                name,
                lambda t, a=angle: F.rotate(t, a, expand=True, fill=[0.0]),
                angle=angle,
                expand=True,
                mode="nearest",
                fill=[0.0],
            )
        for mode in ["constant", "edge", "reflect", "symmetric"]:
            f = fill if mode == "constant" else [0.0]
            c.add(
                "pad_crop",
                name,
                lambda t, m=mode, f=f: F.crop(F.pad(t, [9, 6, 4, 11], fill=f, padding_mode=m), 2, 3, 24, 25),
                padding=[9, 6, 4, 11],
                top=2,
                left=3,
                mode=mode,
                fill=f,
            )
        for size in [(7, 30), (9, 11), (40, 8)]:
            for mode in ["bilinear", "bicubic"]:
                clip = top if whole else None
                c.add("resize", name, lambda t, s=size, m=mode, k=clip: resize(t, s, m, k), mode=mode)
        if a.shape[2] in (1, 3):
            for f in [0.3, 1.7]:
                c.add("brightness", name, lambda t, f=f: F.adjust_brightness(t, f), factor=f)
                c.add("contrast", name, lambda t, f=f: F.adjust_contrast(t, f), factor=f)
                c.add("saturation", name, lambda t, f=f: F.adjust_saturation(t, f), factor=f)
                c.add("sharpness", name, lambda t, f=f: F.adjust_sharpness(t, f), factor=f)
            for f in [-0.31, 0.2, 0.5]:
                c.add("hue", name, lambda t, f=f: F.adjust_hue(t, f), factor=f)
            c.add("autocontrast", name, F.autocontrast)
        if a.shape[2] == 3:
            c.add("grayscale", name, lambda t: F.rgb_to_grayscale(t, num_output_channels=3))


def resize(t: torch.Tensor, size: tuple[int, int], mode: str, top: float | None) -> torch.Tensor:
    """Resize; if torchvision lets an overshoot wrap around, it is clamped."""
    how = v2.InterpolationMode(mode)
    if t.dtype != torch.uint16:
        return F.resize(t, list(size), interpolation=how, antialias=True)
    return F.resize(t.float(), list(size), interpolation=how, antialias=True).clamp(0, top).round().to(t.dtype)


def boxes() -> list[dict[str, Any]]:
    """torchvision's transforms of a bounding box (XYXY) in an image of 45x33."""
    out = []
    canvas = (33, 45)
    box = torch.tensor([[10.0, 5.0, 31.0, 22.0]])
    for p in AFFINE:
        moved, _ = F._geometry._affine_bounding_boxes_with_expand(
            box, format=v2.functional._geometry.tv_tensors.BoundingBoxFormat.XYXY, canvas_size=canvas, **p
        )
        out.append({"op": "affine", "params": p, "box": moved[0].tolist()})
    for angle in [0.0, 90.0, 27.3, -133.9]:
        moved, _ = F._geometry.rotate_bounding_boxes(
            box, format=v2.functional._geometry.tv_tensors.BoundingBoxFormat.XYXY, canvas_size=canvas, angle=angle
        )
        out.append({"op": "rotate", "params": {"angle": angle}, "box": moved[0].tolist()})
    return out


def spaces() -> dict[str, Any]:
    """The magnitudes of the policies for images of 224x160 (w x h)."""

    def table(space: dict[str, Any], bins: int) -> dict[str, Any]:
        found = {}
        for name, (fn, signed) in space.items():
            m = fn(bins, 160, 224)
            found[name] = {"signed": signed, "magnitudes": None if m is None else [float(v) for v in m]}
        return found

    policies = {
        p.value: [[[n, prob, mag] for n, prob, mag in pair] for pair in v2.AutoAugment(p)._policies]
        for p in v2.AutoAugmentPolicy
    }
    return {
        "AutoAugment": table(v2.AutoAugment._AUGMENTATION_SPACE, 10),
        "RandAugment": table(v2.RandAugment._AUGMENTATION_SPACE, 31),
        "TrivialAugmentWide": table(v2.TrivialAugmentWide._AUGMENTATION_SPACE, 31),
        "policies": policies,
        "boxes": boxes(),
    }


def dump_lines(items: list[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(json.dumps(i) for i in items) + "\n]\n"


def golden(folder: Path, c: Cases) -> dict[Path, bytes]:
    listed = []
    for n, a in c.inputs.items():
        listed.append({"name": n, "w": a.shape[1], "h": a.shape[0], "c": a.shape[2]})
        if folder == TYPES:
            listed[-1]["dtype"] = str(a.dtype)
    return {
        folder / "inputs.json": dump_lines(listed).encode(),
        folder / "cases.json": dump_lines(c.cases).encode(),
        folder / "pixels.bin": b"".join(a.tobytes() for a in [*c.inputs.values(), *c.outputs]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    torch.manual_seed(0)
    c = Cases(inputs())
    colour(c)
    filters(c)
    geometry(c)
    other = Cases(type_inputs())
    types(other)
    files = {
        **golden(AUG, c),
        **golden(TYPES, other),
        SPACE: (json.dumps(spaces(), indent=1) + "\n").encode(),
    }
    if not check:
        for path, data in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return 0
    pixels = {AUG / "pixels.bin": c, TYPES / "pixels.bin": other}
    for path, data in files.items():
        old = path.read_bytes()
        if path in pixels and len(old) == len(data):
            if near(old, pixels[path]):
                continue
        elif path == SPACE and close(json.loads(old), json.loads(data)):
            continue
        elif old == data:
            continue
        name = path.relative_to(ROOT)
        print(f"{name} is not what torchvision gives now; run scripts/gen_aug_golden.py", file=sys.stderr)
        return 1
    return 0


def near(old: bytes, c: Cases) -> bool:
    """Whether a file of pixels has those of c, except for differences of float sums."""
    at, off, n = 0, 0, 0
    for a in [*c.inputs.values(), *c.outputs]:
        was = np.frombuffer(old[at : at + a.nbytes], a.dtype).astype(float)
        at += a.nbytes
        diff = np.abs(was - a.ravel().astype(float))
        # A point half way between two pixels may fall to either.
        off += int((diff > (1e-5 if a.dtype == np.float32 else 1)).sum())
        n += a.size
    return off < 1e-4 * n


def close(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-3 * max(1.0, abs(a))
    return bool(a == b)


if __name__ == "__main__":
    sys.exit(main())
