"""Detection: JPEGs with COCO's boxes, letterbox, flip and jittered colours, the usual input of a detector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import Format, pictures
from .torch_side import batches

SIZE = 640


def make(folder: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    images, annotations = [], []
    for i, path in enumerate(pictures.photographs(folder / "photos")):
        with Image.open(path) as picture:
            w, h = picture.size
        images.append({"id": i, "file_name": str(path.relative_to(folder / "photos")), "width": w, "height": h})
        for _ in range(int(rng.integers(0, 15))):
            x, y = rng.uniform(0, w - 20), rng.uniform(0, h - 20)
            box = [float(round(v, 2)) for v in (x, y, rng.uniform(5, w - x), rng.uniform(5, h - y))]
            annotations.append(
                {"id": len(annotations), "image_id": i, "category_id": 1, "bbox": box, "area": 1.0, "iscrowd": 0}
            )
    whole = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "thing"}]}
    (folder / "instances_all.json").write_text(json.dumps(whole))


class Detection:
    """As torchvision's references have it: tv_tensors through one list of transforms."""

    def __init__(self, folder: Path) -> None:
        whole = json.loads((folder / "instances_all.json").read_text())
        self.photos = folder / "photos"
        self.images = whole["images"]
        self.boxes: list[list[list[float]]] = [[] for _ in self.images]
        for a in whole["annotations"]:
            self.boxes[a["image_id"]].append(a["bbox"])
        self.transform: Any = None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        import torch
        from torchvision import tv_tensors
        from torchvision.io import ImageReadMode, decode_jpeg, read_file
        from torchvision.transforms import v2

        if self.transform is None:
            torch.set_num_threads(1)
            self.transform = v2.Compose(
                [v2.RandomHorizontalFlip(), v2.ColorJitter(brightness=0.4, saturation=0.7, hue=0.015)]
            )
        image = decode_jpeg(read_file(str(self.photos / self.images[i]["file_name"])), ImageReadMode.RGB)
        h, w = image.shape[-2:]
        boxes = tv_tensors.BoundingBoxes(
            torch.tensor(self.boxes[i], dtype=torch.float32).reshape(-1, 4), format="XYWH", canvas_size=(h, w)
        )
        # Colours before the image grows: the fastest order.
        image, boxes = self.transform(tv_tensors.Image(image), boxes)
        ratio = min(SIZE / h, SIZE / w)
        size = [round(h * ratio), round(w * ratio)]
        left, top = (SIZE - size[1]) // 2, (SIZE - size[0]) // 2
        pad = [left, top, SIZE - size[1] - left, SIZE - size[0] - top]
        image, boxes = (v2.functional.pad(v2.functional.resize(x, size), pad, fill=114) for x in (image, boxes))
        return image, boxes


def collate(rows: list[Any]) -> Any:
    import torch

    return torch.stack([r[0] for r in rows]), [r[1] for r in rows]


def reference(folder: Path, batch: int) -> Iterator[int]:
    return batches(Detection(folder), batch, collate=collate)


def fields() -> dict[str, Any]:

    import stoker
    from stoker import transforms as T

    ops = [T.RandomHorizontalFlip(), T.RandomHSV(0.015, 0.7, 0.4), T.LetterBox(SIZE)]
    return {
        "image": stoker.Field("image", ops, layout="NCHW"),
    }


FORMAT = Format(
    name="coco",
    library="torchvision v2 in a DataLoader",
    make=make,
    url=lambda folder: f"{folder}/instances_all.json?images=photos",
    reference=reference,
    loader={"shuffle": True, "transforms": fields},
    bar=4.0,
    batch=16,
    what="1,500 JPEGs of 470 x 400 with boxes: flip, HSV, letterbox to 640",
)
