"""Writes geometry.json: what torchvision does for given sizes and draws."""
import json
import math
import os
import random

import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F
from torchvision.transforms.v2.functional._geometry import _compute_resized_output_size

rng = random.Random(0)
torch.manual_seed(0)
out = {"resize": [], "center_crop": [], "rrc": [], "random_crop": []}

for _ in range(400):
    w, h = rng.randint(1, 900), rng.randint(1, 900)
    size = rng.randint(1, 600)
    max_size = rng.choice([None, None, size + rng.randint(1, 300)])
    oh, ow = _compute_resized_output_size((h, w), size=[size], max_size=max_size)
    if oh >= 1 and ow >= 1:
        out["resize"].append([w, h, size, max_size or 0, ow, oh])
for _ in range(60):  # only the longer side is given
    w, h, m = rng.randint(50, 900), rng.randint(50, 900), rng.randint(100, 600)
    oh, ow = _compute_resized_output_size((h, w), size=None, max_size=m)
    out["resize"].append([w, h, 0, m, ow, oh])

for _ in range(300):
    w, h = rng.randint(1, 15), rng.randint(1, 15)
    cw, ch = rng.randint(1, 18), rng.randint(1, 18)
    img = torch.arange(1, w * h + 1, dtype=torch.uint8).reshape(1, h, w)
    got = F.center_crop(img, [ch, cw])
    out["center_crop"].append([w, h, cw, ch, got.flatten().tolist()])

Q = [i / 20 for i in range(1, 20)]
for w, h, scale, ratio in [
    (500, 375, (0.08, 1.0), (3 / 4, 4 / 3)),
    (64, 64, (0.5, 1.0), (1.0, 1.0)),
    (1000, 20, (0.08, 1.0), (3 / 4, 4 / 3)),  # mostly the fallback
    (20, 1000, (0.9, 1.0), (3 / 4, 4 / 3)),
    (7, 5, (0.08, 1.0), (0.3, 3.0)),
]:
    op = v2.RandomResizedCrop(224, scale=scale, ratio=ratio)
    img = torch.zeros(1, h, w, dtype=torch.uint8)
    draws = [op.make_params([img]) for _ in range(20000)]
    cols = {k: sorted(float(d[k]) for d in draws) for k in ("left", "top", "width", "height")}
    # Means and shares at or below the quantiles: comparable also when discrete.
    entry = {"w": w, "h": h, "scale": scale, "ratio": ratio, "stats": {}}
    for k, v in cols.items():
        points = sorted({v[int(q * len(v))] for q in Q})
        share = [sum(1 for x in v if x <= p) / len(v) for p in points]
        entry["stats"][k] = {"points": points, "share": share}
    out["rrc"].append(entry)

for w, h, cw, ch, pad, need in [(32, 32, 32, 32, [4], False), (10, 20, 16, 16, [1, 2], True), (9, 9, 12, 12, [0], True), (12, 10, 5, 4, [1, 2, 3, 0], False)]:
    p = pad if len(pad) > 1 else pad[0]
    op = v2.RandomCrop((ch, cw), padding=p, pad_if_needed=need)
    img = torch.zeros(1, h, w, dtype=torch.uint8)
    draws = [op.make_params([img]) for _ in range(4000)]
    left = [d["left"] - (d["padding"][0] if d["needs_pad"] else 0) for d in draws]
    top = [d["top"] - (d["padding"][1] if d["needs_pad"] else 0) for d in draws]
    out["random_crop"].append({"w": w, "h": h, "cw": cw, "ch": ch, "padding": pad, "need": need,
                               "left": [min(left), max(left)], "top": [min(top), max(top)]})

with open(os.path.join(os.path.dirname(__file__), "geometry.json"), "w") as f:
    json.dump(out, f, separators=(",", ":"))
