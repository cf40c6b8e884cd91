"""RandomPerspective, ElasticTransform and RandomIoUCrop, compared with torchvision: images, masks, boxes, key points.

The engine's random numbers are a function of (seed, epoch, record, array, place in the list). The tests draw them again
and pass the values to torchvision's functions.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import transforms as st
from support import cli

torch = pytest.importorskip("torch")
v2 = pytest.importorskip("torchvision.transforms.v2")
tv_tensors = pytest.importorskip("torchvision.tv_tensors")
F = v2.functional

Make = Callable[..., stoker.Loader]
COUNT, SEED, W, H = 12, 5, 90, 70
GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


def mix(z: Any) -> Any:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


class Rand:
    """The numbers of an operation on a record."""

    def __init__(self, record: int, op: int, output: str = "image", epoch: int = 0) -> None:
        key = mix((SEED + GOLDEN) & MASK)
        key = mix(((key ^ epoch) + GOLDEN) & MASK)
        key = mix(((key ^ record) + GOLDEN) & MASK)
        name = 0xCBF29CE484222325
        for byte in output.encode():
            name = (name ^ byte) * 0x100000001B3 & MASK
        self.key, self.count = mix(((key ^ name) + (op + 1) * GOLDEN) & MASK), 0

    def bits(self) -> int:
        self.count += 1
        return int(mix((self.key + self.count * GOLDEN) & MASK))

    def random(self) -> float:
        return (self.bits() >> 11) / 2**53

    def below(self, n: int) -> int:
        return self.bits() * n >> 64


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write images, boxes, key points and outlines as COCO has them."""
    root = tmp_path_factory.mktemp("coco")
    draw = np.random.default_rng(1)
    images, annotations = [], []
    (root / "images").mkdir()
    for i in range(COUNT):
        small = draw.integers(0, 256, (9, 11, 3), np.uint8)
        Image.fromarray(small).resize((W, H), Image.Resampling.BICUBIC).save(root / "images" / f"{i}.png")
        images.append({"id": i, "file_name": f"{i}.png", "width": W, "height": H})
        for _ in range(i % 4):
            x, y = draw.uniform(0, W * 0.7), draw.uniform(0, H * 0.7)
            w, h = draw.uniform(8, W - x), draw.uniform(8, H - y)
            corners = [x, y, x + w, y, x + w, y + h, x, y + h]
            points = [v for k in range(2) for v in (x + w * k, y + h / (k + 1), 2)]
            annotations.append({
                "id": len(annotations) + 1, "image_id": i, "category_id": 1, "bbox": [x, y, w, h], "area": w * h,
                "segmentation": [corners], "keypoints": points, "num_keypoints": 2, "iscrowd": 0,
            })  # fmt: skip
    category = {"id": 1, "name": "thing", "keypoints": ["a", "b"], "skeleton": []}
    text = json.dumps({"images": images, "annotations": annotations, "categories": [category]})
    (root / "people.json").write_text(text)
    return root


def records(
    make: Make, coco: Path, ops: list[Any], masks: str = "instances", **more: Any
) -> Iterator[tuple[int, Any, int]]:
    if not any(isinstance(op, st.Resize) for op in ops):
        ops = [*ops, st.Resize((H, W))]  # which they have
    fields = {
        "image": [*ops, st.ConvertBoundingBoxFormat("XYXY")],
        **({"mask": ops} if masks == "instances" else {"masks": []}),
        "boxes": [],
        "keypoints": [],
        **more,
    }
    loader = make(f"coco:{coco}/people.json?images=images&masks={masks}", 4, seed=SEED, transforms=fields)
    record = 0
    for batch in loader:
        for row in range(len(batch)):
            yield record, batch, row
            record += 1
    assert record == COUNT


@pytest.fixture
def plain(make: Make, coco: Path) -> list[dict[str, Any]]:
    """Return the unmodified records as tv_tensors."""
    return [
        {
            "image": tv_tensors.Image(torch.from_numpy(batch.image[row].copy()).permute(2, 0, 1)),
            "mask": tv_tensors.Mask(torch.from_numpy(batch.mask[row].copy().astype(np.int32))),
            "boxes": tv_tensors.BoundingBoxes(
                torch.from_numpy(batch.boxes[row].copy()), format="XYXY", canvas_size=(H, W)
            ),
            "points": tv_tensors.KeyPoints(torch.from_numpy(batch.keypoints[row].copy()), canvas_size=(H, W)),
        }
        for _, batch, row in records(make, coco, [])
    ]


def same(batch: Any, row: int, image: Any, mask: Any, boxes: Any, points: Any) -> None:
    assert np.abs(batch.image[row].astype(int) - image.permute(1, 2, 0).numpy()).max() <= 1
    assert (batch.mask[row] != mask.numpy()).mean() <= 2e-3  # a point half way between two pixels may fall to either
    np.testing.assert_allclose(batch.boxes[row], boxes.numpy(), atol=2e-3, rtol=0)
    np.testing.assert_allclose(batch.keypoints[row], points.numpy(), atol=2e-3, rtol=0)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_perspective(make: Make, coco: Path, plain: list[dict[str, Any]], mode: str) -> None:
    ops = [st.RandomPerspective(0.6, p=0.8, interpolation=mode, fill=77)]
    moved = 0
    for record, batch, row in records(make, coco, ops):
        r, one = Rand(record, 0), plain[record]
        if r.random() >= 0.8:
            same(batch, row, one["image"], one["mask"], one["boxes"], one["points"])
            continue
        moved += 1
        bw, bh = int(0.6 * (W // 2)) + 1, int(0.6 * (H // 2)) + 1
        ends = []
        for right, lower in ((0, 0), (1, 0), (1, 1), (0, 1)):
            x, y = r.below(bw), r.below(bh)
            ends.append([x + right * (W - bw), y + lower * (H - bh)])
        starts = [[0, 0], [W - 1, 0], [W - 1, H - 1], [0, H - 1]]
        of = {name: F.perspective(one[name], starts, ends, interpolation=mode, fill=77) for name in ("image", "mask")}
        if mode == "nearest":
            got = batch.image[row].astype(int)
            assert (np.abs(got - of["image"].permute(1, 2, 0).numpy()).max(2) > 1).mean() <= 2e-3
            continue
        boxes, points = (F.perspective(one[name], starts, ends) for name in ("boxes", "points"))
        same(batch, row, of["image"], of["mask"], boxes, points)
    assert COUNT // 2 < moved < COUNT


def noise(key: int) -> Any:
    z = np.arange(1, W * H + 1, dtype=np.uint64).astype(object) * GOLDEN + key
    return (np.array([mix(int(v) & MASK) >> 40 for v in z]) / 2**23 - 1).reshape(H, W)


def test_elastic(make: Make, coco: Path, plain: list[dict[str, Any]]) -> None:
    ops = [st.ElasticTransform((60.0, 40.0), (3.0, 4.0), fill=9)]
    for record, batch, row in records(make, coco, ops):
        r, one = Rand(record, 0), plain[record]
        keys, fields = [r.bits(), r.bits()], []
        for key, alpha, sigma, side in zip(keys, (60.0, 40.0), (3.0, 4.0), (W, H), strict=True):
            k = int(8 * sigma + 1) | 1
            smooth = F.gaussian_blur(torch.from_numpy(noise(key))[None, None].float(), [k, k], [3.0, 4.0])
            fields.append(smooth * alpha / side)
        field = torch.cat(fields, 1).permute(0, 2, 3, 1)
        image, mask = (F.elastic(one[name], field, fill=9) for name in ("image", "mask"))
        boxes, points = (F.elastic(one[name], field) for name in ("boxes", "points"))
        same(batch, row, image, mask, boxes, points)
        assert np.abs(batch.image[row].astype(int) - one["image"].permute(1, 2, 0).numpy()).max() > 5


def crop_around(r: Rand, boxes: np.ndarray, w: int = W, h: int = H) -> tuple[int, int, int, int, Any] | None:
    """Draw as torchvision's RandomIoUCrop does: left, top, width, height, and which boxes are kept."""
    options = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    for _ in range(100 if len(boxes) else 0):
        least = options[r.below(len(options))]
        if least >= 1:
            return None
        for _ in range(40):
            cw, ch = int(w * (0.3 + 0.7 * r.random())), int(h * (0.3 + 0.7 * r.random()))
            if not 0.5 <= cw / ch <= 2:
                continue
            x, y = int((w - cw) * r.random()), int((h - ch) * r.random())
            cx, cy = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
            inside = (x < cx) & (cx < x + cw) & (y < cy) & (cy < y + ch)
            if not inside.any():
                continue
            b = boxes[inside]
            both = np.clip(np.minimum(b[:, 2:], [x + cw, y + ch]) - np.maximum(b[:, :2], [x, y]), 0, None).prod(1)
            if (both / ((b[:, 2:] - b[:, :2]).prod(1) + cw * ch - both)).max() >= least:
                return x, y, cw, ch, inside
    return None


def test_iou_crop(make: Make, coco: Path, plain: list[dict[str, Any]]) -> None:
    # Behind a flip, which the boxes follow first.
    size = [st.Resize((64, 64))]
    ops = [st.RandomHorizontalFlip(1), st.RandomIoUCrop(), *size]
    cropped = 0
    for record, batch, row in records(make, coco, ops):
        one = {name: F.horizontal_flip(v) for name, v in plain[record].items()}
        drawn = crop_around(Rand(record, 1), one["boxes"].numpy())
        if drawn is not None:
            x, y, w, h, inside = drawn
            cropped += 1
            one = {name: F.crop(v, y, x, h, w) for name, v in one.items()}
            one["boxes"][~torch.from_numpy(inside)] = 0
        image = F.resize(one["image"], [64, 64], antialias=True)
        assert np.abs(batch.image[row].astype(int) - image.permute(1, 2, 0).numpy()).max() <= 2
        np.testing.assert_allclose(batch.boxes[row], F.resize(one["boxes"], [64, 64]).numpy(), atol=1e-3)
        np.testing.assert_allclose(batch.keypoints[row], F.resize(one["points"], [64, 64]).numpy(), atol=1e-3)
        assert set(np.unique(batch.mask[row])) <= set(np.unique(one["mask"].numpy()))
    assert cropped > 3
    # Boxes that are not in the crop are dropped with all that belongs to them.
    fields = {"image": [*ops, st.SanitizeBoundingBoxes()]}
    left = [len(b.boxes[r]) == len(b.labels[r]) for _, b, r in records(make, coco, ops, **fields)]
    assert all(left)


def test_iou_crops_are_distributed_as_in_torchvision() -> None:
    stats = pytest.importorskip("scipy.stats")
    boxes = np.array([[10, 5, 60, 40], [50, 30, 88, 66]], np.float32)
    theirs, ours = [], []
    torch.manual_seed(0)
    sample = [
        torch.zeros(3, H, W),
        tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=(H, W)),
    ]
    for i in range(1500):
        got = v2.RandomIoUCrop().make_params(sample)
        theirs.append((got.get("left", -1), got.get("top", -1), got.get("width", W), got.get("height", H)))
        drawn = crop_around(Rand(i, 0), boxes)
        ours.append(drawn[:4] if drawn else (-1, -1, W, H))
    for a, b in zip(np.array(theirs).T, np.array(ours).T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-3


def test_refusals(make: Make, coco: Path) -> None:
    url = f"coco:{coco}/people.json?images=images"
    crop = [st.RandomIoUCrop(), st.Resize((8, 8))]
    for ops, says in {
        (st.RandomApply([st.RandomIoUCrop()]), st.Resize((8, 8))): "cannot stand inside RandomApply",
        (st.RandomIoUCrop(),): "differs from record to record",
    }.items():
        with pytest.raises(stoker.ConfigError, match=says):
            make(url, 4, transforms={"image": list(ops), "boxes": []})
    with pytest.raises(stoker.ConfigError, match="the batch has none"):
        make(stoker.open(url).select("image"), 4, transforms={"image": crop})
    for wrong in (
        lambda: st.RandomPerspective(1.5),
        lambda: st.ElasticTransform(sigma=-1.0),
        lambda: st.ElasticTransform(sigma=200.0),
        lambda: st.RandomIoUCrop(min_scale=2.0),
        lambda: st.RandomIoUCrop(trials=0),
    ):
        with pytest.raises(stoker.ConfigError):
            wrong()


def outlines(coco: Path) -> list[np.ndarray]:
    """Return a mask for each annotation of each image, as pycocotools makes it."""
    api = pytest.importorskip("pycocotools.coco").COCO(str(coco / "people.json"))
    found = []
    for i in range(COUNT):
        masks = [api.annToMask(a) for a in api.loadAnns(api.getAnnIds(i))]
        found.append(np.stack(masks) if masks else np.zeros((0, H, W), np.uint8))
    return found


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_mask_for_each_object(make: Make, binary: str, coco: Path, tmp_path: Path) -> None:
    wanted = outlines(coco)
    for record, batch, row in records(make, coco, [], "stack"):
        assert batch.masks[row].dtype == np.uint8 and np.array_equal(batch.masks[row], wanted[record])
    # They follow the same transforms as torchvision's masks of shape [n, H, W].
    ops = [
        st.RandomHorizontalFlip(1), st.RandomAffine((25, 25), scale=(1.2, 1.2), shear=(5, 5, 0, 0)),
        st.CenterCrop((60, 50)), st.RandomPerspective(0.5, p=1.0), st.Resize((40, 44)),
        st.ToDtype("float32", scale=True), st.Normalize([0.5] * 3, [0.5] * 3),
    ]  # fmt: skip
    for record, batch, row in records(make, coco, ops, "stack"):
        one = tv_tensors.Mask(torch.from_numpy(wanted[record]))
        r = Rand(record, 3)
        assert r.random() < 1
        bw, bh = int(0.5 * 25) + 1, int(0.5 * 30) + 1
        ends = []
        for right, lower in ((0, 0), (1, 0), (1, 1), (0, 1)):
            x, y = r.below(bw), r.below(bh)
            ends.append([x + right * (50 - bw), y + lower * (60 - bh)])
        one = F.affine(F.horizontal_flip(one), 25, [0, 0], 1.2, [5, 0], fill=0)
        one = F.perspective(F.center_crop(one, [60, 50]), [[0, 0], [49, 0], [49, 59], [0, 59]], ends, fill=0)
        want = F.resize_image(
            one.as_subclass(torch.Tensor), [40, 44], interpolation=v2.InterpolationMode.NEAREST_EXACT
        ).numpy()
        assert batch.image[row].dtype == np.float32 and batch.masks[row].shape == want.shape
        assert want.size == 0 or (batch.masks[row] != want).mean() < 5e-3
    # Those of boxes that are dropped go with them, and a pack gives the same.
    crop = [st.RandomIoUCrop(), st.Resize((32, 32)), st.SanitizeBoundingBoxes(min_size=2)]
    url = f"coco:{coco}/people.json?images=images&masks=stack"
    cli(binary, "pack", url, tmp_path / "p")
    cli(binary, "verify", tmp_path / "p")
    kept = []
    for source in (url, tmp_path / "p"):
        batches = list(make(source, 4, seed=SEED, transforms={"image": crop}))
        rows = [np.array(b.masks[r]) for b in batches for r in range(len(b))]
        assert [len(m) for m in rows] == [len(b.boxes[r]) for b in batches for r in range(len(b))]
        kept.append(rows)
    assert all(np.array_equal(a, b) for a, b in zip(*kept, strict=True))
    assert sum(map(len, kept[0])) < sum(map(len, wanted))
    for fields, says in (({"masks": []}, "the batch has none"), ({"image": crop, "masks": crop}, "by themselves")):
        with pytest.raises(stoker.ConfigError, match=says):
            make(url, 4, transforms=fields)
    done = subprocess.run(
        [binary, "pack", url, str(tmp_path / "q"), "--images", "raw", "--resize", "32"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode and "masks of objects" in done.stderr
